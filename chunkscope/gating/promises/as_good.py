"""Are committed engine arguments as good as the plan's? The memory model and the simulator say.

As good means: the same GPUs, no prompt refused that the plan serves, the memory model holds it, and
the simulation of the same requests is within 3 % of the plan: in time for all of them, unless they
come by themselves; where it was made for limits, in how much of the tightest is used, which must
not break if the plan keeps it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.numbers import spaced
from chunkscope.artefacts.units import SECONDS, SHARE, Unit, exceeds
from chunkscope.errors import InputError, UsageError
from chunkscope.gating.verdict import Verdict
from chunkscope.hardware.memory import Memory
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.problem import Problem
from chunkscope.planning.request import chosen_datasets
from chunkscope.planning.search import WORTH, Bench, limits_used
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.settings import Settings

UNKNOWN = "not known without `chunkscope recommend --model --gpu`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is compared; `most`: of a figure that has a limit of its own."""

    name: str
    of: Callable[[SimulatedRun], float]
    unit: Unit = SECONDS
    most: float | None = None


TIME = Measure(name="time for all requests", of=lambda run: run.figures.makespan_s)
LIMITS = Measure(name="use of the tightest limit", of=limits_used, unit=SHARE, most=1.0)


def check_as_good(
    plan: Plan, profile: Profile, there: Deployment, *, wanted: Settings, found: Settings
) -> Iterator[Verdict]:
    """`wanted` and `found` are complete: the plan's settings and those that are committed."""
    problem = _problem(plan, profile, there, wanted, found)
    yield _same_gpus(wanted, found)
    yield from _same_numbers(wanted, found)
    yield _serves(problem, wanted, found)
    same = found == wanted
    memory = there.memory(found, longest=plan.decision.longest)
    yield _held(memory, found.max_model_len, same=same)
    if same or not problem.can_simulate:
        yield _told("simulation", same, "within 3 % of the plan", _as_planned(same))
        return
    bench = Bench.of(problem)
    for measure in _measures(problem):
        yield _simulated(measure, bench, wanted, found)


def _measures(p: Problem) -> Iterator[Measure]:
    if not p.request.is_open:
        yield TIME
    if p.request.slo:
        yield LIMITS


def _problem(
    plan: Plan, profile: Profile, there: Deployment, wanted: Settings, found: Settings
) -> Problem:
    """Both are tried on the requests that either of them takes."""
    contexts = [s.max_model_len for s in (wanted, found) if s.max_model_len]
    return Problem(
        request=plan.request,
        deployment=there,
        datasets=_planned_datasets(plan, profile),
        output=plan.output,
        needed=Settings(max_model_len=min(contexts, default=None)),
    )


def _planned_datasets(plan: Plan, profile: Profile) -> tuple[DatasetProfile, ...]:
    try:
        return chosen_datasets(profile, plan.request.dataset)
    except UsageError as error:  # it stands in the plan, not on the command line
        raise InputError(f"the plan is about another dataset: {error.message}") from None


def _told(subject: str, kept: bool, promised: str, found: str, **more: Any) -> Verdict:
    return Verdict(
        promise="settings.as-good",
        subject=subject,
        kept=kept,
        promised=promised,
        found=found,
        where=("settings", "must_be"),
        **more,
    )


def _as_planned(same: bool) -> str:
    return "the plan's own settings" if same else UNKNOWN


def _same_gpus(wanted: Settings, found: Settings) -> Verdict:
    """The plan is about so many; the simulator's step times are theirs."""
    planned, used = wanted.parallel.gpus, found.parallel.gpus
    values = {"promised_value": planned, "found_value": used}
    if wanted.parallel != found.parallel and planned == used:
        return _told("tensor_parallel_size", False, "split as planned", "split otherwise")
    return _told("tensor_parallel_size", used == planned, f"{planned}", f"{used}", **values)


def _same_numbers(wanted: Settings, found: Settings) -> Iterator[Verdict]:
    """Fewer bits in the KV cache may be faster, and may change scores: never as good."""
    planned, used = wanted.kv_cache_dtype, found.kv_cache_dtype
    if planned or used:
        same = planned == used
        yield _told("kv_cache_dtype", same, planned or "left to vLLM", used or "left to vLLM")


def _serves(problem: Problem, wanted: Settings, found: Settings) -> Verdict:
    """A shorter context is as good as long as it refuses no prompt that the plan serves."""

    def refused(settings: Settings) -> int:
        context = settings.max_model_len
        return problem.lengths.over(context - problem.output.tokens) if context else 0

    planned, today, of = refused(wanted), refused(found), problem.lengths.count
    unknown = found.max_model_len is None and wanted.max_model_len is not None
    return _told(
        "max_model_len",
        not unknown and today <= planned,
        f"at most {planned:,} of {of:,} prompts refused",
        UNKNOWN if unknown else f"{today:,} refused at {found.max_model_len or 0:,} tokens",
        promised_value=planned,
        found_value=today,
    )


def _held(memory: Memory | None, context: int | None, *, same: bool) -> Verdict:
    """Larger steps and more requests cost KV cache: one request of full length must still fit."""
    if memory is None or context is None:
        return _told("memory", same, "held by the memory model", _as_planned(same))
    asked = f"{memory.requested_gib:,.1f} of {memory.total_gib:,.1f} GiB asked for"
    note = "" if memory.starts else "vLLM would not start: the driver needs some of it"
    if not memory.survives_logprobs:
        note = "what vLLM does not profile would not fit"
    return _told(
        "memory",
        memory.holds(context) and memory.starts,
        f"the memory model holds it, and a request of {context:,} tokens",
        f"{asked}, a KV cache of {memory.kv_cache_tokens:,} tokens (predicted)",
        promised_value=context,
        found_value=memory.kv_cache_tokens,
        note=note,
    )


def _simulated(measure: Measure, bench: Bench, wanted: Settings, found: Settings) -> Verdict:
    """On the host that likes it least, as `recommend` weighs settings."""
    write, subject = measure.unit.write, f"simulation, {measure.name}"
    context = bench.problem.context
    both_at = [replace(one, max_model_len=context) for one in (wanted, found)]
    pairs = [tuple(bench.run(one, host) for one in both_at) for host in bench.hosts]
    both = [(measure.of(one), measure.of(other)) for one, other in pairs if one and other]
    if len(both) < len(pairs):
        return _told(subject, False, "within 3 % of the plan", "it cannot run (predicted)")
    planned, today = max(both, key=lambda pair: pair[1] / pair[0] if pair[0] else 0.0)
    change = today / planned - 1 if planned else 0.0
    most = planned * (1 + WORTH)
    if measure.most is not None:
        most = min(most, max(planned, measure.most))
    return _told(
        subject,
        not exceeds(today, most),
        f"within {SHARE.write(WORTH)} of the plan's {write(planned)}",
        spaced(f"{write(today, like=planned)}, {change:+.1%}")
        + f" (predicted, {bench.requests:,} requests)",
        promised_value=planned,
        found_value=today,
    )
