"""Lines of a log -> the engines in it: each from a start to the next, or to the end.

Memory is constant: figures are added up as they come, and nothing else of a line is kept, since it
may hold a prompt or a key.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chunkscope.vllm.log import facts
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import STOPPING, FailureReader, LoggedFailure
from chunkscope.vllm.log.lines import CUT, LogLine, peeled, seconds_between
from chunkscope.vllm.settings import Settings

# Lines of clients are many, and what they hold is not looked at.
_OF_A_REQUEST = re.compile(
    rb"(?:Received|Added) request |Generated response | details: prompt: "
)
_ACCESS, _BAD_REQUEST = b"HTTP/1.", b"400 Bad Request"
_SIGN = re.compile(b"|".join(re.escape(sign) for sign, _ in facts.SIGNS))
_BEGINS = (facts.STARTED, facts.ARGUMENTS, facts.BANNER)
# A log of weeks has millions of windows: past so many, two neighbours become one.
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
    deferred: int = (
        0  # of those waiting: for KV from elsewhere or a grammar, not for room
    )
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
            prompt_tokens_per_s=mine * self.prompt_tokens_per_s
            + its * later.prompt_tokens_per_s,
            output_tokens_per_s=mine * self.output_tokens_per_s
            + its * later.output_tokens_per_s,
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
        seconds, values = self._length(at), facts.values_of(LogWindow, words)
        shares = {
            name: values[name] / 100
            for name in ("kv_use", "hit_rate")
            if name in values
        }
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
            if (
                first and interval < last.seconds
            ):  # nobody knew how long the first line's was
                self.windows[-1] = replace(last, seconds=interval)
            if not (last.idle and passed > 1.5 * interval + 1):
                return passed
        return self._interval or INTERVAL_S


@dataclass(slots=True, kw_only=True)
class StepTally:
    """Logged steps (`--enable-logging-iteration-details`): the difference is a prompt's cost."""

    decoding: int = 0
    decoding_ms: float = 0.0
    mixed: int = 0
    mixed_ms: float = 0.0
    longest_ms: float = 0.0  # of those that made somebody's token wait
    longest_line: int = 0

    def add(self, words: Mapping[str, str], line: int) -> None:
        prefills, decodes, ms = (
            int(words["prefills"]),
            int(words["decodes"]),
            float(words["ms"]),
        )
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
    """Prompts longer than the context; of some, a log says no more than that 400 was answered."""

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


@dataclass(slots=True, kw_only=True)
class EngineStart:
    """One engine, or several of one server: data parallel."""

    first_line: int = 0
    last_line: int = 0
    facts: EngineFacts = field(default_factory=EngineFacts)
    arguments: dict[str, Any] = field(default_factory=dict)
    line_of: dict[str, int] = field(default_factory=dict)  # by fact
    windows: tuple[LogWindow, ...] = ()  # by time; of all engines
    engines: int = 1
    steps: StepTally | None = None
    refused: RefusedPrompts | None = None
    failure: LoggedFailure | None = None
    preemptions: int | None = None  # of a server: logs do not say

    @property
    def settings(self) -> Settings:
        """What it runs with, as far as it says."""
        settings = self.facts.settings.over(Settings.of(self.arguments))
        as_model = settings.kv_cache_dtype in ("auto", self.facts.dtype)
        return replace(settings, kv_cache_dtype=None) if as_model else settings

    @property
    def prompt_tokens(self) -> float:
        """As the rates of the windows add up."""
        return sum(
            window.prompt_tokens_per_s * window.seconds for window in self.windows
        )

    @property
    def output_tokens(self) -> float:
        return sum(
            window.output_tokens_per_s * window.seconds for window in self.windows
        )

    @property
    def busy_s(self) -> float:
        """Of the engine that was busy for longest."""
        busy: defaultdict[str, float] = defaultdict(float)
        for window in self.windows:
            busy[window.engine] += 0 if window.idle else window.seconds
        return max(busy.values(), default=0.0)


@dataclass(slots=True, kw_only=True)
class _Engine(EngineStart):
    """While its lines are read."""

    timelines: dict[str, Timeline] = field(default_factory=dict)
    server: str = ""
    pids: dict[str, str] = field(
        default_factory=dict
    )  # with the names of their processes
    started: set[str] = field(default_factory=set)  # processes that began an engine
    failures: FailureReader = field(default_factory=FailureReader)

    @property
    def ready(self) -> bool:
        return self.facts.init_s is not None or bool(self.timelines)

    def learn(self, words: dict[str, str], line: int) -> None:
        """The first to say it counts, of several workers; but the KV cache is that of the least."""
        values, told = (
            facts.values_of(EngineFacts, words),
            facts.values_of(Settings, words),
        )
        context = values.get("fitted_to") or told.get(
            "max_model_len"
        )  # of these the last counts
        before = replace(
            self.facts.settings, **{"max_model_len": None} if context else {}
        )
        self.facts.settings = before.over(
            Settings.of(told | {"max_model_len": context})
        )
        self.line_of |= dict.fromkeys(
            self.facts.settings.changed_from(before).given(), line
        )
        for name, value in values.items():
            known = getattr(self.facts, name)
            if name in ("kv_cache_tokens", "kv_cache_gib", "kv_concurrency"):
                value = value if known is None else min(value, known)
            elif known is not None:
                continue
            setattr(self.facts, name, value)
            self.line_of[name] = line

    def fail(self, line: LogLine) -> None:
        loading = bool(self.started) and self.facts.weights_gib is None
        self.failures.add(line.text, line.number, loading=loading, serving=self.ready)

    def settle(self) -> EngineStart:
        windows = [
            window
            for timeline in self.timelines.values()
            for window in timeline.windows
        ]
        self.windows = tuple(sorted(windows, key=lambda window: window.end_s))
        counts = (len(self.timelines), len(self.started), *(w.engines for w in windows))
        self.engines = max(1, *counts)
        self.failure = self.failures.ended(
            ready=bool(self.timelines), last_line=self.last_line
        )
        return self


def facts_in(text: str) -> EngineFacts:
    """What the last engine in a log says of itself."""
    reader = LogReader()
    reader.feed(text.encode("utf-8", "replace"), last=True)
    return reader.starts()[-1].facts if reader.starts() else EngineFacts()


class LogReader:
    """Feed it bytes as they come; ask it at any time."""

    def __init__(self) -> None:
        self.lines = 0
        self.understood = 0
        self._engines: list[_Engine] = []
        self._first: float | None = None  # the time of the first line that has one
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """An unended line waits for more, unless it is the `last`; one that never ends is cut."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = b"" if last else rest[:CUT]
        for raw in [*lines, rest] if last and rest else lines:
            self.lines += 1
            if _ACCESS in raw and self._engines:
                line = peeled(raw if len(self._engines) > 1 else b"", self.lines)
                engine = self._engine("", line)
                engine.last_line = self.lines
                if _BAD_REQUEST in raw:
                    engine.refused = engine.refused or RefusedPrompts(
                        first_line=self.lines
                    )
                    engine.refused.unexplained += 1
            elif _SIGN.search(raw) and not _OF_A_REQUEST.search(raw):
                name = next(name for sign, name in facts.SIGNS if sign in raw)
                self._take(name, peeled(raw, self.lines))

    def starts(self) -> tuple[EngineStart, ...]:
        return tuple(engine.settle() for engine in self._engines)

    def _take(self, name: str, line: LogLine) -> None:
        if name == facts.ERROR:
            if (
                self._engines or STOPPING in line.text
            ):  # what is left of a log may be an end
                self._engine(name, line).fail(line)
            return
        self._first = line.at if self._first is None else self._first
        at = seconds_between(self._first, line.at) if self._first and line.at else None
        words = {} if name == facts.FAILURE else facts.parse(name, line.text)
        if name != facts.FAILURE and not words:
            return
        self.understood += 1
        engine, number = self._engine(name, line, words.get("model", "")), line.number
        engine.last_line = number
        match name:
            case facts.PERIODIC:
                which = words.get("engine", "")
                engine.timelines.setdefault(which, Timeline()).add(words, at, number)
            case facts.STEP:
                engine.steps = engine.steps or StepTally()
                engine.steps.add(words, number)
            case facts.REFUSED_PROMPT | facts.REFUSED_REQUEST:
                engine.refused = engine.refused or RefusedPrompts(first_line=number)
                engine.refused.add(words)
            case facts.FAILURE:
                engine.fail(line)
            case facts.ARGUMENTS:
                engine.arguments |= facts.arguments_in(words["arguments"])
                engine.line_of["arguments"] = number
            case _:
                if name == facts.STARTED:
                    engine.started.add(line.process)
                engine.learn(words, number)

    def _engine(self, name: str, line: LogLine, model: str = "") -> _Engine:
        """The engine that a line is of: a new one where one begins that had begun or served."""
        newest = self._engines[::-1]
        found = [e for e in newest if line.server in ("", e.server)]
        if line.pid:
            found = _of_process(found, line, model) or (
                [] if name in _BEGINS else found
            )
        if found and name in _BEGINS:
            now = found[0]
            over = bool(now.timelines) or now.failures.failure is not None
            begun = name != facts.STARTED or (line.process in now.started and now.ready)
            if over or (now.started and begun):
                found = []
                if line.pid in now.pids:  # of a container: its processes are gone
                    now.pids.clear()
        elif not found and name in ("", facts.ERROR):  # of whatever runs beside it
            found = newest
        if not found:
            found = [_Engine(first_line=line.number, server=line.server)]
            self._engines += found
        found[0].pids |= {line.pid: line.process} if line.pid else {}
        return found[0]


def _of_process(found: list[_Engine], line: LogLine, model: str) -> list[_Engine]:
    """What a process says first is of the first engine that has none such yet and was not given up,
    rather of one of its model and of one that said something since the newest began."""
    if known := [
        engine for engine in found if engine.pids.get(line.pid) == line.process
    ]:
        return known
    begin = [e for e in found[::-1] if not (e.ready or e.failures.failure)]
    begin = [e for e in begin if line.process not in e.pids.values()]
    begin.sort(key=lambda e: e.last_line < found[0].first_line)
    return sorted(
        begin, key=lambda e: bool(model) and (e.facts.model or "") not in model
    )
