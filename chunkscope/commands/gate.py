"""`chunkscope gate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from chunkscope import console
from chunkscope.commands.config import CONFIG, PROJECT
from chunkscope.commands.options import (
    INPUT,
    OUTPUT,
    REPORTS,
    Details,
    Json,
    argument,
    option,
)
from chunkscope.commands.printing import (
    check_format,
    command_line,
    say_written,
    show,
    unless_usual,
)
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

if TYPE_CHECKING:
    from chunkscope.findings import Findings
    from chunkscope.gating.check import GateResult

BUDGET = "Budget"


def gate(
    reports: Annotated[
        Path, argument("[REPORTS]", "The results. [default: reports]")
    ] = REPORTS,
    config: Annotated[
        Path | None,
        option(
            INPUT,
            "The budget. [default: chunkscope.toml, else pyproject.toml]",
            "--config",
            "-c",
            metavar="FILE",
        ),
    ] = None,
    init: Annotated[
        bool, option(BUDGET, "Write a budget from today's results.", "--init")
    ] = False,
    force: Annotated[
        bool, option(BUDGET, "With --init: replace the gate's tables.", "--force")
    ] = False,
    details: Details = False,
    form: Annotated[
        Literal["text", "md", "junit", "github"] | None,
        option(OUTPUT, "github: annotations; md: for a job summary.", "--format"),
    ] = None,
    json: Json = False,
) -> None:
    """Exit 1 when data or settings have drifted out of budget.

    Example: chunkscope gate --init && chunkscope gate
    """
    from chunkscope.gating.gate import gate as judge
    from chunkscope.report.ci import error_annotation
    from chunkscope.report.gate import failure

    check_format(form, json=json)
    if force and not init:
        raise UsageError("--force needs --init")
    if init and (json or form is not None):
        raise UsageError("--init cannot be used with --json or --format")
    if init:
        write_budget(reports, config or CONFIG, force=force)
        return
    try:
        result = judge(reports, config=config)
    except ChunkscopeError as error:
        if form == "github":  # else the job fails without a message
            console.emit(error_annotation(error, config or CONFIG).encode())
        raise
    show_result(result, details=details, form=form, json=json)
    if not result.passed:
        raise GateBroken(failure(result))
    console.say("\nnext: run the evaluation")


def show_result(
    result: "GateResult", *, details: bool, form: str | None, json: bool
) -> None:
    from chunkscope.report.ci import annotations, junit

    if form == "junit":
        console.emit(junit(result))
    elif form == "github":
        console.emit(annotations(result).encode("utf-8", "replace"))
    else:
        show(result, details=details, json=json, form=form)


# -- a budget from today's results -----------------------------------------------------


def write_budget(reports: Path, path: Path, *, force: bool) -> None:
    """Write the gate's tables into a file beside what is there, and the baseline."""
    from chunkscope.artefacts.files import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.gating.init import SETTINGS, starting_budget
    from chunkscope.report.gate import COMMENTS

    if path.name == PROJECT.name:
        raise UsageError(
            f"--init does not write into {PROJECT}",
            hint="run `chunkscope gate --init` and move the tables to "
            "[tool.chunkscope.gate]",
        )
    other_tables = tables_to_keep(path, force=force)
    findings = load_findings(reports)
    write_baseline(findings, path.parent)
    if path.exists() and has_budget(path):
        old = path.with_name(f"{path.name}.old")
        write_atomically(old, path.read_bytes())
        console.say(f"the old {path} is now {old}")
    text = starting_budget(findings, path.parent, COMMENTS)
    if other_tables.strip():
        text = other_tables.rstrip("\n") + "\n\n" + text
    write_atomically(path, text.encode())
    if not (path.parent / SETTINGS).exists():
        say_how_to_check_settings(reports, path, findings)
    say_written(path, then=gate_command(reports, path))


def tables_to_keep(path: Path, *, force: bool) -> str:
    """The text of the file without the gate's tables; an error if it has some."""
    from chunkscope.artefacts.files import read_text
    from chunkscope.gating.init import without_gate
    from chunkscope.report.gate import COMMENTS

    if not path.exists():
        return ""
    text = read_text(path, hint="is it a file?")
    if has_budget(path) and not force:
        raise UsageError(
            f"{path} has a budget already",
            hint="edit it, or let --force write its gate tables anew",
        )
    return without_gate(text, path, COMMENTS["head"])


def has_budget(path: Path) -> bool:
    from chunkscope.artefacts.files import read_text
    from chunkscope.gating.init import without_gate
    from chunkscope.report.gate import COMMENTS

    text = read_text(path, hint="is it a file?")
    return without_gate(text, path, COMMENTS["head"]) != text


def write_baseline(findings: "Findings", folder: Path) -> None:
    from chunkscope.gating.init import BASELINE

    baseline = folder / BASELINE
    if findings.profile is not None and not baseline.exists():
        findings.profile.save(baseline)
        console.say(f"wrote {baseline}, the baseline of later data: commit it")


def say_how_to_check_settings(reports: Path, path: Path, findings: "Findings") -> None:
    from chunkscope.gating.init import SETTINGS
    from chunkscope.gating.remedies import commands_of

    recommend = commands_of(findings)["recommend"]
    file = command_line(path.parent / SETTINGS).removeprefix("chunkscope ")
    console.say(
        "settings are not checked yet: write them with "
        f"`{recommend} --emit vllm-yaml > {file}`, then run "
        f"`{gate_command(reports, path, '--init', '--force')}`"
    )


def gate_command(reports: Path, path: Path, *options: str) -> str:
    """The gate's command for this folder and this budget."""
    words: list[object] = ["gate", *options, *unless_usual(reports, REPORTS)]
    if path != CONFIG:
        words += ["--config", path]
    return command_line(*words)
