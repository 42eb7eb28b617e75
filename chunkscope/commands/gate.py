"""`chunkscope gate`."""

from difflib import unified_diff
from pathlib import Path
from typing import Literal

from chunkscope import console
from chunkscope.commands import options as opt
from chunkscope.commands.options import CONFIG, INPUT, OUTPUT, REPORTS, argument, group
from chunkscope.errors import ChunkscopeError, GateBroken, UsageError

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
    update: bool = BUDGET(
        "Move limits to today's figures; keep the rest.", default=False
    ),
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
    if init + update + bool(json or form) > 1:
        raise UsageError(
            "--init, --update, and --json or --format cannot be used together"
        )
    if init:
        return _init(reports, config or CONFIG, force=force)
    if update:
        return _update(reports, config)
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
    from chunkscope.gating.gate import commands_of
    from chunkscope.gating.init import ARGUMENTS, BASELINE, other_tables, starting_text
    from chunkscope.report.words.gate import COMMENTS

    if path.name == "pyproject.toml":
        hint = (
            "run `chunkscope gate --init` and move the tables to [tool.chunkscope.gate]"
        )
        raise UsageError("--init does not write into pyproject.toml", hint=hint)
    before = read_text(path, hint="is it a file?") if path.exists() else ""
    others = other_tables(before, path)
    if others != before and not force:
        hint = "`chunkscope gate --update` keeps comments and edits; --force replaces its tables"
        raise UsageError(f"{path} has a budget already", hint=hint)
    findings, baseline = load_findings(reports), path.parent / BASELINE
    if findings.profile is not None and not baseline.exists():
        findings.profile.save(baseline)
        opt.tell("wrote_baseline", file=baseline)
    text, left_out = starting_text(findings, path, COMMENTS, others)
    if others != before:
        write_atomically(old := path.with_name(f"{path.name}.old"), path.read_bytes())
        opt.tell("old_budget", file=path, old=old)
    write_atomically(path, text.encode())
    if left_out:
        opt.tell("fails_today", names=left_out)
    where = opt.quoted(reports, usual=REPORTS) + f" --config{opt.quoted(path)}" * (
        path != CONFIG
    )
    if "\n[gate.settings]\n" not in text:
        command, file = (
            commands_of(findings)["recommend"],
            opt.quoted(path.parent / ARGUMENTS),
        )
        opt.tell("settings_unchecked", command=command, file=file, where=where)
    opt.tell("wrote_next", file=path, after=f"chunkscope gate{where}")


def _update(reports: Path, config: Path | None) -> None:
    """Write and show the diff without asking: version control has the old file."""
    from chunkscope.artefacts.files import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.gating.budget import find_budget, parse_budget
    from chunkscope.gating.gate import judge
    from chunkscope.gating.init import updated_text
    from chunkscope.report import terminal
    from chunkscope.report.gate import remedies
    from chunkscope.report.words.gate import failure

    file, findings = find_budget(config), load_findings(reports)
    text = updated_text(file, findings)
    result = judge(parse_budget(text, file.path), findings)
    if text == file.text:
        opt.tell("no_limit_moves", file=file.path)
    else:
        before, after = (x.splitlines(keepends=True) for x in (file.text, text))
        diff = unified_diff(before, after, str(file.path), f"{file.path} (today)", n=1)
        console.emit("".join(diff).encode("utf-8", "replace"))
        write_atomically(file.path, text.encode())
        opt.tell("wrote_next", file=file.path, after="look at it, and commit it")
    if not result.passed:
        console.show(lambda out: terminal.draw(remedies(result), out))
        raise GateBroken(f"with the limits moved, {failure(result)}")
