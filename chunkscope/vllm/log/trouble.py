"""What went wrong, by the log: out of memory and where, a start that failed, prompts refused."""

import re
from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """`did_not_fit` are those that a smaller setting would have avoided."""

    NO_FREE_MEMORY = "the GPU was taken by others at the start"
    NO_CACHE_BLOCKS = "nothing was left for the KV cache"
    CONTEXT_TOO_LONG = "the KV cache is smaller than one request of max_model_len"
    OOM_SAMPLER = "out of memory while the sampler was warmed up"
    OOM_LOGPROBS = "out of memory in prompt_logprobs"
    OOM_LOADING = "out of memory while the weights were loaded"
    OOM_START = "out of memory at the start"
    OOM_RUNNING = "out of memory while serving"
    DIED = "the engine died"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTrouble:
    """`figures` are the numbers of its line, in GiB or tokens, and nothing else of it."""

    kind: Trouble
    line: int
    figures: dict[str, float]
    error: str | None = None  # the kind of error that it died of: "AcceleratorError"


_SIGNS = (
    (Trouble.OOM_SAMPLER, "when warming up sampler"),
    (Trouble.NO_FREE_MEMORY, "is less than desired GPU memory utilization"),
    (Trouble.NO_CACHE_BLOCKS, "No available memory for the cache blocks"),
    (Trouble.CONTEXT_TOO_LONG, "To serve at least one request with the model"),
    (Trouble.OOM_START, "ut of memory"),  # or while loading or serving, or in prompt_logprobs
    (Trouble.OOM_START, "OutOfMemoryError"),
    (Trouble.DIED, "EngineCore encountered a fatal error"),
    (Trouble.DIED, "EngineCore failed to start"),
    (Trouble.DIED, "EngineDeadError"),
)
# Of the first model runner, and of the second.
FRAMES = ("_get_prompt_logprobs_dict", "compute_logprobs", "compute_prompt_logprobs")
SIGNS = (*dict.fromkeys(sign for _, sign in _SIGNS), *FRAMES)
_SIZE = r"([\d.]+ [GM]iB)"
_FIGURES = {
    "asked_gib": rf"Tried to allocate {_SIZE}",
    "left_gib": rf"of which {_SIZE} is free",
    "needed_gib": rf"{_SIZE} KV cache is needed",
    "available_gib": rf"available KV cache memory \({_SIZE}\)",
    "longest": r"estimated maximum model length is (\d+)",
    "free_gib": r"on device[^(]*\(([\d.]+)/",
    "requests": r"sampler with (\d+) dummy requests",
}
_DEPTH = 60  # lines of a traceback before the line that names the error
_ERROR = re.compile(r"(?:^|[\s.])([A-Z]\w{0,40}(?:Error|Exception))(?:: |$)")
STOPPING = "[shutdown] "
# What the parent process raises when a child of its died: true, and no cause.
CONSEQUENCES = ("Engine core initialization failed", "EngineDeadError", "EngineCore encountered")


class TroubleReader:
    """The first cause counts: what follows it is what it brought about."""

    def __init__(self) -> None:
        self.found: LoggedTrouble | None = None
        self._frame_line = -_DEPTH
        self._error: LoggedTrouble | None = None
        self._died_of: LoggedTrouble | None = None
        self._told_to_stop = False

    def add_error(self, text: str, line: int) -> None:
        """An error of any kind: the last, but the first after the engine is said to have died."""
        self._told_to_stop = self._told_to_stop or STOPPING in text
        if self._died_of is not None or any(word in text for word in CONSEQUENCES):
            return
        if (found := _ERROR.search(text)) is None:
            return
        self._error = LoggedTrouble(kind=Trouble.DIED, line=line, figures={}, error=found[1])
        if self.found is not None:
            self._died_of = self._error

    def ended(self, *, ready: bool, last_line: int) -> LoggedTrouble | None:
        """What ended it: if it never was ready, an error after which it said nothing more."""
        found, error = self.found, self._died_of or self._error
        if found is None:
            return error if error and not ready and error.line > last_line else None
        named = error and found.kind is Trouble.DIED and found.line - error.line < _DEPTH
        return error if named else found

    def add(self, text: str, line: int, *, loading: bool, serving: bool) -> None:
        if any(frame in text for frame in FRAMES):
            self._frame_line = line
        kind = next((kind for kind, sign in _SIGNS if sign in text), None)
        if kind is None or (self.found is not None and not self._is_cause(kind)):
            return
        if kind is Trouble.DIED and self._told_to_stop:
            return  # an engine that is ended is missed by its server for a moment
        if kind is Trouble.OOM_START and line - self._frame_line < _DEPTH:
            kind = Trouble.OOM_LOGPROBS
        elif kind is Trouble.OOM_START and (loading or serving):
            kind = Trouble.OOM_RUNNING if serving else Trouble.OOM_LOADING
        searched = {name: re.search(pattern, text) for name, pattern in _FIGURES.items()}
        figures = {name: _number(found[1]) for name, found in searched.items() if found}
        if self.found is not None:
            figures = {**self.found.figures, **figures}
        self.found = LoggedTrouble(kind=kind, line=line, figures=figures)

    def _is_cause(self, kind: Trouble) -> bool:
        """A cause told after its consequence, as tracebacks of parent processes have it.

        The sampler's is told after the error that it came from.
        """
        found = self.found
        if found is not None and found.kind in (Trouble.OOM_LOADING, Trouble.OOM_START):
            return kind is Trouble.OOM_SAMPLER
        return found is not None and found.kind is Trouble.DIED and kind is not Trouble.DIED


def _number(text: str) -> float:
    """
    >>> _number("786.00 MiB"), _number("7.04 GiB"), _number("256")
    (0.767578125, 7.04, 256.0)
    """
    number, _, unit = text.partition(" ")
    return float(number) / (1024 if unit == "MiB" else 1)


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

    def add(self, said: dict[str, str], line: int) -> None:
        length = int(said.get("length") or said.get("length_") or 0)
        self.limit = int(said.get("limit") or said.get("limit_") or 0) or self.limit
        self.first_line = self.first_line or line
        self.count += 1
        self.longest = max(self.longest, length)

    def add_unexplained(self, line: int) -> None:
        self.first_line = self.first_line or line
        self.unexplained += 1

    @property
    def most(self) -> int:
        """A prompt that a line tells of was answered 400, too."""
        return max(self.count, self.unexplained)
