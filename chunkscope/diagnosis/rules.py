"""What limits an engine, as rules: each sees one engine and says nothing without evidence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.diagnosis.diagnosis import Symptom
from chunkscope.diagnosis.phases import FULL, Bound, LoadPhase
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.reader import EngineStart

SMALLEST_DEFAULT = 2_048  # the least token budget that any version takes by itself
LITTLE = 0.05  # of the busy time: not worth a word
_GRAPHS_OFF_GIB = 0.5
_STARVED = 3.0  # times as long: a decode step with a prompt in it
_STORM = 0.05  # preemptions for each request that ran
_FIXED_SIZES = ("num_gpu_blocks_override", "kv_cache_memory_bytes")  # of the KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """All that a rule may look at."""

    start: EngineStart
    phases: tuple[LoadPhase, ...]
    max_num_seqs: int | None = None
    default_budget: int | None = None  # that this version takes on this GPU
    shareable: float | None = None  # of the prompts' tokens, by the profile
    longest_prompt: int | None = None  # by the profile
    preemptions: int | None = None
    finished: int | None = None

    @property
    def busy_s(self) -> float:
        return sum(phase.seconds for phase in self.phases if phase.bound is not Bound.IDLE)

    @property
    def on_cpu(self) -> bool:
        return self.start.facts.device == "cpu"

    def phases_of(self, bound: Bound) -> list[LoadPhase]:
        return [phase for phase in self.phases if phase.bound is bound]

    def share_of(self, bound: Bound) -> float:
        busy = self.busy_s
        return sum(phase.seconds for phase in self.phases_of(bound)) / busy if busy else 0.0

    def lines(self, *facts: str) -> tuple[int, ...]:
        return tuple(self.start.line_of[name] for name in facts if name in self.start.line_of)

    @property
    def fixed_size(self) -> str | None:
        """The argument that fixed the size of the KV cache."""
        return next((name for name in _FIXED_SIZES if name in self.start.arguments), None)

    @property
    def small_step(self) -> str | None:
        """The argument that makes steps or chunks smaller than vLLM would."""
        arguments = self.start.arguments
        budget = arguments.get("max_num_batched_tokens")
        if isinstance(budget, int) and budget < (self.default_budget or SMALLEST_DEFAULT):
            return "max_num_batched_tokens"
        threshold = arguments.get("long_prefill_token_threshold")
        small = isinstance(threshold, int) and 0 < threshold < SMALLEST_DEFAULT
        return "long_prefill_token_threshold" if small else None

    def more_room(self) -> Note:
        """How the KV cache could be larger."""
        if self.fixed_size:
            return note("change_fixed_size", argument=self.fixed_size)
        return note("change_more_kv_cpu" if self.on_cpu else "change_more_kv")


def _symptom(
    rule: str,
    evidence: list[Note],
    change: Note | str,
    effect: float,
    lines: tuple[int, ...] = (),
    title: str = "",
    **values: Any,
) -> Symptom:
    return Symptom(
        rule=rule,
        title=note(title or rule.replace("-", "_"), **values),
        evidence=tuple(evidence),
        change=note(change) if isinstance(change, str) else change,
        effect=min(1.0, effect),
        lines=tuple(dict.fromkeys(line for line in lines if line)),
    )


# -- what ended an engine, what was lost -----------------------------------------------------------


def _ended(engine: Engine) -> Symptom | None:
    failure = engine.start.failure
    if failure is None:
        return None
    evidence = [note(f"failure_{name}", value=value) for name, value in failure.figures.items()]
    if failure.error:
        evidence.append(note("failure_error", error=failure.error))
    change = note(f"change_{failure.kind}")
    if failure.kind in (Failure.NO_CACHE_BLOCKS, Failure.CONTEXT_TOO_LONG) and engine.fixed_size:
        change = engine.more_room()
    elif engine.on_cpu and failure.kind.status == "out_of_memory":
        change = note("change_more_kv_cpu")
    values = {"reason": failure.reason} if failure.kind is Failure.REFUSED else {}
    title = f"ended_{failure.kind}"
    return _symptom("ended", evidence, change, 1.0, (failure.line,), title, **values)


def _refused(engine: Engine) -> Symptom | None:
    refused = engine.start.refused
    if refused is None or not refused.count:
        return None
    seen = note("refused_lines", lines=refused.count, longest=refused.longest, limit=refused.limit)
    change = note("change_refused", tokens=max(refused.longest, refused.limit))
    return _symptom("refused-prompts", [seen], change, 0.95, (refused.first_line,))


def _bad_requests(engine: Engine) -> Symptom | None:
    """Since 0.28 at least, a server logs the answer and not why."""
    refused, longest = engine.start.refused, engine.longest_prompt
    if refused is None or refused.unexplained <= refused.count:
        return None
    evidence = [note("answers_400", count=refused.unexplained)]
    limit = engine.start.facts.max_model_len
    if longest is not None and limit is not None and longest >= limit:
        evidence.append(note("longest_and_limit", longest=longest, limit=limit))
    change = "change_bad_requests"
    return _symptom("bad-requests", evidence, change, 0.95, (refused.first_line,))


def _auto_fit(engine: Engine) -> Symptom | None:
    facts, longest = engine.start.facts, engine.longest_prompt
    if facts.fitted_to is None or facts.fitted_from is None:
        return None
    if longest is not None and longest < facts.fitted_to:
        return None
    seen = note("fitted", before=facts.fitted_from, after=facts.fitted_to, longest=longest)
    effect = 0.9 if longest is not None else 0.3
    return _symptom("auto-fit", [seen], "change_auto_fit", effect, engine.lines("fitted_to"))


# -- what the time went into -----------------------------------------------------------------------


def _held(engine: Engine, bound: Bound) -> tuple[float, list[LoadPhase], list[Note]] | None:
    """The share of the busy time, the phases, and how long that was; None where it is little."""
    phases, part = engine.phases_of(bound), engine.share_of(bound)
    if not phases or part < LITTLE:
        return None
    engines = len({phase.engine for phase in engine.phases})
    seconds = sum(phase.seconds for phase in phases) / engines
    return part, phases, [note("held_for", seconds=seconds, part=part)]


def _lines_of(phases: list[LoadPhase]) -> tuple[int, ...]:
    longest = sorted(phases, key=lambda phase: -phase.seconds)[:3]
    return tuple(sorted(line for p in longest for line in {p.first_line, p.last_line}))


def _crowd(phases: list[LoadPhase]) -> Note:
    return note(
        "crowd",
        running=max(p.running for p in phases),
        waiting=max(p.waiting for p in phases),
        kv_use=max(p.kv_use for p in phases),
    )


def _kv_bound(engine: Engine) -> Symptom | None:
    if (held := _held(engine, Bound.KV)) is None:
        return None
    part, phases, evidence = held
    evidence.append(_crowd(phases))
    return _symptom("kv-bound", evidence, engine.more_room(), part, _lines_of(phases))


def _seqs_bound(engine: Engine) -> Symptom | None:
    if (held := _held(engine, Bound.SEQS)) is None:
        return None
    part, phases, evidence = held
    evidence.append(_crowd(phases))
    change = note("change_seqs", running=max(p.running for p in phases))
    return _symptom("max-num-seqs", evidence, change, part, _lines_of(phases))


def _queue_bound(engine: Engine) -> Symptom | None:
    if (held := _held(engine, Bound.PREFILL)) is None:
        return None
    part, phases, evidence = held
    rate = max(
        w.prompt_tokens_per_s
        for w in engine.start.windows
        if any(p.engine == w.engine and p.first_line <= w.line <= p.last_line for p in phases)
    )
    evidence += [note("prompt_rate", rate=rate), _crowd(phases)]
    if any(p.burst for p in phases):
        evidence.append(note("burst", running=max(p.running for p in phases if p.burst)))
    # A budget that is not known may be what makes them wait: then it is not said to be fine.
    told = "max_num_batched_tokens" in engine.start.line_of or "arguments" in engine.start.line_of
    change = "change_queue" if told else "change_queue_budget_unknown"
    if engine.small_step:
        change = "change_queue_small_step"
    return _symptom("queue-bound", evidence, change, part * 0.5, _lines_of(phases))


def _small_step(engine: Engine) -> Symptom | None:
    name = engine.small_step
    if name is None or not engine.phases_of(Bound.PREFILL):
        return None
    default = engine.default_budget or SMALLEST_DEFAULT
    seen = note("argument_and_default", name=name, value=engine.start.arguments[name])
    if name == "max_num_batched_tokens":
        seen.values["default"] = default
    change, effect = note("change_small_step", name=name), engine.share_of(Bound.PREFILL)
    lines = engine.lines("arguments", name)
    return _symptom("small-budget", [seen], change, effect, lines, name=name)


def _client_bound(engine: Engine) -> Symptom | None:
    if (held := _held(engine, Bound.CLIENT)) is None:
        return None
    part, phases, evidence = held
    use = sum(p.kv_use * p.seconds for p in phases) / sum(p.seconds for p in phases)
    if use >= FULL / 2:
        return None  # a cache half full leaves little to gain from more requests
    evidence.append(_crowd(phases))
    change, effect = "change_client", part * (1 - use)
    return _symptom("client-bound", evidence, change, effect, _lines_of(phases))


def _starved(engine: Engine) -> Symptom | None:
    steps = engine.start.steps
    if steps is None or steps.slowdown is None or steps.slowdown < _STARVED:
        return None
    part = steps.mixed_ms / (steps.mixed_ms + steps.decoding_ms)
    seen = note(
        "step_times",
        mixed_ms=steps.mixed_ms / steps.mixed,
        decoding_ms=steps.decoding_ms / steps.decoding,
        longest_ms=steps.longest_ms,
    )
    return _symptom("prefill-bound", [seen], "change_starved", part * 0.5, (steps.longest_line,))


def _preempted(engine: Engine) -> Symptom | None:
    count, requests = engine.preemptions, engine.finished
    if not count or (requests and count / requests < _STORM):
        return None
    seen, effect = note("preempted", count=count, requests=requests), count / (requests or count)
    lines = engine.lines("preemptions")
    return _symptom("preemptions", [seen], "change_preemptions", effect, lines)


# -- what was set ----------------------------------------------------------------------------------


def _hit_rate(engine: Engine) -> Symptom | None:
    windows = [w for w in engine.start.windows if w.hit_rate is not None and not w.idle]
    shareable = engine.shareable
    if not windows or not shareable or shareable < LITTLE:
        return None
    last, off = windows[-1], engine.start.facts.enable_prefix_caching is False
    rate = last.hit_rate or 0.0
    if rate >= shareable / 2:
        return None
    seen = note("hits", rate=rate, shareable=shareable)
    change = "change_caching_on" if off else "change_hit_rate"
    lines = (*engine.lines("enable_prefix_caching"), last.line)
    return _symptom("hit-rate", [seen], change, shareable - rate, lines)


def _eager(engine: Engine) -> Symptom | None:
    if not engine.start.facts.enforce_eager or engine.on_cpu:
        return None
    lines = engine.lines("enforce_eager")
    return _symptom("eager", [note("eager_is_on")], "change_eager", 0.25, lines)


def _graphs(engine: Engine) -> Symptom | None:
    facts = engine.start.facts
    pool, estimate = facts.graph_pool_gib, facts.graph_estimate_gib
    if pool is None or estimate is None or abs(pool - estimate) < _GRAPHS_OFF_GIB:
        return None
    seen = note("graph_sizes", pool=pool, estimate=estimate)
    change = "change_graphs_larger" if pool > estimate else "change_graphs_smaller"
    return _symptom("graph-memory", [seen], change, 0.1, engine.lines("graph_pool_gib"))


RULES: tuple[Callable[[Engine], Symptom | None], ...] = (
    *(_ended, _refused, _bad_requests, _auto_fit),
    *(_kv_bound, _seqs_bound, _small_step, _queue_bound, _client_bound, _starved, _preempted),
    *(_hit_rate, _eager, _graphs),
)


def find_symptoms(engine: Engine) -> tuple[Symptom, ...]:
    """Every rule that holds, the gravest symptom first."""
    return tuple(sorted(_symptoms(engine), key=lambda symptom: -symptom.effect))


def _symptoms(engine: Engine) -> Iterator[Symptom]:
    for rule in RULES:
        if (symptom := rule(engine)) is not None:
            yield symptom
