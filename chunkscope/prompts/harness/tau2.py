"""tau2-bench's results: conversations of an agent with a simulated user.

Both are models. A message that one of them wrote has the server's counts; what the
agent is told before the conversation is not in the log, so messages are not counted.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_count,
    as_dict,
    as_seconds,
    as_text,
    as_time,
    chosen_model,
    models_noted,
    most_have,
)
from chunkscope.sources.base import DataError

HARNESS = "tau2-bench"
SIDES = {"agent": "assistant", "user": "user"}  # the role of what each says
NO_MODEL = "no name"


def recognise(start: LogStart) -> HarnessLog | None:
    """A document, or its simulations where it has no other list."""
    info: dict[str, Any] = {}
    if most_have(start.records, "info", "simulations"):
        info = as_dict(start.records[0].get("info"))
    elif most_have(start.records, "task_id", "messages", "termination_reason"):
        info = as_dict(start.metadata.get("info"))
    models = models_of(info)
    if not models:
        return None
    names = list(dict.fromkeys(models.values()))
    sides = list(models)
    if start.model in SIDES:
        sides = [start.model]
    else:
        model = chosen_model(names, start.model)
        sides = [side for side in sides if models[side] == model]
    return Tau2Log(header_of(info), models, sides)


def models_of(info: dict[str, Any]) -> dict[str, str]:
    """By side, the model that spoke for it."""
    models = {}
    for side in SIDES:
        about = as_dict(info.get(f"{side}_info"))
        if about:
            models[side] = as_text(about.get("llm")) or NO_MODEL
    return models


def header_of(info: dict[str, Any]) -> LogHeader:
    domain = as_dict(info.get("environment_info")).get("domain_name")
    return LogHeader(
        harness=HARNESS, version=as_text(info.get("git_commit")), task=as_text(domain)
    )


class Tau2Log(HarnessLog):
    """Each side of a simulation is a session."""

    def __init__(
        self, header: LogHeader, models: dict[str, str], sides: list[str]
    ) -> None:
        super().__init__(header)
        self.models = models
        self.sides = sides
        self.other_models: Counter[str] = Counter()
        self.uncounted = 0  # messages that a model wrote, without counts

    def rows(self, record: Any) -> list[Any]:
        simulations = as_dict(record).get("simulations")
        return simulations if isinstance(simulations, list) else [record]

    def requests(self, row: Any) -> Iterator[SentRequest]:
        simulation = as_dict(row)
        if not isinstance(simulation.get("messages"), list):
            raise DataError("no_sample", harness=HARNESS, fields=["messages"])
        number = len(self.documents) + 1
        earlier: dict[str, float | None] = {}  # by side, when its last message ended
        for message in map(as_dict, simulation["messages"]):
            side = side_of(message)
            usage = as_dict(message.get("usage"))
            if side is None or not is_written_by_model(message):
                continue  # a tool's result, or a greeting
            if side not in self.sides:
                self.other_models[self.models.get(side, side)] += 1
                continue
            if not usage:
                self.uncounted += 1
                continue
            tokens = as_count(usage.get("prompt_tokens"))
            if tokens is None:
                raise DataError("field_missing", field="usage.prompt_tokens")
            ended = as_time(message.get("timestamp"))
            pause_s = pause_before(message, ended, earlier.get(side))
            earlier[side] = ended
            yield SentRequest(
                prompt=tokens,
                output=as_count(usage.get("completion_tokens")),
                session=SessionTurn(session=f"{number} {side}", pause_s=pause_s),
            )
        if not earlier:
            raise DataError("no_usage", harness=HARNESS)
        self.add_document()

    def notes(self) -> Iterator[Note]:
        yield from models_noted(self.other_models)
        if self.uncounted:
            yield note("steps_without_counts", count=self.uncounted)
        yield note("sharing_not_logged")


def side_of(message: dict[str, Any]) -> str | None:
    for side, role in SIDES.items():
        if message.get("role") == role:
            return side
    return None


def is_written_by_model(message: dict[str, Any]) -> bool:
    return bool(message.get("usage")) or bool(message.get("generation_time_seconds"))


def pause_before(
    message: dict[str, Any], ended: float | None, earlier: float | None
) -> float | None:
    """The time since this side's last message; one is dated when it is complete."""
    seconds = as_seconds(message.get("generation_time_seconds"))
    if ended is None or seconds is None or earlier is None:
        return None
    return max(0.0, ended - seconds - earlier)
