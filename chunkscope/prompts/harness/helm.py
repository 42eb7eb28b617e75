"""HELM's `scenario_state.json`: every request with its result, under `request_states`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from chunkscope.prompts.fields import UnusableError
from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.harness.values import (
    a_count,
    a_list,
    a_prompt,
    an_object,
    has,
    most_have,
    the_only,
)
from chunkscope.sources.reader import RecordReader

STATE = "scenario_state.json"
# What HELM writes beside it: copies and scores.
BESIDE = {
    *("run_spec.json", "scenario.json", "stats.json", "per_instance_stats.json", "instances.json"),
    *("display_predictions.json", "display_requests.json"),
}


def is_beside_state(file: Path) -> bool:
    return file.name in BESIDE and (file.parent / STATE).is_file()


class HelmLog(HarnessLog):
    harness = "HELM"

    def __init__(self, task: str | None, shots: int | None) -> None:
        self.task, self.shots = task, shots
        self._instances: set[str] = set()
        self._cached = 0

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        about = reader.beside
        if len(head) == 1 and most_have(head, "adapter_spec", "request_states"):
            about = head[0]  # beside a second list, of annotators, it is no list of rows
        elif not most_have(head, "instance", "request") or reader.rows_at != "request_states":
            return None
        adapter = an_object(about.get("adapter_spec"))
        folder = reader.source.file.parent.name if reader.source.file else ""
        task = folder if ":" in folder else None  # HELM calls a run `mmlu:subject=...,model=...`
        return cls(task, a_count(adapter.get("max_train_instances")))

    def rows(self, position: int, record: Any) -> Iterator[tuple[int, Any]]:
        if has(record, "adapter_spec", "request_states"):
            yield from enumerate(a_list(record["request_states"]), start=1)
        else:
            yield position, record

    def requests(self, record: Any) -> Iterator[SentRequest]:
        request = an_object(an_object(record).get("request"))
        if "prompt" not in request and "messages" not in request:
            raise UnusableError("the request has neither a prompt nor messages")
        instance, result = an_object(record.get("instance")), an_object(record.get("result"))
        self._cached += result.get("cached") is True
        echoes = request.get("echo_prompt") is True
        answers = (an_object(made).get("text") for made in a_list(result.get("completions")))
        yield SentRequest(
            prompt=a_prompt(request.get("messages") or request.get("prompt")),
            kind="likelihood" if echoes else "generate",
            special_tokens=True,
            output_cap=None if echoes else a_count(request.get("max_tokens")),
            output=None if echoes else the_only(answers),
        )
        self._instances.add(str(instance.get("id", len(self._instances))))
        self.documents = len(self._instances)

    def notes(self) -> Iterator[str]:
        if self._cached:
            yield f"HELM answered {self._cached:,} of these requests from its own cache"
