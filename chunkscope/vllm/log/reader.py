"""Lines of one server's log -> the starts of its engine, each until the next.

Memory is constant: figures are added up as they come, and nothing else of a line is
kept, since it may hold a prompt or a key.
"""

import re

from chunkscope.vllm.log import facts
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import KILLS, STOPPING, TELLING, FailureReader, Stage
from chunkscope.vllm.log.lines import CUT, LogLine, peeled, seconds_between
from chunkscope.vllm.log.start import EngineStart, RefusedPrompts
from chunkscope.vllm.log.windows import Timeline
from chunkscope.vllm.settings import Value

# Lines of clients are many, and what they hold is not looked at.
_OF_A_REQUEST = re.compile(
    rb"(?:Received|Added) request |Generated response | details: prompt: "
)
_ACCESS = b"HTTP/1."
_BAD_REQUEST = b"400 Bad Request"
# An error is no message of vLLM's, and tells something only of an engine that is known.
_SIGNS = (*facts.MESSAGES, *TELLING, *KILLS, STOPPING, "Error: ")
_SIGN = re.compile(b"|".join(re.escape(sign.encode()) for sign in _SIGNS))
# What a server says before its engine begins, and the first that the engine says.
_BEGINNINGS = (facts.BANNER, facts.ARGUMENTS, facts.STARTED)
# Every worker names the cache that it could have, and the engine takes the least.
_LEAST_COUNTS = ("kv_cache_tokens", "kv_cache_gib", "kv_concurrency")


class LogReader:
    """Feed it bytes as they come; ask it at any time."""

    def __init__(self) -> None:
        self.lines = 0
        self.understood = 0
        # The first line that shows that two servers write into this log at once.
        self.mixed_line: int | None = None
        self._starts: list[StartReader] = []
        self._first_at: float | None = None
        self._rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """A line waits for its end, unless it is the `last`; one without end is cut."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:CUT]
        if last:
            self._rest = b""
            if rest:
                lines.append(rest)
        for raw in lines:
            self.lines += 1
            self._read(raw)

    def starts(self) -> tuple[EngineStart, ...]:
        return tuple(start.result() for start in self._starts)

    def _read(self, raw: bytes) -> None:
        if _ACCESS in raw:
            if self._starts:
                self._starts[-1].answered(self.lines, refused=_BAD_REQUEST in raw)
            return
        if not _SIGN.search(raw) or _OF_A_REQUEST.search(raw):
            return
        line = peeled(raw, self.lines)
        sign = facts.sign_in(line.text)
        if sign:
            self._read_message(sign, line)
        else:
            self._read_failure(line)

    def _read_message(self, sign: str, line: LogLine) -> None:
        words = facts.parse(sign, line.text)
        if not words:
            return
        self.understood += 1
        seconds = None
        if line.at is not None:
            if self._first_at is None:
                self._first_at = line.at
            seconds = seconds_between(self._first_at, line.at)
        if not self._starts or self._starts[-1].is_over(sign, line.process):
            self._starts.append(StartReader(line.number))
        start = self._starts[-1]
        if self.mixed_line is None and not start.is_of_its_server(line):
            self.mixed_line = line.number
        start.add(sign, words, line, seconds)

    def _read_failure(self, line: LogLine) -> None:
        telling = any(sign in line.text for sign in TELLING)
        if not self._starts:
            if not telling and STOPPING not in line.text:
                return
            self._starts.append(StartReader(line.number))
        start = self._starts[-1]
        if telling:
            self.understood += 1
            start.last_line = line.number
        start.fail(line)


class StartReader:
    """One start of an engine while its lines are read."""

    def __init__(self, first_line: int) -> None:
        self.first_line = first_line
        self.last_line = first_line
        self._values: dict[str, Value] = {}  # of facts and settings
        self._line_of: dict[str, int] = {}
        self._arguments: dict[str, Value] = {}
        self._started: set[str] = set()  # processes that began an engine
        self._writers: dict[str, list[str]] = {}  # by process, in their order
        self._timelines: dict[str, Timeline] = {}  # by engine
        self._refused: RefusedPrompts | None = None
        self._failures = FailureReader()

    def is_over(self, sign: str, process: str) -> bool:
        """Does a message begin the next start?

        The engines of one server (data parallel) start together, each in a process of
        its own.
        """
        if sign not in _BEGINNINGS:
            return False
        if self._timelines or self._failures.failure:
            return True
        if sign == facts.STARTED:
            return process in self._started
        return bool(self._started)

    def is_of_its_server(self, line: LogLine) -> bool:
        """False where a process writes again after another of its name did."""
        if not line.process:
            return True
        writers = self._writers.setdefault(line.process, [])
        if line.writer not in writers:
            writers.append(line.writer)
        return line.writer == writers[-1]

    def add(
        self, sign: str, words: dict[str, str], line: LogLine, seconds: float | None
    ) -> None:
        """A message, so many seconds after the first of the log."""
        self.last_line = line.number
        if sign == facts.PERIODIC:
            timeline = self._timelines.setdefault(words.get("engine", ""), Timeline())
            timeline.add(words, seconds, line.number)
        elif sign in (facts.REFUSED_PROMPT, facts.REFUSED_REQUEST):
            self._refusals(line.number).add(words)
        elif sign == facts.ARGUMENTS:
            self._arguments |= facts.arguments_in(words["arguments"])
            self._line_of["arguments"] = line.number
        else:
            if sign == facts.STARTED:
                self._started.add(line.process)
            self._learn(words, line.number)

    def answered(self, line: int, *, refused: bool) -> None:
        """A request was answered, or refused with the status 400."""
        self.last_line = line
        if refused:
            self._refusals(line).unexplained += 1

    def fail(self, line: LogLine) -> None:
        stage = Stage.BEGINNING
        if "init_s" in self._values or self._timelines:
            stage = Stage.SERVING
        elif self._started and "weights_gib" not in self._values:
            stage = Stage.LOADING
        self._failures.add(line.text, line.number, stage)

    def result(self) -> EngineStart:
        windows = []
        for timeline in self._timelines.values():
            windows += timeline.windows
        windows.sort(key=lambda window: window.end_s)
        engines = max(1, len(self._timelines), len(self._started))
        for window in windows:
            engines = max(engines, window.engines)
        failure = self._failures.ended(
            ready=bool(self._timelines), last_line=self.last_line
        )
        return EngineStart(
            first_line=self.first_line,
            last_line=self.last_line,
            facts=EngineFacts.of(self._values),
            arguments=self._arguments,
            line_of=self._line_of,
            windows=tuple(windows),
            engines=engines,
            refused=self._refused,
            failure=failure,
        )

    def _refusals(self, line: int) -> RefusedPrompts:
        if self._refused is None:
            self._refused = RefusedPrompts(first_line=line)
        return self._refused

    def _learn(self, words: dict[str, str], line: int) -> None:
        """Of several workers the first to say something counts."""
        values = facts.values_of(words)
        for name, value in values.items():
            known = self._values.get(name)
            is_news = known is None or name == "max_model_len"
            if name in _LEAST_COUNTS and isinstance(known, float | int):
                is_news = float(value) < known
            if is_news:
                self._values[name] = value
                self._line_of[name] = line


def facts_in(text: str) -> EngineFacts:
    """What the last engine in a log says of itself."""
    reader = LogReader()
    reader.feed(text.encode("utf-8", "replace"), last=True)
    starts = reader.starts()
    return starts[-1].facts if starts else EngineFacts()
