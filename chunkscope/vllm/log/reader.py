"""Lines of a log -> the engines in it: each from a start to the next, or to the end.

Memory is constant: figures are added up as they come, and nothing else of a line is kept, since it
may hold a prompt or a key.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from chunkscope.vllm.log import messages
from chunkscope.vllm.log.facts import EngineFacts, arguments_in, config_facts, values_of
from chunkscope.vllm.log.failures import FailureReader, LoggedFailure
from chunkscope.vllm.log.lines import LogClock, LogLine, peeled
from chunkscope.vllm.log.timeline import LogWindow, RefusedPrompts, StepTally, Timeline

# Lines of clients are many, and what they hold is not looked at.
_OF_A_REQUEST = re.compile(
    rb"Received request |Added request |Generated response | details: prompt: "
)
_ACCESS, _BAD_REQUEST = b"HTTP/1.", b"400 Bad Request"
_SIGN = re.compile(b"|".join(re.escape(sign) for sign, _ in messages.SIGNS))
_PLACE = re.compile(rb"\[([\w./\\-]{1,80}\.py:\d+)\]")
_HEAD = 400  # bytes of a line, in which its place is
_MOST_PLACES = 5_000


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
    unknown: dict[str, int]  # by place in vLLM's sources, stamped lines that nobody here can read


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

    def learn(self, facts: dict[str, Any], line: int) -> None:
        """The first to say it counts, of several workers; but the KV cache is that of the least."""
        for name, value in facts.items():
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
            prompt_tokens=sum(t.prompt_tokens for t in timelines),
            output_tokens=sum(t.output_tokens for t in timelines),
            busy_s=max((t.seconds for t in timelines), default=0.0),
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
    reader.feed(text.encode("utf-8", "replace") + b"\n")
    starts = reader.reading().starts
    return starts[-1].facts if starts else EngineFacts()


class LogReader:
    """Feed it blocks of lines; ask it at any time."""

    def __init__(self) -> None:
        self.lines = 0
        self.understood = 0
        self._unknown: dict[bytes, int] = {}
        self._engines: dict[str, list[_Engine]] = {}  # by server
        self._clock = LogClock()

    def feed(self, block: bytes) -> None:
        """Whole lines, each with its end."""
        for raw in block.split(b"\n")[:-1]:
            self.lines += 1
            if _ACCESS in raw:
                engines = self._engines_of(raw) if _BAD_REQUEST in raw else []
                for engine in engines[-1:]:
                    engine.refused.add_unexplained(self.lines)
            elif _OF_A_REQUEST.search(raw):
                continue
            elif _SIGN.search(raw):
                name = next(name for sign, name in messages.SIGNS if sign in raw)
                self._take(name, peeled(raw, self.lines))
            elif len(self._unknown) < _MOST_PLACES and (place := _PLACE.search(raw, 0, _HEAD)):
                self._unknown[place[1]] = self._unknown.get(place[1], 0) + 1

    def reading(self) -> EngineLog:
        starts = [engine.result() for engines in self._engines.values() for engine in engines]
        return EngineLog(
            starts=tuple(sorted(starts, key=lambda start: start.first_line)),
            lines=self.lines,
            understood=self.understood,
            unknown={place.decode(): count for place, count in self._unknown.items()},
        )

    def _engines_of(self, raw: bytes) -> list[_Engine]:
        """Of the server that wrote a line of which no more is looked at."""
        if len(self._engines) == 1:
            return next(iter(self._engines.values()))
        return self._engines.get(peeled(raw[:_HEAD], 0).replica, [])

    def _take(self, name: str, line: LogLine) -> None:
        if name == messages.ERROR:
            for engine in self._engines.get(line.replica, [])[-1:]:
                engine.failures.add_error(line.text, line.number)
            return
        at = self._clock.since_first(line.at)
        words = {} if name == messages.FAILURE else messages.parse(name, line.text)
        if name != messages.FAILURE and not words:
            return
        self.understood += 1
        engine = self._engine(name, line)
        engine.last_line = line.number
        match name:
            case messages.PERIODIC:
                which = messages.engine_of(line.text)
                timeline = engine.timelines.setdefault(which, Timeline(which))
                timeline.add(words, at, line.number)
                if "preemptions" in words:
                    engine.preemptions = (engine.preemptions or 0) + int(words["preemptions"])
                    engine.line_of["preemptions"] = line.number
            case messages.STEP:
                engine.steps.add(words, line.number)
            case messages.PREEMPTED:
                engine.preemptions = int(words["preemptions"])
                engine.line_of["preemptions"] = line.number
            case messages.REFUSED_PROMPT | messages.REFUSED_REQUEST:
                engine.refused.add(words, line.number)
            case messages.FAILURE:
                loading = bool(engine.started) and "weights_gib" not in engine.facts
                serving = bool(engine.timelines)
                engine.failures.add(line.text, line.number, loading=loading, serving=serving)
                engine.failures.add_error(line.text, line.number)
            case messages.ARGUMENTS:
                engine.arguments |= arguments_in(words["arguments"])
                engine.line_of["arguments"] = line.number
            case messages.STARTED:
                engine.started.add(line.process)
                facts = values_of({"version": words["version"]}) | config_facts(words["config"])
                engine.learn(facts, line.number)
            case _:
                facts = values_of(words)
                if "fitted_to" in facts:
                    facts["max_model_len"] = facts["fitted_to"]
                engine.learn(facts, line.number)

    def _engine(self, name: str, line: LogLine) -> _Engine:
        """The engine that a line is of: a new one where one begins that had begun or served."""
        engines = self._engines.setdefault(line.replica, [])
        now = engines[-1] if engines else None
        begins = name in (messages.STARTED, messages.ARGUMENTS, messages.BANNER)
        again = now is not None and (
            (begins and bool(now.timelines))
            or (name == messages.STARTED and (line.process in now.started) and now.ready)
            or (begins and now.failures.failure is not None)
            or (name in (messages.ARGUMENTS, messages.BANNER) and bool(now.started))
        )
        if now is None or again:
            now = _Engine(first_line=line.number, replica=line.replica)
            engines.append(now)
        return now
