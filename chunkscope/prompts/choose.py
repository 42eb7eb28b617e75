"""What the prompt is: as the options say, else a harness's log, else a guess."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import UsageError
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
    FieldTexts,
    LogReader,
    OutputField,
    PromptReader,
    TextReader,
    TraceReader,
    explode,
)
from chunkscope.prompts.template import ROW, Template
from chunkscope.prompts.traces import are_lengths, bare, trace_columns
from chunkscope.sources.base import DataError
from chunkscope.sources.reader import RecordReader

MEDIA = re.compile(
    r"(question_)?(image|img|audio|video)s?(_?(\d+|path|url|file|base64))?", re.I
)
MACHINE = re.compile(r"[\w./-]+:[\w.-]+")  # docker.io/swe/eval:latest is no picture
OUTPUT_LENGTHS = ("outputtokens", "outputlength", "completiontokens")


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
        head = [{name: json_in(row[name]) for name in row} for row in head]
    if options.name_a_prompt:
        return choose_field(head, options, prefix=prefix)
    start = LogStart(
        source=records.source,
        format=records.format,
        records=head,
        metadata=dict(records.metadata),
        counts_texts=counts_texts,
        model=options.log_model,
    )
    log = recognise_log(start)
    if log is None:
        return choose_field(head, options, prefix=prefix)
    reader = LogReader(log)
    reader.notes = unused("unused_with_log", "option", options, prefix)
    if options.output_field:
        reader.notes += (note("unused_with_log", option="--output-field"),)
    return reader


def unused(
    code: str, value: str, options: SelectOptions, prefix: str
) -> tuple[Note, ...]:
    """Options that only go with text prompts."""
    notes = []
    if prefix:
        notes.append(note(code, **{value: "--prefix-file"}))
    if options.choices:
        notes.append(note(code, **{value: "--choices"}))
    return tuple(notes)


def choose_field(
    head: Sequence[Any], options: SelectOptions, *, prefix: str = ""
) -> PromptReader:
    """The reader for plain rows; `prefix` is put before every text."""
    if options.fields and options.template:
        raise UsageError(
            "--field and --template cannot be used together", hint="use one of them"
        )
    lists: list[FieldPath] = []
    for name in options.each:
        path = list_path(name, head)
        lists.append(path)
        head = exploded(head, path)
    reader = named_prompt(head, options) or guess_prompt(head)
    reader.notes += media_notes(head)
    if options.output_field:
        reader.output = output_field(options.output_field[-1], head)
    if isinstance(reader, TextReader):
        complete(reader, head, options, prefix)
    else:
        reader.notes += unused("unused_with_chat", "what", options, prefix)
    if options.task == "loglikelihood" and reader.log is None:
        reader.notes += (note("nothing_to_score"),)
    if isinstance(reader, ChatReader) and end_with_answers(reader, head):
        reader.notes += (note("answers_counted"),)
    reader.lists = tuple(lists)
    return reader


def list_path(name: str, head: Sequence[Any]) -> FieldPath:
    path = resolve(name, "--each", head)
    if head and not any(isinstance(json_in(path.find(row)), list) for row in head):
        raise UsageError(f"no record has a list at {name}", hint="--each takes a list")
    return path


def exploded(head: Sequence[Any], path: FieldPath) -> list[Any]:
    """The first records as the reader of the prompts will see them."""
    elements: list[Any] = []
    for record in head:
        with suppress(DataError):
            elements += explode(record, [path])
    return elements


def named_prompt(head: Sequence[Any], options: SelectOptions) -> PromptReader | None:
    """By the template or fields of the options; None where they name none."""
    if options.template:
        template = Template(options.template[-1])
        check_names(template, head)
        return TextReader(template)
    names = options.fields or options.each[-1:]
    if not names:
        return None
    paths = tuple(resolve(name, "--field", head) for name in names)
    path = paths[0]
    if len(paths) == 1:
        chats = [record for record in head if is_chat(path.find(record))]
        if len(chats) * 2 > len(head):
            return ChatReader(path)
        columns = trace_columns(head, path.steps[:-1])
        if columns is not None and columns.prompt == path:
            return TraceReader(columns)
    return TextReader(FieldTexts(paths))


def check_names(template: Template, head: Sequence[Any]) -> None:
    keys = keys_of(head)
    for name in template.names:
        if head and name != ROW and name not in keys:
            paths = [FieldPath((key,)) for key in keys]
            raise unknown_field(name, "--template", paths, fields_of(head))


def output_field(name: str, head: Sequence[Any]) -> OutputField:
    path = resolve(name, "--output-field", head)
    values = [path.find(record) for record in head]
    is_length = are_lengths(values) or bare(path.text) in OUTPUT_LENGTHS
    return OutputField(path, are_lengths=is_length)


# --- choices --------------------------------------------------------------------------


def complete(
    reader: TextReader, head: Sequence[Any], options: SelectOptions, prefix: str
) -> None:
    """Give it a prefix and choices; they are scored, if a likelihood is asked for."""
    names: list[str] = []
    for text in options.choices:
        names += [name.strip() for name in text.split(",")]
    is_scored = options.task == "loglikelihood"
    unasked = find_choices(head)
    choices = unasked if is_scored else None
    if names:
        choices = Choices(tuple(resolve(name, "--choices", head) for name in names))
    elif choices is None and unasked and not hold_choices(reader, unasked, head):
        reader.uncounted += (note("choices_uncounted", fields=unasked.text),)
    if is_scored:
        reader.uncounted = ()
    reader.complete(prefix=prefix, choices=choices, is_scored=is_scored)


def hold_choices(reader: TextReader, choices: Choices, head: Sequence[Any]) -> bool:
    """Whether most prompts have their choices in them already."""
    holding = 0
    for record in head:
        with suppress(DataError):
            text = reader.text(record)
            if all(choice.text in text for choice in choices.of(record)):
                holding += 1
    return holding * 2 > len(head)


# --- notes ----------------------------------------------------------------------------


def media_notes(head: Sequence[Any]) -> tuple[Note, ...]:
    """Pictures and sounds that stand beside the text."""
    notes = []
    for key in keys_of(head):
        values = [FieldPath((key,)).find(record) for record in head]
        media = [value for value in values if value]
        are_machines = all(MACHINE.fullmatch(str(value)) for value in media)
        if MEDIA.fullmatch(key) and not are_machines:
            notes.append(note("not_counted", field=key))
    return tuple(notes)


def end_with_answers(reader: ChatReader, head: Sequence[Any]) -> bool:
    """Whether most chats end with what the model would say."""
    answered = 0
    for record in head:
        with suppress(DataError, RecursionError):
            if reader.conversation(record).messages[-1]["role"] == "assistant":
                answered += 1
    return answered * 2 > len(head)
