"""HELM's `scenario_state.json`: every request with its result, under
`request_states`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_prompt,
    first_count,
    most_have,
    only_text,
)

STATE_NAME = "scenario_state.json"


def skip_reason(file: Path, _start: bytes) -> str | None:
    """Why another file of a HELM run is no data."""
    if file.name != STATE_NAME and (file.parent / STATE_NAME).is_file():
        return f"written by HELM; what it sent is in {STATE_NAME} next to it"
    return None


def states_in(record: Any) -> list[Any]:
    """Beside a second list, of annotators, `request_states` is not read as the list of
    rows.
    """
    document = as_dict(record)
    if "adapter_spec" not in document:
        return [record]
    return as_list(document.get("request_states")) or [record]


def recognise(start: LogStart) -> HarnessLog | None:
    states = [state for record in start.records for state in states_in(record)]
    if not most_have(states, "instance", "request", "result"):
        return None
    document = start.metadata or as_dict(start.records[0])
    adapter = as_dict(document.get("adapter_spec"))
    folder = start.source.file.parent.name if start.source.file else ""
    is_run = ":" in folder  # mmlu:subject=anatomy,model=org_model
    header = LogHeader(
        harness="HELM",
        task=folder if is_run else None,
        shots=first_count(adapter.get("max_train_instances")),
    )
    return HelmLog(header)


class HelmLog(HarnessLog):
    def rows(self, record: Any) -> list[Any]:
        return states_in(record)

    def requests(self, row: Any) -> Iterator[SentRequest]:
        state = as_dict(row)
        request = as_dict(state.get("request"))
        for name in ("messages", "multimodal_prompt", "prompt"):
            if request.get(name):
                break
        prompt = as_prompt(request.get(name))
        self.add_document(as_dict(state.get("instance")).get("id"))
        if request.get("echo_prompt") is True:
            yield SentRequest(prompt=prompt, kind="likelihood", special_tokens=True)
            return
        completions = as_list(as_dict(state.get("result")).get("completions"))
        texts = [as_dict(completion).get("text") for completion in completions]
        yield SentRequest(
            prompt=prompt,
            special_tokens=True,
            output_cap=as_count(request.get("max_tokens")) or None,
            output=only_text(texts),
        )
