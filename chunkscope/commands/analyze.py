"""`chunkscope analyze`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.config import config_table
from chunkscope.commands.options import (
    INPUT,
    OUTPUT,
    PROFILE,
    Details,
    Json,
    Out,
    Quiet,
    argument,
    known_models,
    option,
)
from chunkscope.commands.printing import (
    check_format,
    command_line,
    say_note,
    say_written,
    show,
    unless_usual,
)
from chunkscope.errors import InputError, UsageError
from chunkscope.vllm.enums import Task

if TYPE_CHECKING:
    from chunkscope.lengths.profile import Profile

TOKENIZER = "Tokenizer"
FILES = "Unusual files"
HARNESS = "Harness tasks"
CLUSTER = "Cluster"
# For a first try without a clone.
SAMPLE_DATA = Path("sample_data")
PACKAGED_SAMPLE_DATA = Path(__file__).parents[1] / SAMPLE_DATA


def analyze(
    paths: Annotated[
        list[str],
        argument(
            "PATH...",
            "Files, folders, globs, archives, - for stdin; s3://, gs://, az://, "
            "hf://, https://; hf:org/name[:config][@split]; or tasks, whose code is "
            "run: lm-eval:gsm8k,mmlu, inspect:file.py@task.",
        ),
    ],
    field: Annotated[
        list[str] | None,
        option(
            INPUT,
            "Where the prompt is: question, turns[0], ctxs[].text. Repeat it to join "
            "several fields. [default: guessed]",
            "--field",
            "-f",
            metavar="PATH",
        ),
    ] = None,
    template: Annotated[
        str | None,
        option(
            INPUT,
            "Prompt from fields, in Jinja: '{{context}}\\n\\nQ: {{question}}'.",
            "--template",
            metavar="TEXT",
        ),
    ] = None,
    choices: Annotated[
        list[str] | None,
        option(
            INPUT,
            "Choices written after the question, as MMLU's are: a list, or A,B,C,D.",
            "--choices",
            metavar="PATH",
        ),
    ] = None,
    task: Annotated[
        Task,
        option(INPUT, "loglikelihood: one request for each choice of a row.", "--task"),
    ] = Task.GENERATE,
    each: Annotated[
        list[str] | None,
        option(
            INPUT,
            "A list in each row, of which every element is a prompt.",
            "--each",
            metavar="PATH",
        ),
    ] = None,
    prefix_file: Annotated[
        Path | None,
        option(
            INPUT,
            "Text before each prompt, such as few-shot examples.",
            "--prefix-file",
            metavar="FILE",
        ),
    ] = None,
    output_field: Annotated[
        str | None,
        option(
            INPUT,
            "Reference answers, which are counted as outputs.",
            "--output-field",
            metavar="PATH",
        ),
    ] = None,
    log_model: Annotated[
        str | None,
        option(
            INPUT,
            "The model to count, in an Inspect log that has several.",
            "--log-model",
            metavar="NAME",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        option(INPUT, "Skip files that match.", "--exclude", metavar="GLOB"),
    ] = None,
    sample: Annotated[
        int | None,
        option(
            INPUT,
            "Count N random rows of each dataset.",
            "--sample",
            metavar="N",
            min=1,
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, option(INPUT, "Exit 0 even if there are bad rows.", "--skip-bad-rows")
    ] = False,
    model: Annotated[
        str | None,
        option(
            TOKENIZER,
            "Count with this model's tokenizer.",
            "--model",
            "-m",
            metavar="NAME",
            complete=known_models,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        option(
            TOKENIZER,
            "Folder, tokenizer file, hub id or tiktoken encoding. [default: Mistral's "
            "tekken]",
            "--tokenizer",
            "-t",
            metavar="NAME",
        ),
    ] = None,
    chat_template: Annotated[
        Path | None,
        option(
            TOKENIZER,
            "Chat template to use instead of the tokenizer's.",
            "--chat-template",
            metavar="FILE",
        ),
    ] = None,
    apply_chat_template: Annotated[
        bool,
        option(TOKENIZER, "Send each text as a user message.", "--apply-chat-template"),
    ] = False,
    special_tokens: Annotated[
        bool,
        option(TOKENIZER, "Add no <s> and the like.", " /--no-special-tokens"),
    ] = True,
    trust_remote_code: Annotated[
        bool,
        option(TOKENIZER, "Run the tokenizer's own code.", "--trust-remote-code"),
    ] = False,
    input_format: Annotated[
        str | None,
        option(
            FILES,
            "jsonl, json, csv, parquet, arrow, inspect or text, whatever the suffix.",
            "--input-format",
            metavar="NAME",
        ),
    ] = None,
    encoding: Annotated[
        str,
        option(
            FILES,
            "Encoding of text and CSV. [default: utf-8]",
            "--encoding",
            metavar="NAME",
        ),
    ] = "utf-8",
    delimiter: Annotated[
        str | None,
        option(
            FILES,
            "What separates the columns of CSV. [default: guessed]",
            "--delimiter",
            metavar="CHAR",
        ),
    ] = None,
    header: Annotated[
        bool | None,
        option(
            FILES,
            "Whether the first line of CSV has the names. [default: guessed]",
            "--header/--no-header",
        ),
    ] = None,
    per_line: Annotated[
        bool, option(FILES, "Each line of a text file is a prompt.", "--per-line")
    ] = False,
    shots: Annotated[
        int | None,
        option(
            HARNESS,
            "Few-shot examples of each lm-eval task.",
            "--shots",
            metavar="N",
            min=0,
        ),
    ] = None,
    limit: Annotated[
        float | None,
        option(
            HARNESS,
            "Only the first COUNT samples of each task.",
            "--limit",
            metavar="COUNT",
        ),
    ] = None,
    include_path: Annotated[
        str | None,
        option(
            HARNESS,
            "Folder with lm-eval tasks of your own.",
            "--include-path",
            metavar="DIR",
        ),
    ] = None,
    fewshot_as_multiturn: Annotated[
        bool,
        option(
            HARNESS,
            "Send lm-eval's examples as turns of a chat.",
            "--fewshot-as-multiturn",
        ),
    ] = False,
    ray: Annotated[
        bool,
        option(CLUSTER, "Count on a Ray cluster (RAY_ADDRESS, else local).", "--ray"),
    ] = False,
    prefixes: Annotated[
        bool,
        option(
            OUTPUT,
            "Do not measure what prompts share, which is faster.",
            " /--no-prefixes",
        ),
    ] = True,
    details: Details = False,
    form: Annotated[
        Literal["text", "md"] | None,
        option(OUTPUT, "How the result is shown.", "--format"),
    ] = None,
    json: Json = False,
    out: Out = PROFILE,
    export_trace: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Also write the requests as a Mooncake trace, for `vllm bench serve`.",
            "--export-trace",
            metavar="FILE",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure how long the prompts are, in the model's own tokens.

    Options for single datasets: chunkscope help config

    Example: chunkscope analyze sample_data/
    """
    check_format(form, json=json)
    check_tasks(paths, has_task_options=shots is not None or limit is not None)
    export = None
    if export_trace is not None:
        check_not_data(export_trace, paths)
        export = api.new_export()
    with console.progress(quiet=quiet, tell=say_note) as progress:
        profile = api.analyze(
            with_sample_data(paths),
            field=field or (),
            template=template,
            choices=choices or (),
            task=task,
            each=each or (),
            prefix_file=prefix_file,
            output_field=output_field,
            log_model=log_model,
            datasets=config_table("datasets").values,
            exclude=exclude or (),
            sample=sample,
            input_format=input_format,
            encoding=encoding,
            delimiter=delimiter,
            header=header,
            per_line=per_line,
            model=model,
            tokenizer=tokenizer,
            chat_template=chat_template,
            apply_chat_template=apply_chat_template,
            special_tokens=special_tokens,
            trust_remote_code=trust_remote_code,
            shots=shots,
            limit=limit,
            include_path=include_path,
            fewshot_as_multiturn=fewshot_as_multiturn,
            prefixes=prefixes,
            ray=ray,
            export=export,
            listener=progress,
        )
    profile = replace(profile, command=recorded_command())
    profile.save(out)
    show_profile(profile, details=details, form=form, json=json)
    if export is not None and export_trace is not None:
        export.write(export_trace)
        say_trace(export_trace, profile)
    end(profile, out, skip_bad_rows=skip_bad_rows)


def end(profile: "Profile", out: Path, *, skip_bad_rows: bool) -> None:
    """Say where the result is and what comes next; exit 3 where data were bad."""
    has_failed = bool(profile.failures) or (profile.skipped and not skip_bad_rows)
    if has_failed:
        say_written(out, then="fix what failed, run it again")
        raise SystemExit(InputError.exit_code)
    say_written(out, then=next_command(profile, out))


def with_sample_data(paths: list[str]) -> list[str]:
    """The paths, with the package's data where `sample_data` names nothing here."""
    chosen = []
    for path in paths:
        is_sample = Path(path) == SAMPLE_DATA and not Path(path).exists()
        if is_sample and PACKAGED_SAMPLE_DATA.is_dir():
            console.say(
                f"there is no {SAMPLE_DATA} here: counting the one of the package"
            )
            path = str(PACKAGED_SAMPLE_DATA)
        chosen.append(path)
    return chosen


def check_tasks(paths: list[str], *, has_task_options: bool) -> None:
    for path in paths:
        if path.startswith(("lm-eval:", "inspect:")):
            return
    if has_task_options:
        raise UsageError(
            "--shots and --limit are for tasks", hint="--sample N counts some rows"
        )


def check_not_data(export_trace: Path, paths: list[str]) -> None:
    for path in paths:
        if Path(path).resolve() == export_trace.resolve():
            raise UsageError(f"--export-trace {export_trace} would replace the data")


def recorded_command() -> tuple[str, ...]:
    """What was typed, without secrets, and without --ray: the result is the same."""
    from chunkscope.sources.base import without_secrets

    words = []
    for word in console.command():
        if word != "--ray":
            words.append(without_secrets(word))
    return tuple(words)


def show_profile(
    profile: "Profile", *, details: bool, form: str | None, json: bool
) -> None:
    from chunkscope.report.profile import bad_rows, cautions, uncounted

    show(profile, details=details, json=json, form=form)
    if json:  # which has no sentences
        for note in (*uncounted(profile, "left_out"), *cautions(profile)):
            console.say(f"note: {note}")
    for line in bad_rows(profile):
        console.say(line)


def say_trace(file: Path, profile: "Profile") -> None:
    """Say that the trace is written, and how to send it to a server."""
    from chunkscope.lengths.trace_export import MOONCAKES_BLOCK

    console.say(
        f"wrote {file}: requests that are sent all at once\n"
        "replay it: vllm bench serve --backend vllm --model MODEL "
        f"--dataset-name timed_trace --dataset-path {shlex.quote(str(file))} "
        f"--num-prompts {profile.overall.count} "
        f"--timed-trace-chunk-hash-size {MOONCAKES_BLOCK} "
        "--timed-trace-sec-multiplier 0.001"
    )


def next_command(profile: "Profile", out: Path) -> str:
    """Count what was left out, else plan for what was counted."""
    from chunkscope.report.profile import corrected

    again = corrected(profile)
    if again:
        return again
    return command_line("recommend", *unless_usual(out, PROFILE))
