"""What to do about a broken promise: which stale artefact it rests on, and what to run.

A plan of other data breaks much at once: that is one cause, and all else follows from it.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chunkscope.findings import DEFAULT_FOLDER
from chunkscope.gating.budget import SettingsPromises
from chunkscope.gating.budget_file import OWN, BudgetFile
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.verdict import Verdict

_NAMED = 3  # datasets in a sentence
_OF_SAMPLES = ("--sample", "--seed")
_OF_OUTPUT = ("--emit", "--check", "--json")
_FLAGS = ("--check", "--json")  # which take no value


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Something stale; promises that begin so rest on it."""

    sentence: str
    command: str
    promises: tuple[str, ...]


def with_remedies(
    verdicts: Sequence[Verdict], file: BudgetFile, evidence: Evidence
) -> list[Verdict]:
    commands = _Commands(file, evidence)
    causes = list(_causes(verdicts, evidence, commands))
    return [v if v.kept else _told(v, causes, commands) for v in verdicts]


def _told(verdict: Verdict, causes: Iterable[Staleness], commands: "_Commands") -> Verdict:
    for cause in causes:
        if verdict.promise.startswith(cause.promises):
            return replace(verdict, because=cause.sentence, if_intended=cause.command)
    return replace(verdict, if_intended=commands.accepting(verdict))


def _causes(
    verdicts: Sequence[Verdict], evidence: Evidence, commands: "_Commands"
) -> Iterator[Staleness]:
    findings = evidence.findings
    plan, profile, verify = (
        findings.folder / name for name in ("plan.json", "profile.json", "verify.json")
    )
    changed = [v.subject for v in verdicts if v.promise == "freshness.data" and not v.kept]
    if changed:
        more = f" and {len(changed) - _NAMED:,} more" if len(changed) > _NAMED else ""
        named = ", ".join(changed[:_NAMED]) + more
        yield Staleness(
            sentence=f"The data are not those that {profile} was counted from: {named}",
            command=commands.analyze(),
            promises=("freshness.data", "data.", "drift."),
        )
    if findings.plan_is_of_this_profile is False:
        yield Staleness(
            sentence=f"{plan} was made from another profile than {profile}",
            command=commands.recommend(),
            promises=(
                "freshness.plan",
                "memory.predicted.",
                *("settings.equal", "settings.as-good", "settings.threshold_tolerance"),
            ),
        )
    measured = findings.verification
    is_other = findings.verification_is_of_this_plan is False
    if is_other and measured and measured.plan_digest:
        yield Staleness(
            sentence=f"{verify} was measured with another plan than {plan}",
            command=commands.verify(),
            promises=("freshness.verification", "memory.measured.", "speed.", "outputs."),
        )


@dataclass(frozen=True, slots=True)
class _Commands:
    """As they were typed, where an artefact knows it."""

    file: BudgetFile
    evidence: Evidence

    def accepting(self, verdict: Verdict) -> str:
        """What makes the state of today the one that is promised."""
        budget, table = self.file.budget, verdict.promise.partition(".")[0]
        if verdict.is_doubted:
            return self.analyze()
        if table == "drift" and budget.drift:
            return self._copied("profile.json", budget.drift.baseline)
        if verdict.promise.startswith("speed.baseline") and budget.speed:
            return self._copied("verify.json", budget.speed.baseline or "")
        if table == "settings" and budget.settings and verdict.promise != "settings.allow":
            return self._emitted(budget.settings)
        fresh = {
            "freshness.data": self.analyze,
            "freshness.plan": self.recommend,
            "freshness.verification": self.verify,
        }
        return fresh.get(verdict.promise, self._update)()

    def analyze(self) -> str:
        """A sample that is doubted is not taken once more."""
        profile = self.evidence.findings.profile
        command, paths = (profile.command, profile.paths) if profile else ((), ())
        words = _without(list(command), _OF_SAMPLES)
        words = words or ["chunkscope", "analyze", *(paths or ["data/"])]
        return shlex.join(words)

    def recommend(self) -> str:
        plan = self.evidence.findings.plan
        words = _without(_words(plan.source.command), _OF_OUTPUT) if plan else []
        return shlex.join(words or ["chunkscope", "recommend"])

    def verify(self) -> str:
        verification = self.evidence.findings.verification
        words = _words(verification.command) if verification else []
        return shlex.join(words or ["chunkscope", "verify"])

    def _emitted(self, settings: SettingsPromises) -> str:
        suffix = Path(settings.file).suffix
        form = settings.form or ("vllm-yaml" if suffix in (".yaml", ".yml") else "vllm-args")
        return f"{self.recommend()} --emit {form} > {self._place(settings.file)}"

    def _copied(self, name: str, baseline: str) -> str:
        return f"cp {shlex.quote(str(self._reports / name))} {self._place(baseline)}"

    def _update(self) -> str:
        words = ["chunkscope", "gate", "--update"]
        if self._reports != DEFAULT_FOLDER:
            words.append(str(self._reports))
        if self.file.path != OWN:
            words += ["--config", str(self.file.path)]
        return shlex.join(words)

    def _place(self, name: str) -> str:
        return shlex.quote(str(self.evidence.path(name)))

    @property
    def _reports(self) -> Path:
        return self.evidence.findings.folder


def _words(found: object) -> list[str]:
    """A profile's options are anybody's."""
    words = list(found) if isinstance(found, list | tuple) else []
    return words if all(isinstance(word, str) for word in words) else []


def _without(words: Sequence[str], options: tuple[str, ...]) -> list[str]:
    """
    >>> _without(["chunkscope", "analyze", "a", "--sample", "9", "--seed=1"], _OF_SAMPLES)
    ['chunkscope', 'analyze', 'a']
    """
    kept: list[str] = []
    skips = False
    for word in words:
        name, _, value = word.partition("=")
        if skips:
            skips = False
        elif name in options:
            skips = not value and name not in _FLAGS
        else:
            kept.append(word)
    return kept
