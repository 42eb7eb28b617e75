"""What the prompt is: as the options say, else a harness's log, else a guess."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import UsageError
from chunkscope.prompts import chat
from chunkscope.prompts.choices import Choices, find_choices
from chunkscope.prompts.fields import (
    fields_of,
    is_chat,
    keys_of,
    resolve,
    unknown_field,
)
from chunkscope.prompts.guess import guess_prompt
from chunkscope.prompts.harness import recognise_log
from chunkscope.prompts.harness.log import LogStart
from chunkscope.prompts.options import SelectOptions
from chunkscope.prompts.paths import FieldPath, json_in
from chunkscope.prompts.prompt import (
    ChatReader,
    EachReader,
    FieldTexts,
    LogReader,
    OutputField,
    PromptReader,
    ScoredReader,
    TextReader,
    TraceReader,
    explode,
)
from chunkscope.prompts.template import ROW, Template
from chunkscope.prompts.traces import are_lengths, bare, trace_columns
from chunkscope.sources.base import DataError
from chunkscope.sources.reader import RecordReader

_MEDIA = re.compile(
    r"(question_)?(image|img|audio|video)s?(_?(\d+|path|url|file|base64))?", re.I
)
# The image of a machine, as in docker.io/swe/eval:latest, is no picture.
_MACHINE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+|@sha256:\w+)")


def choose_prompt(
    records: RecordReader,
    head: Sequence[Any],
    options: SelectOptions,
    *,
    prefix: str = "",
    counts_texts: bool = False,
) -> PromptReader:
    """The reader for a dataset, by its first records: of a harness's requests, or of
    each row.

    `counts_texts`: also where a log has the server's own counts.
    """
    if records.format == "csv":  # where lists and objects are texts
        head = [_parsed_cells(row) for row in head]
    if not options.name_a_prompt:
        start = LogStart(
            source=records.source,
            format=records.format,
            records=head,
            metadata=dict(records.metadata),
            counts_texts=counts_texts,
            model=options.log_model,
        )
        log = recognise_log(start)
        if log is not None:
            return _log_reader(LogReader(log), options, prefix)
        prefix = prefix or str(records.metadata.get("task_prefix") or "")  # BIG-bench's
    return choose_field(head, options, prefix=prefix)


def _parsed_cells(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json_in(cell) for name, cell in row.items()}


def _log_reader(reader: LogReader, options: SelectOptions, prefix: str) -> LogReader:
    unused = {
        "--prefix-file": prefix,
        "--choices": options.choices,
        "--output-field": options.output_field,
    }
    notes = []
    for name, value in unused.items():
        if value:
            notes.append(note("unused_with_log", option=name))
    reader.notes = tuple(notes)
    return reader


def choose_field(
    head: Sequence[Any], options: SelectOptions, *, prefix: str = ""
) -> PromptReader:
    """The reader for plain rows; `prefix` is put before every text."""
    if options.fields and options.template:
        raise UsageError(
            "--field and --template cannot be used together", hint="use one of them"
        )
    paths: list[FieldPath] = []
    for name in options.each:
        path = _list_path(name, head)
        paths.append(path)
        head = _exploded(head, path, options)
    reader = _named_prompt(head, options) or guess_prompt(head)
    choices = _named_choices(head, options)
    if options.output_field:
        reader.output = _output_field(options.output_field[-1], head)
    reader.notes = (*reader.notes, *_media_notes(head))
    if isinstance(reader, TextReader):
        reader = _text_reader(reader, choices, head, options, prefix)
    else:
        reader.notes = (*reader.notes, *_unused_notes(options, prefix))
    if isinstance(reader, ChatReader):
        reader.notes = (*reader.notes, *_chat_notes(reader, head))
    return EachReader(reader, tuple(paths)) if paths else reader


def _text_reader(
    reader: TextReader,
    choices: Choices | None,
    head: Sequence[Any],
    options: SelectOptions,
    prefix: str,
) -> PromptReader:
    """The texts, or their choices scored; with notes on what is left out."""
    unasked = find_choices(head) if choices is None else None
    is_scored = options.task == "loglikelihood"
    if is_scored and choices is None:
        choices = unasked
    notes = [*reader.notes, *_turn_notes(reader, head)]
    reader = _with_choices(reader, choices, prefix)
    if choices is None and unasked is not None:
        reader.uncounted += _choices_left_out(reader, unasked, head)
    if is_scored and choices is None:
        notes.append(note("nothing_to_score"))
    reader.notes = tuple(notes)
    if not is_scored or choices is None:
        return reader
    scored = ScoredReader(reader, choices)
    scored.uncounted = ()
    scored.notes = reader.notes
    return scored


def _list_path(name: str, head: Sequence[Any]) -> FieldPath:
    path = resolve(name, "--each", head)
    if head and not any(isinstance(json_in(path.find(row)), list) for row in head):
        raise UsageError(f"no record has a list at {name}", hint="--each takes a list")
    return path


def _exploded(
    head: Sequence[Any], path: FieldPath, options: SelectOptions
) -> list[Any]:
    """The first records as the reader of the prompts will see them."""
    beside = [FieldPath((name,)) for name in options.choices]
    elements: list[Any] = []
    for record in head:
        with suppress(DataError):
            elements += explode(record, [path], beside)
    return elements


def _named_prompt(head: Sequence[Any], options: SelectOptions) -> PromptReader | None:
    """By the template or fields of the options; None where they name none."""
    if options.template:
        template = Template(options.template[-1])
        _check_names(template, head)
        return TextReader(template)
    names = options.fields or options.each[-1:]
    if not names:
        return None
    paths = tuple(resolve(name, "--field", head) for name in names)
    if len(paths) > 1:
        return TextReader(FieldTexts(paths))
    path = paths[0]
    chats = [record for record in head if is_chat(path.find(record))]
    if len(chats) * 2 > len(head):
        return ChatReader(path)
    columns = trace_columns(head, path.steps[:-1])
    if columns is not None and columns.prompt == path:
        return TraceReader(columns)
    return TextReader(FieldTexts(paths))


def _check_names(template: Template, head: Sequence[Any]) -> None:
    keys = keys_of(head)
    for name in template.names:
        if head and name != ROW and name not in keys:
            paths = [FieldPath((key,)) for key in keys]
            raise unknown_field(name, "--template", paths, fields_of(head))


def _output_field(name: str, head: Sequence[Any]) -> OutputField:
    path = resolve(name, "--output-field", head)
    values = [path.find(record) for record in head]
    return OutputField(path, are_lengths=are_lengths(values) or _is_length(path))


def _is_length(path: FieldPath) -> bool:
    return bare(path.text) in ("outputtokens", "outputlength", "completiontokens")


# --- choices --------------------------------------------------------------------------


def _named_choices(head: Sequence[Any], options: SelectOptions) -> Choices | None:
    names = []
    for text in options.choices:
        names += [name.strip() for name in text.split(",")]
    if not names:
        return None
    return Choices(tuple(resolve(name, "--choices", head) for name in names))


def _with_choices(
    reader: TextReader, choices: Choices | None, prefix: str
) -> TextReader:
    label = reader.label
    whole = TextReader(reader.source, label=label, prefix=prefix, choices=choices)
    whole.output = reader.output
    whole.uncounted = reader.uncounted
    return whole


def _choices_left_out(
    reader: TextReader, choices: Choices, head: Sequence[Any]
) -> tuple[Note, ...]:
    """That choices were not counted, unless most prompts hold them already."""
    holding = 0
    for record in head:
        with suppress(DataError):
            text = reader.text(record)
            if all(choice.text in text for choice in choices.of(record)):
                holding += 1
    if holding * 2 > len(head):
        return ()
    return (note("choices_uncounted", fields=choices.text),)


# --- notes ----------------------------------------------------------------------------


def _unused_notes(options: SelectOptions, prefix: str) -> list[Note]:
    notes = []
    if options.choices:
        notes.append(note("unused_with_chat", what="--choices"))
    if prefix:
        notes.append(note("unused_with_chat", what="the prefix"))
    if options.task == "loglikelihood":
        notes.append(note("nothing_to_score"))
    return notes


def _media_notes(head: Sequence[Any]) -> list[Note]:
    """Pictures and sounds that stand beside the text."""
    notes = []
    for key in keys_of(head):
        path = FieldPath((key,))
        values = [path.find(record) for record in head]
        texts = [str(value) for value in values if value]
        are_machines = all(_MACHINE.fullmatch(text) for text in texts)
        if _MEDIA.fullmatch(key) and not are_machines:
            notes.append(note("not_counted", field=key))
    return notes


def _chat_notes(reader: ChatReader, head: Sequence[Any]) -> list[Note]:
    """What of a conversation may surprise: an answer at its end, a system prompt beside
    it.
    """
    answered = 0
    with_system = 0
    for record in head:
        with suppress(DataError, RecursionError):
            messages = reader.conversation(record).messages
            if messages[-1]["role"] == "assistant":
                answered += 1
            row = record if isinstance(record, dict) else {}
            systems = [row[name] for name in chat.SYSTEMS if row.get(name)]
            if messages[0]["content"] in systems:
                with_system += 1
    notes = []
    if with_system:
        notes.append(note("system_counted"))
    if answered * 2 > len(head):
        notes.append(note("answers_counted"))
    return notes


def _turn_notes(reader: TextReader, head: Sequence[Any]) -> list[Note]:
    """Rows that are messages are counted one by one."""
    paths = reader.paths
    if not paths or not paths[0].steps:
        return []
    role = FieldPath((*paths[0].steps[:-1], "role"))
    if any(role.find(record) == "assistant" for record in head):
        return [note("turns_counted")]
    return []
