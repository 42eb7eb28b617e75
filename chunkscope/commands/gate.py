"""`chunkscope gate`."""

from difflib import unified_diff
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import REPORTS
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

if TYPE_CHECKING:
    from chunkscope.gating.check import GateResult

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
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Exit 1 when a check of the budget file fails.

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
    from chunkscope.gating.gate import gate as run

    try:
        result = run(reports, config=config)
    except ChunkscopeError as error:
        if output_format is GateFormat.GITHUB:
            _annotate_error(error, config)
        raise
    _print(result, output_format, as_json=as_json)
    if not result.passed:
        raise GateBroken(_sentence(result))
    console.say("\nnext: the evaluation")


def _annotate_error(error: ChunkscopeError, config: Path | None) -> None:
    """What cannot be judged must not be a red cross without a word."""
    from chunkscope.report.ci import error_annotation

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
    from chunkscope.gating.init import BASELINE, starting_text

    if path.name == "pyproject.toml":
        raise UsageError(
            "--init does not write into pyproject.toml: it holds more than this budget",
            hint="run `chunkscope gate --init` and move the tables to [tool.chunkscope.gate]",
        )
    if path.exists() and not force:
        hint = "`chunkscope gate --update` keeps comments and edits; --force starts anew"
        raise UsageError(f"{path} is there already", hint=hint)
    findings = load_findings(reports)
    baseline = path.parent / BASELINE
    if findings.profile is not None and not baseline.exists():
        findings.profile.save(baseline)
        console.say(f"wrote {baseline}: what later data is compared with; commit it")
    text = starting_text(findings, path)
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
    from chunkscope.gating.budget import find_budget, parse_budget
    from chunkscope.gating.gate import judge
    from chunkscope.gating.init import updated_text

    file, findings = find_budget(config), load_findings(reports)
    text = updated_text(file, findings)
    result = judge(parse_budget(text, file.path), findings)
    if text == file.text:
        console.say(f"there is nothing to move in {file.path}")
    else:
        before, after = (x.splitlines(keepends=True) for x in (file.text, text))
        diff = unified_diff(before, after, str(file.path), f"{file.path} (today)", n=1)
        console.emit("".join(diff).encode("utf-8", "replace"))
        write_atomically(file.path, text.encode())
        console.say(f"wrote {file.path}; next: look at it, and commit it")
    if not result.passed:
        shared.show(result)
        raise GateBroken(f"no limit could be moved for that: {_sentence(result)}")


def _print(result: "GateResult", output_format: GateFormat, *, as_json: bool) -> None:
    if output_format is GateFormat.JUNIT:
        from chunkscope.report.ci import as_junit

        console.emit(as_junit(result))
    elif output_format is GateFormat.GITHUB:
        from chunkscope.report.ci import annotations, append_summary

        console.emit(annotations(result).encode("utf-8", "replace"))
        if problem := append_summary(result):
            console.say(f"note: {problem}")
    else:
        shared.show(result, as_json=as_json)


def _sentence(result: "GateResult", most: int = 3) -> str:
    from chunkscope.artefacts.numbers import plural
    from chunkscope.sources.base import printable

    failed = result.failed
    names = ", ".join(printable(check.title) for check in failed[:most])
    more = f" and {len(failed) - most:,} more" if len(failed) > most else ""
    return f"{plural(len(failed), 'check')} failed: {names}{more}"
