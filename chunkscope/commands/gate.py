"""`chunkscope gate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chunkscope import console
from chunkscope.commands import options as opt
from chunkscope.commands.options import CONFIG, INPUT, OUTPUT, REPORTS, argument, group
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

if TYPE_CHECKING:
    from chunkscope.findings import Findings

BUDGET = group("Budget")


def gate(
    reports: Path = argument(
        "[REPORTS]", "The results. [default: reports]", default=REPORTS
    ),
    config: Path | None = INPUT(
        "The budget. [default: chunkscope.toml, else pyproject.toml]",
        *("FILE", "--config", "-c"),
    ),
    init: bool = BUDGET("Write a budget from today's results.", default=False),
    force: bool = BUDGET("With --init: replace the gate's tables.", default=False),
    details: bool = opt.DETAILS,
    form: Literal["text", "md", "junit", "github"] | None = OUTPUT(
        "github: annotations; md: for a job summary.", "--format"
    ),
    json: bool = opt.JSON,
) -> None:
    """Exit 1 when data or settings have drifted out of budget.

    Example: chunkscope gate --init && chunkscope gate
    """
    from chunkscope.gating.gate import gate as run
    from chunkscope.report import gate as forms
    from chunkscope.report.words import gate as words

    opt.check_format(form, json=json)
    if force and not init:
        raise UsageError("--force needs --init")
    if init and (json or form):
        raise UsageError("--init cannot be used with --json or --format")
    if init:
        return _init(reports, config or CONFIG, force=force)
    try:
        result = run(reports, config=config)
    except ChunkscopeError as error:
        if form == "github":  # else the job fails without a message
            console.emit(forms.error_annotation(error, config or CONFIG).encode())
        raise
    if form == "junit":
        console.emit(forms.junit(result))
    elif form == "github":
        console.emit(forms.annotations(result).encode("utf-8", "replace"))
    else:
        opt.show(result, details=details, json=json, form=form)
    if not result.passed:
        raise GateBroken(words.failure(result))
    return opt.tell("next_evaluation")


def _init(reports: Path, path: Path, *, force: bool) -> None:
    from chunkscope.artefacts.files import read_text, write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.gating.init import BASELINE, starting_budget, without_gate
    from chunkscope.report.words.gate import COMMENTS

    if path.name == "pyproject.toml":
        hint = (
            "run `chunkscope gate --init` and move the tables to [tool.chunkscope.gate]"
        )
        raise UsageError("--init does not write into pyproject.toml", hint=hint)
    before = read_text(path, hint="is it a file?") if path.exists() else ""
    others = without_gate(before, path, COMMENTS["head"])
    has_budget = others != before
    if has_budget and not force:
        raise UsageError(
            f"{path} has a budget already",
            hint="edit it, or let --force write its gate tables anew",
        )
    findings = load_findings(reports)
    baseline = path.parent / BASELINE
    if findings.profile is not None and not baseline.exists():
        findings.profile.save(baseline)
        opt.tell("wrote_baseline", file=baseline)
    if has_budget:
        old = path.with_name(f"{path.name}.old")
        write_atomically(old, path.read_bytes())
        opt.tell("old_budget", file=path, old=old)
    text = starting_budget(findings, path.parent, COMMENTS)
    if others.strip():
        text = others.rstrip("\n") + "\n\n" + text
    write_atomically(path, text.encode())
    _tell_next(reports, path, findings)


def _tell_next(reports: Path, path: Path, findings: "Findings") -> None:
    from chunkscope.gating.init import SETTINGS
    from chunkscope.gating.remedies import commands_of

    where = opt.quoted(reports, usual=REPORTS)
    if path != CONFIG:
        where += f" --config{opt.quoted(path)}"
    if not (path.parent / SETTINGS).exists():
        opt.tell(
            "settings_unchecked",
            command=commands_of(findings)["recommend"],
            file=opt.quoted(path.parent / SETTINGS),
            where=where,
        )
    opt.tell("wrote_next", file=path, after=f"chunkscope gate{where}")
