"""OpenCompass predictions: an object of entries "0", "1", ...; by perplexity, a prompt a label."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.fields import UnusableError
from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import a_list, a_prompt, a_text, an_object
from chunkscope.sources.reader import RecordReader

_LABEL = "label: "
_CHOSEN = {"testing input", "prompt", "choices"}  # the next token's probabilities were compared
_ROLES = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}


class OpenCompassLog(HarnessLog):
    harness = "OpenCompass"

    def __init__(self, task: str) -> None:
        self.task = task

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        entries = [entry for record in head for entry in _entries(record)]
        if sum(map(_is_entry, entries)) * 2 > len(entries):
            return cls(reader.source.name.rpartition("/")[2])
        return None

    def rows(self, position: int, record: Any) -> Iterator[tuple[int, Any]]:
        if _is_entry(record):  # a file that is still being written has a row per line
            yield position, record
        else:
            yield from enumerate(_entries(record), start=1)

    def requests(self, record: Any) -> Iterator[SentRequest]:
        if not _is_entry(record):
            raise UnusableError("neither origin_prompt and prediction nor a label's prompt")
        labels = [held for key, held in record.items() if key.startswith(_LABEL)]
        labels += [record] if record.keys() >= _CHOSEN else []
        for held in labels:
            prompt = _prompt(an_object(held).get("prompt"))
            yield SentRequest(prompt=prompt, kind="likelihood", special_tokens=True)
        if not labels:
            yield from self._generated(record)
        self.documents += 1

    def _generated(self, record: dict[str, Any]) -> Iterator[SentRequest]:
        prompt, answers = record["origin_prompt"], record.get("prediction")
        is_rounds = bool(a_list(prompt)) and all(isinstance(part, list) for part in prompt)
        rounds = prompt if is_rounds else [prompt]
        said = a_list(answers) if is_rounds else [answers]
        for number, sent in enumerate(rounds):
            answer = a_text(said[number]) if number < len(said) else None
            yield SentRequest(prompt=_prompt(sent), special_tokens=True, output=answer)


def _entries(record: Any) -> list[Any]:
    """The entries of an object "0", "1", ...; a record that is one of them is its own."""
    if _is_entry(record):
        return [record]
    is_numbered = isinstance(record, dict) and all(key.isdecimal() for key in record)
    return list(record.values()) if is_numbered else [None]


def _is_entry(record: Any) -> bool:
    return isinstance(record, dict) and (
        record.keys() >= {"origin_prompt", "prediction"}
        or record.keys() >= _CHOSEN
        or any(key.startswith(_LABEL) for key in record)
    )


def _prompt(value: Any) -> str | Conversation:
    """Its own messages are {"role": "HUMAN", "prompt": ...}; an empty last one is to be filled."""
    if not isinstance(value, list):
        return a_prompt(value)
    messages = [
        {"role": _ROLES.get(str(m.get("role")), m.get("role")), "content": m.get("prompt")}
        for m in map(an_object, value)
    ]
    if messages and messages[-1]["role"] == "assistant" and not messages[-1]["content"]:
        messages.pop()
    if not messages:
        raise UnusableError("the prompt is an empty list")
    return a_prompt(messages)
