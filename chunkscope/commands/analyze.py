"""`chunkscope analyze`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands.api import tokenizer_of
from chunkscope.commands.options import (
    PROFILE,
    Details,
    Json,
    Output,
    Quiet,
    argument,
    options,
    quoted,
    settled,
    show,
)
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.lengths.profile import Profile
    from chunkscope.lengths.scan import Listener
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.sources.base import Skipped


class ProfileFormat(StrEnum):
    TEXT = "text"
    MD = "md"
    CSV = "csv"


_ADDRESS = re.compile(r"auto|local|[a-z]+://.+:[0-9]+|[\w.-]+:[0-9]+")


OPTIONS = options("""
Input:
  --field -f PATH            Where the prompt is: question, turns[0], ctxs[].text, tools|json.
                             Repeat to join several. [default: found]
  --template TEXT            Prompt from fields: '{context}\\n\\nQ: {question}'.
  --choices PATH             Choices written after the question, as MMLU's are: a list, or A,B,C,D.
  --each PATH                A list in each row: one prompt for each element.
  --prefix-file [NAME=]FILE  Text before each prompt, such as few-shot examples; for all or one
                             dataset.
  --output-field PATH        Reference answers, counted as outputs.
  --exclude GLOB             Skip files that match.
  --sample N                 Count N random rows of each dataset.
  --skip-bad-rows            Exit 0 in spite of bad rows.
Tokenizer:
  --model -m NAME            Count with this model's tokenizer.
  --tokenizer -t NAME        Folder, tokenizer file, hub id or tiktoken encoding.
                             [default: Mistral's tekken]
  --chat-template FILE       Instead of the tokenizer's own.
  --apply-chat-template      Send each text as a user message.
  --trust-remote-code        Run code that a tokenizer brings.
Harness:
  --shots N                  Few-shot examples per lm-eval task.
  --limit COUNT              Only the first COUNT samples of each task.
Speed:
  --ray [ADDRESS]            Count on a Ray cluster: host:port or ray://host:port.
                             [default: this machine]
  --no-cache                 Neither read nor write the cache.
Output:
  --format                   How the result is shown.
  --export-trace FILE        Also write the requests as a Mooncake trace, for `vllm bench serve`.
""")


def analyze(
    paths: Annotated[
        list[str],
        argument(
            "PATH...",
            "Files, folders, globs, archives, - for stdin; s3://, gs://, az://, hf://, https://; "
            "hf:org/name[:config][@split]; or tasks, whose code is run: lm-eval:gsm8k,mmlu, "
            "inspect:file.py@task.",
        ),
    ],
    field: Annotated[list[str] | None, OPTIONS["field"]] = None,
    template: Annotated[str | None, OPTIONS["template"]] = None,
    choices: Annotated[list[str] | None, OPTIONS["choices"]] = None,
    each: Annotated[list[str] | None, OPTIONS["each"]] = None,
    prefix_file: Annotated[list[str] | None, OPTIONS["prefix_file"]] = None,
    output_field: Annotated[str | None, OPTIONS["output_field"]] = None,
    exclude: Annotated[list[str] | None, OPTIONS["exclude"]] = None,
    sample: Annotated[int | None, OPTIONS["sample"]] = None,
    skip_bad_rows: Annotated[bool, OPTIONS["skip_bad_rows"]] = False,
    model: Annotated[str | None, OPTIONS["model"]] = None,
    tokenizer: Annotated[str | None, OPTIONS["tokenizer"]] = None,
    chat_template: Annotated[Path | None, OPTIONS["chat_template"]] = None,
    apply_chat_template: Annotated[bool, OPTIONS["apply_chat_template"]] = False,
    trust_remote_code: Annotated[bool, OPTIONS["trust_remote_code"]] = False,
    shots: Annotated[int | None, OPTIONS["shots"]] = None,
    limit: Annotated[float | None, OPTIONS["limit"]] = None,
    ray: Annotated[str | None, OPTIONS["ray"]] = None,
    no_cache: Annotated[bool, OPTIONS["no_cache"]] = False,
    details: Details = False,
    output_format: Annotated[ProfileFormat, OPTIONS["format"]] = ProfileFormat.TEXT,
    as_json: Json = False,
    output: Output = PROFILE,
    export_trace: Annotated[Path | None, OPTIONS["export_trace"]] = None,
    quiet: Quiet = False,
) -> None:
    """Measure how long the prompts are, in the model's own tokens.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope analyze sample_data/
    """
    given = locals() | {"tokenizer": tokenizer_of(model) if model else tokenizer}
    from chunkscope.lengths.analyze import analyze as run
    from chunkscope.lengths.options import AnalyzeOptions

    _refuse_contradictions(
        model=model, tokenizer=tokenizer, limit=limit, export_trace=export_trace, ray=ray
    )
    if as_json and output_format is not ProfileFormat.TEXT:
        raise UsageError("--json and --format exclude each other", hint="use one of them")
    chosen = settled(AnalyzeOptions, "analyze", given)
    chosen = replace(chosen, use_cache=chosen.use_cache and not no_cache)
    export = _export(export_trace, paths, chosen.prefixes) if export_trace else None
    with console.progress(quiet=quiet) as progress:
        if ray is not None:
            from chunkscope.lengths.on_ray import analyze_on_ray

            listener = _listener(progress)
            profile = analyze_on_ray(paths, ray or None, options=chosen, listener=listener)
        else:
            profile = run(paths, options=chosen, listener=_listener(progress), export=export)
    profile = replace(profile, command=_command())
    profile.save(output)
    _show(profile, output_format, as_json=as_json, details=details)
    if export is not None and export_trace is not None:
        export.write(export_trace)
        _show_trace(export, export_trace)
    where = "" if output == PROFILE else quoted(output)
    console.say(f"\nwrote {output}; next: chunkscope recommend{where}")
    if profile.failures or (profile.skipped and not skip_bad_rows):
        raise typer.Exit(InputError.exit_code)


def _refuse_contradictions(
    *,
    model: str | None,
    tokenizer: str | None,
    limit: float | None,
    export_trace: Path | None,
    ray: str | None,
) -> None:
    for name, value in (("--tokenizer", tokenizer), ("--model", model)):
        if value == "":
            raise UsageError(f"{name} is empty", hint="was a shell variable not set?")
    if model and tokenizer:
        raise UsageError("--model and --tokenizer both name a tokenizer", hint="use one of them")
    if limit is not None and not (isfinite(limit) and limit > 0):
        raise UsageError(f"--limit must be over 0, not {limit:g}")
    if ray is not None and export_trace is not None:
        raise UsageError("--ray excludes --export-trace", hint="leave one of them out")


def _export(file: Path, paths: Sequence[str], prefixes: bool) -> "TraceExport":
    from chunkscope.lengths.trace_export import TraceExport

    if not prefixes:
        raise UsageError(
            "--export-trace needs what prompts share, and chunkscope.toml has prefixes = false",
            hint="leave one of them out",
        )
    if file.resolve() in [Path(path).resolve() for path in paths]:
        raise UsageError(f"--export-trace {file} would replace the data", hint="name another file")
    return TraceExport()


def _show(profile: "Profile", form: ProfileFormat, *, as_json: bool, details: bool) -> None:
    from chunkscope.report.words import data as words

    if form is ProfileFormat.CSV and not as_json:
        from chunkscope.report.profile import as_csv

        console.emit(as_csv(profile).encode())
    else:
        show(profile, as_json=as_json, form=form.value, details=details)
    if as_json or form is ProfileFormat.CSV:  # which have no place for sentences
        for note in words.cautions(profile):
            console.say(f"note: {note}")
    for line in words.bad_rows(profile):
        console.say(line)


def _show_trace(export: "TraceExport", file: Path) -> None:
    from chunkscope.report.words import data as words

    for line in words.exported(export, file):
        console.say(line)


def _listener(progress: console.Progress) -> "Listener":
    from chunkscope.lengths.scan import Listener

    return Listener(
        skipped=_show_skipped,
        preparing=progress.preparing,
        recounting=lambda engine: console.say(
            f"note: {engine} counts this data differently from the reference; counting again"
        ),
        running=console.say,
        progress=progress,
    )


def _show_skipped(skipped: "Sequence[Skipped]", most: int = 5) -> None:
    for file in skipped[:most]:
        console.say(f"skipped {file.path}: {file.reason}")
    if len(skipped) > most:
        console.say(f"skipped {len(skipped) - most:,} more files")


def _command() -> tuple[str, ...]:
    """What was typed, without --ray: the result is the same."""
    from chunkscope.sources.remote import without_secrets

    words = [without_secrets(word) for word in spelled_out(console.command())]
    return tuple(word for word in words if not word.startswith("--ray="))


def spelled_out(words: Sequence[str]) -> list[str]:
    """`--ray` with its address or an empty one: the form of the next word tells."""
    spelled: list[str] = []
    for word in (*words, ""):
        if spelled and spelled[-1] == "--ray":
            is_address = _ADDRESS.fullmatch(word) is not None
            spelled[-1] = f"--ray={word if is_address else ''}"
            if is_address:
                continue
        spelled.append(word)
    return spelled[:-1] if spelled[-1] == "" else spelled
