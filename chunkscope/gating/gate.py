"""`gate`: artefacts x budget -> checks, passed or failed, and what to do about the latter."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.findings import DEFAULT_FOLDER, Findings, load_findings
from chunkscope.gating.budget import BUDGET, HINT, BudgetFile, find_budget
from chunkscope.gating.check import Check, GateResult
from chunkscope.gating.checks import (
    check_data,
    check_doctor,
    check_drift,
    check_freshness,
    check_memory,
    check_outputs,
    check_slo,
    check_speed,
)
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.settings import check_settings

CHECKS: dict[str, Callable[[Any, Evidence], Iterator[Check]]] = {
    "data": check_data,
    "drift": check_drift,
    "settings": check_settings,
    "memory": check_memory,
    "slo": check_slo,
    "speed": check_speed,
    "outputs": check_outputs,
    "doctor": check_doctor,
    "freshness": check_freshness,
}


def gate(folder: str | Path = DEFAULT_FOLDER, *, config: str | Path | None = None) -> GateResult:
    """Hold the artefacts in `folder` against the limits of a budget file.

    Failed checks are in the result; what cannot be judged at all is an InputError.

    >>> from tempfile import mkdtemp
    >>> budget = Path(mkdtemp()) / "chunkscope.toml"
    >>> _ = budget.write_text("[gate.data]\\nlongest_prompt = '24K'\\np95 = 2000\\n")
    >>> gate("reports/example", config=budget)
    <GateResult of .../chunkscope.toml: 1 of 2 failed>
    """
    file = find_budget(Path(config) if config is not None else None)
    return judge(file, load_findings(Path(folder)))


def judge(file: BudgetFile, findings: Findings) -> GateResult:
    budget = file.budget
    evidence = Evidence(
        findings=findings, folder=file.folder, budget_output_tokens=budget.output_tokens
    )
    checks: list[Check] = []
    for table, check in CHECKS.items():
        if (limits := getattr(budget, table)) is None:
            continue
        results = list(check(limits, evidence))
        if not results:
            raise _nothing(f"[{'.'.join((*file.prefix, table))}] in {file.path}")
        checks += results
    if not checks:
        raise _nothing(str(file.path))
    return GateResult(
        budget=file.path,
        folder=findings.folder,
        checks=tuple(_with_remedies(checks, file, evidence)),
        digests=findings.digests,
        lines=file.lines(),
        notes=file.notes,
    )


def _nothing(what: str) -> InputError:
    """A gate that checks nothing must not look like one that found nothing wrong."""
    return InputError(
        f"{what} asks for nothing", hint=f"{HINT}; the tables are {', '.join(CHECKS)}"
    )


# -- what to do about a check that failed ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """A stale artefact; checks whose names begin so rest on it."""

    cause: Note
    remedy: str
    names: tuple[str, ...]


def _with_remedies(
    checks: Sequence[Check], file: BudgetFile, evidence: Evidence
) -> Iterator[Check]:
    commands = Commands(file, evidence)
    stale = list(_staleness(checks, evidence, commands))
    for check in checks:
        reasons = (one for one in stale if check.name.startswith(one.names))
        if check.passed:
            yield check
        elif one := next(reasons, None):
            yield replace(check, cause=one.cause, remedy=one.remedy)
        else:
            yield replace(check, remedy=commands.accepting(check))


def _staleness(
    checks: Sequence[Check], evidence: Evidence, commands: "Commands"
) -> Iterator[Staleness]:
    """A plan of other data fails much at once: that is one cause, and all else follows from it."""
    findings = evidence.findings
    paths = {name: str(findings.folder / f"{name}.json") for name in ("profile", "plan", "verify")}
    changed = [c.subject for c in checks if c.name == "freshness.data" and not c.passed]
    if changed:
        yield Staleness(
            cause=note("gate_data_changed", profile=paths["profile"], names=changed),
            remedy=commands.analyze(),
            names=("freshness.data", "data.", "drift."),
        )
    if findings.plan_is_of_this_profile is False:
        yield Staleness(
            cause=note("gate_other_profile", plan=paths["plan"], profile=paths["profile"]),
            remedy=commands.recommend(),
            names=(
                *("freshness.plan", "memory.predicted.", "slo."),
                *("settings.equal", "settings.as-good"),
            ),
        )
    measured = findings.verification
    if findings.verification_is_of_this_plan is False and measured and measured.plan_digest:
        yield Staleness(
            cause=note("gate_other_plan", verify=paths["verify"], plan=paths["plan"]),
            remedy=commands.verify(),
            names=("freshness.verification", "memory.measured.", "speed.", "outputs."),
        )


_OF_SAMPLES = ("--sample", "--seed")
_OF_OUTPUT = ("--emit", "--check", "--json", "--anyway")
_FLAGS = ("--check", "--json", "--anyway")  # which take no value


@dataclass(frozen=True, slots=True)
class Commands:
    """What to run, as it was typed where an artefact knows it."""

    file: BudgetFile
    evidence: Evidence

    def accepting(self, check: Check) -> str:
        """What makes the state of today the one that is asked for."""
        budget = self.file.budget
        if check.of_a_part:
            return self.analyze()
        if check.table == "drift" and budget.drift:
            return self._copied("profile.json", budget.drift.baseline)
        if check.name.startswith("speed.baseline") and budget.speed:
            return self._copied("verify.json", budget.speed.baseline or "")
        if check.table == "settings" and budget.settings and check.name != "settings.allow":
            suffix, file = Path(budget.settings.file).suffix, self._place(budget.settings.file)
            form = "vllm-yaml" if suffix in (".yaml", ".yml") else "vllm-args"
            return f"{self.recommend()} --emit {budget.settings.form or form} > {file}"
        fresh = {
            "freshness.data": self.analyze,
            "freshness.plan": self.recommend,
            "freshness.verification": self.verify,
            "slo": self.recommend,
        }
        return fresh.get(check.name, fresh.get(check.table, self._update))()

    def analyze(self) -> str:
        """A sample that is doubted is not taken once more."""
        profile = self.evidence.findings.profile
        command, paths = (profile.command, profile.paths) if profile else ((), ())
        words = _without(command, _OF_SAMPLES) or ["chunkscope", "analyze", *(paths or ["data/"])]
        return shlex.join(words)

    def recommend(self) -> str:
        plan = self.evidence.findings.plan
        words = _without(plan.source.command, _OF_OUTPUT) if plan else []
        return shlex.join(words or ["chunkscope", "recommend"])

    def verify(self) -> str:
        verification = self.evidence.findings.verification
        words = verification.command if verification else ()
        return shlex.join(words or ["chunkscope", "verify"])

    def _copied(self, name: str, baseline: str) -> str:
        folder = self.evidence.findings.folder
        return f"cp {shlex.quote(str(folder / name))} {self._place(baseline)}"

    def _update(self) -> str:
        words = ["chunkscope", "gate", "--update"]
        if self.evidence.findings.folder != DEFAULT_FOLDER:
            words.append(str(self.evidence.findings.folder))
        if self.file.path != BUDGET:
            words += ["--config", str(self.file.path)]
        return shlex.join(words)

    def _place(self, name: str) -> str:
        return shlex.quote(str(self.evidence.path(name)))


def _without(words: Sequence[str], options: tuple[str, ...]) -> list[str]:
    """
    >>> _without(["chunkscope", "analyze", "a", "--sample", "9", "--seed=1"], _OF_SAMPLES)
    ['chunkscope', 'analyze', 'a']
    """
    rest: list[str] = []
    skips = False
    for word in words:
        name, _, value = word.partition("=")
        if skips:
            skips = False
        elif name in options:
            skips = not value and name not in _FLAGS
        else:
            rest.append(word)
    return rest
