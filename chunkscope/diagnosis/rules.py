"""What limits an engine, as rows: none says anything without evidence."""

from collections.abc import Callable
from dataclasses import dataclass

from chunkscope.artefacts.note import Note, note
from chunkscope.diagnosis.phases import FULL
from chunkscope.lengths.profile import Profile
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.vllm.flags import spelled
from chunkscope.vllm.log.facts import FIXED_SIZES
from chunkscope.vllm.log.failures import Failure, Status
from chunkscope.vllm.log.start import Bound, EngineStart, RefusedPrompts, Symptom

# Tokens of a step that vLLM takes by itself at the least, on any GPU and in any
# version.
SMALLEST_DEFAULT = 2_048
LITTLE = 0.05  # of the busy time: not worth a word
_STORM = 0.05  # preemptions for each request that ran
_BUDGET = "max_num_batched_tokens"
_THRESHOLD = "long_prefill_token_threshold"
_SHOWN_PHASES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that a rule may look at."""

    start: EngineStart
    default_budget: int | None = None  # that this version takes on this GPU
    profile: Profile | None = None
    finished: int | None = None  # requests, by a server

    @property
    def on_cpu(self) -> bool:
        return self.start.facts.device == "cpu"

    @property
    def small_steps(self) -> dict[str, int]:
        """The arguments that make steps or chunks smaller than vLLM would."""
        given = self.start.settings.given()
        if "arguments" in self.start.line_of:
            given = self.start.arguments
        usual = {
            _BUDGET: self.default_budget or SMALLEST_DEFAULT,
            _THRESHOLD: SMALLEST_DEFAULT,
        }
        small = {}
        for name, tokens in usual.items():
            value = given.get(name)
            if isinstance(value, int) and 0 < value < tokens:
                small[name] = value
        return small

    def more_room(self, on_gpu: str) -> Note:
        """How the KV cache gets larger, by the argument that fixed it or the device."""
        for name in FIXED_SIZES:
            if name in self.start.arguments:
                return note("change_fixed_size", argument=spelled(name))
        return note("change_more_kv_cpu" if self.on_cpu else on_gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """That a rule holds; `title` where it is more than the rule's name."""

    effect: float
    notes: list[Note]
    lines: tuple[int, ...] = ()
    title: Note | None = None


# -- what ended an engine, what was lost ---------------------------------------


def _ended(case: Case) -> Evidence | None:
    failure = case.start.failure
    if failure is None:
        return None
    notes = [
        note(f"failure_{name}", value=value) for name, value in failure.figures.items()
    ]
    reason = failure.reason or failure.error
    title = note(f"ended_{failure.kind}", reason=reason)
    return Evidence(effect=1.0, notes=notes, lines=(failure.line,), title=title)


def _change_after_end(case: Case) -> Note:
    failure = case.start.failure
    if failure is None:
        return note("change_died", reason=None)
    code = f"change_{failure.kind}"
    if failure.kind in (Failure.NO_CACHE_BLOCKS, Failure.CONTEXT_TOO_LONG):
        return case.more_room(code)
    if case.on_cpu and failure.kind.status is Status.OUT_OF_MEMORY:
        return note("change_oom_cpu")
    return note(code, reason=failure.reason)


def _refused_prompts(case: Case) -> Evidence | None:
    refused = case.start.refused
    if refused is None or refused.count == 0:
        return None
    seen = note(
        "refused_lines",
        lines=refused.count,
        longest=refused.longest or None,
        limit=refused.limit,
    )
    return Evidence(effect=0.95, notes=[seen], lines=(refused.first_line,))


def _longer_context(case: Case) -> Note:
    refused = case.start.refused or RefusedPrompts()
    return note("change_refused", tokens=max(refused.longest, refused.limit))


def _bad_requests(case: Case) -> Evidence | None:
    """Since 0.28 at least, a server logs the answer and not why."""
    refused = case.start.refused
    if refused is None or refused.unexplained <= refused.count:
        return None
    notes = [note("answers_400", count=refused.unexplained)]
    longest = case.profile.overall.max if case.profile else None
    limit = case.start.settings.max_model_len
    if longest is not None and limit is not None and longest >= limit:
        notes.append(note("longest_and_limit", longest=longest, limit=limit))
    return Evidence(effect=0.95, notes=notes, lines=(refused.first_line,))


# -- what the time went into ---------------------------------------------------


def _held_back(case: Case, bound: Bound, weight: float = 1.0) -> Evidence | None:
    """That a bound held for a part of the busy time; None where it is little."""
    start = case.start
    part = start.share_of(bound)
    if part < LITTLE:
        return None
    longest = sorted(start.phases_of(bound), key=lambda phase: -phase.window.seconds)
    lines: set[int] = set()
    for phase in longest[:_SHOWN_PHASES]:
        lines |= {phase.window.line, phase.last_line}
    return Evidence(
        effect=part * weight,
        notes=[note("held_for", seconds=start.seconds_of(bound), part=part)],
        lines=tuple(sorted(lines)),
    )


def _kv_bound(case: Case) -> Evidence | None:
    return _held_back(case, Bound.KV)


def _more_kv(case: Case) -> Note:
    return case.more_room("change_more_kv")


def _seqs_bound(case: Case) -> Evidence | None:
    return _held_back(case, Bound.SEQS)


def _more_seqs(case: Case) -> Note:
    running = 0
    for phase in case.start.phases_of(Bound.SEQS):
        running = max(running, phase.window.running // phase.window.engines)
    return note("change_seqs", running=running)


def _small_steps(case: Case) -> Evidence | None:
    small = case.small_steps
    if not small or not case.start.phases_of(Bound.PREFILL):
        return None
    defaults = {_BUDGET: case.default_budget or SMALLEST_DEFAULT}
    notes = []
    for name, value in small.items():
        default = defaults.get(name)
        notes.append(
            note("argument_and_default", name=name, value=value, default=default)
        )
    return Evidence(
        effect=case.start.share_of(Bound.PREFILL),
        notes=notes,
        lines=case.start.lines_of("arguments", *small),
        title=note("small_budget", names=_flags(small)),
    )


def _larger_steps(case: Case) -> Note:
    return note("change_small_step", names=_flags(case.small_steps))


def _flags(arguments: dict[str, int]) -> list[str]:
    return [spelled(name) for name in arguments]


def _queue_bound(case: Case) -> Evidence | None:
    if case.small_steps:  # prompts wait because steps are small
        return None
    return _held_back(case, Bound.PREFILL, weight=0.5)


def _shorter_queue(case: Case) -> Note:
    # A budget that is not known may be what makes prompts wait: then it is not said to
    # be fine.
    if case.start.lines_of(_BUDGET, "arguments"):
        return note("change_queue")
    return note("change_queue_budget_unknown")


def _client_bound(case: Case) -> Evidence | None:
    used = 0.0
    seconds = 0.0
    for phase in case.start.phases_of(Bound.CLIENT):
        used += phase.window.kv_use * phase.window.seconds
        seconds += phase.window.seconds
    if seconds == 0 or used / seconds >= FULL / 2:
        return None  # a cache half full leaves little to gain from more requests
    # What is refused is graver.
    return _held_back(case, Bound.CLIENT, weight=0.9 * (1 - used / seconds))


def _preempted(case: Case) -> Evidence | None:
    count = case.start.preemptions
    if not count:
        return None
    seen = note("preempted", count=count, requests=case.finished)
    if not case.finished:
        return Evidence(effect=1.0, notes=[seen])
    each = count / case.finished
    if each < _STORM:
        return None
    return Evidence(effect=each, notes=[seen])


# -- what was set --------------------------------------------------------------


def _few_hits(case: Case) -> Evidence | None:
    """Much lower than in a cache that never forgets, by the profile."""
    last = None
    for window in case.start.windows:
        if window.hit_rate is not None and not window.idle:
            last = window
    if last is None or last.hit_rate is None or case.profile is None:
        return None
    reuses = [dataset.prefixes for dataset in case.profile.datasets if dataset.prefixes]
    shareable = reuse_together(reuses).hit_rate if reuses else None
    if shareable is None or shareable < LITTLE or last.hit_rate >= shareable / 2:
        return None
    return Evidence(
        effect=shareable - last.hit_rate,
        notes=[note("hits", rate=last.hit_rate, shareable=shareable)],
        lines=(*case.start.lines_of("enable_prefix_caching"), last.line),
    )


def _more_hits(case: Case) -> Note:
    if case.start.settings.enable_prefix_caching is False:
        return note("change_caching_on")
    return note("change_hit_rate")


def _eager(case: Case) -> Evidence | None:
    if not case.start.facts.enforce_eager or case.on_cpu:
        return None
    lines = case.start.lines_of("enforce_eager")
    return Evidence(effect=0.25, notes=[], lines=lines)


# -- all of them ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """The condition and what shows that it holds, in one; and what to change then."""

    name: str
    evidence: Callable[[Case], Evidence | None]
    change: Callable[[Case], Note] | str  # or the code of what is always the same


RULES = (
    Rule("ended", _ended, _change_after_end),
    Rule("refused-prompts", _refused_prompts, _longer_context),
    Rule("bad-requests", _bad_requests, "change_bad_requests"),
    Rule("kv-bound", _kv_bound, _more_kv),
    Rule("max-num-seqs", _seqs_bound, _more_seqs),
    Rule("small-budget", _small_steps, _larger_steps),
    Rule("queue-bound", _queue_bound, _shorter_queue),
    Rule("client-bound", _client_bound, "change_client"),
    Rule("preemptions", _preempted, "change_preemptions"),
    Rule("hit-rate", _few_hits, _more_hits),
    Rule("eager", _eager, "change_eager"),
)


def find_symptoms(case: Case) -> tuple[Symptom, ...]:
    """Every rule that holds, the gravest symptom first."""
    symptoms = []
    for rule in RULES:
        evidence = rule.evidence(case)
        if evidence is not None:
            symptoms.append(_symptom(rule, case, evidence))
    symptoms.sort(key=lambda symptom: -symptom.effect)
    return tuple(symptoms)


def _symptom(rule: Rule, case: Case, evidence: Evidence) -> Symptom:
    change = rule.change
    # Lines of a server are 0: it has none.
    lines = dict.fromkeys(line for line in evidence.lines if line > 0)
    return Symptom(
        rule=rule.name,
        title=evidence.title or note(rule.name.replace("-", "_")),
        evidence=tuple(evidence.notes),
        change=note(change) if isinstance(change, str) else change(case),
        effect=min(1.0, evidence.effect),
        lines=tuple(lines),
    )
