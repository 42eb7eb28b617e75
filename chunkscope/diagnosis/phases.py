"""What held an engine back, window by window, joined to stretches of time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from chunkscope.vllm.log.start import Bound, LoadPhase
from chunkscope.vllm.log.windows import LogWindow

FULL = 0.9  # of the KV cache: the next prompt may not find room
# Of the KV cache: where less is used, a prompt that is not begun waits for something
# else.
_MUCH = 0.5
# Where nobody says how many may run, a crowd that stands at one of vLLM's own limits.
_OWN_LIMITS = frozenset({128, 256, 512, 1_024})
_PAUSE_S = 1.0  # the clock of a log has whole seconds


def phases(
    windows: Sequence[LogWindow], max_num_seqs: int | None, *, ended: bool = False
) -> tuple[LoadPhase, ...]:
    """The phases of all engines, by time; `ended` by a failure."""
    by_engine: dict[str, list[LogWindow]] = {}
    for window in windows:
        by_engine.setdefault(window.engine, []).append(window)
    found: list[LoadPhase] = []
    for engine_windows in by_engine.values():
        telling = _without_tails(engine_windows, ended=ended)
        found += _phases_of_engine(telling, max_num_seqs)
    found.sort(key=lambda phase: phase.begin_s)
    return tuple(found)


def _without_tails(windows: Sequence[LogWindow], *, ended: bool) -> list[LogWindow]:
    """The windows that tell what limited an engine.

    In the last windows of a load nothing waits, and no prompt is read but those that
    waited: the answers run out, which is no fault of a setting or of the client.
    """
    telling = []
    load_ends = ended  # nothing more could be sent to it
    for place in reversed(range(len(windows))):
        window = windows[place]
        waited = place > 0 and windows[place - 1].waiting > 0
        reads_new_prompts = window.prompt_tokens_per_s > 0 and not waited
        if window.running + window.waiting == 0:
            load_ends = True
        elif window.waiting > 0 or reads_new_prompts:
            load_ends = False
        if window.idle or not load_ends:
            telling.append(window)
    return telling[::-1]


def _phases_of_engine(
    windows: Iterable[LogWindow], max_num_seqs: int | None
) -> list[LoadPhase]:
    """Neighbours with the same bound are joined, unless a pause is between them."""
    found: list[LoadPhase] = []
    for window in windows:
        bound = bound_of(window, max_num_seqs)
        phase = LoadPhase(bound=bound, window=window, last_line=window.line)
        last = found[-1] if found else None
        if (
            last is not None
            and last.bound is bound
            and phase.begin_s <= last.window.end_s + _PAUSE_S
        ):
            found[-1] = replace(phase, window=last.window.joined(window))
        else:
            found.append(phase)
    return found


def bound_of(window: LogWindow, max_num_seqs: int | None) -> Bound:
    """What held the engine back in one window."""
    if window.idle:
        return Bound.IDLE
    if window.waiting == 0:
        return Bound.CLIENT
    running = window.running / window.engines
    if max_num_seqs is None:
        at_limit = running in _OWN_LIMITS
    else:
        at_limit = running == max_num_seqs
    if at_limit:
        return Bound.KV if window.kv_use >= FULL else Bound.SEQS
    full = FULL
    if running > 0:  # less is left than one of those that run has, on average
        full = min(FULL, running / (running + 1))
    # Where nothing at all was read, what waits found no room, however little is left.
    # (vLLM counts a prompt when it has been read: a long one is nothing for a while,
    # too.)
    if window.prompt_tokens_per_s == 0:
        full = min(full, _MUCH)
    return Bound.KV if window.kv_use >= full else Bound.PREFILL
