"""Lines of a log -> the engines in it: each from a start to the next, or to the end.

Memory is constant: figures are added up as they come, and nothing else of a line is kept, since it
may hold a prompt or a key.
"""

import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from chunkscope.vllm.log import facts
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import FailureReader, LoggedFailure
from chunkscope.vllm.log.lines import CUT, LogLine, peeled, seconds_between
from chunkscope.vllm.log.timeline import LogWindow, RefusedPrompts, StepTally, Timeline
from chunkscope.vllm.settings import Settings

# Lines of clients are many, and what they hold is not looked at.
_OF_A_REQUEST = re.compile(
    rb"Received request |Added request |Generated response | details: prompt: "
)
_ACCESS, _BAD_REQUEST = b"HTTP/1.", b"400 Bad Request"
_SIGN = re.compile(b"|".join(re.escape(sign) for sign, _ in facts.SIGNS))
_BEGINS = (facts.STARTED, facts.ARGUMENTS, facts.BANNER)


@dataclass(slots=True, kw_only=True)
class EngineStart:
    """One engine, or several that were started together (data parallel)."""

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
    replica: str = ""  # which server of several, where a collector says so

    @property
    def settings(self) -> Settings:
        """What it runs with, as far as it says."""
        facts = {name: value for name, value in asdict(self.facts).items() if value is not None}
        settings = Settings.of(self.arguments | facts)
        as_model = settings.kv_cache_dtype in ("auto", self.facts.dtype)
        return replace(settings, kv_cache_dtype=None) if as_model else settings

    @property
    def prompt_tokens(self) -> float:
        """As the rates of the windows add up."""
        return sum(window.prompt_tokens_per_s * window.seconds for window in self.windows)

    @property
    def output_tokens(self) -> float:
        return sum(window.output_tokens_per_s * window.seconds for window in self.windows)

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
    started: set[str] = field(default_factory=set)  # processes that began an engine
    failures: FailureReader = field(default_factory=FailureReader)

    @property
    def ready(self) -> bool:
        return self.facts.init_s is not None or bool(self.timelines)

    def learn(self, words: dict[str, str], line: int) -> None:
        """The first to say it counts, of several workers; but the KV cache is that of the least."""
        values = facts.values_of(EngineFacts, words)
        if "fitted_to" in values:
            values["max_model_len"] = values["fitted_to"]
        for name, value in values.items():
            before = getattr(self.facts, name)
            if name in ("kv_cache_tokens", "kv_cache_gib", "kv_concurrency"):
                value = value if before is None else min(value, before)
            elif before is not None and name != "max_model_len":
                continue
            setattr(self.facts, name, value)
            self.line_of[name] = line

    def fail(self, line: LogLine) -> None:
        loading = bool(self.started) and self.facts.weights_gib is None
        self.failures.add(line.text, line.number, loading=loading, serving=bool(self.timelines))

    def settle(self) -> EngineStart:
        windows = [window for timeline in self.timelines.values() for window in timeline.windows]
        self.windows = tuple(sorted(windows, key=lambda window: window.end_s))
        counts = (len(self.timelines), len(self.started), *(w.engines for w in windows))
        self.engines = max(1, *counts)
        self.failure = self.failures.ended(ready=self.ready, last_line=self.last_line)
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
        self._engines: dict[str, list[_Engine]] = {}  # by server
        self._first: float | None = None  # the time of the first line that has one
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """A line that is not ended waits for more, unless it is the `last`. One that never ends is
        cut, so that memory stays what it is."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = b"" if last else rest[:CUT]
        for raw in [*lines, rest] if last and rest else lines:
            self.lines += 1
            if _ACCESS in raw:
                engines = self._engines_of(raw) if _BAD_REQUEST in raw else []
                for engine in engines[-1:]:
                    engine.refused = engine.refused or RefusedPrompts(first_line=self.lines)
                    engine.refused.unexplained += 1
            elif _SIGN.search(raw) and not _OF_A_REQUEST.search(raw):
                name = next(name for sign, name in facts.SIGNS if sign in raw)
                self._take(name, peeled(raw, self.lines))

    def starts(self) -> tuple[EngineStart, ...]:
        starts = [engine.settle() for engines in self._engines.values() for engine in engines]
        return tuple(sorted(starts, key=lambda start: start.first_line))

    def _engines_of(self, raw: bytes) -> list[_Engine]:
        """Of the server that wrote a line of which no more is looked at."""
        if len(self._engines) == 1:
            return next(iter(self._engines.values()))
        return self._engines.get(peeled(raw[:400], 0).replica, [])

    def _take(self, name: str, line: LogLine) -> None:
        if name == facts.ERROR:
            for engine in self._engines.get(line.replica, [])[-1:]:
                engine.fail(line)
            return
        self._first = line.at if self._first is None else self._first
        at = seconds_between(self._first, line.at) if self._first and line.at else None
        words = {} if name == facts.FAILURE else facts.parse(name, line.text)
        if name != facts.FAILURE and not words:
            return
        self.understood += 1
        engine, number = self._engine(name, line), line.number
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
                engine.started |= {line.process} if name == facts.STARTED else set()
                engine.learn(words, number)

    def _engine(self, name: str, line: LogLine) -> _Engine:
        """The engine that a line is of: a new one where one begins that had begun or served."""
        engines = self._engines.setdefault(line.replica, [])
        now = engines[-1] if engines else None
        if now is not None and name in _BEGINS:
            begun = line.process in now.started and now.ready
            over = bool(now.timelines) or now.failures.failure is not None
            if over or (begun if name == facts.STARTED else bool(now.started)):
                now = None
        if now is None:
            now = _Engine(first_line=line.number, replica=line.replica)
            engines.append(now)
        return now
