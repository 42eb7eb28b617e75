"""Which part of a record is the prompt: as asked for, or found by looking at the first records.

A selection is plain data (it travels to worker processes) that turns chunks of records into
prompts. Rows that do not fit become problems; the others go on.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol

from chunkscope.errors import InputError, UsageError
from chunkscope.sources import traces
from chunkscope.sources.base import Chunk, Problems
from chunkscope.sources.chat import ROW_FIELDS, conversation, looks_like_messages, plain_text
from chunkscope.sources.fields import (
    FieldPath,
    Leaf,
    Part,
    UnusableError,
    all_unicode,
    check_unicode,
    escape,
    field_table,
    leaves,
    parse_path,
    parse_template,
    quote_key,
    spellings,
    text_at,
)

Kind = Literal["text", "chat", "lengths"]

HEAD_RECORDS = 100

_RECORD = FieldPath("", ())
_CHAT_FIELDS = ("messages", "body.messages", "body.input", "conversations", "conversation")
_TEXT_FIELDS = (
    *("prompt", "question", "input", "inputs", "text", "instruction", "query", "problem"),
    *("problem_statement", "task", "content", "sentence", "turns", "prompts", "questions"),
    *("goal", "premise", "passage", "document", "article", "context"),
)
_OFTEN_LABELS = {"task", "content", "goal", "text", "input", "document", "context"}
# Parts of names of fields that hold what the model should say, or that no prompt is made of.
_NOT_PROMPT = re.compile(
    "(answer|output|target|response|solution|completion|label|reference|explanation|rationale"
    "|test|code|gold|golden|expected|chosen|rejected|generated|generation|prediction|canary"
    "|metadata|meta|id|uid|uuid|url|hash|canonical|cot|ideal|annotation)s?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectOptions:
    """What the command line says about the prompt."""

    fields: tuple[str, ...] = ()
    template: str | None = None
    joiner: str = "\n\n"
    prefix: str = ""
    output_field: str | None = None
    chat: bool = True


class Prompts(NamedTuple):
    """What a chunk of records became: lists of the same length, without the bad rows.

    `items` holds texts, conversations or lengths, `outputs` texts or lengths (None where a row has
    none), or is None when no output is known of.
    """

    positions: list[int]
    items: list[Any]
    outputs: list[Any] | None


class Selection(Protocol):
    """Turns records into prompts; the names are what the user is told."""

    @property
    def kind(self) -> Kind: ...
    @property
    def label(self) -> str: ...
    @property
    def columns(self) -> frozenset[str] | None:
        """The top-level fields that are read, some of which a file may lack; None is all."""

    @property
    def output_label(self) -> str | None: ...
    @property
    def notes(self) -> list[str]: ...

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts: ...


def select(head: Sequence[Any], options: SelectOptions, *, rows_at: str | None = None) -> Selection:
    """Decide what the prompt is, by the options or else by the first records.

    `rows_at` is the key under which a reader found the rows: with "examples", the path
    `examples[].input` means `input`.
    """
    head = head[:HEAD_RECORDS]
    if options.fields and options.template is not None:
        raise UsageError("--field and --template exclude each other", hint="use one of them")
    given = (*options.fields, options.template, options.output_field, options.prefix)
    if not all_unicode(text for text in given if text):
        raise UsageError("what was given for the prompt is no text", hint="write it as UTF-8")
    path = partial(_resolve, head=head, rows_at=rows_at)
    output = path(options.output_field) if options.output_field is not None else None
    if options.template is not None:
        return _by_template(options, path, output)
    if options.fields:
        return _by_fields(head, options, [path(text) for text in options.fields], output)
    return _found(head, options, output)


# --- selections -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """What every selection has."""

    label: str
    columns: frozenset[str] | None
    output: FieldPath | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def output_label(self) -> str | None:
        return self.output.text if self.output else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSelection(_Named):
    """A prompt put together from literal text and fields."""

    parts: tuple[Part, ...]
    joiner: str
    numbers: bool = False
    # Alpaca's way: a field that is missing or empty is left out, and what joins it too.
    skip_empty: bool = False
    kind: Literal["text"] = "text"

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        records = chunk.records
        texts = None if self.skip_empty else self._all_texts(records)
        if texts is not None:
            return Prompts(list(chunk.positions), texts, _output_texts(records, self.output))
        return _row_by_row(chunk, problems, self._text, self.output)

    def _all_texts(self, records: list[Any]) -> list[str] | None:
        """The texts without a function call per row; None when some row needs a closer look."""
        columns: list[Any] = []
        for part in self.parts:
            column = repeat(part) if isinstance(part, str) else _column(records, part)
            if column is None:
                return None
            columns.append(column)
        if len(columns) == 1:
            return list(columns[0])
        return ["".join(row) for row in zip(*columns, strict=False)]

    def _text(self, record: Any) -> str:
        if self.skip_empty:
            text = self._text_of_what_is_there(record)
        else:
            text = "".join(
                part
                if isinstance(part, str)
                else text_at(record, part, self.joiner, numbers=self.numbers)
                for part in self.parts
            )
        check_unicode(text)
        return text

    def _text_of_what_is_there(self, record: Any) -> str:
        paths = [part for part in self.parts if isinstance(part, FieldPath)]
        prefix = self.parts[0] if isinstance(self.parts[0], str) else ""
        first, *others = paths
        texts = [text_at(record, first, self.joiner)]
        texts += [
            text_at(record, path, self.joiner) for path in others if path.find(record) is not None
        ]
        return prefix + self.joiner.join(filter(None, texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSelection(_Named):
    """A conversation, or (kind "text") what was said in it without a chat template."""

    path: FieldPath
    prefix: str = ""
    kind: Literal["text", "chat"] = "chat"

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        item = self._conversation if self.kind == "chat" else self._text
        return _row_by_row(chunk, problems, item, self.output)

    def _conversation(self, record: Any) -> Any:
        messages = self.path.get(record)
        if messages is None:
            raise UnusableError(f'field "{self.path.text}" is null')
        row = self.path.parent.find(record) if self.path.steps else None
        return conversation(messages, row if isinstance(row, dict) else {})

    def _text(self, record: Any) -> str:
        return self.prefix + plain_text(self._conversation(record).messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsSelection(_Named):
    """Lengths that are in the data already."""

    path: FieldPath
    kind: Literal["lengths"] = "lengths"

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        records = chunk.records
        items = _column_lengths(records, self.path)
        outputs = _column_lengths(records, self.output) if self.output else None
        if items is not None and (outputs is not None or self.output is None):
            return Prompts(list(chunk.positions), items, outputs)
        return self._row_by_row(chunk, problems)

    def _row_by_row(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = Prompts([], [], [] if self.output else None)
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                item = traces.length(self.path.get(record), self.path.text)
                output = self._output_length(record)
            except UnusableError as error:
                problems.bad(position, str(error))
                continue
            prompts.positions.append(position)
            prompts.items.append(item)
            if prompts.outputs is not None:
                prompts.outputs.append(output)
        return prompts

    def _output_length(self, record: Any) -> int | None:
        value = self.output.find(record) if self.output else None
        if value is None or value == "" or self.output is None:
            return None
        return traces.length(value, self.output.text)


def _row_by_row(
    chunk: Chunk, problems: Problems, item: Callable[[Any], Any], output: FieldPath | None
) -> Prompts:
    """The way that says what is wrong with which row."""
    positions, items, records = [], [], []
    for position, record in zip(chunk.positions, chunk.records, strict=True):
        try:
            items.append(item(record))
        except UnusableError as error:
            problems.bad(position, str(error))
            continue
        positions.append(position)
        records.append(record)
    return Prompts(positions, items, _output_texts(records, output))


def _column(records: list[Any], path: FieldPath) -> list[str] | None:
    """One text per record, or None when some record has none there."""
    texts = records if not path.steps else _values(records, path)
    if texts is None or not set(map(type, texts)) <= {str} or not all_unicode(texts):
        return None
    return texts


def _column_lengths(records: list[Any], path: FieldPath) -> list[int] | None:
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


def _output_texts(records: list[Any], path: FieldPath | None) -> list[str | None] | None:
    """The reference outputs; a row without one is still a prompt."""
    if path is None:
        return None
    return list(_column(records, path) or map(partial(_output_text, path=path), records))


def _output_text(record: Any, path: FieldPath) -> str | None:
    try:
        text = text_at(record, path, "\n", numbers=True)
        check_unicode(text)
    except UnusableError:
        return None
    return text


# --- as asked for ---------------------------------------------------------------------------------


def _resolve(text: str, *, head: Sequence[Any], rows_at: str | None) -> FieldPath:
    """The path a user wrote, checked against the records there are."""
    objects = [record for record in head if isinstance(record, dict)]
    if any(text in record for record in objects):
        return FieldPath(text, (text,))
    path = _literally(parse_path(text), objects)
    if not head or _exists(path, head):
        return path
    inner = _within_rows(path, rows_at)
    if inner is not None and _exists(inner, head):
        return inner
    raise _no_such_field(text, head)


def _literally(path: FieldPath, objects: Sequence[dict[str, Any]]) -> FieldPath:
    """The path with its first key as the records spell it: `a.b` may be one key."""
    for name, taken in spellings(path.steps):
        if any(name in record for record in objects):
            return FieldPath(path.text, (name, *path.steps[taken:]))
    return path


def _exists(path: FieldPath, head: Sequence[Any]) -> bool:
    for record in head:
        try:
            path.get(record)
        except UnusableError:
            continue
        return True
    return False


def _within_rows(path: FieldPath, rows_at: str | None) -> FieldPath | None:
    """`examples[].input` as seen from a row, when the rows are what `examples` holds."""
    for outer in ((rows_at,), tuple(rows_at.split("."))) if rows_at else ():
        if path.steps[: len(outer) + 1] == (*outer, ...):
            inner = path.steps[len(outer) + 1 :]
            # Named as in a row: said back to the user and found in every record that way.
            return FieldPath(path.text.partition("[]")[2].removeprefix("."), inner)
    return None


def _no_such_field(text: str, head: Sequence[Any]) -> InputError:
    if not any(isinstance(record, dict) for record in head):
        return InputError(
            f'no field "{escape(text)}": the records are plain values, not objects with fields',
            hint="leave --field and --template out",
        )
    known = {path.lower(): escape(path) for path in leaves(head)}
    known |= {str(key).lower(): escape(quote_key(str(key))) for key in _keys(head)}
    close = difflib.get_close_matches(text.lower(), list(known), n=1)
    return InputError(
        f'no record has a field "{escape(text)}"; there are:\n{field_table(head)}',
        hint=f"did you mean --field {_shell(known[close[0]])}?"
        if close
        else "name one of them with --field",
    )


def _by_template(
    options: SelectOptions, path: Callable[[str], FieldPath], output: FieldPath | None
) -> Selection:
    parts = parse_template(options.template or "", path)
    paths = [part for part in parts if isinstance(part, FieldPath)]
    if not paths:
        raise UsageError(
            "the template names no field", hint="write --template 'Question: {question}'"
        )
    return TextSelection(
        label="template",
        parts=_with_prefix(options.prefix, *parts),
        joiner=options.joiner,
        numbers=True,
        columns=_columns(*paths, output),
        output=output,
    )


def _by_fields(
    head: Sequence[Any],
    options: SelectOptions,
    paths: Sequence[FieldPath],
    output: FieldPath | None,
) -> Selection:
    if len(paths) == 1:
        path = paths[0]
        if _most(head, lambda record: looks_like_messages(path.find(record))):
            return _chat(path, options, output)
        if path.key and traces.is_trace_name(path.key) and traces.is_mostly_lengths(head, path.key):
            return _lengths(path, options, output or _paired(head, path.key))
    return _text(paths, options, output)


def _paired(head: Sequence[Any], key: str) -> FieldPath | None:
    output = traces.paired_output(head, key)
    return FieldPath(output, (output,)) if output else None


def _text(
    paths: Sequence[FieldPath],
    options: SelectOptions,
    output: FieldPath | None,
    *,
    skip_empty: bool = False,
    notes: Sequence[str] = (),
) -> TextSelection:
    parts: list[Part] = []
    for path in paths:
        parts += [options.joiner, path] if parts else [path]
    return TextSelection(
        label=" + ".join(path.text for path in paths),
        parts=_with_prefix(options.prefix, *parts),
        joiner=options.joiner,
        skip_empty=skip_empty,
        columns=_columns(*paths, output),
        output=output,
        notes=list(notes),
    )


def _chat(path: FieldPath, options: SelectOptions, output: FieldPath | None) -> ChatSelection:
    # Tools and the like stand beside the messages: in the row, or in the same request body.
    top_level = path.key is not None
    columns = _columns(path, output)
    return ChatSelection(
        label=f"{path.text or 'record'} ({'chat' if options.chat else 'text'})",
        path=path,
        prefix="" if options.chat else options.prefix,
        columns=columns | frozenset(ROW_FIELDS) if columns is not None and top_level else columns,
        output=output,
        kind="chat" if options.chat else "text",
        notes=_unused_prefix(options) if options.chat else [],
    )


def _lengths(path: FieldPath, options: SelectOptions, output: FieldPath | None) -> LengthsSelection:
    return LengthsSelection(
        label=f"{path.text} (lengths)",
        path=path,
        columns=_columns(path, output),
        output=output,
        notes=_unused_prefix(options),
    )


def _unused_prefix(options: SelectOptions) -> list[str]:
    return ["the prefix was not used: it goes before text prompts only"] if options.prefix else []


def _with_prefix(prefix: str, *parts: Part) -> tuple[Part, ...]:
    return (prefix, *parts) if prefix else parts


def _columns(*paths: FieldPath | None) -> frozenset[str] | None:
    names = {path.column for path in paths if path is not None}
    return None if None in names else frozenset(name for name in names if name is not None)


# --- found ----------------------------------------------------------------------------------------

Candidate = tuple[Callable[[Any], bool], Callable[[], Selection]]


def _found(head: Sequence[Any], options: SelectOptions, output: FieldPath | None) -> Selection:
    """The first candidate that fits most records, else the one that fits the most of them."""
    best: Callable[[], Selection] | None = None
    best_count = 0
    for fits, build in _candidates(head, options, output):
        count = sum(map(fits, head))
        if count and count * 2 >= len(head):
            return build()
        if count > best_count:
            best, best_count = build, count
    if best is None:
        raise _nothing_found(head)
    return best()


def _candidates(
    head: Sequence[Any], options: SelectOptions, output: FieldPath | None
) -> Iterator[Candidate]:
    yield _is_text, partial(_whole, head, options)
    for name in _CHAT_FIELDS:
        yield _chat_candidate(parse_path(name), options, output)
        if name == "body.input":
            yield from _text_candidates(("body.prompt", "body.input"), head, options, output)
    yield _chat_candidate(FieldPath("prompt", ("prompt",)), options, output)
    yield _chat_candidate(_RECORD, options, output)
    columns = traces.find_columns(head)
    # A lone input_length beside a text prompt says little: then the text is counted.
    if columns and columns.output:
        yield _trace_candidate(columns, options, output)
    yield from _text_candidates(_spelled(_TEXT_FIELDS, head), head, options, output)
    if columns and not columns.output:
        yield _trace_candidate(columns, options, output)
    yield from _headerless_candidate(head, options, output)
    only = _only_text_field(head)
    if only is not None and not _are_labels(head, only):
        yield partial(_has_text, only), partial(_text_found, only, head, options, output)


def _whole(head: Sequence[Any], options: SelectOptions) -> Selection:
    return TextSelection(
        label="whole file" if len(head) == 1 else "line",
        parts=_with_prefix(options.prefix, _RECORD),
        joiner=options.joiner,
        columns=None,
    )


def _chat_candidate(path: FieldPath, options: SelectOptions, output: FieldPath | None) -> Candidate:
    def fits(record: Any) -> bool:
        return looks_like_messages(path.find(record))

    return fits, partial(_chat, path, options, output)


def _trace_candidate(
    columns: traces.TraceColumns, options: SelectOptions, output: FieldPath | None
) -> Candidate:
    path = FieldPath(columns.prompt, (columns.prompt,))
    if output is None and columns.output:
        output = FieldPath(columns.output, (columns.output,))
    fits = partial(_has_key, columns.prompt)
    return fits, partial(_lengths, path, options, output)


def _are_labels(head: Sequence[Any], path: FieldPath) -> bool:
    """Whether a field holds a few short words over and over, such as the name of a subtask."""
    values = [value for record in head if isinstance(value := path.find(record), str)]
    short = all(len(value) <= 40 for value in values)
    return len(values) > 3 and short and len(set(values)) * 2 <= len(values)


def _text_candidates(
    names: Sequence[str], head: Sequence[Any], options: SelectOptions, output: FieldPath | None
) -> Iterator[Candidate]:
    keys = {name.lower(): name for name in names}
    for name in names:
        path = parse_path(name) if "." in name else FieldPath(name, (name,))
        if name.lower() in _OFTEN_LABELS and _are_labels(head, path):
            continue
        if name.lower() == "input" and "instruction" in keys:
            yield _alpaca_candidate(keys["instruction"], name, options, output)
        yield partial(_has_text, path), partial(_text_found, path, head, options, output)
        first = FieldPath(f"{name}[0]", (*path.steps, 0))
        yield partial(_has_texts, path), partial(_first_found, first, options, output)


def _alpaca_candidate(
    instruction: str, more: str, options: SelectOptions, output: FieldPath | None
) -> Candidate:
    paths = [FieldPath(name, (name,)) for name in (instruction, more)]

    def fits(record: Any) -> bool:
        return _has_text(paths[0], record) and more in record

    return fits, partial(_text, paths, options, output, skip_empty=True)


def _headerless_candidate(
    head: Sequence[Any], options: SelectOptions, output: FieldPath | None
) -> Iterator[Candidate]:
    """The longest column of a table without a header, whose columns readers call column0..."""
    keys = _keys(head)
    if not keys or not all(re.fullmatch(r"column\d+", str(key)) for key in keys):
        return
    found = leaves(head)
    longest = max(keys, key=lambda key: found[key].chars if key in found else 0)
    note = f'the table has no header: counted "{longest}", its longest text; --field chooses'
    path = FieldPath(longest, (longest,))
    yield partial(_has_text, path), partial(_text, [path], options, output, notes=[note])


def _text_found(
    path: FieldPath, head: Sequence[Any], options: SelectOptions, output: FieldPath | None
) -> Selection:
    longer = _longer_sibling(path, head, output)
    notes = []
    if longer is not None:
        both = f"--field {_shell(longer)} --field {_shell(path.text)}"
        notes = [
            f'counted only "{path.text}"; "{longer}" holds more text: use {both}, or --template'
        ]
    return _text([path], options, output, notes=notes)


def _first_found(path: FieldPath, options: SelectOptions, output: FieldPath | None) -> Selection:
    note = f'counted only "{path.text}", the first of a list of texts; --field chooses'
    return _text([path], options, output, notes=[note])


def _longer_sibling(path: FieldPath, head: Sequence[Any], output: FieldPath | None) -> str | None:
    """A field that looks like part of the prompt and has more text than the one that was found."""
    found = leaves(head)
    own = found.get(path.text) or Leaf(path.text, "text", "")
    siblings = [
        leaf
        for leaf in found.values()
        if leaf.chars > own.chars
        and leaf.kind == "text"
        and not (output and leaf.path == output.text)
        and not any(map(_NOT_PROMPT.fullmatch, _name_parts(leaf.path)))
    ]
    return escape(max(siblings, key=lambda leaf: leaf.chars).path) if siblings else None


def _name_parts(name: str) -> list[str]:
    """`"longAnswer_text"` -> `["long", "answer", "text"]`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z]+", spaced.lower())


def _only_text_field(head: Sequence[Any]) -> FieldPath | None:
    keys = [
        key for key in _keys(head) if _most(head, partial(_has_text, FieldPath(str(key), (key,))))
    ]
    return FieldPath(str(keys[0]), (keys[0],)) if len(keys) == 1 else None


def _nothing_found(head: Sequence[Any]) -> InputError:
    if not head:
        return InputError("there are no records to look at")
    table = field_table(head)
    if not table:
        return InputError("the records hold no fields", hint="expected objects with text in them")
    return InputError(
        f"cannot tell which field is the prompt; there are:\n{table}",
        hint="name it with --field, or put it together with --template '{a} {b}'",
    )


# --- small questions about records ----------------------------------------------------------------


def _most(head: Sequence[Any], fits: Callable[[Any], bool]) -> bool:
    return sum(map(fits, head)) * 2 > len(head)


def _is_text(record: Any) -> bool:
    return isinstance(record, str)


def _has_text(path: FieldPath, record: Any) -> bool:
    return isinstance(path.find(record), str)


def _has_texts(path: FieldPath, record: Any) -> bool:
    value = path.find(record)
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _has_key(key: str, record: Any) -> bool:
    return isinstance(record, dict) and key in record


def _keys(head: Sequence[Any]) -> list[str]:
    """The top-level keys, in order of appearance."""
    return list(dict.fromkeys(k for record in head if isinstance(record, dict) for k in record))


def _spelled(names: Sequence[str], head: Sequence[Any]) -> list[str]:
    """The names as the records spell them: many sets say `Question`."""
    keys = _keys(head)
    return [key for name in names for key in keys if str(key).lower() == name]


def _shell(path: str) -> str:
    """A path as it can be pasted into a shell."""
    if re.fullmatch(r"[\w./-]+", path):
        return path
    return "'" + path.replace("'", "'\\''") + "'"
