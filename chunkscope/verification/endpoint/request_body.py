"""What a server is asked: prompts as random token ids or as text, and the body of a request."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import orjson

from chunkscope.engine.choices import Task
from chunkscope.simulation.workload import Workload

# Words of nearly every vocabulary, past its special tokens.
WORDS = (1_000, 20_000)
# In every vocabulary, however small: single bytes of most. Tekken's image tokens are below.
BYTES = (100, 250)


class Route(StrEnum):
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


class SentPrompts(Protocol):
    """The prompts of a workload; a warm-up is repeat -1."""

    def prompt(self, repeat: int, index: int, length: int) -> str | list[int]: ...

    def is_complete(self, index: int) -> bool:
        """Whether its special tokens are in it already."""

    def probe(self) -> str | list[int]:
        """A short one, to see whether such prompts are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomIds:
    """Random ids, other ones in every repeat and in every run: no prefix cache knows them.

    `run` tells this run from others, whose prompts may still be in the server's cache.
    """

    workload: Workload
    run: str
    range: tuple[int, int]

    def prompt(self, repeat: int, index: int, length: int) -> list[int]:
        ids = self._random(f"{repeat}/{index}", length)
        shared = min(self.workload.shared_prefix, length - 1)
        if shared > 0:
            ids[:shared] = self._random(f"{repeat}/shared", shared)
        return ids

    def is_complete(self, index: int) -> bool:  # noqa: ARG002
        return True  # nobody adds anything to ids

    def probe(self) -> list[int]:
        """Ends in the highest id that will be sent."""
        return [self.range[0], self.range[1] - 1]

    def lower(self) -> "RandomIds":
        return replace(self, range=BYTES)

    def _random(self, which: str, length: int) -> list[int]:
        chance = random.Random(f"{self.workload.seed}/{self.run}/{which}")  # noqa: S311
        return chance.choices(range(*self.range), k=length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The same texts in every repeat."""

    texts: Sequence[str]
    complete: Sequence[bool] = ()

    def prompt(self, repeat: int, index: int, length: int) -> str:  # noqa: ARG002
        return self.texts[index]

    def is_complete(self, index: int) -> bool:
        return bool(self.complete and self.complete[index])

    def probe(self) -> str:
        return min(self.texts, key=len)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """How this server is asked. What only vLLM understands is sent to vLLM only."""

    model: str
    is_vllm: bool
    task: Task
    path: Route = Route.COMPLETIONS

    @property
    def streams(self) -> bool:
        """Log-probabilities of a prompt come in one piece."""
        return self.task is not Task.LOGLIKELIHOOD

    def body(
        self, prompt: str | list[int], output_tokens: int, *, salt: str, is_complete: bool = False
    ) -> bytes:
        """`salt`: prompts with another one share no prefix with this one, where that is known."""
        asked: dict[str, Any] = {
            "model": self.model,
            **self._prompt(prompt),
            "max_tokens": output_tokens,
            "temperature": 0,
            **(self._streamed() if self.streams else self._likelihood()),
        }
        if self.is_vllm:
            asked |= {"min_tokens": output_tokens, "ignore_eos": True, "cache_salt": salt}
            if is_complete and self.path is Route.COMPLETIONS and isinstance(prompt, str):
                asked["add_special_tokens"] = False
        return orjson.dumps(asked)

    def _prompt(self, prompt: str | list[int]) -> dict[str, Any]:
        if self.path is Route.COMPLETIONS:
            return {"prompt": prompt}
        return {"messages": [{"role": "user", "content": prompt}]}

    def _streamed(self) -> dict[str, Any]:
        options = {"include_usage": True}
        if self.is_vllm:
            options["continuous_usage_stats"] = True  # tokens so far, with every event
        return {"stream": True, "stream_options": options}

    def _likelihood(self) -> dict[str, Any]:
        return {"prompt_logprobs": 1} if self.is_vllm else {"echo": True, "logprobs": 1}
