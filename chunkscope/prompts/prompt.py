"""Prompts, and the readers that make them of records: one class for each kind of data.

A reader is chosen once for a dataset (`options.py`). What leaves it is valid Unicode:
that is checked here and nowhere else, since nothing but the prompt has to be.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from chunkscope.artefacts.note import Note
from chunkscope.errors import UsageError
from chunkscope.prompts import chat
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.choices import Choices, choice_lines
from chunkscope.prompts.harness.log import HarnessLog, LogHeader, SentRequest
from chunkscope.prompts.paths import (
    JOINER,
    FieldPath,
    all_unicode,
    joined_text,
    json_in,
    text_at,
    wrong_type,
)
from chunkscope.prompts.traces import TraceColumns, are_blocks, trace_length
from chunkscope.sources.base import Chunk, DataError, Problems

Kind = Literal["text", "chat", "lengths", "requests"]
Content = str | Conversation | int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its text, its conversation or, from a trace, its length."""

    position: int
    content: Content
    output: str | int | None = None  # the answer's text or its tokens; None: not known
    request: SentRequest | None = None  # how a harness sent it
    blocks: Sequence[int] | None = None  # of a trace: the names of its blocks


class Row(NamedTuple):
    """A record with its place in the file."""

    position: int
    record: Any


@dataclass(frozen=True, slots=True)
class OutputField:
    """Where the reference answers are: texts to count, or numbers of tokens."""

    path: FieldPath
    are_lengths: bool = False

    @property
    def label(self) -> str:
        return f"{self.path.text} (lengths)" if self.are_lengths else self.path.text

    def of(self, record: Any) -> str | int | None:
        """The answer; a row without one is still a prompt."""
        value = self.path.find(record)
        if value is None or (self.are_lengths and value == ""):
            return None
        if self.are_lengths:
            return trace_length(value, self.path.text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            try:
                value = joined_text(value, self.path.text)
            except DataError:
                return None
        return value if all_unicode((value,)) else None


class PromptReader(ABC):
    """Turns the records of one dataset into prompts.

    Where it has `lists`, a record stands for a row for each of their elements.
    """

    kind: Kind
    name: str  # of what is counted, as people read it
    output: OutputField | None = None
    lists: tuple[FieldPath, ...] = ()
    log: HarnessLog | None = None  # where requests are counted
    notes: tuple[Note, ...] = ()  # about the whole dataset
    uncounted: tuple[Note, ...] = ()  # about what the prompts may lack

    @property
    def label(self) -> str:
        if not self.lists:
            return self.name
        lists = ", ".join(path.text for path in self.lists)
        return f"{self.name}, each of {lists}"

    @property
    @abstractmethod
    def paths(self) -> tuple[FieldPath, ...]:
        """The fields that prompts are made of."""

    @property
    def output_label(self) -> str | None:
        """Where the answers are, as people read it."""
        return None if self.output is None else self.output.label

    @property
    def columns(self) -> frozenset[str] | None:
        """The top-level fields that are read; None is all."""
        paths = [*self.paths, *self.lists]
        if self.output is not None:
            paths.append(self.output.path)
        names = set()
        for path in paths:
            if path.column is None:
                return None
            names.add(path.column)
        return frozenset(names)

    def rows(self, position: int, record: Any) -> list[Row]:
        """The rows that a record stands for, mostly itself. Raises DataError."""
        beside = None if self.output is None else self.output.path
        return [Row(position, row) for row in explode(record, self.lists, beside)]

    @abstractmethod
    def prompts(self, position: int, record: Any) -> Iterator[Prompt]:
        """The prompts of a row, mostly one. Raises DataError."""

    def output_of(self, record: Any) -> str | int | None:
        return None if self.output is None else self.output.of(record)


def read_prompts(
    reader: PromptReader, chunk: Chunk, problems: Problems
) -> list[Prompt]:
    """The prompts of a chunk; rows that do not fit become problems."""
    prompts: list[Prompt] = []
    for position, record in zip(chunk.positions, chunk.records, strict=True):
        try:
            rows = reader.rows(position, record)
        except (DataError, RecursionError) as error:
            problems.bad(position, error)
            continue
        for row in rows:
            try:
                prompts += list(reader.prompts(row.position, row.record))
            except (DataError, RecursionError) as error:
                problems.bad(row.position, error)
    return prompts


# --- texts ----------------------------------------------------------------------------


class TextSource(Protocol):
    """Makes a text of a record: of its fields, or by a template."""

    @property
    def label(self) -> str: ...

    @property
    def paths(self) -> tuple[FieldPath, ...]: ...

    def text(self, record: Any) -> str:
        """Raises DataError."""


@dataclass(frozen=True, slots=True)
class FieldTexts:
    """The texts of fields; a row may lack any but the one that asks."""

    fields: tuple[FieldPath, ...]
    asks: int = -1  # place of the field that every row must have

    @property
    def label(self) -> str:
        return " + ".join(path.text for path in self.fields)

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return self.fields

    def text(self, record: Any) -> str:
        if len(self.fields) == 1:
            return text_at(record, self.fields[0])
        texts = []
        for path in self.fields:
            is_missing = path.find(record) is None and path != self.fields[self.asks]
            text = "" if is_missing else text_at(record, path)
            if text:
                texts.append(text)
        return JOINER.join(texts)


class TextReader(PromptReader):
    """One text of each record, with what goes before it and its choices after it.

    Scored, it is a request for the likelihood of each choice, as lm-eval asks MMLU.
    """

    kind: Kind = "text"

    def __init__(self, source: TextSource, *, name: str = "") -> None:
        self.source = source
        self.name = name or source.label
        self.prefix = ""
        self.choices: Choices | None = None

    def complete(
        self, *, prefix: str, choices: Choices | None, is_scored: bool
    ) -> None:
        """Put a text before each prompt, and its choices after it."""
        self.prefix = prefix
        self.choices = choices
        if choices is not None:
            self.name += " + choices"
            if is_scored:
                self.kind = "requests"
                self.log = ScoredRows()

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        if self.choices is None:
            return self.source.paths
        return (*self.source.paths, *self.choices.paths)

    def text(self, record: Any) -> str:
        """Raises DataError."""
        text = self.source.text(record)
        if self.choices is not None:
            text = text.strip() + choice_lines(self.choices.of(record))
        if not text.isascii():
            check_unicode(text)
        return self.prefix + text

    def prompts(self, position: int, record: Any) -> Iterator[Prompt]:
        text = self.text(record)
        if self.log is None or self.choices is None:
            yield Prompt(position, text, self.output_of(record))
            return
        for choice in self.choices.of(record):
            request = SentRequest(
                prompt=text,
                continuation=f" {choice.label}",
                kind="likelihood",
                special_tokens=True,
            )
            yield Prompt(position, text, request=request)
        self.log.add_document()


class ScoredRows(HarnessLog):
    """What a log of rows whose choices are scored would say of itself."""

    def __init__(self) -> None:
        super().__init__(LogHeader(harness="rows", order="as read"))

    def requests(self, _: Any) -> Iterator[SentRequest]:
        raise NotImplementedError  # the reader makes them


# --- chats ----------------------------------------------------------------------------

# Of requests to /v1/chat/completions and /v1/responses, as vLLM's server reads them.
BATCH_MESSAGES = ("body", "messages")
BATCH_INPUT = ("body", "input")


class ChatReader(PromptReader):
    """One conversation of each record, with the tools that stand beside it."""

    kind: Kind = "chat"

    def __init__(self, path: FieldPath) -> None:
        self.path = path
        self.name = f"{path.text or 'record'} (chat)"
        # What holds the messages: of `question[0]` the record, the body of
        # `body.messages`.
        steps = path.steps
        while steps and not isinstance(steps[-1], str):
            steps = steps[:-1]
        self.holder = FieldPath(steps[:-1])

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        if self.holder.steps:
            return (self.path,)  # what stands beside the messages comes with them
        return (self.path, *(FieldPath((name,)) for name in chat.ROW_FIELDS))

    def conversation(self, record: Any) -> Conversation:
        """Raises DataError."""
        row = json_in(self.holder.find(record))
        if not isinstance(row, dict):
            row = {}
        if self.path.steps in (BATCH_MESSAGES, BATCH_INPUT):
            return _request_body(record, row)
        return chat.conversation(json_in(self.path.get(record)), row)

    def prompts(self, position: int, record: Any) -> Iterator[Prompt]:
        conversation = self.conversation(record)
        check_conversation(conversation)
        yield Prompt(position, conversation, self.output_of(record))


def _request_body(record: Any, body: dict[str, Any]) -> Conversation:
    """The conversation of a request; a file may hold requests of both kinds."""
    steps = BATCH_MESSAGES if "messages" in body else BATCH_INPUT
    messages = json_in(FieldPath(steps).get(record))
    if steps == BATCH_INPUT and isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    row = dict(body)
    if "instructions" in row:
        row["system"] = row.pop("instructions")
    return chat.conversation(messages, row)


# --- lengths and logs -----------------------------------------------------------------


class TraceReader(PromptReader):
    """Lengths that the data has already, and the names of the prompts' blocks."""

    kind: Kind = "lengths"

    def __init__(self, columns: TraceColumns) -> None:
        self.trace = columns
        self.name = f"{columns.prompt.text} (lengths)"
        if columns.output is not None:
            self.output = OutputField(columns.output, are_lengths=True)

    @property
    def output_label(self) -> str | None:
        """That these are lengths is said of the whole trace."""
        return None if self.output is None else self.output.path.text

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        if self.trace.blocks is None:
            return (self.trace.prompt,)
        return (self.trace.prompt, self.trace.blocks)

    def prompts(self, position: int, record: Any) -> Iterator[Prompt]:
        path = self.trace.prompt
        blocks: list[int] | None = None
        if self.trace.blocks is not None:
            blocks = json_in(self.trace.blocks.find(record)) or []
            if not are_blocks(blocks):
                raise DataError("not_blocks", field=self.trace.blocks.text)
        length = trace_length(path.get(record), path.text)
        yield Prompt(position, length, self.output_of(record), blocks=blocks)


class LogReader(PromptReader):
    """All requests that a harness sent, as its log has them. Such a reader goes through
    a file once, since the log counts its documents."""

    kind: Kind = "requests"
    log: HarnessLog

    def __init__(self, log: HarnessLog) -> None:
        self.log = log
        self.name = f"requests ({log.header.harness})"

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return (FieldPath(()),)

    def prompts(self, position: int, record: Any) -> Iterator[Prompt]:
        for request in self.log.requests(record):
            check_request(request)
            yield Prompt(
                position,
                request.prompt,
                request.output,
                request=request,
                blocks=request.blocks,
            )

    def rows(self, position: int, record: Any) -> list[Row]:
        """Of a document that holds all rows, these have the positions."""
        records = self.log.rows(record)
        if len(records) == 1:
            return [Row(position, records[0])]
        return [Row(number, row) for number, row in enumerate(records, start=1)]


# --- lists inside a row ---------------------------------------------------------------


def explode(
    record: Any, lists: Sequence[FieldPath], beside: FieldPath | None = None
) -> Iterator[Any]:
    """The record once for each element of its lists. Raises DataError.

    A list `beside` them that is as long, of the answers, is taken apart along with it.

    >>> list(explode({"doc": "d", "q": ["a", "b"]}, [FieldPath(("q",))]))
    [{'doc': 'd', 'q': 'a'}, {'doc': 'd', 'q': 'b'}]
    """
    if not lists:
        yield record
        return
    path = lists[0]
    elements = json_in(path.get(record))
    if not isinstance(elements, list):
        raise wrong_type(elements, path.text, "list")
    answers: Any = None
    if beside is not None and beside != path:
        answers = json_in(beside.find(record))
    for place, element in enumerate(elements):
        single = replaced(record, path, element)
        if beside is not None and isinstance(answers, list):
            if len(answers) == len(elements):
                single = replaced(single, beside, answers[place])
        yield from explode(single, lists[1:], beside)


def replaced(record: Any, path: FieldPath, element: Any) -> Any:
    """A copy that has another value at a path."""
    if not path.steps:
        return element
    step = path.steps[0]
    if not isinstance(step, str):
        raise UsageError(
            "--each takes the name of a list", hint="such as --each instructions"
        )
    holder = json_in(record)
    inner = replaced(holder[step], FieldPath(path.steps[1:]), element)
    return {**holder, step: inner}


# --- half a surrogate pair is no character: no tokenizer can encode it ----------------


def check_unicode(text: str) -> None:
    if not all_unicode((text,)):
        raise DataError("lone_surrogate")


def check_conversation(conversation: Conversation) -> None:
    """Writing JSON goes through every nested text at next to no cost."""
    parts = (conversation.messages, conversation.tools, conversation.template_kwargs)
    # It refuses half a character, and also what it does not know: a large number.
    with suppress(TypeError):
        orjson.dumps(parts)
        return
    check_unicode(json.dumps(parts, ensure_ascii=False, default=str))


def check_request(request: SentRequest) -> None:
    if isinstance(request.prompt, Conversation):
        check_conversation(request.prompt)
    check_conversation(Conversation(list(request.answer)))
    for text in (request.prompt, request.continuation, request.output):
        if isinstance(text, str):
            check_unicode(text)
