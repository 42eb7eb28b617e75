"""evalscope's predictions: a line per sample, with its messages and the model's
output.
"""

from collections.abc import Iterator
from typing import Any

from chunkscope.prompts.chat import conversation
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    as_dict,
    as_list,
    as_text,
    first_count,
    most_have,
)
from chunkscope.sources.base import DataError


def recognise(start: LogStart) -> HarnessLog | None:
    if not most_have(start.records, "index", "messages", "model_output"):
        return None
    return EvalScopeLog(LogHeader(harness="evalscope", task=start.file_stem))


class EvalScopeLog(HarnessLog):
    def requests(self, row: Any) -> Iterator[SentRequest]:
        sample = as_dict(row)
        if sample.get("agent_trace"):
            raise DataError("agent_run")
        messages = as_list(sample.get("messages"))
        last = as_dict(messages[-1]) if messages else {}
        answer = None
        if last.get("role") == "assistant":  # the answer, which was not sent
            messages = messages[:-1]
            answer = as_text(last.get("content"))
        chat = conversation(messages, {})
        usage = as_dict(as_dict(sample.get("model_output")).get("usage"))
        counted = first_count(usage.get("input_tokens"))
        output = first_count(usage.get("output_tokens"))
        if counted is not None:
            yield SentRequest(prompt=counted, output=output)
        else:
            yield SentRequest(prompt=chat, output=output or answer)
        self.add_document()
