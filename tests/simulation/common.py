"""A step that takes a second and a thousandth for each token, so that times are easy to follow."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import Request, with_shared_prefix
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import Rules, rules_of
from chunkscope.vllm.settings import EngineArgs

STEP = StepModel(
    fixed_s=1.0, per_token_s=0.001, per_prefill_pair_s=0.0, per_decode_context_s=0.0, origin="test"
)
ARGS = EngineArgs(max_num_batched_tokens=256, max_num_seqs=8, kv_cache_tokens=16_000)


def arriving(*rows: tuple[int, int, float]) -> list[Request]:
    return [Request(prompt_tokens=p, output_tokens=o, arrival_s=s) for p, o, s in rows]


def simulate(
    requests: Iterable[Request | tuple[int, int]],
    setting: EngineArgs = ARGS,
    step: StepModel = STEP,
    *,
    vllm: str | None = None,
    slo: str | None = None,
    shared_prefix: int = 0,
    timeline: int = 0,
    fast: bool = True,
    **more: Any,
) -> SimulatedRun:
    """A request may be just (prompt tokens, output tokens): then it is there from the start."""
    sent = tuple(r if isinstance(r, Request) else arriving((*r, 0.0))[0] for r in requests)
    if shared_prefix:
        sent, more["stretches"] = with_shared_prefix(sent, shared_prefix)
    rules = rules_of(release(vllm)) if vllm else Rules()
    scenario = Scenario(requests=sent, rules=rules, step=step, slo=read_slo(slo), **more)
    return run_setting(scenario, setting, watch=timeline, fast=fast)


def args(**changed: Any) -> EngineArgs:
    return replace(ARGS, **changed)
