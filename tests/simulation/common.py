"""A step that takes a second and a thousandth for each token, so that times are easy to
follow."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from chunkscope.artefacts.artefact import Numbers
from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.hardware.step_time import StepModel
from chunkscope.models.layers import KvKind
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.result import Judged, SimulatedRun
from chunkscope.simulation.run import simulate as simulate_workload
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import Phase, Session, Turn, Workload, single
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import ChunkPolicy, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import NAMES, KvPool, Settings

STEP = StepModel(fixed_s=1.0, per_token_s=0.001)
EngineArguments = dict[str, Any]  # settings and the KV cache, by vLLM's names
ARGS: EngineArguments = {
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
    "kv_cache_tokens": 16_000,
}
USUAL = {
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
}


def args(**changed: Any) -> EngineArguments:
    return {**ARGS, **changed}


def parts_of(engine: EngineArguments, rules: Rules) -> tuple[Settings, KvPool, Rules]:
    """What the scheduler is given; async scheduling only where it is asked for.

    Of `num_blocks` the groups are full ones, ones with a window, and its size.
    """
    rest = {name: value for name, value in engine.items() if name not in NAMES}
    rules = replace(rules, async_scheduling=rest.pop("async_scheduling", False))
    if "num_blocks" in rest:
        blocks, size = rest.pop("num_blocks"), rest.setdefault("block_size", 16)
        full, sliding, window = rest.pop("kv_groups", (1, 0, 0))
        plain = KvGroup(kind=KvKind.FULL, layers=1, block_tokens=size)
        windowed = replace(plain, kind=KvKind.SLIDING, window=window)
        rest["tokens"], rest["blocks"] = blocks * size, blocks
        rest["groups"] = (plain,) * full + (windowed,) * sliding
    pool = {}
    for name, value in rest.items():
        pool[name.removeprefix("kv_cache_").removeprefix("kv_")] = value
    return Settings.of({**USUAL, **engine}), KvPool(**pool), rules


def arriving(*rows: tuple[int, int, float]) -> list[Session]:
    """Prompt tokens, output tokens and the time at which they come, of each."""
    return [single(prompt, output, time) for prompt, output, time in rows]


def talk(*turns: tuple[int, int, float]) -> Session:
    """New tokens, answer tokens and the time before it is sent, of each turn: its
    prompt is all that was said before, and what is new."""
    made = []
    said = 0
    for new_tokens, output_tokens, think_s in turns:
        turn = Turn(
            prompt_tokens=said + new_tokens,
            output_tokens=output_tokens,
            kept_tokens=said,
            think_s=think_s,
        )
        made.append(turn)
        said += new_tokens + output_tokens
    return Session(turns=tuple(made))


def workload_of(  # noqa: PLR0913  (all by name)
    requests: Iterable[Session | tuple[int, int]],
    *,
    stretches: Sequence[Stretch] = (),
    shared_prefix: int = 0,
    concurrency: int | None = None,
    samples_at_once: int | None = None,
    scored: Iterable[int] = (),
    sticky: bool = False,
    phases: Sequence[Phase] = (),
) -> Workload:
    """A request may be just (prompt tokens, output tokens): then it is there from the
    start."""
    sessions = []
    for request in requests:
        session = request if isinstance(request, Session) else single(*request)
        if shared_prefix:
            session = replace(session, stretch=0)
        sessions.append(session)
    if shared_prefix:
        stretches = (Stretch(parent=-1, tokens=shared_prefix),)
    return Workload(
        sessions=tuple(sessions),
        stretches=tuple(stretches),
        seed=0,
        arrivals="given",
        task=Task.GENERATE,
        concurrency=concurrency,
        samples_at_once=samples_at_once,
        scored=Numbers(scored),
        sticky=sticky,
        phases=tuple(phases),
    )


def simulate(  # noqa: PLR0913  (all by name)
    requests: Iterable[Session | tuple[int, int]],
    setting: EngineArguments = ARGS,
    step: StepModel = STEP,
    *,
    vllm: str = "0.30",
    slo: str | None = None,
    e2e_timeout_s: float | None = None,
    timeline: int = 0,
    policy: ChunkPolicy = ChunkPolicy.VLLM,
    **sent: Any,
) -> SimulatedRun:
    engine = Engine(release=release(vllm))
    settings, pool, rules = parts_of(setting, engine.release.rules)
    return simulate_workload(
        workload_of(requests, **sent),
        settings,
        engine,
        step,
        judged=Judged(limits=read_slo(slo), e2e_timeout_s=e2e_timeout_s),
        policy=policy,
        timeline=timeline,
        kv_pool=pool,
        async_scheduling=rules.async_scheduling,
    )
