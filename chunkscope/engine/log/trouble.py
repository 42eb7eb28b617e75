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
    OOM_START = "out of memory at the start"
    OOM_RUNNING = "out of memory while serving"
    DIED = "the engine died"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTrouble:
    """`figures` are the numbers of its line, in GiB or tokens, and nothing else of it."""

    kind: Trouble
    line: int
    figures: dict[str, float]


_SIGNS = (
    (Trouble.OOM_SAMPLER, "when warming up sampler"),
    (Trouble.NO_FREE_MEMORY, "is less than desired GPU memory utilization"),
    (Trouble.NO_CACHE_BLOCKS, "No available memory for the cache blocks"),
    (Trouble.CONTEXT_TOO_LONG, "To serve at least one request with the model"),
    (Trouble.OOM_START, "ut of memory"),  # or while serving, or in prompt_logprobs
    (Trouble.OOM_START, "OutOfMemoryError"),
    (Trouble.DIED, "EngineCore encountered a fatal error"),
    (Trouble.DIED, "EngineCore failed to start"),
)
_FRAMES = ("_get_prompt_logprobs_dict", "compute_logprobs")
_FIGURES = {
    "asked_gib": r"Tried to allocate ([\d.]+) GiB",
    "left_gib": r"of which ([\d.]+) GiB is free",
    "needed_gib": r"\(([\d.]+) GiB KV cache is needed",
    "available_gib": r"available KV cache memory \(([\d.]+) GiB\)",
    "longest": r"estimated maximum model length is (\d+)",
    "free_gib": r"on device[^(]*\(([\d.]+)/",
    "requests": r"sampler with (\d+) dummy requests",
}
_DEPTH = 60  # lines of a traceback before the line that names the error


class TroubleReader:
    """The first cause counts: what follows it is what it brought about."""

    def __init__(self) -> None:
        self.found: LoggedTrouble | None = None
        self._frame_line = -_DEPTH

    def add(self, text: str, line: int, *, serving: bool) -> None:
        if any(frame in text for frame in _FRAMES):
            self._frame_line = line
        kind = next((kind for kind, sign in _SIGNS if sign in text), None)
        if kind is None or (self.found is not None and not self._is_cause(kind)):
            return
        if kind is Trouble.OOM_START and line - self._frame_line < _DEPTH:
            kind = Trouble.OOM_LOGPROBS
        elif kind is Trouble.OOM_START and serving:
            kind = Trouble.OOM_RUNNING
        searched = {name: re.search(pattern, text) for name, pattern in _FIGURES.items()}
        figures = {name: float(found[1]) for name, found in searched.items() if found}
        self.found = LoggedTrouble(kind=kind, line=line, figures=figures)

    def _is_cause(self, kind: Trouble) -> bool:
        """A cause told after its consequence, as tracebacks of parent processes have it."""
        found = self.found
        return found is not None and found.kind is Trouble.DIED and kind is not Trouble.DIED


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
        length = int(said.get("length") or said.get("length_") or said.get("length__") or 0)
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
