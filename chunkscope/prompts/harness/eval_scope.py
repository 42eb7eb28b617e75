"""evalscope's predictions: a line per sample, with its messages and the model's output."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.prompts.fields import UnusableError
from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import (
    a_count,
    an_object,
    another,
    most_have,
    without_answer,
)
from chunkscope.sources.reader import RecordReader


class EvalScopeLog(HarnessLog):
    harness = "evalscope"

    def __init__(self, task: str) -> None:
        self.task = task
        self._model: Any = None

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        if not most_have(head, "index", "messages", "model_output"):
            return None
        return cls(reader.source.name.rpartition("/")[2])

    def requests(self, record: Any) -> Iterator[SentRequest]:
        if not isinstance(record, dict):
            raise UnusableError("no prediction of evalscope")
        if record.get("agent_trace"):
            raise UnusableError("an agent's run, of which the log has only the sum of its requests")
        self._model = self._model or record.get("model")
        if record.get("model") != self._model:
            raise UnusableError(another("model", record.get("model"), self._model))
        usage = an_object(an_object(record.get("model_output")).get("usage"))
        sent, answer = without_answer(record.get("messages"))
        counted = a_count(usage.get("input_tokens"))
        yield SentRequest(
            prompt=counted or sent,
            output=a_count(usage.get("output_tokens")) or (None if counted else answer),
        )
        self.documents += 1
