"""`chunkscope analyze`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Literal

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import INPUT, OUTPUT, PROFILE, argument, group
from chunkscope.errors import InputError, UsageError
from chunkscope.vllm.enums import Task

TOKENIZER, HARNESS, SPEED = group("Tokenizer"), group("Harness"), group("Speed")


def analyze(
    paths: list[str] = argument(
        "PATH...",
        "Files, folders, globs, archives, - for stdin; s3://, gs://, az://, hf://, https://; "
        "hf:org/name[:config][@split]; or tasks, whose code is run: lm-eval:gsm8k,mmlu, "
        "inspect:file.py@task.",
        default=...,
    ),
    field: list[str] | None = INPUT(
        "Where the prompt is: question, turns[0], ctxs[].text. Repeat to join several. "
        "[default: guessed]",
        *("PATH", "--field", "-f"),
    ),
    template: str | None = INPUT(
        "Prompt from fields, in Jinja: '{{context}}\\n\\nQ: {{question}}'.",
        "TEXT",
    ),
    choices: list[str] | None = INPUT(
        "Choices written after the question, as MMLU's are: a list, or A,B,C,D.",
        "PATH",
    ),
    task: Task | None = INPUT("loglikelihood: one request for each choice of a row."),
    each: list[str] | None = INPUT(
        "A list in each row: a prompt for each element.", "PATH"
    ),
    prefix_file: str | None = INPUT("Text before each prompt (few shots).", "FILE"),
    output_field: str | None = INPUT("Reference answers, counted as outputs.", "PATH"),
    exclude: list[str] | None = INPUT("Skip files that match.", "GLOB"),
    sample: int | None = INPUT("Count N random rows of each dataset.", "N", min=1),
    skip_bad_rows: bool = INPUT("Exit 0 even if there are bad rows.", default=False),
    model: str | None = opt.model(TOKENIZER, "Count with this model's tokenizer."),
    tokenizer: str | None = TOKENIZER(
        "Folder, tokenizer file, hub id or tiktoken encoding. [default: Mistral's tekken]",
        *("NAME", "--tokenizer", "-t"),
    ),
    chat_template: Path | None = TOKENIZER("Replaces the tokenizer's.", "FILE"),
    apply_chat_template: bool = TOKENIZER(
        "Send each text as a user message.", default=False
    ),
    trust_remote_code: bool = TOKENIZER("Run a tokenizer's own code.", default=False),
    shots: int | None = HARNESS("Few-shot examples per lm-eval task.", "N", min=0),
    limit: float | None = HARNESS(
        "Only the first COUNT samples of each task.", "COUNT"
    ),
    log_model: str | None = HARNESS(
        "Of an Inspect log with several models, the one to count.", "NAME"
    ),
    ray: bool = SPEED(
        "Count on a Ray cluster (RAY_ADDRESS, else local).", default=False
    ),
    details: bool = opt.DETAILS,
    form: Literal["text", "md"] | None = OUTPUT(
        "How the result is shown.", "--format"
    ),
    json: bool = opt.JSON,
    output: Path = opt.output(PROFILE),
    export_trace: Path | None = OUTPUT(
        "Also write the requests as a Mooncake trace, for `vllm bench serve`.", "FILE"
    ),
    quiet: bool = opt.QUIET,
) -> None:
    """Measure how long the prompts are, in the model's own tokens.

    More options, and options for single datasets: chunkscope help config

    Example: chunkscope analyze sample_data/
    """
    given = locals()
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.report.profile import bad_rows, cautions, corrected, uncounted
    from chunkscope.sources.base import without_secrets

    opt.check_format(form, json=json)
    if model and tokenizer:
        raise UsageError(
            "--model and --tokenizer cannot be used together", hint="leave one out"
        )
    tasks = any(path.startswith(("lm-eval:", "inspect:")) for path in paths)
    if not tasks and (shots, limit) != (None, None):
        raise UsageError(
            "--shots and --limit are for tasks", hint="--sample N counts some rows"
        )
    options = opt.settled(analyze, given, AnalyzeOptions)
    options["datasets"] = opt.config_table("datasets")
    skip_bad_rows = options.pop("skip_bad_rows", False)
    export_trace = options.pop("export_trace", None)
    if options.get("ray") and export_trace is not None:
        raise UsageError("--ray and --export-trace cannot be used together")
    if export_trace and export_trace.resolve() in [
        Path(path).resolve() for path in paths
    ]:
        raise UsageError(f"--export-trace {export_trace} would replace the data")
    export = TraceExport() if export_trace else None
    with console.progress(quiet=quiet, tell=opt.tell_note) as progress:
        profile = api.analyze(export=export, listener=progress, **options)
    words = (without_secrets(word) for word in console.command() if word != "--ray")
    profile = replace(
        profile, command=tuple(words)
    )  # the result is the same with --ray
    written = profile.save(output)
    if json:  # no sentences in data
        console.emit(written)
        for note in (*uncounted(profile, "left_out"), *cautions(profile)):
            console.say(f"note: {note}")
    else:
        opt.show(profile, details=details, form=form)
    for line in bad_rows(profile):
        console.say(line)
    if export and export_trace:
        sizes = {"requests": export.write(export_trace), "block": export.block_size}
        opt.tell("wrote_trace", file=shlex.quote(str(export_trace)), **sizes)
    after = (
        corrected(profile) or f"chunkscope recommend{opt.quoted(output, usual=PROFILE)}"
    )
    failed = profile.failures or (profile.skipped and not skip_bad_rows)
    opt.tell(
        "wrote_next",
        file=output,
        after="fix what failed, run it again" if failed else after,
    )
    if failed:
        raise SystemExit(InputError.exit_code)
