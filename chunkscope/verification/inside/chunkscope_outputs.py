"""What an engine answers greedily to a sample of the prompts, with log-probabilities."""

from typing import Any

from chunkscope_prompts import with_endings

LEAST = -9999.0  # for what has no log-probability, as vLLM's own server writes it


class Sampled:
    """The prompts of the sample, each with its endings where a likelihood is asked for.

    `asked` holds the places of the sample in the workload, the tokens and the endings.
    """

    def __init__(self, task: "dict[str, Any]", ids: Any) -> None:
        asked, requests = task["outputs"], task["requests"]
        prompts = [ids.sampled(place, requests[place][0]) for place in asked["places"]]
        self._tokens, self._tops = asked["tokens"], asked["tops"]
        self._ways = 1
        outputs = [min(requests[place][1], self._tokens) for place in asked["places"]]
        if asked["endings"]:
            asking = with_endings(prompts, asked["endings"], self._tokens)
            self._ways = len(asking[0])
            prompts = [prompt for one in asking for prompt in one]
            outputs = [1] * len(prompts)
        self.chooses = bool(asked["endings"])
        self.prompts = prompts
        self.requests = [(len(p), n, 0.0) for p, n in zip(prompts, outputs)]

    @property
    def params(self) -> "dict[str, Any]":
        return {} if self.chooses else {"logprobs": self._tops}

    def told(self, heard: "list[list[Any]]") -> "dict[str, Any]":
        """`heard`: by prompt, the outputs of the engine; the last one is complete."""
        if not self.chooses:
            return {"answers": [self._answer(outputs) for outputs in heard]}
        scores = [self._score(ids, outputs) for ids, outputs in zip(self.prompts, heard)]
        ways = self._ways
        return {"scores": [scores[n : n + ways] for n in range(0, len(scores), ways)]}

    def _answer(self, outputs: "list[Any]") -> "list[Any]":
        parts = [output.outputs[0] for output in outputs]
        return [
            _spoken(token, logprobs)
            for part in parts
            for token, logprobs in zip(part.token_ids, part.logprobs)
        ]

    def _score(self, ids: "list[int]", outputs: "list[Any]") -> float:
        found = next(o.prompt_logprobs for o in outputs if o.prompt_logprobs is not None)
        pairs = list(zip(ids, found))[-self._tokens :]
        return sum(_finite(logprobs[token].logprob) for token, logprobs in pairs)


def _spoken(token: int, logprobs: "dict[int, Any]") -> "list[Any]":
    told = {int(other): _finite(found.logprob) for other, found in logprobs.items()}
    return [(token, told.pop(token)), *told.items()]


def _finite(logprob: float) -> float:
    return logprob if logprob > LEAST else LEAST
