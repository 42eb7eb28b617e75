"""lighteval's details: a row per document, with the token ids that the model got.

Up to 0.10 the columns are flat; since 0.11 there are three, `doc`, `metric` and `model_response`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.errors import InputError
from chunkscope.prompts.fields import UnusableError
from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import (
    a_count,
    a_list,
    a_prompt,
    a_text,
    an_object,
    another,
    most_have,
)
from chunkscope.sources.reader import RecordReader

_FLAT = ("full_prompt", "num_effective_few_shots")
_FLAT_NEEDED = ("input_tokens", "padded", "predictions")
_NESTED = ("doc", "model_response")


class LightevalLog(HarnessLog):
    harness = "lighteval"

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        if most_have(head, *_NESTED):
            return cls()
        if not most_have(head, *_FLAT):
            return None
        missing = [name for name in _FLAT_NEEDED if not most_have(head, name)]
        if missing:
            raise InputError(
                f"{reader.source.path} looks like details of lighteval, but has no "
                f"{' and no '.join(missing)}",
                hint="lighteval 0.6 to 0.13 write them with --save-details",
            )
        return cls()

    def requests(self, record: Any) -> Iterator[SentRequest]:
        row = an_object(record)
        yield from self._nested(row) if "model_response" in row else self._flat(row)
        self.documents += 1

    def _flat(self, record: dict[str, Any]) -> Iterator[SentRequest]:
        """A list of ids per request, filled up to the length of its batch."""
        rows, padded = _lists(record.get("input_tokens")), a_list(record.get("padded"))
        if not rows:
            raise UnusableError("input_tokens is empty")
        if len(padded) != len(rows):
            raise UnusableError("padded is not a number for each list in input_tokens")
        self.shots = a_count(record.get("num_effective_few_shots")) or self.shots or 0
        generates = any(isinstance(text, str) for text in a_list(record.get("predictions")))
        for ids, unused in zip(rows, padded, strict=True):
            yield SentRequest(
                prompt=max(len(ids) - (a_count(unused) or 0), 0),
                kind="generate" if generates else "likelihood",
            )

    def _nested(self, record: dict[str, Any]) -> Iterator[SentRequest]:
        doc, response = an_object(record.get("doc")), an_object(record["model_response"])
        self._remember_task(a_text(doc.get("task_name")))
        answers = [
            sum(token != -1 for token in ids) for ids in _lists(response.get("output_tokens"))
        ]
        if not a_list(response.get("text")):  # logprobs there may be of generated tokens too
            yield from self._likelihood(response, answers)
            return
        cap = a_count(doc.get("generation_size"))
        prompts: list[Any] = [len(ids) for ids in _lists(response.get("input_tokens"))]
        filled = a_count(response.get("padded_tokens_count")) or 0
        if not prompts:  # an API has no ids
            prompts, filled = [a_prompt(response.get("input"))], 0
        output = answers[0] if len(answers) == 1 else None
        for prompt in prompts:
            sent = max(prompt - filled, 0) if isinstance(prompt, int) else prompt
            yield SentRequest(prompt=sent, special_tokens=True, output_cap=cap, output=output)

    def _likelihood(self, response: dict[str, Any], answers: list[int]) -> Iterator[SentRequest]:
        """The context of each choice, or one for all of them, was sent with the choice."""
        scores, rows = response.get("logprobs"), _lists(response.get("input_tokens"))
        if isinstance(scores, float) and len(rows) == 1:  # the whole of a single one
            yield SentRequest(prompt=len(rows[0]), kind="likelihood")
            return
        contexts = [len(ids) for ids in rows]
        if len(contexts) == 1:
            contexts *= len(answers)
        if not answers or not len(contexts) == len(answers) == len(a_list(scores)):
            raise UnusableError(
                f"{len(a_list(scores))} choices were scored, but there are the tokens of "
                f"{len(contexts)} contexts and {len(answers)} choices"
            )
        for context, answer in zip(contexts, answers, strict=True):
            yield SentRequest(prompt=context + answer, kind="likelihood")

    def _remember_task(self, name: str | None) -> None:
        """ "lighteval|gsm8k|5", or since 0.12 "gsm8k|5": the last part is the number of shots."""
        parts = (name or "").split("|")
        if name and self.task and name != self.task:
            raise UnusableError(another("task", name, self.task))
        if name and self.task is None:
            self.task = name
            number = [part for part in parts[1:] if part.isdecimal()]
            self.shots = int(number[0]) if number else None


def _is_flat(value: Any) -> bool:
    return not any(isinstance(part, list) for part in a_list(value))


def _lists(value: Any) -> list[list[Any]]:
    """Lists of ids; a single one may stand by itself."""
    if not a_list(value):
        return []
    return [value] if _is_flat(value) else [ids for ids in value if isinstance(ids, list)]
