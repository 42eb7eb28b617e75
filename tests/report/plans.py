"""Plans and simulated runs with the values that a test is about."""

from dataclasses import replace
from typing import Any

from chunkscope.planning.plan import (
    Advice,
    AdviceKind,
    Basis,
    ConcurrencyAnswer,
    ConcurrencyPoint,
    Cost,
    Plan,
)
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.slo import Backlog, SloResult, read_slo
from chunkscope.vllm.settings import OWN, Settings
from tests import build

KEEP = Advice(
    kind=AdviceKind.KEEP, basis=Basis.SIMULATED, settings=OWN, needed=OWN, gain=0.01
)


def base() -> Plan:
    """A plan for short prompts on an H200, made once."""
    return build.advised(build.SHORT)


def simulated(
    setting: str = "default",
    makespan_s: float = 10.0,
    *,
    longest_gap_s: float = 1.0,
    **more: Any,
) -> SimulatedRun:
    """A run that takes so long, and whose longest gap is that long."""
    figures = build.figures(makespan_s, gap_s=longest_gap_s / 4)
    values: dict[str, Any] = {"figures": figures, "gpu_s": makespan_s, **more}
    return replace(base().tried[0], setting=setting, same_as=(), **values)


def limited(run: SimulatedRun, seconds: float, limits: str) -> SimulatedRun:
    """The run, whose tightest limit has this figure."""
    slo = read_slo(limits)
    return replace(
        run, slo=SloResult(limits=slo, found_s=(seconds,) * len(slo), good_requests=1)
    )


def growing(run: SimulatedRun) -> SimulatedRun:
    """The run at a rate that is too high."""
    return replace(run, backlog=Backlog(early=1.0, late=100.0))


def plan(advice: Advice = KEEP, *tried: SimulatedRun, **more: Any) -> Plan:
    """A plan with this advice; `tried` are vLLM's default and another setting."""
    made = replace(base(), advice=advice, tried=tried, **more)
    wanted = advice.settings.over(advice.needed)
    return replace(made, settings=wanted)


def setting(number: int) -> Settings:
    return Settings(max_num_seqs=number)


def advised(number: int, *tried: SimulatedRun, **more: Any) -> Plan:
    """A plan that sets max_num_seqs to this, with its own run beside the default's."""
    changes = {key: more.pop(key) for key in list(more) if key in ADVICE}
    advice = replace(
        KEEP, kind=AdviceKind.SET, settings=setting(number), gain=0.2, **changes
    )
    own = base().deployment.complete(setting(number))
    runs = [*tried[:1], *(replace(run, settings=own) for run in tried[1:])]
    return plan(advice, *runs, **more)


ADVICE = ("basis", "needed", "doubt", "least_gain", "rate", "gpus", "alternative")


def cost(**more: Any) -> Cost:
    values: dict[str, Any] = {
        "requests": 50,
        "input_tokens": 10_000,
        "output_tokens": 5_000,
        "hours": 1.0,
        "least_hours": 0.5,
        "most_hours": 2.0,
        "varied": ("slower_cpu", "longer_prompts", "longer_outputs", "seen_on_gpus"),
        "datasets": {},
        **more,
    }
    return Cost(**values)


def point(at_once: int, minutes: float, cached: float) -> ConcurrencyPoint:
    return ConcurrencyPoint(
        at_once=at_once,
        hours=minutes / 60,
        served_from_cache=cached,
        ttft_p50_s=0.1,
        ttft_p95_s=0.5,
        e2e_p95_s=9.0,
        preemptions=0,
    )


AGENTS = ConcurrencyAnswer(
    unit="samples",
    advised=8,
    client=None,
    points=(
        point(4, 30.0, 0.92),
        point(8, 21.0, 0.91),
        point(12, 32.0, 0.40),
        point(16, 37.0, 0.19),
    ),
    samples=40,
)
