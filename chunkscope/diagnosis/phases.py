"""What held an engine back, window by window, and the stretches of time that this makes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.vllm.log.timeline import LogWindow

FULL = 0.9  # of the KV cache: the next prompt may not find room
_MUCH = 0.5  # of it: where less is used, a prompt that is not begun waits for something else
_BURST = 16  # requests that came between two lines
# Where nobody says how many may run, a crowd that stands at one of vLLM's own limits.
_OWN_LIMITS = frozenset({128, 256, 512, 1_024})


class Bound(StrEnum):
    """What would have to give for more to be done."""

    IDLE = "idle"
    CLIENT = "client-bound"  # nothing waits: more requests at once would be more work done
    PREFILL = "queue-bound"  # prompts wait for their prefill, and there is room for them
    SEQS = "max_num_seqs"
    KV = "KV-bound"
    END = "ending"  # the last requests ran out: no slow client


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """Neighbouring windows of one engine with the same bound: peaks of counts, means of rates."""

    bound: Bound
    engine: str
    begin_s: float
    end_s: float
    first_line: int
    last_line: int
    running: int
    waiting: int
    kv_use: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    burst: bool = False  # what waited, waited between two lines

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


def phases(windows: Sequence[LogWindow], max_num_seqs: int | None) -> tuple[LoadPhase, ...]:
    """Of all engines, by time."""
    engines = dict.fromkeys(window.engine for window in windows)
    found = [
        phase
        for engine in engines
        for phase in _joined(_single([w for w in windows if w.engine == engine], max_num_seqs))
    ]
    return tuple(sorted(found, key=lambda phase: phase.begin_s))


def _single(windows: Iterable[LogWindow], max_num_seqs: int | None) -> Iterator[LoadPhase]:
    before = 0
    for window in windows:
        came = window.running - before
        bound, burst = _bound(window, came, max_num_seqs)
        before = window.running + window.waiting
        yield LoadPhase(
            bound=bound,
            engine=window.engine,
            begin_s=window.end_s - window.seconds,
            end_s=window.end_s,
            first_line=window.line,
            last_line=window.line,
            running=window.running,
            waiting=window.waiting,
            kv_use=window.kv_use,
            prompt_tokens_per_s=window.prompt_tokens_per_s,
            output_tokens_per_s=window.output_tokens_per_s,
            burst=burst,
        )


def _bound(window: LogWindow, came: int, max_num_seqs: int | None) -> tuple[Bound, bool]:
    if window.idle:
        return Bound.IDLE, False
    if window.waiting > window.deferred:
        each = window.running / window.engines
        at_limit = each == max_num_seqs or (max_num_seqs is None and each in _OWN_LIMITS)
        # Where nothing at all was read, what waits found no room, however little is left. (vLLM
        # counts a prompt when it has been read: a long one is nothing for a while, too.)
        blocked = not window.prompt_tokens_per_s and not at_limit and window.kv_use >= _MUCH
        if window.kv_use >= FULL or blocked:
            return Bound.KV, False
        return (Bound.SEQS if at_limit else Bound.PREFILL), False
    if not window.running and not window.waiting:
        return Bound.END, False  # it had work, and has none left
    # They came at once, and nearly all of them began to run between two lines.
    burst = came >= _BURST and came > window.running / 2
    return (Bound.PREFILL, True) if burst else (Bound.CLIENT, False)


def _joined(singles: Iterable[LoadPhase]) -> Iterator[LoadPhase]:
    now: LoadPhase | None = None
    for phase in singles:
        if now is None or phase.bound is not now.bound or phase.begin_s > now.end_s + 1:
            if now is not None:
                yield now
            now = phase
            continue
        seconds = now.seconds + phase.seconds
        mine, its = now.seconds / seconds, phase.seconds / seconds
        now = replace(
            now,
            end_s=phase.end_s,
            last_line=phase.last_line,
            running=max(now.running, phase.running),
            waiting=max(now.waiting, phase.waiting),
            kv_use=max(now.kv_use, phase.kv_use),
            prompt_tokens_per_s=mine * now.prompt_tokens_per_s + its * phase.prompt_tokens_per_s,
            output_tokens_per_s=mine * now.output_tokens_per_s + its * phase.output_tokens_per_s,
            burst=now.burst and phase.burst,
        )
    if now is not None:
        yield now
