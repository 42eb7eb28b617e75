"""lighteval's details: a row per document, with the token ids that the model got.

Up to 0.10 the columns are flat; since 0.11 there are three, `doc`, `metric` and `model_response`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.prompts.harness.log import (
    HarnessLog,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_prompt,
    as_text,
    most_have,
)
from chunkscope.prompts.paths import UnusableError
from chunkscope.sources.reader import RecordReader


class LightevalLog(HarnessLog):
    harness = "lighteval"

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:  # noqa: ARG003
        flat = most_have(head, "full_prompt", "num_effective_few_shots")
        return cls() if flat or most_have(head, "doc", "model_response") else None

    def requests(self, record: Any) -> Iterator[SentRequest]:
        row = as_dict(record)
        yield from self._nested(row) if "model_response" in row else self._flat(row)
        self.add_document()

    def _flat(self, record: dict[str, Any]) -> Iterator[SentRequest]:
        """A list of ids per request, filled up to the length of its batch."""
        rows, padded = _id_lists(record.get("input_tokens")), as_list(record.get("padded"))
        if not rows or len(padded) != len(rows):
            raise UnusableError("input_tokens and padded are not a list and a number per request")
        self.shots = as_count(record.get("num_effective_few_shots")) or self.shots or 0
        generates = any(isinstance(text, str) for text in as_list(record.get("predictions")))
        for ids, unused in zip(rows, padded, strict=True):
            yield SentRequest(
                prompt=max(len(ids) - (as_count(unused) or 0), 0),
                kind="generate" if generates else "likelihood",
            )

    def _nested(self, record: dict[str, Any]) -> Iterator[SentRequest]:
        doc, response = as_dict(record.get("doc")), as_dict(record["model_response"])
        if self.task is None and (name := as_text(doc.get("task_name"))):
            self.task = name  # "lighteval|gsm8k|5", or since 0.12 "gsm8k|5": with 5 shots
            self.shots = as_count(name.rpartition("|")[2])
        outputs = _id_lists(response.get("output_tokens"))
        answers = [sum(token != -1 for token in ids) for ids in outputs]
        contexts = [len(ids) for ids in _id_lists(response.get("input_tokens"))]
        if not as_list(response.get("text")):  # logprobs there may be of generated tokens too
            yield from _scored(contexts, answers, response.get("logprobs"))
            return
        cap = as_count(doc.get("generation_size")) or None
        filled = as_count(response.get("padded_tokens_count")) or 0
        output = answers[0] if len(answers) == 1 else None
        prompts: list[Any] = [max(tokens - filled, 0) for tokens in contexts]
        for prompt in prompts or [as_prompt(response.get("input"))]:  # an API has no ids
            yield SentRequest(prompt=prompt, special_tokens=True, output_cap=cap, output=output)


def _scored(contexts: list[int], answers: list[int], scores: Any) -> Iterator[SentRequest]:
    """The context of each choice, or one for all of them, was sent with the choice."""
    if isinstance(scores, float) and len(contexts) == 1:  # the whole of a single one
        yield SentRequest(prompt=contexts[0], kind="likelihood")
        return
    if len(contexts) == 1:
        contexts = contexts * len(answers)
    if not answers or not len(contexts) == len(answers) == len(as_list(scores)):
        raise UnusableError(
            f"{len(as_list(scores))} choices were scored, but there are the tokens of "
            f"{len(contexts)} contexts and {len(answers)} choices"
        )
    for context, answer in zip(contexts, answers, strict=True):
        yield SentRequest(prompt=context + answer, kind="likelihood")


def _id_lists(value: Any) -> list[list[Any]]:
    """Lists of ids; a single one may stand by itself."""
    lists = [ids for ids in as_list(value) if isinstance(ids, list)]
    return lists if lists or not as_list(value) else [value]
