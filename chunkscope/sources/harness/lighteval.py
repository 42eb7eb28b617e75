"""lighteval's details: a row per document, with the token ids that the model got.

Up to 0.10 the columns are flat; since 0.11 there are three, `doc`, `metric` and `model_response`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.errors import InputError
from chunkscope.sources.fields import UnusableError
from chunkscope.sources.harness.request import HarnessLog, SentRequest
from chunkscope.sources.harness.values import (
    a_count,
    a_list,
    a_prompt,
    a_text,
    all_have,
    an_object,
)
from chunkscope.sources.reader import RecordReader

_FLAT = ("full_prompt", "num_effective_few_shots")
_FLAT_NEEDED = ("input_tokens", "padded", "predictions")
_NESTED = ("doc", "model_response")


class LightevalLog(HarnessLog):
    harness = "lighteval"

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        if all_have(head, *_NESTED):
            return cls()
        if not all_have(head, *_FLAT):
            return None
        missing = [name for name in _FLAT_NEEDED if not all_have(head, name)]
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
        filled = [n if isinstance(n, int) else None for n in padded]
        if len(filled) != len(rows) or None in filled:
            raise UnusableError("padded is not a number for each list in input_tokens")
        self.shots = a_count(record.get("num_effective_few_shots")) or self.shots or 0
        generates = any(isinstance(text, str) for text in a_list(record.get("predictions")))
        for ids, unused in zip(rows, filled, strict=True):
            yield SentRequest(
                prompt=len(ids) - max(unused or 0, 0),
                kind="generate" if generates else "likelihood",
            )

    def _nested(self, record: dict[str, Any]) -> Iterator[SentRequest]:
        doc, response = an_object(record.get("doc")), an_object(record["model_response"])
        self._remember_task(a_text(doc.get("task_name")))
        answers = [
            sum(token != -1 for token in ids) for ids in _lists(response.get("output_tokens"))
        ]
        if a_list(response.get("logprobs")):
            yield from self._likelihood(response, answers)
            return
        cap = a_count(doc.get("generation_size"))
        prompts: list[Any] = [len(ids) for ids in _lists(response.get("input_tokens"))]
        filled = a_count(response.get("padded_tokens_count")) or 0
        if not prompts:  # an API has no ids
            prompts, filled = [a_prompt(response.get("input"))], 0
        output = answers[0] if len(answers) == 1 else None
        for prompt in prompts:
            sent = prompt - filled if isinstance(prompt, int) else prompt
            yield SentRequest(prompt=sent, special_tokens=True, output_cap=cap, output=output)

    def _likelihood(self, response: dict[str, Any], answers: list[int]) -> Iterator[SentRequest]:
        """A list of ids per choice, or one context that was sent with each of the choices."""
        rows, filled = _lists(response.get("input_tokens")), response.get("padded_tokens_count")
        if not rows:
            raise UnusableError("model_response has no input_tokens")
        if len(rows) == 1 and _is_flat(response["input_tokens"]):
            lengths = [len(rows[0]) - (a_count(filled) or 0) + answer for answer in answers]
        else:
            lengths = [len(ids) for ids in rows]
        if len(lengths) != len(response["logprobs"]):
            raise UnusableError(
                f"{len(response['logprobs'])} choices were scored, but there are tokens of "
                f"{len(lengths)}"
            )
        for length in lengths:
            yield SentRequest(prompt=length, kind="likelihood")

    def _remember_task(self, name: str | None) -> None:
        """ "lighteval|gsm8k|5", or since 0.12 "gsm8k|5": the last part is the number of shots."""
        parts = (name or "").split("|")
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
