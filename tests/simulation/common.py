"""A step that takes a second and a thousandth for each token, so that times are easy to follow."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.hardware.step_time import StepModel
from chunkscope.models.layers import KvKind
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import Request
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import NAMES, KvPool, Settings
from tests.build import with_shared_prefix

STEP = StepModel(
    fixed_s=1.0, per_token_s=0.001, per_prefill_pair_s=0.0, per_decode_context_s=0.0
)
Engine = dict[str, Any]  # settings and the KV cache, by vLLM's names
ARGS: Engine = {
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
    "kv_cache_tokens": 16_000,
}
USUAL = {
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
}


def parts_of(
    engine: Engine, rules: Rules | None = None
) -> tuple[Settings, KvPool, Rules]:
    """What the scheduler is given; async scheduling only where it is asked for.

    Of `num_blocks` the groups are full ones, ones with a window, and its size.
    """
    rest = {
        name: value for name, value in engine.items() if name not in (*NAMES, "policy")
    }
    rules = replace(
        rules or Rules(), async_scheduling=rest.pop("async_scheduling", False)
    )
    if blocks := rest.pop("num_blocks", None):
        size = rest.setdefault("block_size", 16)
        full, sliding, window = rest.pop("kv_groups", (1, 0, 0))
        kept = {"layers": 1, "block_tokens": size}
        groups = [KvGroup(kind=KvKind.FULL, **kept)] * full
        groups += [KvGroup(kind=KvKind.SLIDING, window=window, **kept)] * sliding
        rest |= {"tokens": blocks * size, "blocks": blocks, "groups": tuple(groups)}
    pool = {n.removeprefix("kv_cache_").removeprefix("kv_"): v for n, v in rest.items()}
    return Settings.of({**USUAL, **engine}), KvPool(**pool), rules


def arriving(*rows: tuple[int, int, float]) -> list[Request]:
    return [Request(prompt_tokens=p, output_tokens=o, arrival_s=s) for p, o, s in rows]


def simulate(
    requests: Iterable[Request | tuple[int, int]],
    setting: Engine = ARGS,
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
    sent = tuple(
        r if isinstance(r, Request) else arriving((*r, 0.0))[0] for r in requests
    )
    if shared_prefix:
        sent, more["stretches"] = with_shared_prefix(sent, shared_prefix)
    rules = release(vllm).rules if vllm else Rules()
    settings, pool, rules = parts_of(setting, rules)
    scenario = Scenario(
        requests=sent, rules=rules, step=step, slo=read_slo(slo), **more
    )
    return run_setting(scenario, settings, pool, watch=timeline, fast=fast)


def args(**changed: Any) -> Engine:
    return {**ARGS, **changed}
