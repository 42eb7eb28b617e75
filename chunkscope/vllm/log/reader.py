"""Lines of a log -> the lives of engines in it: each from a start to the next, or to the end.

Memory is constant: figures are added up as they come, and nothing else of a line is kept, since it
may hold a prompt or a key.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chunkscope.vllm.log import messages
from chunkscope.vllm.log.arrivals import ArrivalReader, LoggedArrivals
from chunkscope.vllm.log.facts import EngineFacts, arguments_in, config_facts, values_of
from chunkscope.vllm.log.lines import LogClock, LogLine, peeled
from chunkscope.vllm.log.steps import StepTally, step_in
from chunkscope.vllm.log.timeline import LogWindow, Timeline
from chunkscope.vllm.log.trouble import LoggedTrouble, RefusedPrompts, TroubleReader

# Many, and of clients: what they hold is not looked at, but for what the server would not take.
ACCESS, BAD_REQUEST = b"HTTP/1.", b"400 Bad Request"
RECEIVED, ADDED = b"Received request ", b"Added request "
GENERATED, DETAILS = b"Generated response ", b" details: prompt: "
_HEAD = 400  # bytes of a line, in which its time is
_STAMPED_BY, _NAMED, _MOST_PLACES = b".py:", re.compile(rb"[\w./\\-]{1,80}\.py:\d+"), 5_000
_OF_LITTLE_WEIGHT = ("INFO", "DEBUG")
_SILENT, _REQUEST = "silent", "request"  # places of which nothing, or a prompt, is to be expected
_ENOUGH = 3  # so often a place said nothing that is understood: it will not the next time
_OF_REQUESTS = ((RECEIVED, ""), (ADDED, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLife:
    """One engine, or several that were started together (data parallel)."""

    first_line: int
    last_line: int
    facts: EngineFacts
    arguments: dict[str, Any]
    said_at: dict[str, int]  # by fact, the line
    windows: tuple[LogWindow, ...]  # by time; of all engines
    prompt_tokens: float  # as the rates of the windows add up
    output_tokens: float
    busy_s: float
    engines: int
    steps: StepTally | None
    refused: RefusedPrompts | None
    trouble: LoggedTrouble | None
    preemptions: int | None = None  # where it logs them
    replica: str = ""  # which server of several, where a collector says so
    arrivals: LoggedArrivals | None = None  # where they were asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLog:
    lives: tuple[EngineLife, ...]
    lines: int
    understood: int
    unknown: dict[str, int]  # by place in vLLM's sources, stamped lines that nobody here can read


@dataclass(slots=True, kw_only=True)
class _Life:
    first_line: int
    replica: str
    facts: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    said_at: dict[str, int] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)  # processes that began an engine
    steps: StepTally = field(default_factory=StepTally)
    refused: RefusedPrompts = field(default_factory=RefusedPrompts)
    trouble: TroubleReader = field(default_factory=TroubleReader)
    arrivals: ArrivalReader = field(default_factory=ArrivalReader)
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
            self.said_at[name] = line

    def preempted(self, times: int, line: int) -> None:
        self.preemptions = times
        self.said_at["preemptions"] = line

    def closed(self) -> EngineLife:
        timelines = self.timelines.values()
        windows = sorted((w for t in timelines for w in t.windows), key=lambda w: w.end_s)
        return EngineLife(
            first_line=self.first_line,
            last_line=self.last_line,
            facts=EngineFacts(**self.facts),
            arguments=self.arguments,
            said_at=self.said_at,
            windows=tuple(windows),
            prompt_tokens=sum(t.prompt_tokens for t in timelines),
            output_tokens=sum(t.output_tokens for t in timelines),
            busy_s=max((t.seconds for t in timelines), default=0.0),
            engines=max(1, len(timelines), len(self.started), *(w.engines for w in windows)),
            steps=self.steps if self.steps.steps else None,
            refused=self.refused if self.refused.first_line else None,
            trouble=self.trouble.ended(ready=self.ready, last_line=self.last_line),
            preemptions=self.preemptions,
            replica=self.replica,
            arrivals=self.arrivals.found(),
        )


def facts_in(text: str) -> EngineFacts:
    """What the last engine in a log says of itself."""
    reader = LogReader()
    reader.feed(text.encode("utf-8", "replace") + b"\n")
    lives = reader.reading().lives
    return lives[-1].facts if lives else EngineFacts()


class LogReader:
    """Feed it blocks of lines; ask it at any time. `replay`: when requests came is kept, too."""

    def __init__(self, *, replay: bool = False) -> None:
        self._replay = replay
        self.lines = 0
        self.understood = 0
        self._unknown: dict[bytes, int] = {}  # by place, lines that are not understood
        self._places: dict[bytes, str] = {}  # what their next line will be, too
        self._signs = (*(_OF_REQUESTS if replay else ()), *messages.SIGNS, (BAD_REQUEST, ""))
        self._lives: dict[str, list[_Life]] = {}  # by server
        self._clock = LogClock()

    def feed(self, block: bytes) -> None:
        """Whole lines, each with its end."""
        stamped = list(_lines_with(_STAMPED_BY, block))
        lines = block.count(b"\n")
        # Where all others are of clients, which are many, only these need a look.
        if len(stamped) + block.count(ACCESS) == lines:
            found = self._of_stamped(stamped, block)
        else:
            found = self._of_all(stamped, block)
        number, counted = self.lines + 1, 0
        for start in sorted(found):
            number += block.count(b"\n", counted, start)
            counted = start
            self._line(found[start], block[start : block.find(b"\n", start)], number)
        self.lines += lines

    def _of_stamped(self, stamped: list[tuple[int, int, int]], block: bytes) -> dict[int, str]:
        """Lines that say something, and which message it is."""
        found = {start: "" for start, _, _ in _lines_with(BAD_REQUEST, block)}
        for start, at, end in stamped:
            place = _place(block, start, at)
            known = self._places.get(place)
            if known == _SILENT:
                self._unknown[place] += 1
            elif known == messages.STEP:
                found[start] = known
            elif known is None or self._replay:
                raw = block[start:end]
                name = next((name for sign, name in self._signs if sign in raw), None)
                if name is None:
                    self._not_understood(raw, place)
                    continue
                found[start] = name
                if name == messages.STEP and place and not _of_a_request(raw):
                    self._places[place] = name
        return found

    def _of_all(self, stamped: list[tuple[int, int, int]], block: bytes) -> dict[int, str]:
        """The same, of lines in any form: signs are looked for in all of them at once."""
        found: dict[int, str] = {}
        for sign, name in self._signs:
            for start, _, _ in _lines_with(sign, block):
                found.setdefault(start, name)
        for start, at, end in stamped:
            if start not in found:
                self._not_understood(block[start:end], _place(block, start, at))
        return found

    def _line(self, name: str, raw: bytes, number: int) -> None:
        if ACCESS in raw:
            lives = self._lives_of(raw) if BAD_REQUEST in raw else ()
            if lives:
                lives[-1].refused.add_unexplained(number)
        elif _of_a_request(raw):
            if self._replay:
                self._arrived(raw)
        elif name == messages.STEP:
            self._step(raw, number)
        elif name in messages.KNOWN:
            self._take(name, peeled(raw, number))

    def _step(self, raw: bytes, number: int) -> None:
        """Only its figures are wanted, unless steps are replayed."""
        if (step := step_in(raw)) is None:
            return
        self.understood += 1
        lives = self._lives_of(raw)
        if self._replay or not lives:
            line = peeled(raw, number)
            at = self._clock.since_first(line.at)
            life = self._life(messages.STEP, line)
        else:
            life = lives[-1]
        if self._replay:
            budget = life.facts.get("max_num_batched_tokens")
            life.arrivals.step(step, at, messages.engine_of(line.text), budget)
        life.last_line = number
        life.steps.add(step, number)

    def _lives_of(self, raw: bytes) -> list[_Life]:
        """Of the server that wrote a line of which no more is looked at."""
        if len(self._lives) == 1:
            return next(iter(self._lives.values()))
        return self._lives.get(peeled(raw[:_HEAD], 0).replica, [])

    def _not_understood(self, raw: bytes, place: bytes) -> None:
        count = self._unknown.get(place, 0)
        if count not in (0, _ENOUGH):
            self._unknown[place] += 1
        elif place in self._places or not _NAMED.fullmatch(place):
            return
        elif (line := peeled(raw[:_HEAD], 0)).place.encode() != place:
            return  # no place of vLLM's: it may be somebody's text
        elif _of_a_request(raw):
            self._places[place] = _REQUEST
        elif len(self._unknown) < _MOST_PLACES:
            self._unknown[place] = count + 1
            if count and line.level in _OF_LITTLE_WEIGHT:
                self._places[place] = _SILENT

    def _arrived(self, raw: bytes) -> None:
        """Of a line that may hold a prompt, only its time is looked at."""
        received = RECEIVED in raw
        lives = self._lives_of(raw)
        if lives and (received or ADDED in raw):
            at = self._clock.since_first(peeled(raw[:_HEAD], 0).at)
            lives[-1].arrivals.request(at, received=received)

    def reading(self) -> EngineLog:
        unknown = {place.decode("utf-8", "replace"): n for place, n in self._unknown.items()}
        lives = [life.closed() for lives in self._lives.values() for life in lives]
        return EngineLog(
            lives=tuple(sorted(lives, key=lambda life: life.first_line)),
            lines=self.lines,
            understood=self.understood,
            unknown=unknown,
        )

    def _take(self, name: str, line: LogLine) -> None:
        if name == messages.ERROR:
            for life in self._lives.get(line.replica, [])[-1:]:
                life.trouble.add_error(line.text, line.number)
            return
        at = self._clock.since_first(line.at)
        said = {} if name == messages.TROUBLE else messages.BY_NAME[name].parse(line.text)
        if name != messages.TROUBLE and not said:
            return
        self.understood += 1
        life = self._life(name, line)
        life.last_line = line.number
        match name:
            case messages.PERIODIC:
                engine = messages.engine_of(line.text)
                timeline = life.timelines.setdefault(engine, Timeline(engine))
                timeline.add(said, at, line.number)
                if "preemptions" in said:
                    life.preempted((life.preemptions or 0) + int(said["preemptions"]), line.number)
            case messages.PREEMPTED:
                life.preempted(int(said["preemptions"]), line.number)
            case messages.REFUSED_PROMPT:
                life.refused.add(said, line.number)
            case messages.TROUBLE:
                loading = bool(life.started) and "weights_gib" not in life.facts
                serving = bool(life.timelines)
                life.trouble.add(line.text, line.number, loading=loading, serving=serving)
                life.trouble.add_error(line.text, line.number)
            case messages.ARGUMENTS:
                life.arguments |= arguments_in(said["arguments"])
                life.said_at["arguments"] = line.number
            case messages.STARTED:
                life.started.add(line.process)
                facts = values_of({"version": said["version"]}) | config_facts(said["config"])
                life.learn(facts, line.number)
            case _:
                facts = values_of(said)
                if "fitted_to" in facts:
                    facts["max_model_len"] = facts["fitted_to"]
                life.learn(facts, line.number)

    def _life(self, name: str, line: LogLine) -> _Life:
        """The engine that a line is of: a new one where one begins that had begun or served."""
        lives = self._lives.setdefault(line.replica, [])
        now = lives[-1] if lives else None
        again = now is not None and (
            (name in (messages.STARTED, messages.ARGUMENTS) and bool(now.timelines))
            or (name == messages.STARTED and (line.process in now.started) and now.ready)
            or (name == messages.STARTED and bool(now.trouble.found))
            or (name == messages.ARGUMENTS and bool(now.started))
        )
        if now is None or again:
            now = _Life(first_line=line.number, replica=line.replica)
            lives.append(now)
        return now


def _lines_with(sign: bytes, block: bytes) -> Iterator[tuple[int, int, int]]:
    """Where lines that hold it begin, where it is in them first, and where they end."""
    at = block.find(sign)
    while at >= 0:
        end = block.find(b"\n", at)
        yield block.rfind(b"\n", 0, at) + 1, at, end
        at = block.find(sign, end)


def _place(block: bytes, start: int, at: int) -> bytes:
    """Where in vLLM's sources a line comes from: `core.py:114`. Empty: it does not say."""
    begin, end = block.rfind(b"[", start, at) + 1, block.find(b"]", at, at + 16)
    return block[begin:end] if begin and end > 0 else b""


def _of_a_request(raw: bytes) -> bool:
    """May it hold a prompt, or what was answered?"""
    return RECEIVED in raw or ADDED in raw or GENERATED in raw or DETAILS in raw
