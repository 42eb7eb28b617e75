"""The seam of all harness logs: a request as it was sent, and what a log says of itself.

A log is recognised by the keys of its rows, never by its name. Its reader, a `HarnessLog`, then
turns each row into the requests that were sent for it: several, one, or none.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from chunkscope.artefacts.note import Note
from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.sources.reader import RecordReader

RequestKind = Literal["generate", "likelihood"]
AS_LOGGED, AS_SENT, LONGEST_FIRST = "as logged", "as sent", "longest first"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """One request; its `prompt` is text, messages that a server rendered, or, where the log has
    token ids or the server's count, that many tokens."""

    prompt: str | Conversation | int
    kind: RequestKind = "generate"
    continuation: str = (
        ""  # of a likelihood request: counted with the prompt, as one text
    )
    special_tokens: bool = (
        False  # whether a tokenizer's <s> and the like were added to a text
    )
    added: int = 0  # tokens that the harness sent besides
    most_tokens: int | None = None  # of what is longer it cut the left
    window: int | None = None  # a longer text it sent in windows of so many
    output_cap: int | None = None
    output: str | int | None = None  # the answer's text or its tokens; None: not logged

    def sent(self, tokens: int) -> list[int]:
        """The lengths that reached the model when prompt and continuation are so many tokens."""
        windows = 1
        if self.window is not None and tokens > self.window:
            # The last window reaches back, so that it is as long as the others.
            windows, tokens = -(-tokens // self.window), self.window
        tokens += self.added
        return [
            tokens if self.most_tokens is None else min(tokens, self.most_tokens)
        ] * windows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """What a log is: its harness, its task, and how its requests were sent."""

    harness: str
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    documents: int
    requests: int
    kinds: dict[str, int] = field(
        default_factory=dict
    )  # how many of each kind were sent
    output_caps: dict[str, int] = field(
        default_factory=dict
    )  # requests by their output cap
    order: str = AS_LOGGED  # in which the harness sent them
    rendered: bool = False  # asked of the task: nothing was sent yet
    concurrency: int | None = (
        None  # requests that it kept in flight; None: all, or not known
    )

    @property
    def is_agent(self) -> bool:
        """Whether samples are chains of requests, each sent when the one before has ended."""
        return self.harness == "Inspect" and self.requests > self.documents

    @property
    def output_limit(self) -> int | None:
        """The most tokens that an answer may have; None where the log sets no limit."""
        return max(map(int, self.output_caps), default=None)


class HarnessLog(ABC):
    """Reads the rows of one log, in order and once; then it is asked for what it says of itself."""

    harness: ClassVar[str]
    keys: ClassVar[tuple[set[str], ...]] = ()  # a row has all of one of these
    is_named_by_task: ClassVar[bool] = False  # its file
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    order: str = AS_LOGGED  # in which the harness sent the requests
    concurrency: int | None = None
    counts_texts: bool = False  # also where the log has the server's own counts

    def __init__(
        self, _: Sequence[Any] = (), reader: RecordReader | None = None
    ) -> None:
        """From the first records and the reader, which say something of the whole."""
        if self.is_named_by_task and reader:
            self.task = reader.source.name.rpartition("/")[2]
        self.ids: set[str] = set()  # of the documents seen so far

    @property
    def documents(self) -> int:
        return len(self.ids)

    def add_document(self, name: Any = None) -> None:
        """One that comes again under its name is counted once; without a name each is new."""
        self.ids.add(str(len(self.ids) if name is None else name))

    @abstractmethod
    def requests(self, row: Any) -> Iterable[SentRequest]:
        """What was sent for one row. Raises DataError."""

    def notes(self) -> Iterable[Note]:
        """What the user should know of the log."""
        return ()

    def summary(self, kinds: dict[str, int], output_caps: dict[str, int]) -> LogSummary:
        """What is known of the whole once all records were read and their requests counted."""
        names = (
            "harness",
            "version",
            "task",
            "shots",
            "documents",
            "order",
            "concurrency",
        )
        about: dict[str, Any] = {name: getattr(self, name) for name in names}
        requests = sum(kinds.values())
        return LogSummary(
            **about, requests=requests, kinds=kinds, output_caps=output_caps
        )


# --- what logs have in common ---------------------------------------------------------------------


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def as_count(value: Any) -> int | None:
    """A whole number, which may be written as text; harnesses write -1 where they do not know."""
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) < 15
    ):
        return int(value)
    return value if type(value) is int and 0 <= value < 10**15 else None


def as_prompt(value: Any) -> str | Conversation:
    return value if isinstance(value, str) else conversation(value, {})


def single(texts: Iterable[Any]) -> str | None:
    """The answer of a request that has just one."""
    answers = list(texts)
    return as_text(answers[0]) if len(answers) == 1 else None
