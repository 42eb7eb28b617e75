"""mini-SWE-agent's trajectories: the whole conversation of one task in each file.

Each answer of the model is a turn; its prompt is all that stands before it. Models that
are called through LiteLLM log the server's counts besides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import Message, conversation
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_dict,
    as_text,
    first_count,
    most_have,
)
from chunkscope.prompts.harness.trajectory_files import FORMAT
from chunkscope.sources.base import DataError

HARNESS = "mini-SWE-agent"
# What its models send with every request, if they call tools.
BASH_TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Execute a bash command",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "description": "The bash command to execute",
                }
            },
            "required": ["command"],
        },
    },
}
WITH_TOOLS = ("LitellmModel", "DeterministicToolcallModel", "OpenRouterModel")


def recognise(start: LogStart) -> HarnessLog | None:
    if start.format != FORMAT:
        return None
    documents = [as_dict(as_dict(row).get("document")) for row in start.records]
    if not most_have(documents, "trajectory_format", "messages"):
        return None
    info = as_dict(documents[0].get("info"))
    header = LogHeader(harness=HARNESS, version=as_text(info.get("mini_version")))
    return MiniSweLog(header, counts_texts=start.counts_texts)


@dataclass(slots=True)
class RunSoFar:
    """How far a conversation was replayed."""

    session: str
    row: dict[str, Any]  # what every request has beside its messages
    messages: list[Any] = field(default_factory=list)  # those of the next prompt
    answered_at: float | None = None
    ready_at: float | None = None  # when the tools had ended

    @property
    def turn(self) -> SessionTurn:
        pause_s = None
        if self.answered_at is not None and self.ready_at is not None:
            pause_s = max(0.0, self.ready_at - self.answered_at)
        return SessionTurn(session=self.session, pause_s=pause_s)


class MiniSweLog(HarnessLog):
    def __init__(self, header: LogHeader, *, counts_texts: bool) -> None:
        super().__init__(header)
        self.counts_texts = counts_texts
        self.used_counts = False

    def requests(self, row: Any) -> Iterator[SentRequest]:
        document = as_dict(as_dict(row).get("document"))
        if not isinstance(document.get("messages"), list):
            raise DataError("no_sample", harness=HARNESS, fields=["messages"])
        run = RunSoFar(str(row["file"]), tools_of(document))
        for message in map(as_dict, document["messages"]):
            if is_response(message):
                yield self._request(run, message)
                run.answered_at = time_of(message)
                run.ready_at = None
            else:
                run.ready_at = time_of(message) or run.ready_at
            run.messages += said_in(message)
        self.add_document(run.session)

    def _request(self, run: RunSoFar, message: dict[str, Any]) -> SentRequest:
        """With messages where they are to be counted, or where nobody counted them."""
        usage = usage_of(message)
        tokens = first_count(usage.get("prompt_tokens"))
        answer = first_count(usage.get("completion_tokens"))
        if tokens is not None and not self.counts_texts:
            self.used_counts = True
            return SentRequest(prompt=tokens, output=answer, session=run.turn)
        said: list[Message] = []
        if not is_refused(message):
            said = conversation(said_in(message), {}).messages
        return SentRequest(
            prompt=conversation(list(run.messages), run.row),
            output=answer,
            answer=said,
            session=run.turn,
        )

    def notes(self) -> Iterator[Note]:
        if self.used_counts:
            yield note("sharing_not_counted")


def tools_of(document: dict[str, Any]) -> dict[str, Any]:
    config = as_dict(as_dict(document.get("info")).get("config"))
    model_type = str(config.get("model_type"))
    if model_type.rpartition(".")[2] in WITH_TOOLS:
        return {"tools": [BASH_TOOL]}
    return {}


def is_response(message: dict[str, Any]) -> bool:
    """Whether a model was asked for it: an answer, or what was said to one that could
    not be read.
    """
    return message.get("role") == "assistant" or is_refused(message)


def is_refused(message: dict[str, Any]) -> bool:
    """What the agent says to an answer that it cannot read, and leaves out."""
    return as_dict(message.get("extra")).get("interrupt_type") == "FormatError"


def said_in(message: dict[str, Any]) -> list[Any]:
    """What a message adds to the next prompt."""
    if message.get("role") == "exit":  # how the run ended
        return []
    return [{name: value for name, value in message.items() if name != "extra"}]


def usage_of(message: dict[str, Any]) -> dict[str, Any]:
    """The server's counts, as LiteLLM logs them."""
    response = as_dict(as_dict(message.get("extra")).get("response"))
    return as_dict(response.get("usage"))


def time_of(message: dict[str, Any]) -> float | None:
    """When an answer or the result of a tool was there: seconds since 1970."""
    time = as_dict(message.get("extra")).get("timestamp")
    if isinstance(time, int | float) and not isinstance(time, bool):
        return float(time)
    return None
