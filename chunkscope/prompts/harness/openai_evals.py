"""OpenAI Evals: a line per event; the first has the `spec`, the last the `final_report`."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import (
    a_count,
    a_list,
    a_prompt,
    a_text,
    an_object,
    has,
    the_only,
)
from chunkscope.sources.reader import RecordReader

_EVENT = ("run_id", "event_id", "sample_id", "type", "data")


class OpenAiEvalsLog(HarnessLog):
    harness = "OpenAI Evals"

    def __init__(self, spec: dict[str, Any]) -> None:
        self.task = a_text(spec.get("eval_name")) or a_text(spec.get("base_eval"))
        self._samples: set[str] = set()

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:  # noqa: ARG003
        events = sum(has(record, *_EVENT) for record in head)
        ends = [record for record in head if has(record, "spec") or has(record, "final_report")]
        if not events or (events + len(ends)) * 2 <= len(head):
            return None
        return cls(next((an_object(end["spec"]) for end in ends if "spec" in end), {}))

    def requests(self, record: Any) -> Iterator[SentRequest]:
        event, data = an_object(record), an_object(an_object(record).get("data"))
        if event.get("type") not in ("sampling", "cond_logp"):
            return
        self._samples.add(str(event.get("sample_id")))
        self.documents = len(self._samples)
        prompt = a_prompt(data.get("prompt"))
        if event["type"] == "cond_logp":
            yield SentRequest(
                prompt=prompt,
                continuation=a_text(data.get("completion")) or "",
                kind="likelihood",
                special_tokens=True,
            )
            return
        usage, sampled = an_object(data.get("usage")), data.get("sampled")
        answers = a_list(sampled) if isinstance(sampled, list) else [sampled]
        counted = a_count(usage.get("prompt_tokens"))
        yield SentRequest(
            prompt=counted or prompt,
            special_tokens=True,
            output=a_count(usage.get("completion_tokens"))
            or (None if counted else the_only(answers)),
        )
