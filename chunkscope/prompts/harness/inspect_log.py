"""The requests of an Inspect log to one model, and the sessions that they form."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import Message, conversation
from chunkscope.prompts.harness.inspect_file import FORMAT
from chunkscope.prompts.harness.log import (
    AS_SENT,
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_dict,
    as_text,
    chosen_model,
    first_count,
    models_noted,
)

MOCK = "mockllm/"


def recognise(start: LogStart) -> HarnessLog | None:
    if start.format != FORMAT:
        return None
    model = chosen_model(models_in(start), start.model)
    return InspectLog(header_of(start.metadata), start, model)


def header_of(metadata: dict[str, Any]) -> LogHeader:
    run = as_dict(metadata.get("eval"))
    return LogHeader(
        harness="Inspect",
        version=as_text(as_dict(run.get("packages")).get("inspect_ai")),
        task=as_text(run.get("task")),
        order=AS_SENT,
        concurrency=connections_of(metadata),
    )


def connections_of(metadata: dict[str, Any]) -> int | None:
    """Requests that Inspect kept in flight, where that was set."""
    run = as_dict(metadata.get("eval"))
    of_task = as_dict(as_dict(metadata.get("plan")).get("config"))
    of_model = as_dict(run.get("model_generate_config"))
    return first_count(of_model.get("max_connections"), of_task.get("max_connections"))


def samples_at_once(metadata: dict[str, Any]) -> int | None:
    """Samples that Inspect kept under way: as many as requests where nothing is set."""
    config = as_dict(as_dict(metadata.get("eval")).get("config"))
    return first_count(config.get("max_samples"), connections_of(metadata))


def models_in(start: LogStart) -> list[str]:
    """The models that a log has requests to: agents, graders, simulated users.

    A run that died has no statistics; its first requests name those that they went to.
    """
    stats = as_dict(start.metadata.get("stats"))
    models = dict.fromkeys(as_dict(stats.get("model_usage")))
    models |= dict.fromkeys(row["model"] for row in start.records)
    return list(models)


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    completed: float | None
    working_end: float | None


class InspectLog(HarnessLog):
    sessions_are_rows = False

    def __init__(self, header: LogHeader, start: LogStart, model: str) -> None:
        super().__init__(header)
        self.at_once = samples_at_once(start.metadata)
        self.model = model
        self.counts_texts = start.counts_texts
        self.rendered = start.source.rendered
        self.other_models: Counter[str] = Counter()
        self.earlier: dict[str, EarlierTurn] = {}  # the last turn of each session
        self.used_counts = False
        self.is_agent = False

    def requests(self, row: Any) -> Iterator[SentRequest]:
        if row["model"] != self.model:
            self.other_models[row["model"]] += 1
            return
        self.is_agent |= bool(row["functions"])
        session = self._turn(row)
        self.add_document(row["sample"])
        request = self._request(row)
        yield replace(request, output_cap=row["max_tokens"], session=session)

    def _request(self, row: dict[str, Any]) -> SentRequest:
        """With messages where they are to be counted, or where nobody counted them."""
        if self.rendered:  # then nobody counted or answered
            return SentRequest(prompt=conversation(row["messages"], row))
        counted, answer = row["input_tokens"], row["output_tokens"]
        if counted is not None and not self.counts_texts:
            self.used_counts = True
            return SentRequest(prompt=counted, output=answer)
        if self.is_mock:
            answer = None  # its counts are of words
        said: list[Message] = []
        if row["answer"] is not None:
            said = conversation(row["answer"], {}).messages
        return SentRequest(
            prompt=conversation(row["messages"], row),
            output=answer,
            answer=said,
        )

    @property
    def is_mock(self) -> bool:
        return self.model.startswith(MOCK)

    def _turn(self, row: dict[str, Any]) -> SessionTurn:
        name = row["session"]
        pause_s = None
        if name in self.earlier:
            pause_s = pause_between(self.earlier[name], row)
        self.earlier[name] = EarlierTurn(row["completed"], row["working_end"])
        return SessionTurn(session=name, pause_s=pause_s)

    def notes(self) -> Iterator[Note]:
        yield from models_noted(self.other_models)
        if self.used_counts:
            yield note("counted_by_mock" if self.is_mock else "sharing_not_counted")
        if self.rendered and self.is_agent:
            yield note("first_requests_only")


def pause_between(earlier: EarlierTurn, row: dict[str, Any]) -> float | None:
    """Seconds from the end of the earlier request to the start of this one.

    The sample's working clock leaves out what it waited for a connection. Requests that
    overlap have no pause between them.
    """
    if earlier.working_end is not None and row["working_start"] is not None:
        return max(0.0, float(row["working_start"]) - earlier.working_end)
    if earlier.completed is not None and row["started"] is not None:
        return max(0.0, float(row["started"]) - earlier.completed)
    return None
