"""What held an engine back, window by window, and the stretches of time that this makes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.vllm.log.reader import LogWindow

FULL = 0.9  # of the KV cache: the next prompt may not find room
_MUCH = 0.5  # of it: where less is used, a prompt that is not begun waits for something else
_BURST = 16  # requests that came between two lines
# Where nobody says how many may run, a crowd that stands at one of vLLM's own limits.
_OWN_LIMITS = frozenset({128, 256, 512, 1_024})


class Bound(StrEnum):
    """What would have to give for more to be done."""

    IDLE = "idle"
    CLIENT = (
        "client-bound"  # nothing waits: more requests at once would be more work done
    )
    PREFILL = (
        "queue-bound"  # prompts wait for their prefill, and there is room for them
    )
    SEQS = "max_num_seqs"
    KV = "KV-bound"
    END = "ending"  # the last requests ran out: no slow client


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """Neighbouring windows of one engine with the same bound, joined to one."""

    bound: Bound
    window: LogWindow  # whose line is the first
    last_line: int
    burst: bool = False  # what waited, waited between two lines

    @property
    def begin_s(self) -> float:
        return self.window.end_s - self.window.seconds


def phases(
    windows: Sequence[LogWindow], max_num_seqs: int | None, *, ended: bool = False
) -> tuple[LoadPhase, ...]:
    """Of all engines, by time. After the last line of one that `ended` nothing could be sent."""
    joined: list[LoadPhase] = []
    for name in dict.fromkeys(window.engine for window in windows):
        some = [window for window in windows if window.engine == name]
        for window, (bound, burst) in zip(
            some, _bounds(some, max_num_seqs, ended), strict=True
        ):
            phase = LoadPhase(
                bound=bound, window=window, last_line=window.line, burst=burst
            )
            last = joined[-1] if window is not some[0] else None
            if last and last.bound is bound and phase.begin_s <= last.window.end_s + 1:
                burst = last.burst and burst
                joined[-1] = replace(
                    phase, window=last.window.joined(window), burst=burst
                )
            else:
                joined.append(phase)
    return tuple(sorted(joined, key=lambda phase: phase.begin_s))


def _bounds(
    windows: Sequence[LogWindow], max_num_seqs: int | None, over: bool
) -> list[tuple[Bound, bool]]:
    """Of each window its bound, and whether what came, came at once."""
    before = [0, *(window.running + window.waiting for window in windows)]
    pairs = list(zip(windows, before, strict=False))
    bounds = [
        _bound(window, window.running - total, max_num_seqs) for window, total in pairs
    ]
    # Before an end: all that was sent is running, and no other request came.
    for place in range(len(windows) - 1, 0, -1):
        window, queued = windows[place], windows[place - 1].waiting
        came = window.running + window.waiting > before[place]
        drains = not came and (queued or not window.prompt_tokens_per_s)
        if bounds[place][0] is Bound.CLIENT and drains and over:
            bounds[place] = Bound.END, False
        over = bounds[place][0] in (Bound.END, Bound.IDLE)
    return bounds


def _bound(
    window: LogWindow, came: int, max_num_seqs: int | None
) -> tuple[Bound, bool]:
    if window.idle:
        return Bound.IDLE, False
    if window.waiting > window.deferred:
        each = window.running / window.engines
        at_limit = each == max_num_seqs or (
            max_num_seqs is None and each in _OWN_LIMITS
        )
        # Where nothing at all was read, what waits found no room, however little is left. (vLLM
        # counts a prompt when it has been read: a long one is nothing for a while, too.)
        blocked = (
            not window.prompt_tokens_per_s and not at_limit and window.kv_use >= _MUCH
        )
        # Or less is left than one of those that run has, on average.
        full = FULL if at_limit or not each else min(FULL, each / (each + 1))
        if window.kv_use >= full or blocked:
            return Bound.KV, False
        return (Bound.SEQS if at_limit else Bound.PREFILL), False
    if not window.running and not window.waiting:
        return Bound.END, False  # it had work, and has none left
    # They came at once, and nearly all of them began to run between two lines.
    burst = came >= _BURST and came > window.running / 2
    return (Bound.PREFILL, True) if burst else (Bound.CLIENT, False)
