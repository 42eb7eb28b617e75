"""The windows of a log: what an engine did between two of its periodic lines."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

# A log of weeks has millions of windows. At this number two neighbours become one.
MOST_WINDOWS = 2_048
INTERVAL_S = 10.0  # VLLM_LOG_STATS_INTERVAL
_LONGEST_S = 600.0  # farther apart, nothing was logged between: the engine was idle


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    """Rates are means over it, counts are of its end, or peaks if two were joined."""

    end_s: float
    seconds: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    running: int
    waiting: int
    kv_use: float  # a share
    hit_rate: float | None = None
    line: int = 0
    engine: str = ""  # "000", where it says
    engines: int = 1  # that are added up in it

    @property
    def idle(self) -> bool:
        tokens = self.prompt_tokens_per_s + self.output_tokens_per_s
        return tokens == 0 and self.running == 0 and self.waiting == 0

    def joined(self, later: "LogWindow") -> "LogWindow":
        """Both as one window."""
        seconds = self.seconds + later.seconds
        prompt_tokens = self.prompt_tokens_per_s * self.seconds
        prompt_tokens += later.prompt_tokens_per_s * later.seconds
        output_tokens = self.output_tokens_per_s * self.seconds
        output_tokens += later.output_tokens_per_s * later.seconds
        return replace(
            later,
            seconds=seconds,
            prompt_tokens_per_s=prompt_tokens / seconds,
            output_tokens_per_s=output_tokens / seconds,
            running=max(self.running, later.running),
            waiting=max(self.waiting, later.waiting),
            kv_use=max(self.kv_use, later.kv_use),
            line=self.line,
        )


class Timeline:
    """The windows of one engine as they come."""

    def __init__(self) -> None:
        self.windows: list[LogWindow] = []

    def add(self, words: dict[str, str], at: float | None, line: int) -> None:
        """For the periodic line with these words, `at` seconds after the first line."""
        seconds = self._seconds_until(at)
        end_s = at
        if end_s is None:
            end_s = seconds
            if self.windows:
                end_s += self.windows[-1].end_s
        hit_rate = words.get("hit_rate")
        window = LogWindow(
            end_s=end_s,
            seconds=seconds,
            prompt_tokens_per_s=float(words["prompt_tokens_per_s"]),
            output_tokens_per_s=float(words["output_tokens_per_s"]),
            running=int(words["running"]),
            waiting=int(words["waiting"]),
            kv_use=float(words["kv_use"]) / 100,
            hit_rate=None if hit_rate is None else float(hit_rate) / 100,
            line=line,
            engine=words.get("engine", ""),
            engines=int(words.get("engines", 1)),
        )
        self.windows.append(window)
        if len(self.windows) == MOST_WINDOWS:
            self._halve()

    def _halve(self) -> None:
        halved = []
        for place in range(0, len(self.windows), 2):
            window, later = self.windows[place : place + 2]
            halved.append(window.joined(later))
        self.windows = halved

    def _seconds_until(self, at: float | None) -> float:
        """How long the rates of a line are meant for.

        It is the time since vLLM last reckoned them, which it does without a word while
        idle.
        """
        if at is None or not self.windows:
            return INTERVAL_S
        last = self.windows[-1]
        passed = at - last.end_s
        if passed <= 0 or passed > _LONGEST_S:
            return INTERVAL_S
        if len(self.windows) == 1:  # nobody knew how long the first was
            self.windows[0] = replace(last, seconds=min(passed, last.seconds))
        return min(passed, self.windows[0].seconds) if last.idle else passed


def peak(counts: Iterable[tuple[str, int]]) -> int:
    """The most of a count at a time: of all engines, each as it said last.

    >>> peak([("000", 3), ("001", 2), ("000", 1), ("001", 3)])
    5
    """
    latest: dict[str, int] = {}
    most = 0
    for engine, count in counts:
        latest[engine] = count
        most = max(most, sum(latest.values()))
    return most
