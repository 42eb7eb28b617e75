"""Why an engine ended, by its log.

`verify` asks it of its own engines and `doctor` of anybody's. The lines differ by
version; each pattern was read in 0.10.2 to 0.32.0.
"""

import re
import textwrap
from dataclasses import dataclass, field
from enum import StrEnum

from chunkscope.vllm.log.lines import peeled

# What an engine does before it is ready, by the last line that tells. Bars end in a
# return.
STARTING = {
    "loading weights": (
        r"starting to load model|loading (model from|weights on|\w+ checkpoint)"
        r"|(loading|checkpoint) shards|downloading weights"
    ),
    "compiling": r"torch\.compile|dynamo bytecode|compiling|for the compilation",
    "building kernels": (
        r"warmup|jit compil|pre-compiling|warming up .*(kernels|flashinfer)"
    ),
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
    lines = re.split(r"[\r\n]+", log.lower())
    for line in reversed(lines):
        if re.search(NOT_DOING, line):
            continue
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
        if self is Failure.REFUSED:
            return Status.REFUSED
        if self in {Failure.KILLED, Failure.DIED}:
            return Status.DIED
        return Status.OUT_OF_MEMORY


class Stage(StrEnum):
    """How far an engine has come: an error may mean something else before and after."""

    BEGINNING = "beginning"
    LOADING = "loading"
    SERVING = "serving"


# What the parent process or a shell says when a child of its died: true, and no cause.
CONSEQUENCES = (
    "Engine core initialization failed",
    "EngineCore encountered a",
    "(core dumped)",
)
# Of a line with several, the first counts.
SIGNS = {
    "when warming up sampler": Failure.OOM_SAMPLER,
    "less than desired ": Failure.NO_FREE_MEMORY,
    "No available memory for the cache blocks": Failure.NO_CACHE_BLOCKS,
    "To serve at least one request with the model": Failure.CONTEXT_TOO_LONG,
    "ut of memory": Failure.OOM_START,  # or later, or in prompt_logprobs
    "CPUAllocator: ": Failure.OOM_HOST,
    "bad_alloc": Failure.OOM_HOST,
    "Cannot allocate memory": Failure.OOM_HOST,
    "Value error, ": Failure.REFUSED,
    ".py: error: ": Failure.REFUSED,
    "vllm: error: ": Failure.REFUSED,
    "vllm serve: error: ": Failure.REFUSED,
    "EngineCore failed to start": Failure.DIED,
    **dict.fromkeys(CONSEQUENCES, Failure.DIED),
}
# Frames of the two model runners, which tell that prompt_logprobs ran out of memory.
LOGPROB_FRAMES = (
    "_get_prompt_logprobs_dict",
    "compute_logprobs",
    "compute_prompt_logprobs",
)
# Of a traceback: an error behind it is vLLM's, whatever it said before.
ENTRY = 'bin/vllm", line'
# What tells of a failure of vLLM, even where nothing of vLLM came before it.
TELLING = (*SIGNS, *LOGPROB_FRAMES, ENTRY)
STOPPING = "[shutdown] "
# How the system says that it killed a process, and how vLLM misses one: a sign, and the
# words.
KILLS = {
    "Killed": r"Killed(?:$|  | pr)",  # a shell, the kernel, Docker, Kubernetes
    "oom_kill": r"oom_kill",  # SLURM
    "oom-kill": r"oom-kill",  # systemd
    "died unexpectedly": r"core .*unexpectedly|code: -9\b",  # vLLM
    "code 137": r"code 137\b",  # Docker Compose
    "CANCELLED": r"CANCELLED.* DUE TO ",  # SLURM; a job that is ended has no reason
    "=9/KILL": r"=9/KILL",  # systemd
    "initialization failed": r"': -9\b",  # vLLM, by the process
}
_KILLED = re.compile("|".join(KILLS.values()))
# A parent process tells a cause after its consequence, and the sampler's after the
# error it came from: of several kinds the lowest counts, then the first.
_RANKS = {Failure.OOM_SAMPLER: 0, Failure.KILLED: 2, Failure.DIED: 2}
_USUAL_RANK = 1
# Raised by vLLM when arguments or the model do not go together.
REFUSALS = (
    "ValueError",
    "ValidationError",
    "AssertionError",
    "NotImplementedError",
    "TypeError",
)
# Of the driver or of vLLM itself: these errors never quote a prompt.
PROMPTLESS = ("CUDA error: ", "NCCL error", "RPC call to ")
_DEPTH = 60  # lines of a traceback before the line that names the error
_SENTENCE = 240  # characters: what torch says goes on with advice
# torch.AcceleratorError: CUDA error: an illegal memory access was encountered
_ERROR = re.compile(
    r"(?:^|[\s.])([A-Z]\w{0,40}(?:Error|Exception|Interrupt))(?:: (.+))?$"
)
# Value error, World size (8) is larger than 4. If this is intentional, use:
_REASON = re.compile(r"(?:Value error, |error: )(.+?)(?: \[type=|\. [^.]*:$|$)")
_SIZES = {
    "asked_gib": r"Tried to allocate (\d+(?:\.\d+)?) ([GM])iB",
    "left_gib": r"of which (\d+(?:\.\d+)?) ([GM])iB is free",
    "needed_gib": r"(\d+(?:\.\d+)?) ([GM])iB KV cache is needed",
    "available_gib": r"available KV cache memory \((\d+(?:\.\d+)?) ([GM])iB\)",
}
_COUNTS = {
    "longest": r"estimated maximum model length is (\d+)",
    "free_gib": r"on device[^(]*\((\d+(?:\.\d+)?)/",
    "requests": r"sampler with (\d+) dummy requests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFailure:
    """`figures` are the numbers of its line, in GiB or tokens; `error` was raised.

    `reason` is vLLM's own sentence, which cannot have a prompt: no other text is kept.
    """

    kind: Failure
    line: int
    figures: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    reason: str | None = None


def failure_in(text: str) -> Failure | None:
    """What a line alone tells of an end."""
    if _KILLED.search(text):
        return Failure.KILLED
    for sign, kind in SIGNS.items():
        if sign in text:
            return kind
    return None


def shortened(text: str) -> str:
    return textwrap.shorten(text, width=_SENTENCE)


class FailureReader:
    """Of one engine, line by line."""

    def __init__(self) -> None:
        self.failure: LoggedFailure | None = None
        # The last error, or, of those after a failure, the first.
        self.error: LoggedFailure | None = None
        self._frame_line: int | None = None
        self._stopping = False

    def add(self, text: str, line: int, stage: Stage) -> None:
        if any(frame in text for frame in LOGPROB_FRAMES):
            self._frame_line = line
        kind = failure_in(text)
        if kind is Failure.OOM_START:
            kind = self._out_of_memory(line, stage)
        if kind and not self._is_passing(kind, stage) and self._counts_more(kind):
            self.failure = self._failure(kind, text, line)
        if STOPPING in text and (stage is Stage.SERVING or self.error is None):
            self._stopping = True
        self._keep_error(text, line, stage)

    def _out_of_memory(self, line: int, stage: Stage) -> Failure:
        if self._frame_line is not None and line - self._frame_line < _DEPTH:
            return Failure.OOM_LOGPROBS
        if stage is Stage.SERVING:
            return Failure.OOM_RUNNING
        if stage is Stage.LOADING:
            return Failure.OOM_LOADING
        return Failure.OOM_START

    def _is_passing(self, kind: Failure, stage: Stage) -> bool:
        """Is it no end of the engine?"""
        if kind is Failure.DIED:
            # An engine that is ended, and not for an error, is missed for a moment.
            return self._stopping
        # While it serves, the values that are refused are those of a request.
        return kind is Failure.REFUSED and stage is Stage.SERVING

    def _counts_more(self, kind: Failure) -> bool:
        if self.failure is None:
            return True
        known = _RANKS.get(self.failure.kind, _USUAL_RANK)
        return _RANKS.get(kind, _USUAL_RANK) < known

    def _failure(self, kind: Failure, text: str, line: int) -> LoggedFailure:
        figures = dict(self.failure.figures) if self.failure else {}
        for name, pattern in _SIZES.items():
            if match := re.search(pattern, text):
                mib = 1024 if match[2] == "M" else 1
                figures[name] = float(match[1]) / mib
        for name, pattern in _COUNTS.items():
            if match := re.search(pattern, text):
                figures[name] = float(match[1])
        reason = None
        if kind in {Failure.REFUSED, Failure.KILLED}:
            said = _REASON.search(text)
            reason = shortened(said[1]) if said else None
        return LoggedFailure(kind=kind, line=line, figures=figures, reason=reason)

    def _keep_error(self, text: str, line: int, stage: Stage) -> None:
        error = _ERROR.search(text)
        if error is None or any(words in text for words in CONSEQUENCES):
            return
        if self.failure and self.error and self.error.line >= self.failure.line:
            return
        reason = None
        # What else is raised while it serves may quote a prompt.
        if stage is not Stage.SERVING or (error[2] or "").startswith(PROMPTLESS):
            reason = shortened(error[0].lstrip("."))
        self.error = LoggedFailure(
            kind=Failure.DIED, line=line, error=error[1], reason=reason
        )

    def ended(self, *, ready: bool, last_line: int) -> LoggedFailure | None:
        """What ended it: before it was ready, an error after which it said no more."""
        failure = self.failure
        error = self.error
        if failure is None:
            if error and not ready and error.line > last_line:
                return error
            return None
        if failure.kind is Failure.DIED and error:
            near = failure.line - error.line < _DEPTH
            if near or not ready:
                return error
        return failure


def cause_in(log: str, *, started: bool) -> tuple[Status, str] | None:
    """Why an engine of ours ended, in vLLM's words; None if the log does not say."""
    lines = log.splitlines()
    stage = Stage.SERVING if started else Stage.BEGINNING
    reader = FailureReader()
    for number, line in enumerate(lines):
        reader.add(line, number, stage)
    failure = reader.ended(ready=started, last_line=-1) or reader.error
    if failure is None:
        return None
    status = failure.kind.status
    if failure.error in REFUSALS and not started:
        status = Status.REFUSED
    return status, failure.reason or shortened(_said(lines[failure.line]))


def _said(line: str) -> str:
    """The error of a line, or what vLLM wrote in it."""
    error = _ERROR.search(line)
    if error and error[2]:
        return f"{error[1]}: {error[2]}"
    return peeled(line.encode(), 0).text.removeprefix(STOPPING)
