"""Which part of a record is the prompt: as the options say, or guessed from the first records."""

import difflib
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from chunkscope.artefacts.note import note
from chunkscope.errors import InputError, UsageError
from chunkscope.prompts import paths, traces
from chunkscope.prompts.chat import looks_like_messages, messages_of, release_of
from chunkscope.prompts.choices import ChoiceList, find_choices
from chunkscope.prompts.guess import field_table, guess, keys_of, leaves, shape_of
from chunkscope.prompts.harness import recognise
from chunkscope.prompts.harness.log import requests_of, scored
from chunkscope.prompts.paths import FieldPath, UnusableError, escape, parse_path
from chunkscope.prompts.selection import (
    Selection,
    SelectOptions,
    chat_of,
    each_of,
    lengths_of,
    spread,
    template_of,
    text_of,
    with_choices,
)
from chunkscope.sources.reader import RecordReader

_SMALL_HEAD = 3  # records: too few to tell labels from prompts


def selected(
    reader: RecordReader,
    head: Sequence[Any],
    options: SelectOptions,
    *,
    prefix: str = "",
    earlier: dict[Any, Selection] | None = None,
) -> Selection:
    """What the prompts of a source are: the requests of a harness's log, or a part of each row.

    `earlier` keeps what was selected of small files, for others of the same folder and shape.
    """
    named = options.fields or options.each or options.template is not None
    if not named and (log := recognise(head, reader)):
        return requests_of(log, options, prefix)
    if earlier is None or len(head) > _SMALL_HEAD:
        selection = select(head, options, prefix=prefix, rows_at=reader.rows_at)
    else:
        key = (reader.source.group, reader.format, options, prefix, shape_of(head))
        if key not in earlier:
            earlier[key] = select(head, options, prefix=prefix, rows_at=reader.rows_at)
        selection = earlier[key]
    return scored(selection) if options.task == "loglikelihood" else selection


def select(
    head: Sequence[Any], options: SelectOptions, *, prefix: str = "", rows_at: str | None = None
) -> Selection:
    """Decide what the prompt is, by the options or else by the first records.

    `prefix` is put before every text. Where the rows are what `examples` holds in a document
    (`rows_at`), the path `examples[].input` means `input`.
    """
    if options.fields and options.template is not None:
        raise UsageError("--field and --template exclude each other", hint="use one of them")
    if options.each:
        return _each(head, options, prefix, rows_at)
    resolve = partial(_resolve, head=head, rows_at=rows_at)
    output = resolve(options.output_field, "--output-field") if options.output_field else None
    given = [
        name.strip()
        for text in options.choices
        # `A,B,C,D` are four fields, unless one is called so.
        for name in ([text] if text in keys_of(head) else text.split(","))
    ]
    if not given and options.task == "loglikelihood":
        given = [*find_choices(head)]
    choices = ChoiceList(tuple(resolve(name, "--choices") for name in given))
    unasked = find_choices(head) if not given and options.template is None else ()
    columns = [path.column for path in (*choices.paths, output) if path] + [*unasked]
    selection = _chosen(head, options, resolve, [name for name in columns if name])
    unused = []
    if selection.kind == "text":
        selection = replace(selection, prefix=prefix)
        used = selection.columns
        if given:
            selection = with_choices(selection, choices)
        elif unasked and used is not None and not used & {*unasked}:
            lacking = note("choices_uncounted", fields=",".join(unasked))
            selection = replace(selection, uncounted=(*selection.uncounted, lacking))
    else:
        unused += [note("choices_unused")] if given else []
        unused += [note("prefix_unused")] if prefix else []
    return replace(selection, output=output or selection.output, notes=(*selection.notes, *unused))


Resolve = Callable[[str, str], FieldPath]


def _each(
    head: Sequence[Any], options: SelectOptions, prefix: str, rows_at: str | None
) -> Selection:
    """As the options say, of records in which a list has become one of its elements."""
    lists: list[FieldPath] = []
    records = list(head)
    for name in options.each:
        lists.append(_resolve(name, "--each", head=records, rows_at=rows_at))
        elements: list[Any] = []
        for record in records:
            if isinstance(lists[-1].find(record), list):
                elements += spread(record, lists[-1:])
        if records and not elements:
            raise UsageError(f"no record has a list at {name}", hint="--each takes a list")
        records = elements
    fields = options.fields if options.fields or options.template is not None else options.each[-1:]
    one = replace(options, each=(), fields=fields)
    return each_of(lists, select(records, one, prefix=prefix, rows_at=rows_at))


def _chosen(
    head: Sequence[Any], options: SelectOptions, resolve: Resolve, closed: Sequence[str]
) -> Selection:
    """By the template, by the fields, or by the first records; without prefix and output."""
    version = options.vllm_version
    chat = partial(chat_of, vllm=None if version is None else release_of(version))
    if options.template is not None:
        parts = paths.parse_template(options.template, lambda name: resolve(name, "--template"))
        if all(isinstance(part, str) for part in parts):
            raise UsageError(
                "the template names no field", hint="write --template 'Question: {question}'"
            )
        return template_of(parts, "template", numbers=True)
    if not options.fields:
        return guess(head, closed, chat)
    fields = [resolve(text, "--field") for text in options.fields]
    if len(fields) == 1:
        path = fields[0]
        chats = sum(looks_like_messages(messages_of(path.find(record))) for record in head)
        if chats * 2 > len(head):
            return chat(path)
        columns = traces.find_columns(head)
        if columns and columns.prompt == path.key:
            return lengths_of(columns)
    return text_of(*fields)


# --- the paths that a user wrote ------------------------------------------------------------------


def _resolve(
    text: str, option: str, *, head: Sequence[Any], rows_at: str | None = None
) -> FieldPath:
    """A path, checked against the records there are; `a.b` may be one key, or begin with one."""
    keys = {str(key) for key in keys_of(head)}
    if rows_at and rows_at not in keys:
        text = text.removeprefix(f"{rows_at}[].")
    if text in keys:
        return FieldPath(text, (text,))
    path = parse_path(text)
    for length in range(len(path.steps), 1, -1):
        name = ".".join(map(str, path.steps[:length]))
        if name in keys:
            path = replace(path, steps=(name, *path.steps[length:]))
            break
    for record in head:
        with suppress(UnusableError):
            path.get(record)
            return path
    if head:
        raise _no_such_field(text, option, head)
    return path


def _no_such_field(text: str, option: str, head: Sequence[Any]) -> InputError:
    if not any(isinstance(record, dict) for record in head):
        return InputError(
            f'no field "{escape(text)}": the records are plain values, not objects with fields',
            hint=f"leave {option} out",
        )
    names = {path.lower(): escape(path) for path in leaves(head)}
    names |= {str(key).lower(): escape(paths.quote_key(str(key))) for key in keys_of(head)}
    close = difflib.get_close_matches(text.lower(), list(names), n=1)
    name = names[close[0]] if close else ""
    name = f"{{{name}}}" if option == "--template" else name
    return InputError(
        f'no record has a field "{escape(text)}"; there are:\n{field_table(head)}',
        hint=f"did you mean {option} {shlex.quote(name)}?"
        if close
        else f"name one of them with {option}",
    )
