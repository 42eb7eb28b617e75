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
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chunkscope.artefacts.units import SHARE, exceeds
from chunkscope.costs.gpus import GIB
from chunkscope.engine.choices import Objective, Task
from chunkscope.engine.flags import (
    BY_NAME,
    Effective,
    Release,
    Value,
    broken_rules,
    refused_flag,
    release,
)
from chunkscope.errors import InputError, UsageError
from chunkscope.gating.budget import SettingsPromises
from chunkscope.gating.committed import Committed, Fault, read_committed
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.verdict import Verdict
from chunkscope.planning.plan import Plan

Values = dict[str, Value | None]


class Rule(StrEnum):
    EQUAL = "equal to"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    NEAR = "near"


def check_settings(limits: SettingsPromises, evidence: Evidence) -> Iterator[Verdict]:
    plan = evidence.plan
    committed = read_committed(evidence.path(limits.file), limits.form)
    version = _release(limits.vllm_version) if limits.vllm_version else plan.release
    values = in_effect(committed, plan, version)
    yield from _accepted(committed, values, plan, version, limits.file)
    stale = _stale(evidence)
    for name, wanted in _wanted(plan).items():
        rule = _rule(name, plan) if limits.must_be == "as-good" else Rule.EQUAL
        one = _One(name=name, rule=rule, wanted=wanted, found=values[name], limits=limits)
        yield one.verdict(explicit=name in committed.values, stale=stale)
    if limits.must_be == "as-good" and plan.memory is not None:
        yield _fits(plan, values, stale)


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


def _wanted(plan: Plan) -> Values:
    wanted: Values = {argument.name: argument.value for argument in plan.arguments}
    return {"tensor_parallel_size": 1, **wanted}


# -- what the engine ends up with ----------------------------------------------------------------


def in_effect(committed: Committed, plan: Plan, version: Release) -> Values:
    """What was set, else what vLLM (or the harness) takes by itself; None where that is unknown."""
    own: Values = {
        "max_model_len": plan.model.limit if plan.model else None,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": plan.argument("enable_prefix_caching").default,
        "gpu_memory_utilization": version.gpu_memory_utilization,
        "tensor_parallel_size": 1,
    }
    values: Values = {**own, **committed.defaults, **committed.values}
    return {**_batch(values, committed, plan, version), **values}


def _batch(values: Values, committed: Committed, plan: Plan, version: Release) -> Values:
    """vLLM's budget and number of requests, where they are left to it."""
    if plan.gpu is None:
        return {"max_num_batched_tokens": None, "max_num_seqs": None}
    stated = version.batch_defaults(plan.gpu, committed.entry)
    length = int(values["max_model_len"] or 0)
    seqs = int(committed.values.get("max_num_seqs") or stated.max_num_seqs)
    budget = stated.max_num_batched_tokens
    if not values["enable_chunked_prefill"]:
        budget = max(budget, length)
    if length:
        budget = min(budget, seqs * length)
    given = committed.values.get("max_num_batched_tokens")
    return {
        "max_num_batched_tokens": budget,
        "max_num_seqs": min(seqs, int(given) if given else budget),
    }


# -- would vLLM take it? -------------------------------------------------------------------------


def _accepted(
    committed: Committed, values: Values, plan: Plan, version: Release, file: str
) -> Iterator[Verdict]:
    faults = [
        *committed.faults,
        *(
            Fault(what=name, why=why)
            for name in committed.named
            if (why := refused_flag(name, version.version))
        ),
        *_rules(values, plan, version),
    ]
    promised = f"vLLM {version.text} takes it"
    for fault in faults:
        yield Verdict(
            promise="settings.accepted",
            subject=fault.what,
            kept=False,
            promised=promised,
            found="it does not",
            found_value=fault.why,
            note=fault.why,
            where=("settings", "file"),
        )
    if not faults:
        known = len(committed.values)
        beside = len(set(committed.named)) - known
        yield Verdict(
            promise="settings.accepted",
            subject=file,
            kept=True,
            promised=promised,
            found=f"{known} checked" + (f", {beside} not known here" if beside else ""),
            where=("settings", "file"),
        )


def _rules(values: Values, plan: Plan, version: Release) -> list[Fault]:
    """vLLM's own start-up checks; what is not known here cannot break one."""
    length = values["max_model_len"]
    budget = values["max_num_batched_tokens"]
    seqs = values["max_num_seqs"]
    known_length = int(length) if length is not None else int(budget or 1)
    known_budget = int(budget) if budget is not None else max(known_length, int(seqs or 1))
    threshold = int(values["long_prefill_token_threshold"] or 0)
    settings = Effective(
        max_model_len=known_length if length is not None else max(known_length, threshold),
        max_num_batched_tokens=known_budget,
        max_num_seqs=int(seqs) if seqs is not None else min(1, known_budget),
        long_prefill_token_threshold=threshold,
        enable_chunked_prefill=bool(values["enable_chunked_prefill"]),
        gpu_memory_utilization=float(values["gpu_memory_utilization"] or 0),
        model_limit=plan.model.limit if plan.model else None,
    )
    return [
        Fault(what=_argument_in(rule), why=rule) for rule in broken_rules(settings, version.version)
    ]


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


def _fits(plan: Plan, values: Values, stale: str) -> Verdict:
    """Larger steps cost KV cache: one request of full length must still fit."""
    tokens = _kv_tokens(plan, values)
    need = int(values["max_model_len"] or 0)
    return Verdict(
        promise="settings.as-good",
        subject="KV cache",
        kept=tokens >= need and not stale,
        promised=f"at least {need:,} tokens",
        found=f"{tokens:,} tokens (predicted)",
        promised_value=need,
        found_value=tokens,
        note=stale,
        where=("settings", "must_be"),
    )


def _kv_tokens(plan: Plan, values: Values) -> int:
    """The plan's KV cache, less what the committed arguments take of it: the model is linear."""
    if plan.memory is None or plan.model is None:
        return 0
    wanted = _wanted(plan)

    def more(name: str) -> float:
        return float(values[name] or 0) - float(wanted[name] or 0)

    spent = more("max_num_batched_tokens") * plan.model.activation_bytes_per_token
    gained = more("gpu_memory_utilization") * plan.memory.total_gib * GIB
    left = plan.memory.kv_cache_bytes - spent + gained
    return max(0, int(left // plan.model.kv_bytes_per_token))
