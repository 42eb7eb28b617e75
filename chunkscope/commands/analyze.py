"""`chunkscope analyze`."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands.options import PROFILE, Output, Quiet, SharedCache, model_option
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.profile import Profile
    from chunkscope.lengths.scan import Listener
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.sources.base import Skipped


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    MD = "md"


PATHS = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Files, folders, globs, archives, `-` for stdin, s3://, gs://, az://, hf:// and "
        "https:// with globs, hf:org/name[:config][@split], or "
        "tasks, whose code is run for their requests: lm-eval:gsm8k,mmlu, inspect:file.py@task.",
        show_default=False,
    ),
]
MOST = 1_000_000_000


def analyze(
    paths: PATHS,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            "-t",
            metavar="NAME",
            help="Folder, tokenizer.json, hub id, tiktoken encoding, tekken or SentencePiece "
            "file. [default: Mistral's tekken, embedded]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        model_option("Take this model's tokenizer: folder, hub id, or a name like llama-3.1-8b."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            "-f",
            metavar="PATH",
            help="What the prompt is: question, turns[0], ctxs[].text; tools|json for an object, "
            "as JSON. Repeat to join several.",
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Prompt from fields: '{context}\\n\\nQ: {question}'."),
    ] = None,
    each: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A list of each row, such as instructions: one prompt for each element, which "
            "--field and --template then find under the list's name.",
        ),
    ] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Choices of a question, written after it as MMLU's are: a list, or A,B,C,D.",
        ),
    ] = None,
    prefix_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Fixed text, such as few-shot examples, before each prompt: of all datasets, one "
            "file for each in order, or NAME=FILE for one.",
        ),
    ] = None,
    output_field: Annotated[
        str | None, typer.Option(metavar="PATH", help="Reference answers, counted as outputs.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Name for a dataset, in order.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only files that match.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="No files that match.")
    ] = None,
    input_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="jsonl, json, csv, parquet, arrow, inspect or text."),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of text files.")] = "utf-8",
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHAR", help="Between CSV cells. [default: found]")
    ] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="CSV header. [default: found]")
    ] = None,
    per_line: Annotated[bool, typer.Option(help="Text files: a prompt per line.")] = False,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of the tokenizer's own.")
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(
            metavar="X.Y",
            help="Whose server sends the chats: how tools are written, and what is refused. "
            "[default: the newest, strictly]",
        ),
    ] = None,
    no_chat_template: Annotated[
        bool, typer.Option("--no-chat-template", help="Count chats as plain text.")
    ] = False,
    apply_chat_template: Annotated[
        bool,
        typer.Option("--apply-chat-template", help="Send text prompts as a user message."),
    ] = False,
    chat_date: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="For chat templates that print the date."),
    ] = None,
    no_special_tokens: Annotated[
        bool, typer.Option("--no-special-tokens", help="Leave out <s> and the like.")
    ] = False,
    shots: Annotated[
        int | None, typer.Option(min=0, max=MOST, metavar="N", help="lm-eval: of each task.")
    ] = None,
    include_path: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="lm-eval: where your own tasks are.")
    ] = None,
    fewshot_as_multiturn: Annotated[
        bool | None,
        typer.Option(
            "--fewshot-as-multiturn/--no-fewshot-as-multiturn",
            help="lm-eval: shots as turns of a chat. [default: lm-eval's]",
        ),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(metavar="N", help="lm-eval, Inspect: the first N of each task only."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="lm-eval, Inspect: for a task's code.")
    ] = 3_600,
    sample: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, metavar="N", help="Count N rows of each dataset only."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST, metavar="N", help="Which sample.")] = 0,
    show_longest: Annotated[
        int,
        typer.Option(min=0, max=MOST, metavar="N", help="Show where the longest prompts are."),
    ] = 0,
    order: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the rows, those that begin alike together."),
    ] = None,
    no_prefixes: Annotated[
        bool, typer.Option("--no-prefixes", help="Do not look for what prompts share.")
    ] = False,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Exit 0 in spite of bad rows.")
    ] = False,
    exact_check: Annotated[
        bool, typer.Option("--exact-check", help="Recount everything with the reference.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that a tokenizer brings.")
    ] = False,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Count again what was counted before, and keep nothing."),
    ] = False,
    export_trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the requests as Mooncake's jsonl, for vllm bench serve and others.",
        ),
    ] = None,
    trace_block: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Tokens of each of its hash_ids.")
    ] = 512,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Count only the Kth of N parts, for `chunkscope merge`. [default: all]",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="[ADDRESS]",
            help="Count with the workers of a Ray cluster: at auto, host:port or ray://host:port; "
            "without ADDRESS the one there is, or a new one on this machine.",
        ),
    ] = None,
    piece_mib: Annotated[
        int,
        typer.Option(
            min=1,
            max=1 << 20,
            metavar="N",
            help="Divide jsonl and parquet over so many MiB; only in the first piece prompts are "
            "compared.",
        ),
    ] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
    quiet: Quiet = False,
    output_format: Annotated[Format, typer.Option("--format", help="On stdout.")] = Format.TABLE,
    output: Output = PROFILE,
    _shared_cache: SharedCache = None,
) -> None:
    """Measure how long the prompts are, in the model's own tokens.

    Example: chunkscope analyze sample_data/
    """
    from chunkscope.artefacts.words import day
    from chunkscope.lengths.analyze import analyze as run
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.prompts.harness.rendering import RenderOptions
    from chunkscope.prompts.prefix_files import PrefixFile
    from chunkscope.prompts.selection import SelectOptions
    from chunkscope.sources.base import ReadOptions

    for option, given in (("--tokenizer", tokenizer), ("--model", model)):
        if given == "":
            raise UsageError(f"{option} is empty", hint="was a shell variable not set?")
    if model and tokenizer:
        raise UsageError("--model and --tokenizer both name a tokenizer", hint="use one of them")
    if limit is not None and limit <= 0:
        raise UsageError(f"--limit must be over 0, not {limit:g}")
    if no_chat_template and (apply_chat_template or chat_template):
        raise UsageError(
            "--no-chat-template excludes --chat-template and --apply-chat-template",
            hint="leave one of them out",
        )
    if as_json and output_format is not Format.TABLE:
        raise UsageError("--json and --format exclude each other", hint="use one of them")
    if export_trace is not None:
        _check_trace(export_trace, paths, prefixes=not no_prefixes)
    export = TraceExport(block_size=trace_block) if export_trace else None
    options = AnalyzeOptions(
        tokenizer=_tokenizer_of(model) if model else tokenizer,
        names=tuple(name or ()),
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        read=ReadOptions(
            input_format=input_format,
            encoding=encoding,
            per_line=per_line,
            delimiter=delimiter,
            header=header,
            trust_remote_code=trust_remote_code,
        ),
        select=SelectOptions(
            fields=tuple(field or ()),
            each=tuple(each or ()),
            template=template,
            choices=tuple(choices or ()),
            output_field=output_field,
            chat=not no_chat_template,
            vllm_version=vllm_version,
        ),
        prefix_files=tuple(PrefixFile.given(word) for word in prefix_file or ()),
        render=RenderOptions(
            shots=shots,
            include_path=include_path,
            fewshot_as_multiturn=fewshot_as_multiturn,
            limit=limit,
            timeout=timeout,
        ),
        apply_chat_template=apply_chat_template,
        chat_template=chat_template,
        chat_date=day(chat_date) if chat_date else None,
        special_tokens=not no_special_tokens,
        sample=sample,
        seed=seed,
        keep_longest=max(10, show_longest),
        prefixes=not no_prefixes,
        order=order,
        exact_check=exact_check,
        use_cache=not no_cache,
        piece_bytes=piece_mib << 20,
    )
    if shard is not None:
        only_profiles = {
            "--export-trace": export_trace,
            "--format": output_format is not Format.TABLE,
            "--ray": ray is not None,
        }
        return _analyze_shard(
            paths, shard, options, output, quiet=quiet, as_json=as_json, unfit=only_profiles
        )
    with console.scan_progress(quiet=quiet) as progress:
        if ray is not None:
            from chunkscope.lengths.on_ray import analyze_on_ray

            _refuse_beside("--ray", {"--export-trace": export_trace})
            listener = _listener(progress)
            profile = analyze_on_ray(paths, ray or None, options=options, listener=listener)
        else:
            profile = run(paths, options=options, listener=_listener(progress), export=export)
    profile = replace(profile, options={**profile.options, "command": _command()})
    written = profile.save(output)
    _print_profile(
        profile, written, as_json=as_json, output_format=output_format, longest=show_longest
    )
    show_notes(profile)
    if order is not None:
        console.say(f"wrote {order}: the rows of {paths[0]}, those that begin alike together")
    if export is not None and export_trace is not None:
        export.write(export_trace)
        _show_trace(export, export_trace, profile)
    end(profile, output, skip_bad_rows=skip_bad_rows)
    return None


def end(profile: "Profile", output: Path, *, skip_bad_rows: bool) -> None:
    where = "" if output == PROFILE else f" {shlex.quote(str(output))}"
    console.say(f"\nwrote {output}; next: chunkscope recommend{where}")
    if profile.failures or (profile.skipped and not skip_bad_rows):
        raise typer.Exit(InputError.exit_code)


def _analyze_shard(
    paths: Sequence[str],
    text: str,
    options: "AnalyzeOptions",
    output: Path,
    *,
    quiet: bool,
    as_json: bool,
    unfit: Mapping[str, object],
) -> None:
    from chunkscope.artefacts.numbers import plural
    from chunkscope.lengths.analyze import analyze_shard
    from chunkscope.sources.pieces import Shard

    _refuse_beside("--shard", unfit)
    shard = Shard.parse(text)
    parts = f"{shlex.quote(str(output))} and the others"
    if output == PROFILE:
        number = str(shard.number).zfill(len(str(shard.of)))
        output = PROFILE.with_name(f"part-{number}-of-{shard.of}.json")
        parts = f"{output.parent}/part-*.json"
    with console.scan_progress(quiet=quiet) as progress:
        part = analyze_shard(paths, shard, options=options, listener=_listener(progress))
    part = replace(part, options={**part.options, "command": _command()})
    written = part.save(output)
    if as_json:
        console.emit(written)
    rows = sum(piece.dataset.rows for piece in part.pieces)
    for piece in part.pieces:
        if piece.dataset.failure:
            console.say(f"error: {piece.dataset.name}: {piece.dataset.failure}")
    console.say(
        f"wrote {output}: {plural(rows, 'row')} in {len(part.pieces):,} of "
        f"{plural(part.out_of, 'piece')}; when all {shard.of} are there: chunkscope merge {parts}"
    )


def _refuse_beside(option: str, unfit: Mapping[str, object]) -> None:
    if wrong := [name for name, given in unfit.items() if given]:
        raise UsageError(f"{option} excludes {wrong[0]}", hint="leave one of them out")


_HOW_IT_WAS_DIVIDED = {"--shard": ("--shard", "--output", "-o"), "--ray": ("--ray",)}
_ADDRESS = re.compile(r"auto|local|[a-z]+://.+:[0-9]+|[\w.-]+:[0-9]+")


def spelled_out(words: Sequence[str]) -> list[str]:
    """`--ray` with its address or an empty one: whether a word after it is one, its form tells."""
    spelled: list[str] = []
    for word in words:
        if spelled and spelled[-1] == "--ray":
            is_address = _ADDRESS.fullmatch(word) is not None
            spelled[-1] = f"--ray={word if is_address else ''}"
            if is_address:
                continue
        spelled.append(word)
    if spelled and spelled[-1] == "--ray":
        spelled[-1] = "--ray="
    return spelled


def _command() -> list[str]:
    """What was typed, without how the work was divided: the result is the same."""
    from chunkscope.sources.remote import without_secrets

    words = [without_secrets(word) for word in spelled_out(console.command())]
    given = {word.partition("=")[0] for word in words}
    left_out = {
        name for asked, names in _HOW_IT_WAS_DIVIDED.items() if asked in given for name in names
    }
    kept: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if not skip and name not in left_out:
            kept.append(word)
        skip = not skip and name in left_out and not equals
    return kept


def _listener(progress: console.ScanProgress) -> "Listener":
    from chunkscope.lengths.scan import Listener

    return Listener(
        skipped=_show_skipped,
        preparing=progress.preparing,
        recounting=_recounting,
        running=console.say,
        progress=progress,
    )


def _print_profile(
    profile: "Profile", written: bytes, *, as_json: bool, output_format: Format, longest: int
) -> None:
    """`written` is what its file says."""
    if as_json or output_format is Format.CSV:  # no place in it for sentences
        from chunkscope.report import sentences

        for said in sentences.left_out(profile):
            console.say(said)
    if as_json:
        return console.emit(written)
    if output_format is not Format.TABLE:
        from chunkscope.report.markdown import profile_as_markdown
        from chunkscope.report.profile_csv import as_csv

        render = as_csv if output_format is Format.CSV else profile_as_markdown
        return console.emit(render(profile).encode())
    from chunkscope.report.terminal.profile import show_profile

    return console.show(lambda out: show_profile(profile, out, longest=longest))


def _show_skipped(skipped: "Sequence[Skipped]", most: int = 5) -> None:
    for file in skipped[:most]:
        console.say(f"skipped {file.path}: {file.reason}")
    if len(skipped) > most:
        console.say(f"skipped {len(skipped) - most:,} more files")


def show_notes(profile: "Profile") -> None:
    """All that is to be said of a profile beside its table."""
    _show_logs(profile)
    _show_problems(profile)


def _show_logs(profile: "Profile", most: int = 20) -> None:
    """What each harness's log is, in a sentence."""
    logs = [dataset.log for dataset in profile.datasets if dataset.log]
    for log in logs[:most]:
        console.say(f"{log.sentence()} ({log.details()})")
    if len(logs) > most:
        console.say(f"... and {len(logs) - most:,} more logs, which the profile has too")


def _show_problems(profile: "Profile", most: int = 20) -> None:
    """Every failure, the first notes and bad rows, and how many there were."""
    for note in profile.tokenizer.notes:
        console.say(f"note: {note}")
    notes = [f"{dataset.name}: {note}" for dataset in profile.datasets for note in dataset.notes]
    for note in notes[:most]:
        console.say(f"note: {note}")
    if len(notes) > most:
        console.say(f"... and {len(notes) - most:,} more notes, which the profile has too")
    rows = [(dataset, row) for dataset in profile.datasets for row in dataset.bad_rows]
    for dataset, row in rows[:most]:
        console.say(f"bad row: {dataset.path} {dataset.unit} {row.position}: {row.reason}")
    if profile.skipped > len(rows[:most]):
        console.say(f"... and {profile.skipped - len(rows[:most]):,} more bad rows")
    if profile.skipped:
        console.say(f"{profile.skipped:,} bad rows were left out of the figures")
    for dataset in profile.failures:
        console.say(f"error: {dataset.name}: {dataset.failure}")


def _check_trace(file: Path, paths: Sequence[str], *, prefixes: bool) -> None:
    if not prefixes:
        raise UsageError(
            "--export-trace needs what prompts share, which --no-prefixes leaves out",
            hint="leave one of them out",
        )
    if file.resolve() in [Path(path).resolve() for path in paths]:
        raise UsageError(f"--export-trace {file} would replace the data", hint="name another file")


def _show_trace(export: "TraceExport", file: Path, profile: "Profile") -> None:
    """What is in it, and how it is replayed."""
    from chunkscope.artefacts.numbers import plural, share
    from chunkscope.lengths.profile import DEFAULT_OUTPUT
    from chunkscope.prefixes.reuse import BLOCK_SIZE

    trace, size = export.summary, export.block_size
    found = share(trace.cached_tokens / trace.tokens if trace.tokens else None)
    console.say(
        f"wrote {file}: {plural(trace.requests, 'request')}, all sent at once; hash_ids of "
        f"{size:,} tokens each, by which {found} of the prompt tokens were sent before"
    )
    of_data = [dataset.prefixes for dataset in profile.datasets if dataset.prefixes]
    kept = sum(reuse.cached_tokens for reuse in of_data)
    if size > BLOCK_SIZE and kept - trace.cached_tokens > 0.01 * trace.tokens:
        console.say(
            f"note: of the data itself {share(kept / trace.tokens)} were: --trace-block "
            f"{BLOCK_SIZE} keeps that"
        )
    if trace.assumed_outputs:
        console.say(
            f"note: {trace.assumed_outputs:,} of its output lengths are assumed: the request's "
            f"limit, or {DEFAULT_OUTPUT} where there is none; --output-field names the answers"
        )
    if trace.unknown_prompts:
        console.say(
            f"note: of {trace.unknown_prompts:,} of its prompts only the length is known: in the "
            "trace they share nothing"
        )
    console.say(
        f"replay it: vllm bench serve --backend vllm --model MODEL --dataset-name timed_trace "
        f"--dataset-path {shlex.quote(str(file))} --num-prompts {trace.requests} "
        f"--timed-trace-chunk-hash-size {size} --timed-trace-sec-multiplier 0.001"
    )


def _recounting(engine: str) -> None:
    console.say(f"note: {engine} differs from the reference on this data; counting again without")


def _tokenizer_of(model: str) -> str:
    """The name under which a model's tokenizer is found."""
    from chunkscope.models.find import hub_id_of

    path = Path(model).expanduser()
    if path.is_file():  # its config.json
        return str(path.parent)
    return model if path.exists() else hub_id_of(model) or model
