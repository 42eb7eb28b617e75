"""What vLLM's log says of an engine of ours: the phase it is in, and what it died of.

The lines differ by version; each pattern names the versions it was read in (0.10.2 to 0.32.0).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from chunkscope.vllm.log.trouble import CONSEQUENCES

# What an engine does before it is ready, by the last line that tells. Bars end in a return.
STARTING = {
    "loading weights": re.compile(
        r"Starting to load model|Loading (?:model from|weights on|safetensors|pt |np_cache)"
        r"|loading shards|checkpoint shards|downloading weights"
    ),
    "compiling": re.compile(
        r"vLLM's torch\.compile|[Ss]tarting torch\.compile|torch\.compile takes|Dynamo bytecode"
        r"|Compiling (?:a graph|model)|compiling function|Compile and warming up"
        r"|Warming up model for the compilation"
    ),
    "building kernels": re.compile(
        r"DeepGEMM warmup|JIT[- ](?:kernel warmup|compil)|Pre-compiling|Warming up .*kernels"
        r"|Warming up FlashInfer"
    ),
    "autotuning kernels": re.compile(r"[Aa]utotun(?:e|ing)"),
    "capturing CUDA graphs": re.compile(r"Capturing (?:CUDA graph|model)"),
}
NOT_DOING = re.compile(r"[Ss]kipping|disabled|finished|completed|took |with config: |activated")
# Programs that make a kernel out of its source, the first time that it is needed.
COMPILERS = frozenset({"nvcc", "cicc", "ptxas", "cudafe++", "ninja", "cc1plus", "fatbinary"})

OUT_OF_MEMORY = (
    re.compile(r"CUDA out of memory\.?[^\n]*"),
    re.compile(r"(?:torch\.)?(?:cuda\.)?OutOfMemoryError: [^\n]*"),
    re.compile(r"HIP out of memory[^\n]*"),
    re.compile(r"Free memory on device[^\n]*is less than desired GPU memory utilization[^\n]*"),
    re.compile(r"No available memory for the cache blocks[^\n]*"),
    re.compile(
        r"To serve at least one request with the models?'?s? ?[^\n]*KV cache is needed[^\n]*"
    ),
    re.compile(r"DefaultCPUAllocator: (?:can't|not enough) [^\n]*"),
    re.compile(r"Available memory on node[^\n]*less than desired[^\n]*"),
    re.compile(r"std::bad_alloc|Cannot allocate memory|MemoryError"),
)
# Raised by vLLM when arguments or the model do not go together.
REFUSALS = ("ValueError", "ValidationError", "AssertionError", "NotImplementedError", "TypeError")
ERROR_LINE = re.compile(r"(?:^|\s)((?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)): (.+)$")
# pydantic puts the sentence on its second line, and its own remarks behind it.
VALUE_ERROR = re.compile(r"Value error, (.+?)(?: \[type=|$)", re.MULTILINE)


def doing_in(log: str) -> str | None:
    """What the engine was at last, as far as its log tells.

    >>> doing_in("Loading weights on cuda ...\\nCapturing CUDA graphs (mixed):  10%")
    'capturing CUDA graphs'
    """
    for line in reversed(re.split(r"[\r\n]+", log)):
        if NOT_DOING.search(line):
            continue
        for doing, pattern in STARTING.items():
            if pattern.search(line):
                return doing
    return None


class Status(StrEnum):
    """How an engine ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    REFUSED = "refused"  # vLLM would not start with these arguments
    DIED = "died"

    @property
    def is_final(self) -> bool:
        """Would the same happen again? If not, `--resume` tries once more."""
        return self in {Status.OK, Status.OUT_OF_MEMORY, Status.REFUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    status: Status
    text: str


def cause_in(log: str, *, started: bool) -> Cause | None:
    """Why an engine ended, by its log; None when the log does not say."""
    for pattern in OUT_OF_MEMORY:
        found = pattern.search(log)
        if found:
            return Cause(status=Status.OUT_OF_MEMORY, text=_sentence(found[0]))
    if not started and (found := VALUE_ERROR.search(log)):
        return Cause(status=Status.REFUSED, text=_sentence(found[1]))
    for line in log.splitlines():
        found = ERROR_LINE.search(line)
        if found is None or any(word in line for word in CONSEQUENCES):
            continue
        kind = found[1].rpartition(".")[2]
        refused = not started and kind in REFUSALS
        status = Status.REFUSED if refused else Status.DIED
        return Cause(status=status, text=f"{kind}: {_sentence(found[2])}")
    return None


def _sentence(text: str) -> str:
    """Its first sentence or two: torch's goes on with advice."""
    text = " ".join(text.split())
    return text if len(text) <= 240 else text[:239].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def last_lines(log: str, count: int = 12) -> list[str]:
    """The end of the log; a line may be a whole configuration, so each is cut."""
    return [line[:200].rstrip() for line in log.splitlines() if line.strip()][-count:]
