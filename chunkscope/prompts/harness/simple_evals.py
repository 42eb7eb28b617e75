"""simple-evals: `convos`, each a conversation that ends in its answer."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import without_answer
from chunkscope.sources.reader import RecordReader


class SimpleEvalsLog(HarnessLog):
    harness = "simple-evals"

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:  # noqa: ARG003
        is_log = len(head) == 1 and isinstance(head[0], dict)
        if not is_log or not head[0].keys() >= {"score", "htmls", "convos"}:
            return None
        return cls() if isinstance(head[0]["convos"], list) else None

    def rows(self, position: int, record: Any) -> Iterator[tuple[int, Any]]:  # noqa: ARG002
        yield from enumerate(record["convos"], start=1)

    def requests(self, record: Any) -> Iterator[SentRequest]:
        sent, answer = without_answer(record)
        yield SentRequest(prompt=sent, output=answer)
        self.documents += 1
