"""promptfoo's results: one document, or a line per result."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.prompts.chat import Conversation, conversation, looks_like_messages
from chunkscope.prompts.fields import UnusableError
from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import a_count, a_list, a_text, an_object
from chunkscope.sources.reader import RecordReader


class PromptfooLog(HarnessLog):
    harness = "promptfoo"

    def __init__(self, version: str | None) -> None:
        self.version = version
        self._tests: set[str] = set()
        self._cached = 0

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:  # noqa: ARG003
        results = [result for record in head for result in _results(record)]
        if sum(map(_is_result, results)) * 2 <= len(results):
            return None
        about = an_object(an_object(head[0]).get("metadata"))
        return cls(a_text(about.get("promptfooVersion")))

    def rows(self, position: int, record: Any) -> Iterator[tuple[int, Any]]:
        if _is_result(record):
            yield position, record
        else:
            yield from enumerate(_results(record), start=1)

    def requests(self, record: Any) -> Iterator[SentRequest]:
        raw = an_object(an_object(record).get("prompt")).get("raw")
        if not isinstance(raw, str):
            raise UnusableError("the result has no prompt.raw")
        self._tests.add(str(record.get("testIdx", len(self._tests))))
        self.documents = len(self._tests)
        response = an_object(record.get("response"))
        if response.get("cached") is True:
            self._cached += 1
            return
        usage = an_object(response.get("tokenUsage"))
        counted = a_count(usage.get("prompt"))
        output = a_text(response.get("output"))
        yield SentRequest(
            prompt=counted or _prompt(raw, record.get("provider")),
            special_tokens=True,
            output=a_count(usage.get("completion")) or (None if counted else output),
        )

    def notes(self) -> Iterator[str]:
        if self._cached:
            yield f"{self._cached:,} results came from promptfoo's cache: nothing was sent for them"


def _results(record: Any) -> list[Any]:
    if _is_result(record):
        return [record]
    return a_list(an_object(an_object(record).get("results")).get("results")) or [None]


def _is_result(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and record.keys() >= {"prompt", "vars", "provider"}
        and "raw" in an_object(record["prompt"])
    )


def _prompt(raw: str, provider: Any) -> str | Conversation:
    """Messages as JSON text; a plain text is a user's message, unless it was to be completed."""
    name = provider if isinstance(provider, str) else an_object(provider).get("id")
    try:
        messages = json.loads(raw)
    except (ValueError, RecursionError):
        messages = None
    if looks_like_messages(messages):
        return conversation(messages, {})
    if "completion" in str(name):
        return raw
    return conversation([{"role": "user", "content": raw}], {})
