"""`chunkscope analyze`."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    PROFILE,
    Given,
    check_format,
    command,
    quoted,
    settled,
    show,
    spelled_out,
)
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.lengths.profile import Profile
    from chunkscope.lengths.scan import Listener
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.sources.base import Skipped


@command("""
Arguments:
  PATH...                    Files, folders, globs, archives, - for stdin; s3://, gs://, az://,
                             hf://, https://; hf:org/name[:config][@split]; or tasks, whose code is
                             run: lm-eval:gsm8k,mmlu, inspect:file.py@task.
Input:
  --field -f PATH...         Where the prompt is: question, turns[0], ctxs[].text, tools|json.
                             Repeat to join several. [default: found]
  --template TEXT            Prompt from fields: '{context}\\n\\nQ: {question}'.
  --choices PATH...          Choices written after the question, as MMLU's are: a list, or A,B,C,D.
  --task generate|loglikelihood  With loglikelihood, one request for each choice of a row.
  --each PATH...             A list in each row: one prompt for each element.
  --prefix-file [NAME=]FILE...  Text before each prompt, such as few-shot examples; for all or one
                             dataset.
  --output-field PATH        Reference answers, counted as outputs.
  --exclude GLOB...          Skip files that match.
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
  --details
  --format text|md|csv       How the result is shown.
  --json --output
  --export-trace FILE        Also write the requests as a Mooncake trace, for `vllm bench serve`.
  --quiet
""")
def analyze(given: Given) -> None:
    """Measure how long the prompts are, in the model's own tokens.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope analyze sample_data/
    """
    from chunkscope.lengths.options import AnalyzeOptions

    _refuse_contradictions(given)
    options = settled("analyze", api.option_names(AnalyzeOptions), given)
    output, skip_bad_rows = given.output or PROFILE, options.pop("skip_bad_rows", False)
    if given.export_trace:
        options["export_trace"] = _export(given, prefixes=options.get("prefixes", True))
    with console.progress(quiet=bool(given.quiet)) as progress:
        profile = api.analyze(listener=_listener(progress), **options)
    profile = replace(profile, command=_command())
    profile.save(output)
    _show(profile, given)
    if given.export_trace:
        _show_trace(options["export_trace"], given.export_trace)
    where = "" if output == PROFILE else quoted(output)
    console.say(f"\nwrote {output}; next: chunkscope recommend{where}")
    if profile.failures or (profile.skipped and not skip_bad_rows):
        raise SystemExit(InputError.exit_code)


def _refuse_contradictions(given: Given) -> None:
    check_format(given)
    for name in ("tokenizer", "model"):
        if getattr(given, name) == "":
            raise UsageError(f"--{name} is empty", hint="was a shell variable not set?")
    if given.model and given.tokenizer:
        raise UsageError("--model and --tokenizer both name a tokenizer", hint="use one of them")
    if given.limit is not None and not (isfinite(given.limit) and given.limit > 0):
        raise UsageError(f"--limit must be over 0, not {given.limit:g}")
    if given.ray is not None and given.export_trace is not None:
        raise UsageError("--ray excludes --export-trace", hint="leave one of them out")


def _export(given: Given, *, prefixes: bool) -> "TraceExport":
    from chunkscope.lengths.trace_export import TraceExport

    if not prefixes:
        raise UsageError(
            "--export-trace needs what prompts share, and chunkscope.toml has prefixes = false",
            hint="leave one of them out",
        )
    file: Path = given.export_trace
    if file.resolve() in [Path(path).resolve() for path in given.paths]:
        raise UsageError(f"--export-trace {file} would replace the data", hint="name another file")
    return TraceExport()


def _show(profile: "Profile", given: Given) -> None:
    from chunkscope.report.words import data as words

    if given.format == "csv":
        from chunkscope.report.profile import as_csv

        console.emit(as_csv(profile).encode())
    else:
        show(profile, given)
    if given.json or given.format == "csv":  # which have no place for sentences
        for note in words.cautions(profile):
            console.say(f"note: {note}")
    for line in words.bad_rows(profile):
        console.say(line)


def _show_trace(export: "TraceExport", file: Path) -> None:
    from chunkscope.report.words import data as words

    export.write(file)
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
