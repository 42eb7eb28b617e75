"""Selections: each turns chunks of records into prompts, in one way that was decided beforehand.

Rows that do not fit become problems; the others go on. What leaves a selection is valid Unicode:
that is checked here and nowhere else, since nothing but the prompt has to be.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal, NamedTuple

import orjson

from chunkscope.artefacts.words import several
from chunkscope.prompts import traces
from chunkscope.prompts.chat import (
    ROW_FIELDS,
    Conversation,
    conversation,
    messages_of,
    plain_text,
)
from chunkscope.prompts.choices import ChoiceList
from chunkscope.prompts.fields import (
    RECORD,
    FieldPath,
    Part,
    UnusableError,
    all_unicode,
    text_at,
)
from chunkscope.prompts.server_rules import NEWEST, ServerRules
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(ABC):
    """Turns records into prompts; `label` and `notes` are what the user is told.

    `left_out` is what a prompt may lack, said before anything else; `remarks` counts rows of which
    something is to be said while they are read.
    `columns` are the top-level fields that are read, some of which a file may lack; None is all.
    """

    kind: Kind
    label: str
    columns: frozenset[str] | None
    output: FieldPath | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    remarks: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def output_label(self) -> str | None:
        return self.output.text if self.output else None

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        items = self._all_items(chunk.records)
        if items is None or not all_unicode(items):
            return self._row_by_row(chunk, problems)
        outputs = self._all_outputs(chunk.records) if self.output else None
        return Prompts(list(chunk.positions), items, outputs)

    def _row_by_row(self, chunk: Chunk, problems: Problems) -> Prompts:
        """The way that says what is wrong with which row."""
        prompts = Prompts([], [], [] if self.output else None)
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                item = self._item(record)
                output = self._output(record, self.output) if self.output else None
                check_unicode(item)
            except UnusableError as error:
                problems.bad(position, str(error))
                continue
            prompts.positions.append(position)
            prompts.items.append(item)
            if prompts.outputs is not None:
                prompts.outputs.append(output)
        return prompts

    @abstractmethod
    def _item(self, record: Any) -> Any:
        """The prompt of one record. Raises UnusableError."""

    def _all_items(self, records: list[Any]) -> list[Any] | None:  # noqa: ARG002
        """The prompts without a call per row; None when some row needs a closer look."""
        return None

    def _output(self, record: Any, path: FieldPath) -> Any:
        """The reference output; a row without one is still a prompt."""
        try:
            text = text_at(record, path, "\n", numbers=True)
        except UnusableError:
            return None
        return text if all_unicode((text,)) else None

    def _all_outputs(self, records: list[Any]) -> list[Any]:
        path = self.output or RECORD
        texts = _texts(records, path)
        if texts is not None and all_unicode(texts):
            return texts
        return [self._output(record, path) for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSelection(Selection):
    """A prompt put together from literal text and fields."""

    kind: Kind = "text"
    parts: tuple[Part, ...]
    numbers: bool = False

    def _item(self, record: Any) -> str:
        return "".join(
            part
            if isinstance(part, str)
            else text_at(record, part, JOINER, numbers=self.numbers, remarks=self.remarks)
            for part in self.parts
        )

    def _all_items(self, records: list[Any]) -> list[str] | None:
        columns: list[Any] = []
        for part in self.parts:
            column = repeat(part) if isinstance(part, str) else _texts(records, part)
            if column is None:
                return None
            columns.append(column)
        if len(columns) == 1:
            return list(columns[0])
        return ["".join(row) for row in zip(*columns, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlpacaSelection(Selection):
    """An instruction and, where a row has one that is not empty, its input."""

    kind: Kind = "text"
    instruction: FieldPath
    more: FieldPath
    prefix: str = ""

    def _item(self, record: Any) -> str:
        texts = [text_at(record, self.instruction, JOINER)]
        if self.more.find(record) is not None:
            texts.append(text_at(record, self.more, JOINER))
        return self.prefix + JOINER.join(filter(None, texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSelection(Selection):
    """A question, selected in whatever way, and its choices."""

    kind: Kind = "text"
    question: Selection
    choices: ChoiceList
    prefix: str = ""

    def _item(self, record: Any) -> str:
        return self._with_choices(self.question._item(record), record)

    def _all_items(self, records: list[Any]) -> list[str] | None:
        questions = self.question._all_items(records)
        if questions is None:
            return None
        try:
            return list(map(self._with_choices, questions, records))
        except UnusableError:
            return None

    def _with_choices(self, question: str, record: Any) -> str:
        return f"{self.prefix}{question.strip()}{self.choices.lines(record)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSelection(Selection):
    """A conversation, or (kind "text") what was said in it without a chat template."""

    kind: Kind = "chat"
    path: FieldPath
    prefix: str = ""
    rules: ServerRules = NEWEST

    def _item(self, record: Any) -> Conversation | str:
        messages = messages_of(self.path.get(record))
        if messages is None:
            raise UnusableError(f'field "{self.path.text}" is null')
        row = self.path.holder.find(record) if self.path.steps else None
        chat = conversation(messages, row if isinstance(row, dict) else {}, self.rules)
        return chat if self.kind == "chat" else self.prefix + plain_text(chat.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsSelection(Selection):
    """Lengths that are in the data already, and the names of the prompts' blocks."""

    kind: Kind = "lengths"
    path: FieldPath
    blocks: FieldPath | None = None

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        items = _lengths(chunk.records, self.path)
        outputs = _lengths(chunk.records, self.output) if self.output else None
        blocks = _values(chunk.records, self.blocks) if self.blocks else None
        if blocks is not None and not all(map(traces.are_blocks, blocks)):
            blocks = None
        if items is None or (outputs is None and self.output) or (blocks is None and self.blocks):
            return self._row_by_row(chunk, problems)
        return Prompts(list(chunk.positions), items, outputs, blocks)

    def _row_by_row(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = super(LengthsSelection, self)._row_by_row(chunk, problems)
        if self.blocks is None:
            return prompts
        records = dict(zip(chunk.positions, chunk.records, strict=True))
        blocks = [self._named_blocks(records[position]) for position in prompts.positions]
        return prompts._replace(blocks=blocks)

    def _named_blocks(self, record: Any) -> list[int]:
        blocks: list[int] = (self.blocks.find(record) if self.blocks else None) or []
        if not traces.are_blocks(blocks):
            raise UnusableError(f'field "{self.blocks and self.blocks.text}" is no list of numbers')
        return blocks

    def _item(self, record: Any) -> int:
        self._named_blocks(record)
        return traces.length(self.path.get(record), self.path.text)

    def _output(self, record: Any, path: FieldPath) -> int | None:
        value = path.find(record)
        return None if value is None or value == "" else traces.length(value, path.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionBuilder:
    """Makes selections that share what was asked for: a prefix, an output, chats as chats."""

    prefix: str
    chat_kind: Literal["text", "chat"]
    output: FieldPath | None
    choices: frozenset[str | None] = frozenset()  # columns that hold the choices of a question
    rules: ServerRules = NEWEST
    remarks: Counter[str] = field(default_factory=Counter, compare=False)

    def text(
        self, *paths: FieldPath, label: str = "", note: str = "", left_out: str = ""
    ) -> TextSelection:
        """The fields one after the other."""
        parts: list[Part] = []
        for path in paths:
            parts += [JOINER, path] if parts else [path]
        return TextSelection(
            label=label or " + ".join(path.text for path in paths),
            parts=self._with_prefix(parts),
            columns=self._columns(*paths),
            output=self.output,
            notes=(note,) if note else (),
            left_out=(left_out,) if left_out else (),
            remarks=self.remarks,
        )

    def template(self, parts: tuple[Part, ...]) -> TextSelection:
        return TextSelection(
            label="template",
            parts=self._with_prefix(parts),
            numbers=True,
            columns=self._columns(*(part for part in parts if isinstance(part, FieldPath))),
            output=self.output,
            remarks=self.remarks,
        )

    def alpaca(self, instruction: FieldPath, more: FieldPath) -> AlpacaSelection:
        return AlpacaSelection(
            label=f"{instruction.text} + {more.text}",
            instruction=instruction,
            more=more,
            prefix=self.prefix,
            columns=self._columns(instruction, more),
            output=self.output,
        )

    def with_choices(self, question: Selection, choices: ChoiceList) -> ChoiceSelection:
        """`question` was selected without a prefix."""
        own, others = self._columns(*choices.paths), question.columns
        return ChoiceSelection(
            label=f"{question.label} + choices",
            question=question,
            choices=choices,
            prefix=self.prefix,
            columns=None if own is None or others is None else own | others,
            output=self.output,
            notes=question.notes,
            left_out=question.left_out,
            remarks=self.remarks,
        )

    def chat(self, path: FieldPath, *left_out: str) -> ChatSelection:
        columns = self._columns(path)
        if columns is not None and not path.holder.steps:
            # Tools and the like stand beside the messages; in a request body they come with it.
            columns |= frozenset(ROW_FIELDS)
        as_text = self.chat_kind == "text"
        return ChatSelection(
            kind=self.chat_kind,
            label=f"{path.text or 'record'} ({self.chat_kind})",
            path=path,
            prefix=self.prefix if as_text else "",
            columns=columns,
            output=self.output,
            notes=() if as_text else self._unused_prefix(),
            left_out=left_out,
            rules=self.rules,
        )

    def lengths(self, path: FieldPath, trace: traces.TraceColumns) -> LengthsSelection:
        """With the output column that goes with it, unless another was asked for."""
        output = self.output or (FieldPath.to(trace.output) if trace.output else None)
        blocks = FieldPath.to(trace.blocks) if trace.blocks else None
        return LengthsSelection(
            label=f"{path.text} (lengths)",
            path=path,
            blocks=blocks,
            columns=_columns(path, output, blocks),
            output=output,
            notes=self._unused_prefix(),
        )

    def _with_prefix(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        return (self.prefix, *parts) if self.prefix else tuple(parts)

    def _unused_prefix(self) -> tuple[str, ...]:
        note = "the prefix was not used: it goes before text prompts only"
        return (note,) if self.prefix else ()

    def _columns(self, *paths: FieldPath) -> frozenset[str] | None:
        return _columns(*paths, self.output)


def _columns(*paths: FieldPath | None) -> frozenset[str] | None:
    names = {path.column for path in paths if path is not None}
    return None if None in names else frozenset(name for name in names if name is not None)


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


def _texts(records: list[Any], path: FieldPath) -> list[str] | None:
    """One text per record, or None when some record has none there."""
    texts = _values(records, path) if path.steps else records
    return texts if texts is not None and set(map(type, texts)) <= {str} else None


def _lengths(records: list[Any], path: FieldPath) -> list[int] | None:
    values = _values(records, path)
    return None if values is None else traces.lengths(values)


def _values(records: list[Any], path: FieldPath) -> list[Any] | None:
    key = path.key
    if key is None:
        return None
    try:
        return [record[key] for record in records]
    except (KeyError, TypeError, IndexError):
        return None
