"""What limits an engine, as rules: each sees one engine and says nothing without evidence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.diagnosis.diagnosis import Symptom
from chunkscope.diagnosis.phases import FULL, Bound, LoadPhase
from chunkscope.lengths.profile import Profile
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.verification.endpoint.metrics import FIXED_SIZES
from chunkscope.vllm.flags import GPU_CLASSES, spelled
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.reader import EngineStart, LogWindow

SMALLEST_DEFAULT = min(
    budget for *_, (budget, _), _ in GPU_CLASSES
)  # of any GPU and version
LITTLE = 0.05  # of the busy time: not worth a word
_STARVED = 3.0  # times as long: a decode step with a prompt in it
_STORM = 0.05  # preemptions for each request that ran
_STEP_SIZES = ("max_num_batched_tokens", "long_prefill_token_threshold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """All that a rule may look at."""

    start: EngineStart
    phases: tuple[LoadPhase, ...]
    default_budget: int | None = None  # that this version takes on this GPU
    profile: Profile | None = None
    finished: int | None = None  # requests, by a server

    @property
    def longest_prompt(self) -> int | None:
        return self.profile.overall.max if self.profile else None

    @property
    def on_cpu(self) -> bool:
        return self.start.facts.device == "cpu"

    def windows_of(self, bound: Bound) -> list[LogWindow]:
        return [phase.window for phase in self.phases if phase.bound is bound]

    def share_of(self, bound: Bound) -> float:
        """Of the busy time."""
        busy = sum(p.window.seconds for p in self.phases if p.bound is not Bound.IDLE)
        return (
            sum(window.seconds for window in self.windows_of(bound)) / busy
            if busy
            else 0.0
        )

    def lines(self, *facts: str) -> tuple[int, ...]:
        return tuple(
            self.start.line_of[name] for name in facts if name in self.start.line_of
        )

    @property
    def small_steps(self) -> dict[str, int]:
        """The arguments that make steps or chunks smaller than vLLM would."""
        start = self.start
        given = (
            start.arguments if "arguments" in start.line_of else start.settings.given()
        )
        least = (self.default_budget or SMALLEST_DEFAULT, SMALLEST_DEFAULT)
        sizes = [
            (name, given.get(name), low)
            for name, low in zip(_STEP_SIZES, least, strict=True)
        ]
        return {
            name: size
            for name, size, low in sizes
            if isinstance(size, int) and 0 < size < low
        }

    def more_room(self, on_gpu: Note) -> Note:
        """How the KV cache could be larger: by the argument that fixed it, else by the device."""
        fixed = next(
            (name for name in FIXED_SIZES if name in self.start.arguments), None
        )
        if fixed:
            unsure = fixed == FIXED_SIZES[1] and not self.start.last_line
            return note("change_fixed_size", argument=spelled(fixed), or_on_cpu=unsure)
        return note("change_more_kv_cpu") if self.on_cpu else on_gpu


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
    evidence = [
        note(f"failure_{name}", value=value) for name, value in failure.figures.items()
    ]
    facts, change = (
        engine.start.facts,
        note(f"change_{failure.kind}", reason=failure.reason),
    )
    missing = failure.figures.get("needed_gib", 0.0) - failure.figures.get(
        "available_gib", 0.0
    )
    # Compiling takes one more embedding (hardware/memory.py): seldom more than half of the weights.
    first = not (facts.enforce_eager or facts.found_compiled)
    if first and 0 < missing < (facts.weights_gib or 0.0) / 2:
        change = note("change_first_start", how=change.code)
    if failure.kind in (Failure.NO_CACHE_BLOCKS, Failure.CONTEXT_TOO_LONG):
        change = engine.more_room(change)
    elif engine.on_cpu and failure.kind.status == "out_of_memory":
        change = note("change_oom_cpu")
    title = f"ended_{failure.kind}"
    reason = failure.reason or failure.error
    return _symptom(
        "ended", evidence, change, 1.0, (failure.line,), title, reason=reason
    )


def _refused(engine: Engine) -> Symptom | None:
    refused = engine.start.refused
    if refused is None or not refused.count:
        return None
    seen = note(
        "refused_lines",
        lines=refused.count,
        longest=refused.longest or None,
        limit=refused.limit,
    )
    change = note("change_refused", tokens=max(refused.longest, refused.limit))
    return _symptom("refused-prompts", [seen], change, 0.95, (refused.first_line,))


def _bad_requests(engine: Engine) -> Symptom | None:
    """Since 0.28 at least, a server logs the answer and not why."""
    refused, longest = engine.start.refused, engine.longest_prompt
    if refused is None or refused.unexplained <= refused.count:
        return None
    evidence = [note("answers_400", count=refused.unexplained)]
    limit = engine.start.settings.max_model_len
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
    seen = note(
        "fitted", before=facts.fitted_from, after=facts.fitted_to, longest=longest
    )
    change, effect = (
        engine.more_room(note("change_auto_fit")),
        0.9 if longest is not None else 0.3,
    )
    return _symptom("auto-fit", [seen], change, effect, engine.lines("fitted_to"))


# -- what the time went into -----------------------------------------------------------------------


def _held_back(
    engine: Engine, bound: Bound, change: Note | str, weight: float = 1.0, **values: Any
) -> Symptom | None:
    """By the share of the busy time for which this was the bound; None where it is little."""
    windows, part = engine.windows_of(bound), engine.share_of(bound)
    if not windows or part < LITTLE:
        return None
    engines = len({p.window.engine for p in engine.phases if p.bound is not Bound.IDLE})
    seconds = sum(window.seconds for window in windows) / engines
    evidence = [note("held_for", seconds=seconds, part=part)]
    phases = [phase for phase in engine.phases if phase.bound is bound]
    longest = sorted(phases, key=lambda phase: -phase.window.seconds)[:3]
    lines = tuple(
        sorted(line for p in longest for line in {p.window.line, p.last_line})
    )
    rule = bound.value.lower().replace("_", "-")
    return _symptom(rule, evidence, change, part * weight, lines, **values)


def _kv_bound(engine: Engine) -> Symptom | None:
    return _held_back(engine, Bound.KV, engine.more_room(note("change_more_kv")))


def _seqs_bound(engine: Engine) -> Symptom | None:
    running = max(
        (w.running // w.engines for w in engine.windows_of(Bound.SEQS)), default=0
    )
    return _held_back(engine, Bound.SEQS, note("change_seqs", running=running))


def _queue_bound(engine: Engine) -> Symptom | None:
    # A budget that is not known may be what makes them wait: then it is not said to be fine.
    is_known = engine.lines("max_num_batched_tokens", "arguments")
    change = "change_queue" if is_known else "change_queue_budget_unknown"
    if (
        engine.small_steps
        or max(map(engine.share_of, (Bound.KV, Bound.SEQS))) >= LITTLE
    ):
        change = "change_queue_last"
    between = all(
        phase.burst for phase in engine.phases if phase.bound is Bound.PREFILL
    )
    return _held_back(engine, Bound.PREFILL, change, weight=0.5, between=between)


def _small_step(engine: Engine) -> Symptom | None:
    steps = engine.small_steps
    if not steps or not engine.windows_of(Bound.PREFILL):
        return None
    defaults = {_STEP_SIZES[0]: engine.default_budget or SMALLEST_DEFAULT}
    seen = [
        note("argument_and_default", name=name, value=value, default=defaults.get(name))
        for name, value in steps.items()
    ]
    lines, flags = engine.lines("arguments", *steps), [*map(spelled, steps)]
    change, effect = (
        note("change_small_step", names=flags),
        engine.share_of(Bound.PREFILL),
    )
    return _symptom("small-budget", seen, change, effect, lines, names=flags)


def _client_bound(engine: Engine) -> Symptom | None:
    windows = engine.windows_of(Bound.CLIENT)
    use = sum(w.kv_use * w.seconds for w in windows) / (
        sum(w.seconds for w in windows) or 1.0
    )
    if use >= FULL / 2:
        return None  # a cache half full leaves little to gain from more requests
    # What is refused is graver.
    return _held_back(engine, Bound.CLIENT, "change_client", weight=0.9 * (1 - use))


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
    return _symptom(
        "prefill-bound", [seen], "change_starved", part * 0.5, (steps.longest_line,)
    )


def _preempted(engine: Engine) -> Symptom | None:
    count, requests = engine.start.preemptions, engine.finished
    if not count or (requests and count / requests < _STORM):
        return None
    seen, effect = (
        note("preempted", count=count, requests=requests),
        count / (requests or count),
    )
    return _symptom("preemptions", [seen], "change_preemptions", effect)


# -- what was set ----------------------------------------------------------------------------------


def _hit_rate(engine: Engine) -> Symptom | None:
    """Much lower than in a cache that never forgets, by the profile."""
    windows = [w for w in engine.start.windows if w.hit_rate is not None and not w.idle]
    reuses = (
        [d.prefixes for d in engine.profile.datasets if d.prefixes]
        if engine.profile
        else []
    )
    shareable = reuse_together(reuses).hit_rate if reuses else None
    if not windows or not shareable or shareable < LITTLE:
        return None
    last, off = windows[-1], engine.start.settings.enable_prefix_caching is False
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
    return _symptom("eager", [], "change_eager", 0.25, engine.lines("enforce_eager"))


RULES: tuple[Callable[[Engine], Symptom | None], ...] = (
    *(_ended, _refused, _bad_requests, _auto_fit),
    *(
        _kv_bound,
        _seqs_bound,
        _small_step,
        _queue_bound,
        _client_bound,
        _starved,
        _preempted,
    ),
    *(_hit_rate, _eager),
)


def find_symptoms(engine: Engine) -> tuple[Symptom, ...]:
    """Every rule that holds, the gravest symptom first."""
    symptoms = [symptom for rule in RULES if (symptom := rule(engine)) is not None]
    return tuple(sorted(symptoms, key=lambda symptom: -symptom.effect))
