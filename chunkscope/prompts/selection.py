"""Selections: each turns chunks of records into prompts, in one way that was decided beforehand.

Rows that do not fit become problems; the others go on. What leaves a selection is valid Unicode:
that is checked here and nowhere else, since nothing but the prompt has to be.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal, NamedTuple

import orjson

from chunkscope.artefacts.note import Note
from chunkscope.artefacts.words import several
from chunkscope.errors import UsageError
from chunkscope.prompts import chat, paths, traces
from chunkscope.prompts.choices import ChoiceList
from chunkscope.prompts.paths import FieldPath, Part, UnusableError, all_unicode, text_at
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
    choices: tuple[str, ...] = ()
    task: Literal["generate", "loglikelihood"] = "generate"
    output_field: str | None = None
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


def _no_column(_: list[Any]) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Turns records into prompts, by `prompt` for one record, which may raise UnusableError, and
    by `column` for many at once, which gives None where some row needs a closer look.

    `notes` are about the whole dataset, `uncounted` about what the prompts may lack.
    """

    kind: Kind
    label: str
    paths: tuple[FieldPath, ...]  # what is read of a record, apart from lists and output
    prompt: Callable[[Any], Any]
    column: Callable[[list[Any]], list[Any] | None] = _no_column
    prefix: str = ""  # goes before every text
    lists: tuple[FieldPath, ...] = ()  # a record stands for one prompt per element of these
    output: FieldPath | None = None
    blocks: FieldPath | None = None  # of a trace: the names of a prompt's blocks
    choices: ChoiceList | None = None  # that are written after the question
    notes: tuple[Note, ...] = ()
    uncounted: tuple[Note, ...] = ()

    @property
    def columns(self) -> frozenset[str] | None:
        """The top-level fields that are read, some of which a file may lack; None is all."""
        names = [path.column for path in (*self.paths, *self.lists, self.output) if path]
        return None if None in names else frozenset(filter(None, names))

    @property
    def output_label(self) -> str | None:
        return self.output.text if self.output else None

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        """The prompts of a chunk: all at once, or one by one where a row needs a closer look."""
        if self.lists:
            chunk = self._one_by_one(chunk, problems)
        items = self.column(chunk.records)
        if items is None or not all_unicode(items):
            return self._row_by_row(chunk, problems)
        outputs = _text_column(chunk.records, self.output) if self.output else None
        if self.output and (outputs is None or not all_unicode(outputs)):
            outputs = [self.output_of(record) for record in chunk.records]
        if self.prefix:
            items = [self.prefix + item for item in items]
        return Prompts(list(chunk.positions), items, outputs)

    def _one_by_one(self, chunk: Chunk, problems: Problems) -> Chunk:
        """The records that are left when each list becomes one of its elements."""
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
        return Chunk(positions, records)

    def _row_by_row(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = Prompts([], [], [] if self.output else None, [] if self.blocks else None)
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                item = self.prompt(record)
                output = self.output_of(record)
                check_unicode(item)
            except (UnusableError, RecursionError) as error:
                problems.bad(position, str(error))
                continue
            prompts.positions.append(position)
            prompts.items.append(self.prefix + item if self.prefix else item)
            if prompts.outputs is not None:
                prompts.outputs.append(output)
            if prompts.blocks is not None and self.blocks:
                prompts.blocks.append(self.blocks.find(record) or [])
        return prompts

    def output_of(self, record: Any) -> Any:
        """The reference output; a row without one is still a prompt."""
        if self.output is None:
            return None
        if self.kind == "lengths":
            value = self.output.find(record)
            return None if value in (None, "") else traces.length(value, self.output.text)
        try:
            text = text_at(record, self.output, "\n", numbers=True)
        except (UnusableError, RecursionError):
            return None
        return text if all_unicode((text,)) else None


def text_of(*fields: FieldPath, label: str = "", **more: Any) -> Selection:
    """The fields one after the other."""
    parts: list[Part] = [part for path in fields for part in (JOINER, path)]
    return template_of(parts[1:], label or " + ".join(path.text for path in fields), **more)


def template_of(
    parts: Sequence[Part], label: str, *, numbers: bool = False, **more: Any
) -> Selection:
    """Literal text and fields."""

    def prompt(record: Any) -> str:
        return "".join(
            part if isinstance(part, str) else text_at(record, part, JOINER, numbers=numbers)
            for part in parts
        )

    def column(records: list[Any]) -> list[str] | None:
        columns: list[Any] = []
        for part in parts:
            texts = repeat(part) if isinstance(part, str) else _text_column(records, part)
            if texts is None:
                return None
            columns.append(texts)
        if len(columns) == 1:
            return list(columns[0])
        return ["".join(row) for row in zip(*columns, strict=False)]

    fields = tuple(part for part in parts if isinstance(part, FieldPath))
    return Selection(kind="text", label=label, paths=fields, prompt=prompt, column=column, **more)


def alpaca_of(instruction: FieldPath, more: FieldPath) -> Selection:
    """An instruction and, where a row has one that is not empty, its input."""

    def prompt(record: Any) -> str:
        texts = [text_at(record, instruction, JOINER)]
        if more.find(record) is not None:
            texts.append(text_at(record, more, JOINER))
        return JOINER.join(filter(None, texts))

    label = f"{instruction.text} + {more.text}"
    return Selection(kind="text", label=label, paths=(instruction, more), prompt=prompt)


def chat_of(
    path: FieldPath, vllm: chat.Release | None = None, uncounted: Sequence[Note] = ()
) -> Selection:
    def prompt(record: Any) -> chat.Conversation:
        messages = chat.messages_of(path.get(record))
        if messages is None:
            raise UnusableError(f'field "{path.text}" is null')
        row = path.holder.find(record) if path.steps else None
        return chat.conversation(messages, row if isinstance(row, dict) else {}, vllm)

    # Tools and the like stand beside the messages; in a request body they come with it.
    row_fields = () if path.holder.steps else map(FieldPath.to, chat.ROW_FIELDS)
    return Selection(
        kind="chat",
        label=f"{path.text or 'record'} (chat)",
        paths=(path, *row_fields),
        prompt=prompt,
        uncounted=tuple(uncounted),
    )


def with_choices(question: Selection, choices: ChoiceList) -> Selection:
    def prompt(record: Any) -> str:
        text: str = question.prompt(record)
        return text.strip() + choices.lines(record)

    return replace(
        question,
        label=f"{question.label} + choices",
        paths=(*question.paths, *choices.paths),
        prompt=prompt,
        choices=choices,
        column=_no_column,
    )


def lengths_of(columns: traces.TraceColumns) -> Selection:
    """Lengths that are in the data already, and the names of the prompts' blocks."""
    path = FieldPath.to(columns.prompt)
    output, blocks = (FieldPath.to(name) if name else None for name in columns[1:])

    def prompt(record: Any) -> int:
        if blocks and not traces.are_blocks(blocks.find(record) or []):
            raise UnusableError(f'field "{blocks.text}" is no list of numbers')
        return traces.length(path.get(record), path.text)

    return Selection(
        kind="lengths",
        label=f"{path.text} (lengths)",
        paths=(path, blocks) if blocks else (path,),
        prompt=prompt,
        output=output,
        blocks=blocks,
    )


# --- one prompt for each element of a list --------------------------------------------------------


def each_of(lists: Sequence[FieldPath], one: Selection, *notes: Note) -> Selection:
    """What `one` selects, of every record that is left when each list becomes an element."""
    return replace(
        one,
        label=f"{one.label}, each of {', '.join(path.text for path in lists)}",
        lists=tuple(lists),
        notes=(*one.notes, *notes),
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
        raise UnusableError(f'field "{path.text}" is {paths.json_type(elements)}, not a list')
    answer: Any = record.get(answers) if answers != path.key else None
    paired = isinstance(answer, list) and len(answer) == len(elements)
    for place, element in enumerate(elements):
        single = _with(record, path.steps, element)
        if paired:
            single = {**single, answers: answer[place]}
        yield from spread(single, lists[1:], None if paired else answers)


def _with(value: Any, steps: Sequence[paths.Step], element: Any) -> Any:
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
    text = item if isinstance(item, str) else ""
    if isinstance(item, chat.Conversation):
        # Writing JSON goes through every nested string at next to no cost.
        everything = (item.messages, item.tools, item.template_kwargs)
        try:
            orjson.dumps(everything)
        except TypeError:
            # A surrogate, or something that orjson will not write, such as a very large number.
            text = json.dumps(everything, ensure_ascii=False, default=str)
    if not all_unicode((text,)):
        raise UnusableError(
            "the prompt holds a lone surrogate (\\ud800 to \\udfff), which is no character"
        )


def _text_column(records: list[Any], path: FieldPath) -> list[str] | None:
    """One text per record, or None when some record has none there."""
    try:
        texts = [record[path.key] for record in records] if path.steps else records
    except (KeyError, TypeError, IndexError):
        return None
    return texts if set(map(type, texts)) <= {str} else None
