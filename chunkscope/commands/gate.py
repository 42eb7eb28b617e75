"""`chunkscope gate`."""

from difflib import unified_diff
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands.options import REPORTS, Details, Json, argument, options, show
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

if TYPE_CHECKING:
    from chunkscope.gating.check import GateResult

BUDGET = Path("chunkscope.toml")


class GateFormat(StrEnum):
    TEXT = "text"
    MD = "md"
    JUNIT = "junit"
    GITHUB = "github"


OPTIONS = options("""
Input:
  --config -c FILE  The budget. [default: chunkscope.toml, else pyproject.toml]
Budget:
  --init            Write a budget from today's results.
  --force           With --init: replace it; keep the old file.
  --update          Move limits to today's figures; keep the rest.
Output:
  --format          github: annotations and a job summary.
""")


def gate(
    reports: Annotated[Path, argument("[REPORTS]", "Folder with the results.")] = REPORTS,
    config: Annotated[Path | None, OPTIONS["config"]] = None,
    init: Annotated[bool, OPTIONS["init"]] = False,
    force: Annotated[bool, OPTIONS["force"]] = False,
    update: Annotated[bool, OPTIONS["update"]] = False,
    details: Details = False,
    output_format: Annotated[GateFormat, OPTIONS["format"]] = GateFormat.TEXT,
    as_json: Json = False,
) -> None:
    """Exit 1 when data or settings have drifted out of budget.

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
    _print(result, output_format, as_json=as_json, details=details)
    if not result.passed:
        from chunkscope.report.words import gate as words

        raise GateBroken(words.failure(result))
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
    findings, baseline = load_findings(reports), path.parent / BASELINE
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
    from chunkscope.report import terminal
    from chunkscope.report.ci import remedies
    from chunkscope.report.words import gate as words

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
        console.show(lambda out: terminal.draw(remedies(result), out))
        raise GateBroken(f"no limit could be moved for that: {words.failure(result)}")


def _print(result: "GateResult", form: GateFormat, *, as_json: bool, details: bool) -> None:
    from chunkscope.report import ci

    if form is GateFormat.JUNIT:
        return console.emit(ci.junit(result))
    if form is GateFormat.GITHUB:
        console.emit(ci.gate_annotations(result).encode("utf-8", "replace"))
        if problem := ci.job_summary(result):
            console.say(f"note: {problem}")
        return None
    return show(result, as_json=as_json, form=form.value, details=details)
