"""Which part of a record is the prompt: as the options say, or guessed from the first records."""

import difflib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from chunkscope.artefacts.note import note
from chunkscope.errors import InputError, UsageError
from chunkscope.prompts import paths, traces
from chunkscope.prompts.chat import looks_like_messages, messages_of, rules_of
from chunkscope.prompts.choices import ChoiceList, find_choices
from chunkscope.prompts.guess import field_table, guess, keys_of, leaves
from chunkscope.prompts.harness import recognise
from chunkscope.prompts.harness.log import requests_of
from chunkscope.prompts.paths import FieldPath, UnusableError, escape, parse_path
from chunkscope.prompts.selection import (
    EachSelection,
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


def selected(reader: RecordReader, head: Sequence[Any], options: SelectOptions) -> Selection:
    """What the prompts of a source are: the requests of a harness's log, or a part of each row."""
    named = options.fields or options.each or options.template is not None
    if not named and (log := recognise(head, reader)):
        return requests_of(log, options)
    return select(head, options, rows_at=reader.rows_at)


def select(head: Sequence[Any], options: SelectOptions, *, rows_at: str | None = None) -> Selection:
    """Decide what the prompt is, by the options or else by the first records.

    `rows_at` is the key under which a reader found the rows: with "examples", the path
    `examples[].input` means `input`.
    """
    if options.fields and options.template is not None:
        raise UsageError("--field and --template exclude each other", hint="use one of them")
    names = (*options.fields, *options.each, *options.choices)
    texts = (*names, options.template, options.output_field, options.prefix)
    if not paths.all_unicode(text for text in texts if text):
        raise UsageError("what was given for the prompt is no text", hint="write it as UTF-8")
    resolve = partial(_resolve, head=head, rows_at=rows_at)
    if options.each:
        return _each(head, options, rows_at)
    output = resolve(options.output_field, "--output-field") if options.output_field else None
    given = [
        name.strip()
        for text in options.choices
        # `A,B,C,D` are four fields, unless one is called so.
        for name in ([text] if text in keys_of(head) else text.split(","))
    ]
    choices = ChoiceList(tuple(resolve(name, "--choices") for name in given))
    unasked = find_choices(head) if not given and options.template is None else ()
    columns = [path.column for path in (*choices.paths, output) if path] + [*unasked]
    selection = _chosen(head, options, resolve, [name for name in columns if name])
    if given and selection.kind == "text":
        selection = with_choices(selection, choices)
    elif given:
        selection = replace(selection, notes=(*selection.notes, note("choices_unused")))
    elif unasked and selection.kind == "text":
        used = selection.columns
        if used is not None and not used & {*unasked}:
            lacking = note("choices_uncounted", fields=",".join(unasked))
            selection = replace(selection, uncounted=(*selection.uncounted, lacking))
    return _finished(selection, options.prefix, output)


Resolve = Callable[[str, str], FieldPath]


def _each(head: Sequence[Any], options: SelectOptions, rows_at: str | None) -> Selection:
    """As the options say, of records in which a list has become one of its elements."""
    lists: list[FieldPath] = []
    records = list(head)
    for name in options.each:
        lists.append(_resolve(name, "--each", head=records, rows_at=rows_at))
        elements: list[Any] = []
        for record in records:
            try:
                elements += spread(record, lists[-1:])
            except UnusableError:
                continue
        if records and not elements:
            raise UsageError(f"no record has a list at {name}", hint="--each takes a list")
        records = elements
    fields = options.fields if options.fields or options.template is not None else options.each[-1:]
    one = select(records, replace(options, each=(), fields=fields), rows_at=rows_at)
    return each_of(lists, one)


def _chosen(
    head: Sequence[Any], options: SelectOptions, resolve: Resolve, closed: Sequence[str]
) -> Selection:
    """By the template, by the fields, or by the first records; without prefix and output."""
    chat = partial(chat_of, rules=rules_of(options.vllm_version))
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
        if path.key and (columns := traces.columns_of(head, path.key)):
            return lengths_of(columns)
    return text_of(*fields)


def _finished(selection: Selection, prefix: str, output: FieldPath | None) -> Selection:
    """With what the options say of every prompt."""
    if isinstance(selection, EachSelection):
        one = _finished(selection.one, prefix, output)
        return replace(selection, one=one, output=output, notes=(*one.notes, *selection.notes))
    selection = replace(selection, output=output or selection.output)
    if prefix and selection.kind != "text":
        return replace(selection, notes=(*selection.notes, note("prefix_unused")))
    return replace(selection, prefix=prefix)


# --- the paths that a user wrote ------------------------------------------------------------------


def _resolve(text: str, option: str, *, head: Sequence[Any], rows_at: str | None) -> FieldPath:
    """A path, checked against the records there are."""
    objects = [record for record in head if isinstance(record, dict)]
    if any(text in record for record in objects):
        return FieldPath(text, (text,))
    path = parse_path(text)
    for name, taken in paths.spellings(path.steps):  # `a.b` may be one key
        if any(name in record for record in objects):
            path = replace(path, steps=(name, *path.steps[taken:]))
            break
    if not head or _exists(path, head):
        return path
    # `examples[].input` as seen from a row, when the rows are what `examples` holds.
    for outer in ((rows_at,), tuple(rows_at.split("."))) if rows_at else ():
        if path.steps[: len(outer) + 1] == (*outer, ...):
            inner = text.partition("[]")[2].removeprefix(".")
            path = replace(path, text=inner, steps=path.steps[len(outer) + 1 :])
            if _exists(path, head):
                return path
    raise _no_such_field(text, option, head)


def _exists(path: FieldPath, head: Sequence[Any]) -> bool:
    for record in head:
        try:
            path.get(record)
        except UnusableError:
            continue
        return True
    return False


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
