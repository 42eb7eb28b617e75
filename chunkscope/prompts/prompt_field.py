"""Which part of a record is the prompt: as asked for, or found by looking at the first records."""

import difflib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from chunkscope.errors import InputError, UsageError
from chunkscope.prompts import traces
from chunkscope.prompts.candidates import find_prompt, keys_of, most_fit
from chunkscope.prompts.chat import looks_like_messages, messages_of
from chunkscope.prompts.choices import ChoiceList, find_choices
from chunkscope.prompts.each import each, spread_head
from chunkscope.prompts.fields import (
    FieldPath,
    UnusableError,
    all_unicode,
    escape,
    field_table,
    leaves,
    parse_path,
    parse_template,
    quote_key,
    spellings,
)
from chunkscope.prompts.harness.known import recognise
from chunkscope.prompts.harness.selection import of_log
from chunkscope.prompts.selection import Selection, SelectionBuilder, SelectOptions
from chunkscope.prompts.server_rules import rules_of
from chunkscope.sources.reader import RecordReader


def selected(reader: RecordReader, head: Sequence[Any], options: SelectOptions) -> Selection:
    """What the prompts of a source are: the requests of a harness's log, or a part of each row."""
    asked = options.fields or options.each or options.template is not None
    if not asked and (log := recognise(head, reader)):
        return of_log(log, options)
    return select(head, options, rows_at=reader.rows_at)


def select(head: Sequence[Any], options: SelectOptions, *, rows_at: str | None = None) -> Selection:
    """Decide what the prompt is, by the options or else by the first records.

    `rows_at` is the key under which a reader found the rows: with "examples", the path
    `examples[].input` means `input`.
    """
    if options.fields and options.template is not None:
        raise UsageError("--field and --template exclude each other", hint="use one of them")
    given = (
        *options.fields,
        *options.each,
        *options.choices,
        options.template,
        options.output_field,
    )
    if not all_unicode(text for text in (*given, options.prefix) if text):
        raise UsageError("what was given for the prompt is no text", hint="write it as UTF-8")
    if options.each:
        return _one_by_one(head, options, rows_at)
    resolve = partial(_resolve, head=head, rows_at=rows_at)
    build = SelectionBuilder(
        prefix=options.prefix,
        chat_kind="chat" if options.chat else "text",
        output=resolve(options.output_field) if options.output_field is not None else None,
        rules=rules_of(options.vllm_version),
    )
    if not options.choices:
        return _without_choices(head, options, build, resolve)
    choices = ChoiceList(tuple(map(resolve, _names_of_choices(options.choices, head))))
    build = replace(build, choices=frozenset(path.column for path in choices.paths))
    question = _asked_for(head, options, replace(build, prefix=""), resolve)
    if question.kind == "text":
        return build.with_choices(question, choices)
    note = "the choices were not used: they go after text prompts only"
    return _noted(_asked_for(head, options, build, resolve), note)


Resolve = Callable[[str], FieldPath]


def _one_by_one(head: Sequence[Any], options: SelectOptions, rows_at: str | None) -> Selection:
    """As the options say, of records in which a list has become one of its elements."""
    lists: list[FieldPath] = []
    records = list(head)
    for name in options.each:
        lists.append(_resolve(name, head=records, rows_at=rows_at))
        records = spread_head(records, lists[-1:])
    fields = options.fields if options.fields or options.template is not None else options.each[-1:]
    one = select(records, replace(options, each=(), fields=fields), rows_at=rows_at)
    return each(lists, one)


def _asked_for(
    head: Sequence[Any],
    options: SelectOptions,
    build: SelectionBuilder,
    resolve: Resolve,
) -> Selection:
    if options.template is not None:
        parts = parse_template(options.template, resolve)
        if not any(isinstance(part, FieldPath) for part in parts):
            raise UsageError(
                "the template names no field", hint="write --template 'Question: {question}'"
            )
        return build.template(parts)
    if options.fields:
        return _by_fields(head, build, [resolve(text) for text in options.fields])
    return find_prompt(head, build)


def _names_of_choices(given: Sequence[str], head: Sequence[Any]) -> list[str]:
    """`A,B,C,D` are four fields, unless one is called so."""
    keys = keys_of(head)
    return [
        name.strip() for text in given for name in ([text] if text in keys else text.split(","))
    ]


def _without_choices(
    head: Sequence[Any], options: SelectOptions, build: SelectionBuilder, resolve: Resolve
) -> Selection:
    """With a note where it is a multiple-choice question of which the choices are left out."""
    choices = find_choices(head) if options.template is None else ()
    build = replace(build, choices=frozenset(choices)) if choices else build
    selection = _asked_for(head, options, build, resolve)
    columns = selection.columns
    if not choices or selection.kind != "text" or columns is None or columns & {*choices}:
        return selection
    said = (
        "multiple choice without its choices: an evaluation sends them too, see --choices "
        + shlex.quote(",".join(choices))
    )
    return replace(selection, left_out=(*selection.left_out, said))


def _noted(selection: Selection, note: str) -> Selection:
    return replace(selection, notes=(*selection.notes, note))


def _by_fields(
    head: Sequence[Any], build: SelectionBuilder, paths: Sequence[FieldPath]
) -> Selection:
    if len(paths) == 1:
        path = paths[0]
        if most_fit(head, lambda record: looks_like_messages(messages_of(path.find(record)))):
            return build.chat(path)
        if path.key and traces.is_trace_name(path.key) and traces.is_mostly_lengths(head, path.key):
            return build.lengths(path, traces.columns_beside(head, path.key))
    return build.text(*paths)


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
            return replace(path, steps=(name, *path.steps[taken:]))
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
            text = path.text.partition("[]")[2].removeprefix(".")
            return replace(path, text=text, steps=inner)
    return None


def _no_such_field(text: str, head: Sequence[Any]) -> InputError:
    if not any(isinstance(record, dict) for record in head):
        return InputError(
            f'no field "{escape(text)}": the records are plain values, not objects with fields',
            hint="leave --field and --template out",
        )
    known = {path.lower(): escape(path) for path in leaves(head)}
    known |= {str(key).lower(): escape(quote_key(str(key))) for key in keys_of(head)}
    close = difflib.get_close_matches(text.lower(), list(known), n=1)
    return InputError(
        f'no record has a field "{escape(text)}"; there are:\n{field_table(head)}',
        hint=f"did you mean --field {shlex.quote(known[close[0]])}?"
        if close
        else "name one of them with --field",
    )
