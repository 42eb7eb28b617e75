"""`chunkscope gate`."""

from difflib import unified_diff
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope import console
from chunkscope.commands.options import CONFIG, REPORTS, Given, check_format, command, show
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

if TYPE_CHECKING:
    from chunkscope.gating.check import GateResult


@command("""
Arguments:
  [REPORTS]         Folder with the results.
Input:
  --config -c FILE  The budget. [default: chunkscope.toml, else pyproject.toml]
Budget:
  --init            Write a budget from today's results.
  --force           With --init: replace it; keep the old file.
  --update          Move limits to today's figures; keep the rest.
Output:
  --details
  --format text|md|junit|github  github: annotations and a job summary.
  --json
""")
def gate(given: Given) -> None:
    """Exit 1 when data or settings have drifted out of budget.

    Example: chunkscope gate --init && chunkscope gate
    """
    from chunkscope.gating.gate import gate as run

    reports, config = given.reports or REPORTS, given.config
    _refuse_contradictions(given)
    if given.init:
        return _init(reports, config or CONFIG, force=bool(given.force))
    if given.update:
        return _update(reports, config)
    try:
        result = run(reports, config=config)
    except ChunkscopeError as error:
        if given.format == "github":
            _annotate_error(error, config or CONFIG)
        raise
    _print(result, given)
    if not result.passed:
        from chunkscope.report.words import gate as words

        raise GateBroken(words.failure(result))
    return console.say("\nnext: the evaluation")


def _annotate_error(error: ChunkscopeError, budget: Path) -> None:
    """What cannot be judged must not be a red cross without a word."""
    from chunkscope.report.ci import error_annotation

    console.emit(error_annotation(error, budget if budget.exists() else None).encode())


def _refuse_contradictions(given: Given) -> None:
    check_format(given)
    if given.init and given.update:
        raise UsageError("--init starts a file, --update goes on with one: choose")
    if given.force and not given.init:
        raise UsageError("--force only means something with --init")
    if (given.init or given.update) and (given.json or given.format):
        writes = "--init" if given.init else "--update"
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
    where = "" if path == CONFIG else f" --config {path}"
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


def _print(result: "GateResult", given: Given) -> None:
    from chunkscope.report import ci

    if given.format == "junit":
        console.emit(ci.junit(result))
    elif given.format == "github":
        console.emit(ci.gate_annotations(result).encode("utf-8", "replace"))
        if problem := ci.job_summary(result):
            console.say(f"note: {problem}")
    else:
        show(result, given)
