"""What an engine did, window by window: one line of its log every ten seconds.

A log of weeks has millions of such lines: past so many, two neighbours become one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from chunkscope.vllm.log.facts import values_of

MOST_WINDOWS = 2_048
INTERVAL_S = 10.0  # VLLM_LOG_STATS_INTERVAL, unless the lines say otherwise
_LONGEST_S = 600.0  # farther apart, nothing was logged between: the engine was idle


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    """Rates are means over it, counts are of its end; peaks where windows were joined."""

    end_s: float
    seconds: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    running: int
    waiting: int
    kv_use: float  # a share
    hit_rate: float | None = None
    deferred: int = 0  # of those waiting: for KV from elsewhere or a grammar, not for room
    line: int = 0
    engine: str = ""  # "000", where it says
    engines: int = 1  # that are added up in it

    @property
    def idle(self) -> bool:
        tokens = self.prompt_tokens_per_s + self.output_tokens_per_s
        return not (self.running or self.waiting or tokens)

    def joined(self, later: "LogWindow") -> "LogWindow":
        seconds = self.seconds + later.seconds
        mine, its = self.seconds / seconds, later.seconds / seconds
        return replace(
            later,
            seconds=seconds,
            prompt_tokens_per_s=mine * self.prompt_tokens_per_s + its * later.prompt_tokens_per_s,
            output_tokens_per_s=mine * self.output_tokens_per_s + its * later.output_tokens_per_s,
            running=max(self.running, later.running),
            waiting=max(self.waiting, later.waiting),
            kv_use=max(self.kv_use, later.kv_use),
            deferred=min(self.deferred, later.deferred),
            line=self.line,
        )


def peak(windows: Iterable[LogWindow], name: str) -> int:
    """The most of a count, such as `running`: of all engines, each as it said last."""
    now: dict[str, int] = {}
    most = 0
    for window in windows:
        now[window.engine] = getattr(window, name)
        most = max(most, sum(now.values()))
    return most


class Timeline:
    """The windows of one engine as they come."""

    def __init__(self) -> None:
        self.windows: list[LogWindow] = []
        self._interval: float | None = None  # the least time between two lines

    def add(self, words: Mapping[str, str], at: float | None, line: int) -> None:
        seconds, values = self._length(at), values_of(LogWindow, words)
        shares = {name: values[name] / 100 for name in ("kv_use", "hit_rate") if name in values}
        before = self.windows[-1].end_s if self.windows else 0.0
        end_s = before + seconds if at is None else at
        window = LogWindow(**values | shares, end_s=end_s, seconds=seconds, line=line)
        self.windows.append(window)
        if len(self.windows) == MOST_WINDOWS:
            pairs = zip(self.windows[::2], self.windows[1::2], strict=True)
            self.windows = [one.joined(other) for one, other in pairs]

    def _length(self, at: float | None) -> float:
        """A rate is over the time since vLLM last reckoned, which it does silently while idle."""
        last = self.windows[-1] if self.windows else None
        if at is None or last is None:
            return self._interval or INTERVAL_S
        passed = at - last.end_s
        if 0 < passed <= _LONGEST_S:
            first, usual = self._interval is None, INTERVAL_S if last.idle else passed
            self._interval = interval = min(self._interval or usual, passed)
            if first and interval < last.seconds:  # nobody knew how long the first line's was
                self.windows[-1] = replace(last, seconds=interval)
            if not (last.idle and passed > 1.5 * interval + 1):
                return passed
        return self._interval or INTERVAL_S


@dataclass(slots=True, kw_only=True)
class StepTally:
    """Steps of an engine that logs each, added up (`--enable-logging-iteration-details`).

    Decoding alone, and decoding with a prompt: the difference is what a prompt costs.
    """

    steps: int = 0
    decoding: int = 0
    decoding_ms: float = 0.0
    mixed: int = 0
    mixed_ms: float = 0.0
    longest_ms: float = 0.0  # of those that made somebody's token wait
    longest_line: int = 0

    def add(self, words: Mapping[str, str], line: int) -> None:
        prefills, decodes, ms = int(words["prefills"]), int(words["decodes"]), float(words["ms"])
        self.steps += 1
        if decodes and prefills:
            self.mixed += 1
            self.mixed_ms += ms
        elif decodes:
            self.decoding += 1
            self.decoding_ms += ms
        if decodes and ms > self.longest_ms:
            self.longest_ms, self.longest_line = ms, line

    @property
    def slowdown(self) -> float | None:
        """How many times longer a decode step is with a prompt beside it."""
        if not (self.mixed and self.decoding and self.decoding_ms):
            return None
        return (self.mixed_ms / self.mixed) / (self.decoding_ms / self.decoding)


@dataclass(slots=True, kw_only=True)
class RefusedPrompts:
    """Prompts longer than the context: how many lines say so, the longest, and the first line.

    A server may log no more than that it answered 400: for length, or for something else.
    """

    count: int = 0
    unexplained: int = 0
    longest: int = 0
    limit: int = 0
    first_line: int = 0

    def add(self, words: Mapping[str, str]) -> None:
        self.limit = int(words.get("limit", 0)) or self.limit
        self.count += 1
        self.longest = max(self.longest, int(words.get("length", 0)))

    @property
    def most(self) -> int:
        """A prompt that a line tells of was answered 400, too."""
        return max(self.count, self.unexplained)
