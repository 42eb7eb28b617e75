"""Lines of a log -> the engines in it: each from a start to the next, or to the end.

Memory is constant: figures are added up as they come, and nothing else of a line is kept, since it
may hold a prompt or a key.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from chunkscope.vllm.log import facts
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import FailureReader, LoggedFailure
from chunkscope.vllm.log.lines import CUT, LogLine, peeled, seconds_between
from chunkscope.vllm.log.timeline import LogWindow, RefusedPrompts, StepTally, Timeline

# Lines of clients are many, and what they hold is not looked at.
_OF_A_REQUEST = re.compile(
    rb"Received request |Added request |Generated response | details: prompt: "
)
_ACCESS, _BAD_REQUEST = b"HTTP/1.", b"400 Bad Request"
_SIGN = re.compile(b"|".join(re.escape(sign) for sign, _ in facts.SIGNS))
_BEGINS = (facts.STARTED, facts.ARGUMENTS, facts.BANNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """One engine, or several that were started together (data parallel)."""

    first_line: int
    last_line: int
    facts: EngineFacts
    arguments: dict[str, Any]
    line_of: dict[str, int]  # by fact
    windows: tuple[LogWindow, ...]  # by time; of all engines
    prompt_tokens: float  # as the rates of the windows add up
    output_tokens: float
    busy_s: float
    engines: int
    steps: StepTally | None
    refused: RefusedPrompts | None
    failure: LoggedFailure | None
    preemptions: int | None = None  # where it logs them
    replica: str = ""  # which server of several, where a collector says so


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLog:
    starts: tuple[EngineStart, ...]
    lines: int
    understood: int


@dataclass(slots=True, kw_only=True)
class _Engine:
    first_line: int
    replica: str
    facts: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    line_of: dict[str, int] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)  # processes that began an engine
    steps: StepTally = field(default_factory=StepTally)
    refused: RefusedPrompts = field(default_factory=RefusedPrompts)
    failures: FailureReader = field(default_factory=FailureReader)
    preemptions: int | None = None
    last_line: int = 0

    @property
    def ready(self) -> bool:
        return "init_s" in self.facts or bool(self.timelines)

    def learn(self, words: dict[str, str], line: int) -> None:
        """The first to say it counts, of several workers; but the KV cache is that of the least."""
        values = facts.values_of(words)
        if "fitted_to" in values:
            values["max_model_len"] = values["fitted_to"]
        for name, value in values.items():
            if name in ("kv_cache_tokens", "kv_cache_gib", "kv_concurrency"):
                value = min(value, self.facts.get(name, value))
            elif name in self.facts and name != "max_model_len":
                continue
            self.facts[name] = value
            self.line_of[name] = line

    def result(self) -> EngineStart:
        timelines = self.timelines.values()
        windows = sorted((w for t in timelines for w in t.windows), key=lambda w: w.end_s)
        return EngineStart(
            first_line=self.first_line,
            last_line=self.last_line,
            facts=EngineFacts(**self.facts),
            arguments=self.arguments,
            line_of=self.line_of,
            windows=tuple(windows),
            prompt_tokens=sum(w.prompt_tokens_per_s * w.seconds for w in windows),
            output_tokens=sum(w.output_tokens_per_s * w.seconds for w in windows),
            busy_s=max((t.busy_s for t in timelines), default=0.0),
            engines=max(1, len(timelines), len(self.started), *(w.engines for w in windows)),
            steps=self.steps if self.steps.steps else None,
            refused=self.refused if self.refused.first_line else None,
            failure=self.failures.ended(ready=self.ready, last_line=self.last_line),
            preemptions=self.preemptions,
            replica=self.replica,
        )


def facts_in(text: str) -> EngineFacts:
    """What the last engine in a log says of itself."""
    reader = LogReader()
    reader.feed(text.encode("utf-8", "replace"), last=True)
    starts = reader.reading().starts
    return starts[-1].facts if starts else EngineFacts()


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
                    engine.refused.add_unexplained(self.lines)
            elif _SIGN.search(raw) and not _OF_A_REQUEST.search(raw):
                name = next(name for sign, name in facts.SIGNS if sign in raw)
                self._take(name, peeled(raw, self.lines))

    def reading(self) -> EngineLog:
        starts = [engine.result() for engines in self._engines.values() for engine in engines]
        return EngineLog(
            starts=tuple(sorted(starts, key=lambda start: start.first_line)),
            lines=self.lines,
            understood=self.understood,
        )

    def _engines_of(self, raw: bytes) -> list[_Engine]:
        """Of the server that wrote a line of which no more is looked at."""
        if len(self._engines) == 1:
            return next(iter(self._engines.values()))
        return self._engines.get(peeled(raw[:400], 0).replica, [])

    def _take(self, name: str, line: LogLine) -> None:
        if name == facts.ERROR:
            for engine in self._engines.get(line.replica, [])[-1:]:
                engine.failures.add_error(line.text, line.number)
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
                engine.steps.add(words, number)
            case facts.REFUSED_PROMPT | facts.REFUSED_REQUEST:
                engine.refused.add(words, number)
            case facts.FAILURE:
                loading = bool(engine.started) and "weights_gib" not in engine.facts
                serving = bool(engine.timelines)
                engine.failures.add(line.text, number, loading=loading, serving=serving)
                engine.failures.add_error(line.text, number)
            case facts.ARGUMENTS:
                engine.arguments |= facts.arguments_in(words["arguments"])
                engine.line_of["arguments"] = number
            case facts.STARTED:
                engine.started.add(line.process)
                engine.learn(words, number)
            case _:
                engine.learn(words, number)
        if "preemptions" in words:  # of a window, or of all so far
            before = engine.preemptions or 0 if name == facts.PERIODIC else 0
            engine.preemptions = before + int(words["preemptions"])
            engine.line_of["preemptions"] = number

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
