"""`chunkscope gate`."""

from difflib import unified_diff
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands.options import REPORTS
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

if TYPE_CHECKING:
    from chunkscope.gating.verdict import GateResult

BUDGET = Path("chunkscope.toml")


class GateFormat(StrEnum):
    TEXT = "text"
    JUNIT = "junit"
    GITHUB = "github"


def gate(
    reports: Annotated[
        Path, typer.Argument(metavar="[REPORTS]", help="Folder with the artefacts.")
    ] = REPORTS,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The budget. [default: chunkscope.toml, else pyproject.toml]",
        ),
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a starting budget from the artefacts.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --init: start anew; the old file is kept aside.")
    ] = False,
    update: Annotated[
        bool,
        typer.Option("--update", help="Move limits to today's figures; keep comments and edits."),
    ] = False,
    output_format: Annotated[
        GateFormat,
        typer.Option("--format", help="junit: XML; github: annotations and a job summary."),
    ] = GateFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Exit 1 when a promise of the budget file is broken.

    Example: chunkscope gate --init && chunkscope gate
    """
    writes = "--init" if init else "--update" if update else None
    _refuse_contradictions(writes, force=force, as_json=as_json, output_format=output_format)
    if init and update:
        raise UsageError("--init starts a file, --update goes on with one: choose")
    if init:
        _init(reports, config or BUDGET, force=force)
        return
    if update:
        _update(reports, config)
        return
    from chunkscope.gating.check import gate as run

    try:
        result = run(reports, config=config)
    except ChunkscopeError as error:
        if output_format is GateFormat.GITHUB:
            _annotate_error(error, config)
        raise
    for note in result.notes:
        console.say(f"note: {note}")
    _print(result, output_format, as_json=as_json)
    if not result.kept:
        raise GateBroken(_sentence(result))
    console.say(f"\nall promises of {result.budget} are kept; next: the evaluation")


def _annotate_error(error: ChunkscopeError, config: Path | None) -> None:
    """What cannot be judged must not be a red cross without a word."""
    from chunkscope.report.github import error_annotation

    budget = config or BUDGET
    console.emit(error_annotation(error, budget if budget.exists() else None).encode())


def _refuse_contradictions(
    writes: str | None, *, force: bool, as_json: bool, output_format: GateFormat
) -> None:
    if force and writes != "--init":
        raise UsageError("--force only means something with --init")
    if as_json and output_format is not GateFormat.TEXT:
        raise UsageError("--json and --format exclude each other", hint="use one of them")
    if writes and (as_json or output_format is not GateFormat.TEXT):
        raise UsageError(f"{writes} writes a file: leave out --json and --format")


def _init(reports: Path, path: Path, *, force: bool) -> None:
    from chunkscope.artefacts.codec import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.gating.starting_file import starting_text

    if path.name == "pyproject.toml":
        raise UsageError(
            "--init does not write into pyproject.toml: it holds more than this budget",
            hint="run `chunkscope gate --init` and move the tables to [tool.chunkscope.gate]",
        )
    if path.exists() and not force:
        hint = "`chunkscope gate --update` keeps comments and edits; --force starts anew"
        raise UsageError(f"{path} is there already", hint=hint)
    text = starting_text(load_findings(reports), path)
    if path.exists():
        console.say(f"the old {path} is now {_set_aside(path)}")
    write_atomically(path, text.encode())
    where = "" if path == BUDGET else f" --config {path}"
    console.say(f"wrote {path}; next: chunkscope gate{where}")


def _set_aside(path: Path) -> Path:
    """What a person wrote is never deleted."""
    names = (path.with_name(f"{path.name}.old{n or ''}") for n in count())
    return path.rename(next(name for name in names if not name.exists()))


def _update(reports: Path, config: Path | None) -> None:
    """What changes is shown, and nothing is asked: version control knows the file as it was."""
    from chunkscope.artefacts.codec import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.gating.budget_file import find_budget, parse_file
    from chunkscope.gating.check import judge
    from chunkscope.gating.refreshed_file import refreshed_text
    from chunkscope.report.terminal.gate import show_broken

    file, findings = find_budget(config), load_findings(reports)
    text = refreshed_text(file, findings)
    result = judge(parse_file(text, file.path), findings)
    if text == file.text:
        console.say(f"there is nothing to move in {file.path}")
    else:
        before, after = (x.splitlines(keepends=True) for x in (file.text, text))
        diff = unified_diff(before, after, str(file.path), f"{file.path} (today)", n=1)
        console.emit("".join(diff).encode("utf-8", "replace"))
        write_atomically(file.path, text.encode())
        console.say(f"wrote {file.path}; next: look at it, and commit it")
    if not result.kept:
        console.show(lambda out: show_broken(result, out))
        raise GateBroken(f"no limit could be moved for that: {_sentence(result)}")


def _print(result: "GateResult", output_format: GateFormat, *, as_json: bool) -> None:
    if as_json:
        from chunkscope.artefacts.codec import dump

        return console.emit(dump(result.to_json()))
    if output_format is GateFormat.JUNIT:
        from chunkscope.report.junit import as_junit

        return console.emit(as_junit(result))
    if output_format is GateFormat.GITHUB:
        from chunkscope.report.github import annotations, append_summary

        console.emit(annotations(result).encode("utf-8", "replace"))
        if problem := append_summary(result):
            console.say(f"note: {problem}")
        return None
    from chunkscope.report.terminal.gate import show_gate

    return console.show(lambda out: show_gate(result, out))


def _sentence(result: "GateResult", most: int = 3) -> str:
    from chunkscope.sources.base import printable

    broken = result.broken
    named = ", ".join(printable(v.title) for v in broken[:most])
    more = f" and {len(broken) - most:,} more" if len(broken) > most else ""
    are = "promise is" if len(broken) == 1 else "promises are"
    return f"{len(broken):,} {are} broken: {named}{more}"
