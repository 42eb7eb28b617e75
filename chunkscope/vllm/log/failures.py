"""Why an engine ended, by its log, for `verify` (whose engine it is) and `doctor` (anybody's).

The lines differ by version; each pattern was read in 0.10.2 to 0.32.0.
"""

import re
import textwrap
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from chunkscope.vllm.log.lines import peeled

# What an engine does before it is ready, by the last line that tells. Bars end in a return.
STARTING = {
    "loading weights": r"starting to load model|loading (model from|weights on|\w+ checkpoint)"
    r"|(loading|checkpoint) shards|downloading weights",
    "compiling": r"torch\.compile|dynamo bytecode|compiling|for the compilation",
    "building kernels": r"warmup|jit compil|pre-compiling|warming up .*(kernels|flashinfer)",
    "autotuning kernels": r"autotun",
    "capturing CUDA graphs": r"capturing (cuda graph|model)",
}
NOT_DOING = (
    r"skipping|disabl|finished|completed\b(?! \|)|took |takes |with config: |activated"
)


def doing_in(log: str) -> str | None:
    """What the engine was at last, as far as its log tells.

    >>> doing_in("Loading weights on cuda ...\\nCapturing CUDA graphs (mixed):  10%")
    'capturing CUDA graphs'
    """
    for line in reversed(re.split(r"[\r\n]+", log.lower())):
        if not re.search(NOT_DOING, line):
            for doing, pattern in STARTING.items():
                if re.search(pattern, line):
                    return doing
    return None


class Status(StrEnum):
    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    REFUSED = "refused"  # vLLM would not start with these arguments
    DIED = "died"

    @property
    def is_final(self) -> bool:
        """Would the same happen again? If not, `--resume` tries once more."""
        return self in {Status.OK, Status.OUT_OF_MEMORY, Status.REFUSED}


class Failure(StrEnum):
    NO_FREE_MEMORY = "no_free_memory"  # others use the GPU
    NO_CACHE_BLOCKS = "no_cache_blocks"
    CONTEXT_TOO_LONG = "context_too_long"  # for the KV cache
    OOM_SAMPLER = "oom_sampler"
    OOM_LOGPROBS = "oom_logprobs"
    OOM_LOADING = "oom_loading"
    OOM_START = "oom_start"
    OOM_RUNNING = "oom_running"
    OOM_HOST = "oom_host"  # of the machine's memory
    REFUSED = "refused_arguments"
    KILLED = "killed"
    DIED = "died"

    @property
    def status(self) -> Status:
        others = {Failure.REFUSED: Status.REFUSED, Failure.KILLED: Status.DIED}
        return {**others, Failure.DIED: Status.DIED}.get(self, Status.OUT_OF_MEMORY)


# What the parent process or a shell says when a child of its died: true, and no cause.
CONSEQUENCES = (
    "Engine core initialization failed",
    "EngineCore encountered a",
    "(core dumped)",
)
# Of a line with several, the first counts. Frames of the two model runners tell what ran out.
SIGNS = (
    (Failure.OOM_SAMPLER, "when warming up sampler"),
    (Failure.NO_FREE_MEMORY, "less than desired "),
    (Failure.NO_CACHE_BLOCKS, "No available memory for the cache blocks"),
    (Failure.CONTEXT_TOO_LONG, "To serve at least one request with the model"),
    (
        Failure.OOM_START,
        "ut of memory",
    ),  # or while loading or serving, or in prompt_logprobs
    *(
        (Failure.OOM_HOST, s)
        for s in ("CPUAllocator: ", "bad_alloc", "Cannot allocate memory")
    ),
    (Failure.REFUSED, "Value error, "),
    *((Failure.REFUSED, f"{name}: error: ") for name in (".py", "vllm", "vllm serve")),
    *((Failure.DIED, sign) for sign in ("EngineCore failed to start", *CONSEQUENCES)),
)
LOGPROB_FRAMES = (
    "_get_prompt_logprobs_dict",
    "compute_logprobs",
    "compute_prompt_logprobs",
)
ENTRY = 'bin/vllm", line'  # of a traceback: an error behind it is vLLM's, whatever it said before
STOPPING = "[shutdown] "
# By the system: as a shell, dmesg, Docker, SLURM, systemd say it, and how vLLM misses a process.
KILLS = (
    "Killed",
    "oom_kill",
    "oom-kill",
    "died unexpectedly",
    "code 137",
    "CANCELLED",
    "=9/KILL",
)
_KILLED = re.compile(
    r"Killed($|  | pr)|oom.kill|core .*unexpectedly|(code|'):? (-9|137)\b|CANCELLED.* DUE TO |=9/K"
)
# A parent process tells a cause after its consequence, and the sampler's after the error it came
# from: of several kinds the lowest counts, then the first.
_RANKS = {Failure.OOM_SAMPLER: 0, Failure.KILLED: 2, Failure.DIED: 2}
# Raised by vLLM when arguments or the model do not go together.
REFUSALS = (
    "ValueError",
    "ValidationError",
    "AssertionError",
    "NotImplementedError",
    "TypeError",
)
PROMPTLESS = (
    "CUDA error: ",
    "NCCL error",
    "RPC call to ",
)  # of the driver or of vLLM itself
shortened = partial(
    textwrap.shorten, width=240
)  # a sentence or two: torch's goes on with advice
_DEPTH = 60  # lines of a traceback before the line that names the error
_ERROR = re.compile(
    r"(?:^|[\s.])([A-Z]\w{0,40}(?:Error|Exception|Interrupt))(?:: (.+))?$", re.M
)
_REASON = re.compile(r"(?:Value error, |error: )(.+?)(?: \[type=|\. [^.]*:$|$)", re.M)
_SIZE = r"(\d+(?:\.\d+)?) ([GM])iB"
_FIGURES = {
    "asked_gib": rf"Tried to allocate {_SIZE}",
    "left_gib": rf"of which {_SIZE} is free",
    "needed_gib": rf"{_SIZE} KV cache is needed",
    "available_gib": rf"available KV cache memory \({_SIZE}\)",
    "longest": r"estimated maximum model length is (\d+)",
    "free_gib": r"on device[^(]*\((\d+(?:\.\d+)?)/",
    "requests": r"sampler with (\d+) dummy requests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFailure:
    """`figures` are the numbers of its line, in GiB or tokens; `error` the kind of error raised.

    `reason` is vLLM's own sentence, which cannot have a prompt: no other text is kept.
    """

    kind: Failure
    line: int
    figures: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    reason: str | None = None


class FailureReader:
    """Of one engine, line by line."""

    def __init__(self) -> None:
        self.failure: LoggedFailure | None = None
        self._frame_line = -_DEPTH
        self.error: LoggedFailure | None = (
            None  # the last; of those after a failure the first
        )
        self._stopping = False

    def add(self, text: str, line: int, *, loading: bool, serving: bool) -> None:
        if any(frame in text for frame in LOGPROB_FRAMES):
            self._frame_line = line
        kind = next((kind for kind, sign in SIGNS if sign in text), None)
        kind = Failure.KILLED if _KILLED.search(text) else kind
        if kind is Failure.OOM_START and line - self._frame_line < _DEPTH:
            kind = Failure.OOM_LOGPROBS
        elif kind is Failure.OOM_START and (loading or serving):
            kind = Failure.OOM_RUNNING if serving else Failure.OOM_LOADING
        # An engine that is ended, and not for an error, is missed by its server for a moment; and
        # while it serves, the values that are refused are those of a request.
        passing = (kind is Failure.DIED and self._stopping) or (
            kind is Failure.REFUSED and serving
        )
        rank = _RANKS.get(self.failure.kind, 1) if self.failure else 3
        if kind and not passing and _RANKS.get(kind, 1) < rank:
            self.failure = self._failure(kind, text, line)
        self._stopping |= STOPPING in text and (serving or self.error is None)
        error, before = _ERROR.search(text), self.error.line if self.error else -1
        first = self.failure is None or before < self.failure.line
        if error and first and not any(word in text for word in CONSEQUENCES):
            hidden = serving and not (error[2] or "").startswith(PROMPTLESS)
            words = None if hidden else shortened(error[0].lstrip("."))
            self.error = LoggedFailure(
                kind=Failure.DIED, line=line, error=error[1], reason=words
            )

    def _failure(self, kind: Failure, text: str, line: int) -> LoggedFailure:
        figures = dict(self.failure.figures) if self.failure else {}
        for name, pattern in _FIGURES.items():
            if match := re.search(pattern, text):
                figures[name] = float(match[1]) / (1024 if "M" in match.groups() else 1)
        reason = (
            _REASON.search(text) if kind in (Failure.REFUSED, Failure.KILLED) else None
        )
        words = shortened(reason[1]) if reason else None
        return LoggedFailure(kind=kind, line=line, figures=figures, reason=words)

    def ended(self, *, ready: bool, last_line: int) -> LoggedFailure | None:
        """What ended it: if it never was ready, an error after which it said nothing more."""
        failure, error = self.failure, self.error
        if failure is None:
            return error if error and not ready and error.line > last_line else None
        near = error and (not ready or failure.line - error.line < _DEPTH)
        return error if near and failure.kind is Failure.DIED else failure


def cause_in(log: str, *, started: bool) -> tuple[Status, str] | None:
    """Why an engine of ours ended, in vLLM's own words; None when the log does not say."""
    reader, lines = FailureReader(), log.splitlines()
    for number, line in enumerate(lines):
        reader.add(line, number, loading=False, serving=started)
    failure = reader.ended(ready=started, last_line=-1) or reader.error
    if failure is None:
        return None
    error = _ERROR.search(lines[failure.line])
    last = peeled(lines[failure.line].encode(), 0).text.removeprefix(STOPPING)
    text = f"{error[1]}: {error[2]}" if error and error[2] else last
    refused = failure.error in REFUSALS and not started
    return (
        Status.REFUSED if refused else failure.kind.status,
        failure.reason or shortened(text),
    )
