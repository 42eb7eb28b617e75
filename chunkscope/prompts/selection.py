"""Selections: each turns chunks of records into prompts, in one way that was decided beforehand.

Rows that do not fit become problems; the others go on. What leaves a selection is valid Unicode:
that is checked here and nowhere else, since nothing but the prompt has to be.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal, NamedTuple

import orjson

from chunkscope.artefacts.note import Note
from chunkscope.artefacts.words import several
from chunkscope.errors import UsageError
from chunkscope.prompts import traces
from chunkscope.prompts.chat import (
    NEWEST,
    ROW_FIELDS,
    Conversation,
    ServerRules,
    conversation,
    messages_of,
    plain_text,
)
from chunkscope.prompts.choices import ChoiceList
from chunkscope.prompts.paths import (
    RECORD,
    FieldPath,
    Part,
    Step,
    UnusableError,
    all_unicode,
    json_type,
    text_at,
)
from chunkscope.sources.base import Chunk, Problems

Kind = Literal["text", "chat", "lengths", "requests"]

# Between the fields a prompt is made of, and between the texts of a list.
JOINER = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectOptions:
    """What the command line says about the prompt."""

    fields: tuple[str, ...] = ()
    each: tuple[str, ...] = ()  # lists that stand for so many prompts
    template: str | None = None
    prefix: str = ""
    choices: tuple[str, ...] = ()
    output_field: str | None = None
    chat: bool = True
    vllm_version: str | None = None  # whose server writes the tools of a chat

    def __post_init__(self) -> None:
        for name in ("fields", "each", "choices"):
            object.__setattr__(self, name, several(getattr(self, name)))


class Prompts(NamedTuple):
    """What a chunk of records became: lists of the same length, without the bad rows.

    `items` holds texts, conversations, lengths or requests, `outputs` texts or lengths (None where
    a row has none), or is None when no output is known of. `blocks` holds the numbers by which a
    trace names the blocks of each prompt, where it does.
    """

    positions: list[int]
    items: list[Any]
    outputs: list[Any] | None
    blocks: list[list[int]] | None = None


@dataclass(frozen=True, kw_only=True)
class Selection(ABC):
    """Turns records into prompts.

    `notes` are about the whole dataset, `uncounted` about what the prompts may lack, and `remarks`
    counts rows by a note's code and the field it is about, while they are read.
    """

    kind: Kind
    label: str
    prefix: str = ""  # goes before every text
    output: FieldPath | None = None
    notes: tuple[Note, ...] = ()
    uncounted: tuple[Note, ...] = ()
    remarks: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)

    @property
    @abstractmethod
    def paths(self) -> tuple[FieldPath, ...]:
        """What is read of a record, apart from its output."""

    @property
    def columns(self) -> frozenset[str] | None:
        """The top-level fields that are read, some of which a file may lack; None is all."""
        names = {path.column for path in (*self.paths, self.output) if path is not None}
        return None if None in names else frozenset(name for name in names if name is not None)

    @property
    def output_label(self) -> str | None:
        return self.output.text if self.output else None

    @abstractmethod
    def prompt(self, record: Any) -> Any:
        """The prompt of one record, without its prefix. Raises UnusableError."""

    def prompts(self, records: list[Any]) -> list[Any] | None:  # noqa: ARG002
        """The prompts without a call per row; None when some row needs a closer look."""
        return None

    def output_of(self, record: Any, path: FieldPath) -> Any:
        """The reference output; a row without one is still a prompt."""
        try:
            text = text_at(record, path, "\n", numbers=True)
        except UnusableError:
            return None
        return text if all_unicode((text,)) else None

    def outputs(self, records: list[Any], path: FieldPath) -> list[Any] | None:
        texts = _text_column(records, path)
        if texts is not None and all_unicode(texts):
            return texts
        return [self.output_of(record, path) for record in records]

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        """The prompts of a chunk: all at once, or one by one where a row needs a closer look."""
        items = self.prompts(chunk.records)
        if items is None or (self.kind == "text" and not all_unicode(items)):
            return self._row_by_row(chunk, problems)
        outputs = self.outputs(chunk.records, self.output) if self.output else None
        if outputs is None and self.output:
            return self._row_by_row(chunk, problems)
        if self.prefix:
            items = [self.prefix + item for item in items]
        return Prompts(list(chunk.positions), items, outputs)

    def _row_by_row(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = Prompts([], [], [] if self.output else None)
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                item = self.prompt(record)
                output = self.output_of(record, self.output) if self.output else None
                check_unicode(item)
            except UnusableError as error:
                problems.bad(position, str(error))
                continue
            prompts.positions.append(position)
            prompts.items.append(self.prefix + item if self.prefix else item)
            if prompts.outputs is not None:
                prompts.outputs.append(output)
        return prompts


@dataclass(frozen=True, kw_only=True)
class TextSelection(Selection):
    """A prompt put together from literal text and fields."""

    kind: Kind = "text"
    parts: tuple[Part, ...]
    numbers: bool = False

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return tuple(part for part in self.parts if isinstance(part, FieldPath))

    def prompt(self, record: Any) -> str:
        return "".join(
            part
            if isinstance(part, str)
            else text_at(record, part, JOINER, numbers=self.numbers, remarks=self.remarks)
            for part in self.parts
        )

    def prompts(self, records: list[Any]) -> list[str] | None:
        columns: list[Any] = []
        for part in self.parts:
            column = repeat(part) if isinstance(part, str) else _text_column(records, part)
            if column is None:
                return None
            columns.append(column)
        if len(columns) == 1:
            return list(columns[0])
        return ["".join(row) for row in zip(*columns, strict=False)]


def text_of(*paths: FieldPath, label: str = "", **more: Any) -> TextSelection:
    """The fields one after the other."""
    parts = [part for path in paths for part in (JOINER, path)]
    label = label or " + ".join(path.text for path in paths)
    return TextSelection(label=label, parts=tuple(parts[1:]), **more)


@dataclass(frozen=True, kw_only=True)
class AlpacaSelection(Selection):
    """An instruction and, where a row has one that is not empty, its input."""

    kind: Kind = "text"
    instruction: FieldPath
    input: FieldPath

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return (self.instruction, self.input)

    def prompt(self, record: Any) -> str:
        texts = [text_at(record, self.instruction, JOINER)]
        if self.input.find(record) is not None:
            texts.append(text_at(record, self.input, JOINER))
        return JOINER.join(filter(None, texts))


@dataclass(frozen=True, kw_only=True)
class ChoiceSelection(Selection):
    """A question, selected in whatever way, and its choices."""

    kind: Kind = "text"
    question: Selection
    choices: ChoiceList

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return (*self.question.paths, *self.choices.paths)

    def prompt(self, record: Any) -> str:
        question: str = self.question.prompt(record)
        return question.strip() + self.choices.lines(record)


@dataclass(frozen=True, kw_only=True)
class ChatSelection(Selection):
    """A conversation, or (kind "text") what was said in it without a chat template."""

    kind: Kind = "chat"
    path: FieldPath
    rules: ServerRules = NEWEST

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        """Tools and the like stand beside the messages; in a request body they come with it."""
        return (self.path, *(map(FieldPath.to, ROW_FIELDS) if not self.path.holder.steps else ()))

    def prompt(self, record: Any) -> Conversation | str:
        messages = messages_of(self.path.get(record))
        if messages is None:
            raise UnusableError(f'field "{self.path.text}" is null')
        row = self.path.holder.find(record) if self.path.steps else None
        chat = conversation(messages, row if isinstance(row, dict) else {}, self.rules)
        return chat if self.kind == "chat" else plain_text(chat.messages)


@dataclass(frozen=True, kw_only=True)
class LengthsSelection(Selection):
    """Lengths that are in the data already, and the names of the prompts' blocks."""

    kind: Kind = "lengths"
    path: FieldPath
    blocks: FieldPath | None = None

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return (self.path, self.blocks) if self.blocks else (self.path,)

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = super().extract(chunk, problems)
        if self.blocks is None:
            return prompts
        records = dict(zip(chunk.positions, chunk.records, strict=True))
        return prompts._replace(blocks=[self._blocks(records[at]) for at in prompts.positions])

    def prompts(self, records: list[Any]) -> list[int] | None:
        return self.outputs(records, self.path) if self.blocks is None else None

    def outputs(self, records: list[Any], path: FieldPath) -> list[int] | None:
        values = _column(records, path)
        return None if values is None else traces.lengths(values)

    def prompt(self, record: Any) -> int:
        self._blocks(record)
        return traces.length(self.path.get(record), self.path.text)

    def output_of(self, record: Any, path: FieldPath) -> int | None:
        value = path.find(record)
        return None if value is None or value == "" else traces.length(value, path.text)

    def _blocks(self, record: Any) -> list[int]:
        blocks: list[int] = (self.blocks.find(record) if self.blocks else None) or []
        if not traces.are_blocks(blocks):
            raise UnusableError(f'field "{self.blocks and self.blocks.text}" is no list of numbers')
        return blocks


def lengths_of(columns: traces.TraceColumns) -> LengthsSelection:
    path, output, blocks = (FieldPath.to(name) if name else None for name in columns)
    return LengthsSelection(
        label=f"{columns.prompt} (lengths)", path=path or RECORD, output=output, blocks=blocks
    )


# --- one prompt for each element of a list --------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EachSelection(Selection):
    """What `one` selects of every record that is left when a list becomes one of its elements."""

    lists: tuple[FieldPath, ...]
    one: Selection

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        return (*self.one.paths, *self.lists)

    def prompt(self, record: Any) -> Any:
        return self.one.prompt(record)

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        positions: list[int] = []
        records: list[Any] = []
        answers = self.output.key if self.output else None
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                elements = list(spread(record, self.lists, answers))
            except UnusableError as error:
                problems.bad(position, str(error))
                continue
            records += elements
            positions += [position] * len(elements)
        return self.one.extract(Chunk(positions, records), problems)


def each_of(lists: Sequence[FieldPath], one: Selection, *notes: Note) -> EachSelection:
    return EachSelection(
        kind=one.kind,
        label=f"{one.label}, each of {', '.join(path.text for path in lists)}",
        output=one.output,
        notes=(*one.notes, *notes),
        uncounted=one.uncounted,
        remarks=one.remarks,
        lists=tuple(lists),
        one=one,
    )


def spread(record: Any, lists: Sequence[FieldPath], answers: str | None = None) -> Iterator[Any]:
    """The record once for each element, which stands where the list was, beside its answer.

    >>> list(spread({"doc": "d", "q": ["a", "b"]}, [FieldPath.to("q")]))
    [{'doc': 'd', 'q': 'a'}, {'doc': 'd', 'q': 'b'}]
    """
    if not lists:
        yield record
        return
    path = lists[0]
    elements = path.get(record)
    if not isinstance(elements, list):
        raise UnusableError(f'field "{path.text}" is {json_type(elements)}, not a list')
    answer: Any = record.get(answers) if answers != path.key else None
    paired = isinstance(answer, list) and len(answer) == len(elements)
    for place, element in enumerate(elements):
        single = _with(record, path.steps, element)
        if paired:
            single = {**single, answers: answer[place]}
        yield from spread(single, lists[1:], None if paired else answers)


def _with(value: Any, steps: Sequence[Step], element: Any) -> Any:
    """A copy that has another value at that place."""
    if not steps:
        return element
    step = steps[0]
    if not isinstance(step, str):
        raise UsageError("--each takes the name of a list", hint="such as --each instructions")
    return {**value, step: _with(value[step], steps[1:], element)}


# --- columns and characters -----------------------------------------------------------------------


def check_unicode(item: Any) -> None:
    """Half a surrogate pair is no character: no tokenizer can encode it."""
    if isinstance(item, Conversation):
        fine = _is_unicode(item)
    else:
        fine = not isinstance(item, str) or all_unicode((item,))
    if not fine:
        raise UnusableError(
            "the prompt holds a lone surrogate (\\ud800 to \\udfff), which is no character"
        )


def _is_unicode(chat: Conversation) -> bool:
    """Goes through every nested string; writing JSON does that at next to no cost."""
    everything = (chat.messages, chat.tools, chat.template_kwargs)
    try:
        orjson.dumps(everything)
    except TypeError:
        # A surrogate, or something else that orjson will not write, such as a very large number.
        try:
            json.dumps(everything, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            return False
        except (TypeError, ValueError, RecursionError) as error:
            raise UnusableError(f"cannot be written as JSON: {error}") from None
    return True


def _text_column(records: list[Any], path: FieldPath) -> list[str] | None:
    """One text per record, or None when some record has none there."""
    texts = _column(records, path) if path.steps else records
    return texts if texts is not None and set(map(type, texts)) <= {str} else None


def _column(records: list[Any], path: FieldPath) -> list[Any] | None:
    key = path.key
    if key is None:
        return None
    try:
        return [record[key] for record in records]
    except (KeyError, TypeError, IndexError):
        return None
