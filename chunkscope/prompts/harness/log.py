"""The seam of all harness logs: a request as it was sent, and what a log says of itself.

A log is recognised by the keys of its records, never by its name. Its reader, a `HarnessLog`, then
turns each record into the requests that were sent for it: several, one, or none.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.prompts.paths import RECORD, FieldPath, UnusableError, json_type
from chunkscope.prompts.selection import (
    ChoiceList,
    Prompts,
    Selection,
    SelectOptions,
    check_unicode,
)
from chunkscope.sources.base import Chunk, Problems
from chunkscope.sources.reader import RecordReader

RequestKind = Literal["generate", "likelihood"]
AS_LOGGED, AS_SENT, LONGEST_FIRST = "as logged", "as sent", "longest first"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """One request.

    `prompt` is text, messages that a server rendered, or, where the log has token ids or the
    server's count, that many tokens. The `continuation` of a likelihood request is counted with it,
    as one text. The harness sent `added` tokens besides, and cut from the left what is longer than
    `most_tokens`; a longer text than `window` it sent in windows of so many. `output` is the
    answer's text or its tokens, None where not logged.
    """

    prompt: str | Conversation | int
    kind: RequestKind = "generate"
    continuation: str = ""
    special_tokens: bool = False  # whether a tokenizer's <s> and the like were added to a text
    added: int = 0
    most_tokens: int | None = None
    window: int | None = None
    output_cap: int | None = None
    output: str | int | None = None

    def sent(self, tokens: int) -> list[int]:
        """The lengths that reached the model when prompt and continuation are so many tokens."""
        windows = 1
        if self.window is not None and tokens > self.window:
            # The last window reaches back, so that it is as long as the others.
            windows, tokens = -(-tokens // self.window), self.window
        tokens += self.added
        return [tokens if self.most_tokens is None else min(tokens, self.most_tokens)] * windows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """What a log is: its harness, its task, and how its requests were sent."""

    harness: str
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    documents: int
    requests: int
    kinds: dict[str, int] = field(default_factory=dict)  # how many of each kind were sent
    output_caps: dict[str, int] = field(default_factory=dict)  # requests by their output cap
    order: str = AS_LOGGED  # in which the harness sent them
    rendered: bool = False  # asked of the task: nothing was sent yet
    concurrency: int | None = None  # requests that it kept in flight; None: all, or not known

    @property
    def output_limit(self) -> int | None:
        """The most tokens that an answer may have; None where the log sets no limit."""
        return max(map(int, self.output_caps), default=None)


class HarnessLog(ABC):
    """Reads the records of one log, in order and once.

    What is known of the whole may become known on the way: it is asked for at the end.
    """

    harness: ClassVar[str]
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    order: str = AS_LOGGED  # in which the harness sent the requests
    concurrency: int | None = None
    keys: tuple[tuple[str, ...], ...] = ()  # of a row: all of one of these
    columns: frozenset[str] | None = None  # top-level fields that are read; None is all

    def __init__(self) -> None:
        self.ids: set[str] = set()  # of the documents seen so far

    @property
    def documents(self) -> int:
        return len(self.ids)

    def add_document(self, name: Any = None) -> None:
        """One that comes again under its name is counted once; without a name each is new."""
        self.ids.add(str(len(self.ids) if name is None else name))

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        """The reader of this log, or None when most of the first rows are not of this harness."""
        log = cls()
        rows = [row for record in head for row in (log.entries(record) or [record])]
        if sum(map(log.is_row, rows)) * 2 <= len(rows):
            return None
        log.learn(head, reader)
        return log

    def entries(self, record: Any) -> list[Any] | None:  # noqa: ARG002
        """The rows of a document that holds all of them; None for a record that is one row."""
        return None

    def is_row(self, row: Any) -> bool:
        return any(has(row, *keys) for keys in self.keys)

    def learn(self, head: Sequence[Any], reader: RecordReader) -> None:  # noqa: B027
        """What the first records say of the whole."""

    @abstractmethod
    def requests(self, record: Any) -> Iterable[SentRequest]:
        """What was sent for one row. Raises UnusableError."""

    def notes(self) -> Iterable[Note]:
        """What the user should know of the log."""
        return ()

    def summary(self, kinds: dict[str, int], output_caps: dict[str, int]) -> LogSummary:
        """What is known of the whole once all records were read and their requests counted."""
        names = ("harness", "version", "task", "shots", "documents", "order", "concurrency")
        about: dict[str, Any] = {name: getattr(self, name) for name in names}
        requests = sum(kinds.values())
        return LogSummary(**about, requests=requests, kinds=kinds, output_caps=output_caps)


@dataclass(frozen=True, kw_only=True)
class RequestSelection(Selection):
    """What a harness sent, row by row. Its state is the log's: it goes through a file once."""

    log: HarnessLog

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = Prompts([], [], None)
        if self.lists:
            chunk = self._one_by_one(chunk, problems)
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            entries = self.log.entries(record)
            rows = [(position, record)] if entries is None else enumerate(entries, start=1)
            for at, row in rows:
                try:
                    requests: list[SentRequest] = list(self.prompt(row))
                except UnusableError as error:
                    problems.bad(at, str(error))
                    continue
                prompts.positions.extend([at] * len(requests))
                prompts.items.extend(requests)
        return prompts


def requests_of(log: HarnessLog, options: SelectOptions, prefix: str) -> RequestSelection:
    def requests(record: Any) -> Iterator[SentRequest]:
        for request in log.requests(record):
            for part in (request.prompt, request.continuation, request.output):
                check_unicode(part)
            yield request

    given = {
        "--prefix-file": prefix,
        "--choices": options.choices,
        "--output-field": options.output_field,
    }
    return RequestSelection(
        kind="requests",
        label=f"requests ({log.harness})",
        paths=(RECORD,) if log.columns is None else tuple(map(FieldPath.to, log.columns)),
        prompt=requests,
        log=log,
        notes=tuple(note("unused_with_log", option=name) for name in given if given[name]),
    )


class ScoredRows(HarnessLog):
    """Plain rows, for each of whose choices a likelihood is asked."""

    harness = "rows"
    order = "as read"

    def __init__(self, selection: Selection, choices: ChoiceList) -> None:
        super().__init__()
        self._selection = selection
        self._choices = choices

    def requests(self, record: Any) -> Iterator[SentRequest]:
        """As lm-eval sends MMLU: the letter of each choice after the whole question."""
        context = self._selection.prefix + self._selection.prompt(record)
        for label, _ in self._choices.labelled(record):
            yield SentRequest(
                prompt=context, continuation=f" {label}", kind="likelihood", special_tokens=True
            )
        self.add_document()


def scored(selection: Selection) -> Selection:
    """A request for each choice of the rows that a selection makes prompts of."""
    if selection.choices is None:
        return replace(selection, notes=(*selection.notes, note("nothing_to_score")))
    rows = requests_of(ScoredRows(selection, selection.choices), SelectOptions(), "")
    names = ("label", "paths", "lists", "notes", "uncounted")
    return replace(rows, **{name: getattr(selection, name) for name in names})


# --- what logs have in common ---------------------------------------------------------------------


def has(record: Any, *keys: str) -> bool:
    return isinstance(record, dict) and record.keys() >= set(keys)


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def as_count(value: Any) -> int | None:
    """A whole number, which may be written as text; harnesses write -1 where they do not know."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 15:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def as_prompt(value: Any) -> str | Conversation:
    """Text, or messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return conversation(value, {})
    raise UnusableError(f"the prompt is {json_type(value)}, not text or messages")


def single(texts: Iterable[Any]) -> str | None:
    """The answer of a request that has just one."""
    answers = list(texts)
    return as_text(answers[0]) if len(answers) == 1 else None
