"""Steps of the engine, where it logs each (`--enable-logging-iteration-details`), added up."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from chunkscope.vllm.log.messages import BY_NAME, STEP

_STEP = re.compile(BY_NAME[STEP].pattern.encode())


class LoggedStep(NamedTuple):
    prefills: int
    prompt_tokens: int
    decodes: int
    ms: float


def step_in(raw: bytes) -> LoggedStep | None:
    """Such lines are the most of a log that has them, so nothing but their figures is made of them.

    >>> step_in(b"Iteration(7): 1 context requests, 256 context tokens, 0 generation requests, "
    ...         b"0 generation tokens, iteration elapsed time: 8.60 ms")
    LoggedStep(prefills=1, prompt_tokens=256, decodes=0, ms=8.6)
    """
    found = _STEP.search(raw)
    if found is None:
        return None
    prefills, tokens, decodes, ms = found.groups()
    return LoggedStep(int(prefills), int(tokens), int(decodes), float(ms))


@dataclass(slots=True, kw_only=True)
class StepTally:
    """Decoding alone, and decoding beside a prompt: what the difference is, a prompt costs."""

    steps: int = 0
    prompt_tokens: int = 0
    decoding: int = 0
    decoding_ms: float = 0.0
    mixed: int = 0
    mixed_ms: float = 0.0
    longest_ms: float = 0.0  # of those that made somebody's token wait
    longest_line: int = 0

    def add(self, step: LoggedStep, line: int) -> None:
        prefills, tokens, decodes, ms = step
        self.steps += 1
        self.prompt_tokens += tokens
        if decodes and prefills:
            self.mixed += 1
            self.mixed_ms += ms
        elif decodes:
            self.decoding += 1
            self.decoding_ms += ms
        if decodes and ms > self.longest_ms:
            self.longest_ms, self.longest_line = ms, line

    @property
    def slowdown(self) -> float | None:
        """How many times longer a decode step is with a prompt beside it."""
        if not (self.mixed and self.decoding and self.decoding_ms):
            return None
        return (self.mixed_ms / self.mixed) / (self.decoding_ms / self.decoding)
