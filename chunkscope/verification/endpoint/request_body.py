"""What a server is asked: prompts as random token ids or as text, and the body of a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from chunkscope.simulation.workload import Workload
from chunkscope.verification.inside.chunkscope_prompts import SharingIds
from chunkscope.verification.outputs import TOPS
from chunkscope.vllm.enums import Task

# Words of nearly every vocabulary, past its special tokens.
WORDS = (1_000, 20_000)
# In every vocabulary, however small: single bytes of most. Tekken's image tokens are below.
BYTES = (100, 250)


class Route(StrEnum):
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomIds:
    """Random ids that share as the data does, others in every repeat and in every run.

    `run` tells this run from others, whose prompts may still be in the server's cache. A warm-up
    is repeat -1.
    """

    workload: Workload
    run: str
    range: tuple[int, int]

    def prompts(self, repeat: int, places: Sequence[int]) -> list[list[int]]:
        """Those of these requests of the workload."""
        requests = self.workload.requests
        stretches = [(stretch.parent, stretch.tokens) for stretch in self.workload.stretches]
        ids = SharingIds(stretches, [request.stretch for request in requests], self.range)
        seed = f"{self.workload.seed}/{self.run}/{repeat}"
        return [ids.prompt(seed, place, requests[place].prompt_tokens) for place in places]

    def probe(self) -> list[int]:
        """A short one, to see whether ids are taken; ends in the highest that will be sent."""
        return [self.range[0], self.range[1] - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """How this server is asked. What only vLLM understands is sent to vLLM only."""

    model: str
    is_vllm: bool
    task: Task
    path: Route = Route.COMPLETIONS
    tells: bool = False  # log-probabilities of an answer, too

    @property
    def streams(self) -> bool:
        """Log-probabilities come in one piece."""
        return self.task is not Task.LOGLIKELIHOOD and not self.tells

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
            **(self._streamed() if self.streams else self._logprobs()),
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

    def _logprobs(self) -> dict[str, Any]:
        if self.task is not Task.LOGLIKELIHOOD:
            if self.path is Route.CHAT:
                return {"logprobs": True, "top_logprobs": TOPS}
            as_ids = {"return_tokens_as_token_ids": True} if self.is_vllm else {}
            return {"logprobs": TOPS, **as_ids}
        return {"prompt_logprobs": 1} if self.is_vllm else {"echo": True, "logprobs": 1}
