"""Selections: each turns chunks of records into prompts, in one way that was decided beforehand.

Rows that do not fit become problems; the others go on. What leaves a selection is valid Unicode:
that is checked here and nowhere else, since nothing but the prompt has to be.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import orjson

from chunkscope.artefacts.note import Note
from chunkscope.errors import UsageError
from chunkscope.prompts import chat, paths
from chunkscope.prompts.harness.log import HarnessLog, SentRequest, as_dict, as_list
from chunkscope.prompts.paths import FieldPath, Steps, all_unicode, json_in, text_at
from chunkscope.sources.base import Chunk, DataError, Problems

# Of requests to /v1/chat/completions and /v1/responses, as vLLM's server reads them.
BATCH_MESSAGES, BATCH_INPUT = ("body", "messages"), ("body", "input")
Kind = Literal["text", "chat", "lengths", "requests"]


class Prompts(NamedTuple):
    """What a chunk of records became: lists of the same length, without the bad rows."""

    positions: list[int]
    items: list[Any]  # texts, conversations, lengths or requests
    outputs: (
        list[Any] | None
    )  # texts or lengths, None where a row has none; None: nothing is known
    blocks: list[list[int]] | None = (
        None  # of a trace: the numbers of each prompt's blocks
    )


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Turns records into prompts, by `prompt` for one record, which may raise DataError. Of a
    harness's log it gives all requests of a row, and the log counts its documents: such a selection
    goes through a file once."""

    kind: Kind
    label: str
    paths: tuple[
        FieldPath, ...
    ]  # what is read of a record, apart from lists and output
    prompt: Callable[[Any], Any]
    is_plain: bool = False  # the prompt is one field, with nothing but a prefix
    prefix: str = ""  # goes before every text
    lists: tuple[
        FieldPath, ...
    ] = ()  # a record stands for one prompt per element of these
    output: FieldPath | None = None
    outputs_are_lengths: bool = False  # numbers of tokens, else texts to count
    blocks: FieldPath | None = None  # of a trace: the names of a prompt's blocks
    log: HarnessLog | None = None
    notes: tuple[Note, ...] = ()  # about the whole dataset
    uncounted: tuple[Note, ...] = ()  # about what the prompts may lack

    @property
    def columns(self) -> frozenset[str] | None:
        """The top-level fields that are read, some of which a file may lack; None is all."""
        used = [
            path.steps[:1] for path in (*self.paths, *self.lists, self.output) if path
        ]
        names = [step for steps in used for step in steps if isinstance(step, str)]
        return frozenset(names) if len(names) == len(used) else None

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        """The prompts of a chunk; rows that do not fit become problems."""
        if self.lists or self.log:
            chunk = self._rows(chunk, problems)
        values: list[Any] = [None]
        if self.is_plain:
            steps: Any = self.paths[0].steps
            with suppress(LookupError, TypeError):
                values = (
                    [record[steps[0]] for record in chunk.records]
                    if steps
                    else chunk.records
                )
        # All at once, where no row needs a closer look: that takes a fifth of the time.
        items: list[Any] = []
        if self.kind == "chat":
            items = chat.plain_conversations(values, chunk.records)
        elif {*map(type, values)} <= {str} and (
            chunk.is_unicode or all_unicode(values)
        ):
            items = [self.prefix + text for text in values] if self.prefix else values
        if items:
            outputs = (
                [self.output_of(record) for record in chunk.records]
                if self.output
                else None
            )
            return Prompts(list(chunk.positions), items, outputs)
        prompts = Prompts(
            [], [], [] if self.output else None, [] if self.blocks else None
        )
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                items = list(self.prompt(record)) if self.log else [self.prompt(record)]
                output = self.output_of(record)
                for item in items:
                    check_unicode(item)
            except (DataError, RecursionError) as error:
                problems.bad(position, error)
                continue
            prompts.positions.extend([position] * len(items))
            prompts.items.extend(
                [self.prefix + item for item in items] if self.prefix else items
            )
            if prompts.outputs is not None:
                prompts.outputs.append(output)
            if prompts.blocks is not None and self.blocks:
                prompts.blocks.append(json_in(self.blocks.find(record)) or [])
        return prompts

    def _rows(self, chunk: Chunk, problems: Problems) -> Chunk:
        """The entries of a log, or each record once for each element of its lists."""
        positions, records = list[int](), list[Any]()
        answers = self.output.steps if self.output else ()
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                if self.log and not self.lists:
                    rows = self.log.rows(record)
                else:
                    rows = [*spread(record, self.lists, answers)]
            except DataError as error:
                problems.bad(position, error)
                continue
            records += rows
            is_document = not self.lists and len(rows) > 1
            positions += (
                range(1, len(rows) + 1) if is_document else [position] * len(rows)
            )
        return Chunk(positions, records)

    @property
    def output_label(self) -> str | None:
        """The field of the answers, and that it has lengths where it has."""
        if self.output is None:
            return None
        return self.output.text + (" (lengths)" if self.outputs_are_lengths else "")

    def output_of(self, record: Any) -> Any:
        """The reference output; a row without one is still a prompt."""
        if self.output is None:
            return None
        if (
            self.kind == "lengths"
            or _bare(str(self.output.steps[-1])) in _PAIRS.values()
        ):
            value = self.output.find(record)
            return (
                None if value in (None, "") else trace_length(value, self.output.text)
            )
        if self.outputs_are_lengths:
            value = self.output.find(record)
            if value in (None, ""):
                return None
            return trace_length(value, self.output.text)
        try:
            text = text_at(record, self.output, joiner="\n", numbers=True)
        except (DataError, RecursionError):
            return None
        return text if all_unicode((text,)) else None


def text_of(*fields: FieldPath, asks: int = -1, **more: Any) -> Selection:
    """The fields one after the other; a row may lack any but the one that asks."""
    pairs = [
        (p, FieldPath(tuple(takewhile(lambda s: s is not ..., p.steps))))
        for p in fields
    ]

    def prompt(record: Any) -> str:
        present = (
            p
            for p, whole in pairs
            if p is fields[asks] or whole.find(record) is not None
        )
        return paths.JOINER.join(
            filter(None, (text_at(record, path) for path in present))
        )

    return Selection(
        kind="text",
        label=more.pop("label", "") or " + ".join(path.text for path in fields),
        paths=fields,
        prompt=prompt,
        is_plain=len(fields) == 1 and len(fields[0].steps) < 2,
        **more,
    )


def template_of(parts: Sequence[paths.Part]) -> Selection:
    """Literal text and fields."""

    def prompt(record: Any) -> str:
        texts = (
            p if isinstance(p, str) else text_at(record, p, numbers=True) for p in parts
        )
        return "".join(texts)

    fields = tuple(part for part in parts if isinstance(part, FieldPath))
    return Selection(kind="text", label="template", paths=fields, prompt=prompt)


def chat_of(path: FieldPath, **more: Any) -> Selection:
    # What holds the messages: of `question[0]` the record, of `body.messages` the body.
    keys = [place for place, step in enumerate(path.steps) if isinstance(step, str)]
    holder = FieldPath(path.steps[: keys[-1]]) if keys else None

    def prompt(record: Any) -> chat.Conversation:
        row, steps = as_dict(holder and json_in(holder.find(record))), path.steps
        if steps in (
            BATCH_MESSAGES,
            BATCH_INPUT,
        ):  # a file may hold requests of both kinds
            steps = BATCH_MESSAGES if "messages" in row else BATCH_INPUT
            row = {"system" if key == "instructions" else key: row[key] for key in row}
        messages = json_in(FieldPath(steps).get(record))
        if steps == BATCH_INPUT and isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return chat.conversation(messages, row)

    # Tools and the like stand beside the messages; in a request body they come with it.
    beside = () if holder and holder.steps else chat.ROW_FIELDS
    return Selection(
        kind="chat",
        label=f"{path.text or 'record'} (chat)",
        paths=(path, *(FieldPath((name,)) for name in beside)),
        prompt=prompt,
        is_plain=len(path.steps) == 1,
        **more,
    )


# --- traces, which hold lengths in tokens: there is nothing to tokenize ---------------------------

# Prompt and output columns of traces (Azure's, Mooncake's, Vidur's, BurstGPT's) and usage logs.
_bare = lru_cache(lambda name: re.sub(r".*\.|[\s_-]+", "", name).lower())
_PAIRS = {
    "contexttokens": "generatedtokens",
    "inputlength": "outputlength",
    "numprefilltokens": "numdecodetokens",
    "requesttokens": "responsetokens",
    "prompttokens": "completiontokens",
    "inputtokens": "outputtokens",
    "inputtokencount": "outputtokencount",
    "prompttokencount": "candidatestokencount",  # Gemini's
    "tokensprompt": "tokenscompletion",
    "promptlen": "outputlen",
    "prompttokenids": "outputtokenids",
    "inputids": "outputids",
    "inputsequencelength": "outputsequencelength",  # aiperf's: objects with a value and a unit
    "inputlens": "outputlens",  # lists, in the results of `vllm bench`
}
_BLOCKS = "hashids"  # Mooncake's: numbers that stand for blocks of a prompt's tokens

# No prompt is longer; a number beyond is a time stamp or an id.
MOST_TOKENS = 10**12


class TraceColumns(NamedTuple):
    prompt: str
    output: str | None = None
    blocks: str | None = None


def trace_columns(head: Sequence[Any]) -> TraceColumns | None:
    """The length columns of a trace, when most records have them."""
    objects = [record for record in head if isinstance(record, dict)]
    # `Context Tokens`, `context_tokens` and `ContextTokens` are one name.
    keys = {_bare(key): key for record in objects for key in record}
    for prompt, output in _PAIRS.items():
        names: list[str | None] = []
        for name in (prompt, output, _BLOCKS):
            values = [
                record[keys[name]] for record in objects if record.get(keys.get(name))
            ]
            fits = sum(_number(value, name) is not None for value in values)
            names.append(keys[name] if fits * 2 > len(values) else None)
        if names[0]:
            return TraceColumns(names[0], *names[1:])
    return None


def _number(value: Any, name: str) -> float | None:
    if name.endswith(("ids", "lens")) and are_blocks(ids := json_in(value)):
        return len(ids)  # the tokens themselves, or the requests
    value = as_dict(value).get("value", value)
    with suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    return (
        value
        if isinstance(value, int | float) and not isinstance(value, bool)
        else None
    )


def are_blocks(value: Any) -> bool:
    """Whole numbers of 64 bits."""
    if not isinstance(value, list) or not {*map(type, value)} <= {int}:
        return False
    return not value or (min(value) >= -(1 << 63) and max(value) < 1 << 63)


def trace_length(value: Any, name: str) -> int:
    """One value as a length. Raises DataError, naming the field.

    >>> trace_length("4808", "ContextTokens")
    4808
    """
    number = _number(value, name.lower())
    if number is None or not 0 <= number <= MOST_TOKENS or number != int(number):
        raise DataError("not_a_length", field=name, given=paths.shorten(value))
    return int(number)


def lengths_of(
    columns: TraceColumns, head: Sequence[Any], above: Steps = ()
) -> Selection:
    """Lengths in the data already, of a list one of each request; and the prompts' blocks."""
    path = FieldPath((*above, columns.prompt))
    output, blocks = (
        FieldPath((*above, name)) if name else None for name in columns[1:]
    )
    is_list = columns.prompt.endswith("lens") and isinstance(path.find(head[0]), list)

    def prompt(record: Any) -> int:
        if blocks and not are_blocks(json_in(blocks.find(record)) or []):
            raise DataError("not_blocks", field=blocks.text)
        return trace_length(path.get(record), path.text)

    return Selection(
        kind="lengths",
        label=f"{path.text} (lengths)",
        paths=(path, blocks) if blocks else (path,),
        lists=(path,) if is_list else (),
        prompt=prompt,
        output=output,
        blocks=blocks,
    )


# Beside a list of questions: the choices of each.
CHOICE_LISTS = (
    "choices",
    "options",
    "answer_choices",
    "answer_options",
    "alternatives",
    "endings",
)


def spread(
    record: Any, lists: Sequence[FieldPath], answers: Steps = ()
) -> Iterator[Any]:
    """The record once for each element, which stands where the list was, with answer and choices.

    >>> list(spread({"doc": "d", "q": ["a", "b"]}, [FieldPath(("q",))]))
    [{'doc': 'd', 'q': 'a'}, {'doc': 'd', 'q': 'b'}]
    """
    if not lists:
        yield record
        return
    path = lists[0]
    elements = json_in(path.get(record))
    if not isinstance(elements, list):
        raise paths.wrong_type(elements, path.text, "list")
    names = (answers, *((name,) for name in CHOICE_LISTS))
    beside = {
        one: as_list(FieldPath(one).find(record)) for one in names if one != path.steps
    }
    for place, element in enumerate(elements):
        single = _with(record, path.steps, element)
        for one in (o for o in beside if len(beside[o]) == len(elements)):
            if one == answers or isinstance(beside[one][place], list):
                single = _with(single, one, beside[one][place])
        yield from spread(single, lists[1:], answers)


def _with(value: Any, steps: Steps, element: Any) -> Any:
    """A copy that has another value at that place."""
    if not steps:
        return element
    step, value = steps[0], json_in(value)
    if not isinstance(step, str):
        raise UsageError(
            "--each takes the name of a list", hint="such as --each instructions"
        )
    return {**value, step: _with(value[step], steps[1:], element)}


def check_unicode(item: Any) -> None:
    """Half a surrogate pair is no character: no tokenizer can encode it."""
    is_request = isinstance(item, SentRequest)
    for part in (
        (item.prompt, item.continuation, item.output) if is_request else (item,)
    ):
        text = part if isinstance(part, str) else ""
        if isinstance(part, chat.Conversation):
            # Writing JSON goes through every nested string at next to no cost.
            everything = (part.messages, part.tools, part.template_kwargs)
            with suppress(
                TypeError
            ):  # by a surrogate, or by what it does not know: a large number
                orjson.dumps(everything)
                continue
            text = json.dumps(everything, ensure_ascii=False, default=str)
        if not all_unicode((text,)):
            raise DataError("lone_surrogate")
