"""What all harness logs have in common: requests as they were sent, and a summary.

A log is recognised by the keys of its rows, never by its name. A `HarnessLog` then
turns each row into the requests that were sent for it: several, one, or none.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import Conversation, Message, conversation
from chunkscope.sources.base import DataError, Source, printable

RequestKind = Literal["generate", "likelihood"]
AS_LOGGED, AS_SENT, LONGEST_FIRST = "as logged", "as sent", "longest first"
NAME_CHARS = 80  # of a model that are shown
MOST_COUNT = 10**15  # a larger number is a time stamp or an id


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """The session of a request, which goes on with it.

    In a session each request is sent when the one before has ended. `pause_s` is the
    time between the end of the previous request and the start of this one; None for the
    first turn, and where the log does not say. `kept_tokens` are the leading tokens
    that repeat the previous prompt and its answer, where the data itself says so.
    """

    session: str
    pause_s: float | None = None
    kept_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """One request, with what a harness did to it before it reached the model.

    `prompt` is text, messages that a server rendered, or, where the log has token ids
    or the server's count, that many tokens.
    """

    prompt: str | Conversation | int
    kind: RequestKind = "generate"
    # Of a likelihood request; the tokenizer gets it and the prompt as one text.
    continuation: str = ""
    # Whether a tokenizer's <s> and the like were added to a text.
    special_tokens: bool = False
    # Tokens that the harness sent besides.
    added: int = 0
    # The harness cut the left of what is longer.
    most_tokens: int | None = None
    # The harness sent a longer text in windows of so many tokens.
    window: int | None = None
    output_cap: int | None = None
    # The answer's text or its number of tokens; None where it is not logged.
    output: str | int | None = None
    # The answer as messages, where they are logged: what the next prompt repeats. It is
    # counted by them where `output` is not known.
    answer: Sequence[Message] = ()
    # The names of the prompt's blocks, in a trace that has them.
    blocks: Sequence[int] | None = None
    session: SessionTurn | None = None

    def sent(self, tokens: int) -> list[int]:
        """The lengths that reached the model, of prompt and continuation together."""
        windows = 1
        if self.window is not None and tokens > self.window:
            # The last window reaches back, so that it is as long as the others.
            windows = -(-tokens // self.window)
            tokens = self.window
        tokens += self.added
        if self.most_tokens is not None:
            tokens = min(tokens, self.most_tokens)
        return [tokens] * windows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHeader:
    """What a log says of its run before any request is read."""

    harness: str
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    # The order in which the harness sent its requests.
    order: str = AS_LOGGED
    # Requests that it kept in flight; None: all, or not known.
    concurrency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary(LogHeader):
    """What a log is: its run, and which requests it has."""

    documents: int
    requests: int
    # How many requests of each kind were sent, and with which output cap.
    kinds: dict[str, int] = field(default_factory=dict)
    output_caps: dict[str, int] = field(default_factory=dict)
    # Asked of the task: nothing was sent yet.
    rendered: bool = False
    # Chains of requests; None where no request follows another.
    sessions: int | None = None

    @property
    def is_agent(self) -> bool:
        """Whether requests follow each other, each sent when the one before has
        ended.
        """
        return self.sessions is not None

    @property
    def output_limit(self) -> int | None:
        """The most tokens that an answer may have; None where the log sets no limit."""
        return max(map(int, self.output_caps), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """What there is to recognise a log by, and what the user wants of it."""

    source: Source
    format: str
    records: Sequence[Any]  # the first of them
    metadata: dict[str, Any]  # what a document says beside its rows
    # Count messages also where the log has the server's own counts.
    counts_texts: bool = False
    # The model whose requests are wanted, in a log that has several.
    model: str | None = None

    @property
    def file_stem(self) -> str:
        return self.source.name.rpartition("/")[2]


class HarnessLog(ABC):
    """Reads the rows of one log, in order and once; then it can say what was in
    them.
    """

    at_once: int | None = None  # sessions that the client kept under way
    system_tokens = 0  # that every session begins with, where the log has no texts
    has_blocks = False  # whether every request names the blocks of its prompt
    sessions_are_rows = True  # so that a sample of the rows has whole sessions

    def __init__(self, header: LogHeader) -> None:
        self.header = header
        self.documents: set[str] = set()

    def rows(self, record: Any) -> list[Any]:
        """The rows of the log in one record: the record, unless it is a whole
        document.
        """
        return [record]

    @abstractmethod
    def requests(self, row: Any) -> Iterator[SentRequest]:
        """What was sent for one row. Raises DataError."""

    def add_document(self, name: object = None) -> None:
        """Count a document. One that comes again under its name is the same one."""
        self.documents.add(str(len(self.documents) if name is None else name))

    def notes(self) -> Iterator[Note]:
        """What the user should know of the log, once its rows were read."""
        yield from ()

    def summary(self, kinds: dict[str, int], output_caps: dict[str, int]) -> LogSummary:
        """What the whole log is, given the requests that were counted."""
        return LogSummary(
            **asdict(self.header),
            documents=len(self.documents),
            requests=sum(kinds.values()),
            kinds=kinds,
            output_caps=output_caps,
        )


# --- what logs have in common ---------------------------------------------------------


def most_have(rows: Sequence[Any], *keys: str) -> bool:
    """Whether more than half of the rows have all of these keys."""
    having = [row for row in rows if as_dict(row).keys() >= set(keys)]
    return 2 * len(having) > len(rows)


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def as_count(value: Any) -> int | None:
    """A whole number, which may be written as text; harnesses write -1 where they do
    not know.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value) if len(value) < len(str(MOST_COUNT)) - 1 else None
    if type(value) is int and 0 <= value < MOST_COUNT:
        return value
    return None


def first_count(*values: Any) -> int | None:
    """The first that is a whole number over 0."""
    for value in values:
        if count := as_count(value):
            return count
    return None


def as_time(value: Any) -> float | None:
    """Seconds since 1970 of a time in ISO 8601."""
    try:
        return datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def as_seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def as_prompt(value: Any) -> str | Conversation:
    return value if isinstance(value, str) else conversation(value, {})


def only_text(texts: Sequence[Any]) -> str | None:
    """The answer of a request that has just one."""
    return as_text(texts[0]) if len(texts) == 1 else None


# --- logs of several models -----------------------------------------------------------


def chosen_model(models: list[str], name: str | None) -> str:
    """The model of that name, with or without its provider; or the only one. Raises
    DataError.
    """
    shown = [printable(model[:NAME_CHARS]) for model in models]
    if name is None:
        if len(models) > 1:
            raise DataError("several_models", models=shown)
        return models[0]
    for model in models:
        if name in (model, model.partition("/")[2]):
            return model
    raise DataError("no_such_model", model=name, models=shown)


def models_noted(requests: Counter[str]) -> Iterator[Note]:
    """That requests to other models were not counted: by model, how many."""
    if not requests:
        return
    counts = []
    for model, count in requests.most_common():
        counts.append(f"{printable(model[:NAME_CHARS])} ({count:,})")
    yield note("other_models", models=counts)
