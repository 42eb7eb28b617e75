"""[gate.settings]: are the committed engine arguments still what `recommend` says?

argument                       "as-good" when, for throughput      for latency   for loglikelihood
max_model_len                  not shorter                         same          same
max_num_batched_tokens         not smaller, and it fits            not larger    not larger
max_num_seqs                   not fewer                           not more      as the objective
long_prefill_token_threshold   within `threshold_tolerance`        same          not larger
gpu_memory_utilization         not lower                           same          not higher
all others                     equal                               equal         equal

Compared is what the engine ends up with: an argument left out counts as vLLM's own choice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from chunkscope.artefacts.units import SHARE, exceeds
from chunkscope.costs.memory import Memory
from chunkscope.engine.choices import Objective, Task
from chunkscope.engine.deployment import Deployment
from chunkscope.engine.flags import BY_NAME, Release, refused_flag, release
from chunkscope.engine.settings import NAMES as SETTINGS
from chunkscope.engine.settings import Settings, Value
from chunkscope.errors import InputError, UsageError
from chunkscope.gating.budget import SettingsPromises
from chunkscope.gating.committed import Committed, Fault, read_committed
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.verdict import Verdict
from chunkscope.planning.plan import Plan


class Rule(StrEnum):
    EQUAL = "equal to"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    NEAR = "near"


def check_settings(limits: SettingsPromises, evidence: Evidence) -> Iterator[Verdict]:
    plan, _ = evidence.plan, evidence.profile  # a plan of data that is gone says nothing of today
    committed = read_committed(evidence.path(limits.file), limits.form)
    there = replace(plan.deployment, entry=committed.entry)
    if limits.vllm_version:
        there = replace(there, release=_release(limits.vllm_version))
    found = there.effective(committed.settings.over(committed.defaults))
    yield from _accepted(committed, found, there, limits.file)
    stale = _stale(evidence)
    wanted = plan.deployment.effective(plan.settings)
    for name in SETTINGS:
        rule = _rule(name, plan) if limits.must_be == "as-good" else Rule.EQUAL
        one = _One(
            name=name,
            rule=rule,
            wanted=getattr(wanted, name),
            found=getattr(found, name),
            limits=limits,
        )
        yield one.verdict(explicit=getattr(committed.settings, name) is not None, stale=stale)
    memory = there.memory(found, longest=plan.decision.longest)
    if limits.must_be == "as-good" and memory is not None:
        yield _fits(memory, found.max_model_len or 0, stale)


def _release(version: str) -> Release:
    try:
        return release(version)
    except UsageError as error:  # it stands in a file, not on the command line
        raise InputError(f"settings.vllm_version: {error.message}") from None


def _stale(evidence: Evidence) -> str:
    """Advice about other data is not what `recommend` says today."""
    if evidence.findings.plan_is_of_this_profile is False:
        return "the plan was made from another profile: run `chunkscope recommend` again"
    return ""


# -- would vLLM take it? -------------------------------------------------------------------------


def _accepted(
    committed: Committed, found: Settings, there: Deployment, file: str
) -> Iterator[Verdict]:
    version = there.release
    faults = [
        *committed.faults,
        *(
            Fault(what=name, why=why)
            for name in committed.named
            if (why := refused_flag(name, version.version))
        ),
        *(Fault(what=_argument_in(rule), why=rule) for rule in there.refusals(found)),
    ]
    told: dict[str, Any] = {
        "promise": "settings.accepted",
        "promised": f"vLLM {version.text} takes it",
        "where": ("settings", "file"),
    }
    for fault in faults:
        yield Verdict(
            subject=fault.what,
            kept=False,
            found="it does not",
            found_value=fault.why,
            note=fault.why,
            **told,
        )
    if not faults:
        known = len(committed.settings.given())
        beside = len(set(committed.named)) - known
        found_there = f"{known} checked" + (f", {beside} not known here" if beside else "")
        yield Verdict(subject=file, kept=True, found=found_there, **told)


def _argument_in(rule: str) -> str:
    first = rule.split(" ")[0].rstrip(",")
    return first if first in BY_NAME else "enable_chunked_prefill"


# -- is it as good? ------------------------------------------------------------------------------


def _rule(name: str, plan: Plan) -> Rule:
    latency = plan.inputs.objective is Objective.LATENCY
    logprobs = plan.inputs.task is Task.LOGLIKELIHOOD
    rules = {
        "max_model_len": Rule.AT_LEAST,
        "max_num_batched_tokens": Rule.AT_MOST if latency or logprobs else Rule.AT_LEAST,
        "max_num_seqs": Rule.AT_MOST if latency else Rule.AT_LEAST,
        "long_prefill_token_threshold": Rule.AT_MOST if logprobs else Rule.NEAR,
        "gpu_memory_utilization": Rule.AT_MOST if logprobs else Rule.AT_LEAST,
    }
    return rules.get(name, Rule.EQUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _One:
    """One argument: what `recommend` says, and what is committed."""

    name: str
    rule: Rule
    wanted: Value | None
    found: Value | None
    limits: SettingsPromises

    def verdict(self, *, explicit: bool, stale: str) -> Verdict:
        kept = self._kept(explicit=explicit)
        return Verdict(
            promise=f"settings.{self.limits.must_be}",
            subject=self.name,
            kept=kept and not stale,
            promised=f"{self._relation}{_shown(self.wanted)}",
            found=_shown(self.found) + ("" if explicit or self.found is None else " (default)"),
            promised_value=self.wanted,
            found_value=self.found,
            note=stale or ("" if kept else self._why_unknown()),
            where=("settings", "must_be"),
        )

    @property
    def _relation(self) -> str:
        if self.rule is Rule.EQUAL or self.wanted is None:
            return ""
        if self.rule is Rule.NEAR:
            return f"within {SHARE.write(self.limits.threshold_tolerance)} of "
        return f"{self.rule} "

    def _kept(self, *, explicit: bool) -> bool:
        if self.wanted is None:
            return not explicit  # both leave it to vLLM
        return self.found is not None and self._compare(self.found, self.wanted)

    def _compare(self, found: Value, wanted: Value) -> bool:
        if self.rule is Rule.AT_LEAST:
            return found >= wanted
        if self.name == "long_prefill_token_threshold" and not (found and wanted):
            return found == wanted  # 0 means none: it is near to nothing else
        if self.rule is Rule.AT_MOST:
            return found <= wanted
        if self.rule is Rule.NEAR:
            return not exceeds(abs(found - wanted) / wanted, self.limits.threshold_tolerance)
        return found == wanted

    def _why_unknown(self) -> str:
        if self.wanted is None:
            return "what vLLM takes by itself is not known without `recommend --gpu`"
        if self.found is None:
            return "what vLLM takes by itself is not known without `recommend --model --gpu`"
        return ""


def _shown(value: Any) -> str:
    if value is None:
        return "left to vLLM"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}"


def _fits(memory: Memory, need: int, stale: str) -> Verdict:
    """Larger steps and more requests cost KV cache: one request of full length must still fit."""
    tokens = memory.kv_cache_tokens
    return Verdict(
        promise="settings.as-good",
        subject="KV cache",
        kept=memory.holds(need) and not stale,
        promised=f"at least {need:,} tokens",
        found=f"{tokens:,} tokens (predicted)",
        promised_value=need,
        found_value=tokens,
        note=stale or ("" if memory.survives_logprobs else "prompt_logprobs would not fit"),
        where=("settings", "must_be"),
    )
