"""What a server is asked: prompts as random token ids or as text, and the body of a request."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomIds:
    """Random ids, other ones in every repeat and in every run: no prefix cache knows them.

    `run` tells this run from others, whose prompts may still be in the server's cache. A warm-up
    is repeat -1.
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

    def probe(self) -> list[int]:
        """A short one, to see whether ids are taken; ends in the highest that will be sent."""
        return [self.range[0], self.range[1] - 1]

    def _random(self, which: str, length: int) -> list[int]:
        chance = random.Random(f"{self.workload.seed}/{self.run}/{which}")  # noqa: S311
        return chance.choices(range(*self.range), k=length)


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
        """`salt`: prompts with another one share no prefix with this one, where that is known.

        `is_complete`: a text has its special tokens in it already.
        """
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
