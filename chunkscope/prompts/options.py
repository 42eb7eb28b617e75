"""What the prompt is: as the options say, else a harness's log, else a guess."""

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_uppercase
from typing import Any, Literal

from chunkscope.artefacts.files import several
from chunkscope.artefacts.note import note
from chunkscope.console import printable
from chunkscope.errors import UsageError
from chunkscope.prompts import chat, paths
from chunkscope.prompts.guess import Guess, are_identifiers, is_prose
from chunkscope.prompts.harness import recognise_log
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    as_dict,
)
from chunkscope.prompts.paths import (
    RECORD,
    FieldPath,
    Steps,
    json_in,
    keys_of,
    parse_path,
)
from chunkscope.prompts.selection import (
    CHOICE_LISTS,
    Selection,
    chat_of,
    lengths_of,
    spread,
    template_of,
    text_of,
    trace_columns,
)
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import begins_a_chat
from chunkscope.sources.reader import RecordReader

PER_DATASET = (
    "fields",
    "each",
    "template",
    "choices",
    "output_field",
)  # or NAME=... for one
_MEDIA = r"(question_)?(image|img|audio|video)s?(_?(\d+|path|url|file|base64))?"
_UNTOLD = re.compile(rf"{_MEDIA}|involved_classes", re.I)  # BFCL's stand for tools
_DOCKER = re.compile(
    r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+|@sha256:\w+)"
)  # an image of a machine


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectOptions:
    """What the command line says about the prompt."""

    fields: tuple[str, ...] = ()
    each: tuple[str, ...] = ()  # lists that stand for so many prompts
    template: tuple[str, ...] | None = None  # the last one counts, as of output_field
    choices: tuple[str, ...] = ()
    task: Literal["generate", "loglikelihood"] = "generate"
    output_field: tuple[str, ...] | None = None
    log_model: str | None = None  # whose requests are counted, in a log of several

    def __post_init__(self) -> None:
        for name in PER_DATASET:
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, several(value))


def selected(
    reader: RecordReader,
    head: Sequence[Any],
    options: SelectOptions,
    earlier: dict[Any, Selection],
    *,
    prefix: str = "",
    counts_texts: bool = False,
) -> Selection:
    """A harness's requests, or a part of each row; `earlier` has selections of small files.

    `counts_texts`: also where a log has the server's own counts.
    """
    if reader.format == "csv":  # where lists and objects are texts
        head = [{name: json_in(cell) for name, cell in row.items()} for row in head]
    named = options.fields or options.each or options.template
    prefix = prefix or str(reader.metadata.get("task_prefix") or "") * (
        not named
    )  # BIG-bench's
    shape = shape_of(head, prefix, options)
    if shape in earlier:
        return earlier[shape]
    log = None
    if not named:
        start = LogStart(
            source=reader.source,
            format=reader.format,
            records=head,
            metadata=dict(reader.metadata),
            counts_texts=counts_texts,
            model=options.log_model,
        )
        log = recognise_log(start)
    if log is None:
        selection = select(head, options, prefix=prefix)
        if shape and selection.log is None:
            earlier[shape] = selection
        return selection
    given: dict[str, Any] = {"--prefix-file": prefix, "--choices": options.choices}
    given |= {"--output-field": options.output_field}
    return Selection(
        kind="requests",
        label=f"requests ({log.header.harness})",
        paths=(RECORD,),
        prompt=log.requests,
        log=log,
        notes=tuple(
            note("unused_with_log", option=name) for name in given if given[name]
        ),
    )


def shape_of(head: Sequence[Any], *given: Any) -> tuple[Any, ...]:
    """What is gone by in up to three records of texts and numbers; () for anything else."""
    if len(head) > 3 or not all(isinstance(record, dict) for record in head):
        return ()  # four texts may be labels
    cells = [cell for record in head for cell in record.items()]
    chars: dict[str, int] = {}
    for key, value in cells:
        chars[key] = chars.get(key, 0) + (len(value) if isinstance(value, str) else 0)
    sizes, shape = sorted({*chars.values()}), [*given, *map(len, head)]
    texts = [value.strip() for _, value in cells if isinstance(value, str)]
    shape += [text in other for text in texts for other in texts]
    for key, value in cells:
        shape += [key, type(value), bool(value)]
        if isinstance(value, str) and (text := value.strip())[:1] not in ("[", "{"):
            is_id = text.count(" ") < 2 and are_identifiers(
                [text]
            )  # none has two blanks
            shape += [sizes.index(chars[key]), is_prose(value), is_id, len(value) > 100]
            shape.append(value if len(value) < 2 else not text)  # a choice's letter?
        elif not isinstance(value, int | float | None):
            return ()
    return tuple(shape)


def select(
    head: Sequence[Any], options: SelectOptions, *, prefix: str = ""
) -> Selection:
    """By the options or else by the first records; `prefix` is put before every text."""
    if options.fields and options.template:
        raise UsageError(
            "--field and --template cannot be used together", hint="use one of them"
        )
    lists: list[FieldPath] = []
    for name in options.each:
        path = _resolve(name, "--each", head=head)
        lists.append(path)
        having = [
            record for record in head if isinstance(json_in(path.find(record)), list)
        ]
        elements = [element for record in having for element in spread(record, [path])]
        if head and not elements:
            raise UsageError(
                f"no record has a list at {name}", hint="--each takes a list"
            )
        head = elements
    resolve = partial(_resolve, head=head)
    output = [resolve(name, "--output-field") for name in options.output_field or ()]
    given = [name.strip() for text in options.choices for name in text.split(",")]
    unasked = () if given else find_choices(head)
    answers = [path.steps for path in (*map(parse_path, given), *unasked, *output)]
    selection = _chosen(head, options, answers)
    if (
        selection.lists
    ):  # by a guess: as if they had been named, for choices and the like inside
        each, named = (
            tuple(p.text for p in some) for some in (selection.lists, selection.paths)
        )
        whole = select(head, replace(options, each=each, fields=named), prefix=prefix)
        return replace(whole, notes=(*selection.notes, *whole.notes))
    choices = tuple(resolve(name, "--choices") for name in given)
    if options.task == "loglikelihood" and not given:
        choices, unasked = unasked, ()
    notes, uncounted, answered, systems = (
        [*selection.notes],
        [*selection.uncounted],
        0,
        0,
    )
    is_text = selection.kind == "text"
    for record in head if selection.kind == "chat" else ():
        with suppress(DataError, RecursionError):
            sent = selection.prompt(record).messages
            answered += sent[-1]["role"] == "assistant"
            systems += sent[0]["content"] in filter(
                None, map(as_dict(record).get, chat.SYSTEMS)
            )
    notes += [note("system_counted")] if systems else []
    notes += [note("answers_counted")] if answered * 2 > len(head) else []
    turns = FieldPath((*selection.paths[0].steps[:-1], "role")) if is_text else RECORD
    notes += [note("turns_counted")] if "assistant" in map(turns.find, head) else []
    for path in (FieldPath((key,)) for key in keys_of(head) if _UNTOLD.fullmatch(key)):
        values = [str(value) for value in map(path.find, head) if value]
        if not all(map(_DOCKER.fullmatch, values)):
            notes.append(note("not_counted", field=path.text))
    if not is_text:
        given_texts = {"--choices": choices, "the prefix": prefix}
        notes += [
            note("unused_with_chat", what=what)
            for what, text in given_texts.items()
            if text
        ]
        prefix, choices = "", ()
    elif choices:
        selection = with_choices(selection, choices)
    elif unasked and not _holds_choices(selection, unasked, head):
        fields = ",".join(path.text for path in unasked)
        uncounted.append(note("choices_uncounted", fields=fields))
    selection = replace(
        selection, prefix=prefix, output=[selection.output, *output][-1]
    )
    if output:
        lengths = are_lengths([output[-1].find(record) for record in head])
        selection = replace(selection, outputs_are_lengths=lengths)
    if options.task == "loglikelihood" and choices:
        log = ScoredRows(replace(selection, output=None), choices)
        selection = replace(
            log.selection, kind="requests", prompt=log.requests, log=log, prefix=""
        )
    elif options.task == "loglikelihood":
        notes.append(note("nothing_to_score"))
    label = (
        selection.label
        + ", each of " * bool(lists)
        + ", ".join(path.text for path in lists)
    )
    return replace(
        selection,
        label=label,
        lists=tuple(lists),
        notes=tuple(notes),
        uncounted=tuple(uncounted),
    )


def are_lengths(values: Sequence[Any]) -> bool:
    """Whether all values that there are, are whole numbers: of tokens, not texts to count."""
    given = [value for value in values if value not in (None, "")]
    for value in given:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and value.strip().isdecimal()):
            return False
    return bool(given)


def _chosen(
    head: Sequence[Any], options: SelectOptions, answers: Sequence[Steps]
) -> Selection:
    """By the template, by the fields, or by the first records; without prefix and output."""
    resolve = partial(_resolve, head=head)
    for text in (options.template or ())[-1:]:
        parts = paths.parse_template(text, lambda name: resolve(name, "--template"))
        if all(isinstance(part, str) for part in parts):
            raise UsageError(
                "the template names no field", hint="write --template 'Q: {question}'"
            )
        return template_of(parts)
    names = options.fields or options.each[-1:]
    if not names:
        return Guess(head, answers).best()
    fields = [resolve(text, "--field") for text in names]
    for path in fields if len(fields) == 1 else ():
        chats = sum(begins_a_chat(json_in(path.find(record))) for record in head)
        if chats * 2 > len(head):
            return chat_of(path)
        *above, name = path.steps
        columns = trace_columns(
            [as_dict(FieldPath((*above,)).find(record)) for record in head]
        )
        if columns and columns.prompt == name:
            return lengths_of(columns, head, (*above,))
    return text_of(*fields)


def _resolve(text: str, option: str, *, head: Sequence[Any]) -> FieldPath:
    """A path, checked against the records there are; `a.b` may be one key."""
    path = FieldPath((text,)) if text in keys_of(head) else parse_path(text)
    for record in head:
        with suppress(DataError):
            path.get(record)
            return path
    if not head:
        return path
    fields = paths.leaves(head)
    known = [
        *(leaf.path for leaf in fields),
        *(FieldPath((key,)) for key in keys_of(head)),
    ]
    names = {path.text.lower(): printable(path.text) for path in known}
    given = {"field": text, "option": option, **paths.field_table(fields)}
    for near in difflib.get_close_matches(text.lower(), list(names))[:1]:
        name = f"{{{names[near]}}}" if option == "--template" else names[near]
        raise DataError("no_field", **given, cause="near", near=shlex.quote(name))
    raise DataError("no_field", **given)


# --- choices --------------------------------------------------------------------------------------

# `A`, `choice_a`, `option1`, `opa`: one column for each. A bare letter has to be a capital.
_COLUMN = re.compile(
    r"(?P<name>(?i:choice|option|opt?|(?:mc_)?answer|ans|sol|ending|holding)[_ ]?)[a-jA-J0-9]|[A-J]"
)
# GPQA's and SciQ's: the right one and the others, which an evaluation shuffles.
_RIGHT_OR_WRONG = re.compile(
    r"(?:in)?correct[_ ]answer[_ ]?\d?|distractor[_ ]?\d", re.IGNORECASE
)
_SURE_NAMES = {
    "choice",
    "option",
    "sol",
    "ending",
}  # two columns of another name may be anything
# Beside answers that are choices: which of them is right. FreshQA's `answer_0` are all right.
_SAYS_WHICH = re.compile(
    r"label|correct|gold|right|target|answer([_ ]?(key|idx|index))?$", re.I
)

# The fields that hold the choices of a question: one with all of them, or one for each.
Choices = tuple[FieldPath, ...]


def choice_lines(choices: Choices, record: Any) -> str:
    """What comes after the question, as MMLU's own evaluation, lm-eval and OpenCompass write it.
    Raises DataError.

    >>> choice_lines((FieldPath(("choices",)),), {"choices": ["yes", "no"]})
    '\\nA. yes\\nB. no\\nAnswer:'
    """
    pairs = labelled(choices, record)
    has_labels = all(re.match(rf"\s*\(?{re.escape(a)}[).:]", text) for a, text in pairs)
    lines = (text if has_labels else f"{label}. {text}" for label, text in pairs)
    return "".join(f"\n{line}" for line in lines) + "\nAnswer:"


def labelled(choices: Choices, record: Any) -> list[tuple[str, str]]:
    """Each choice after its letter, which is what a model is asked for: of a list, of ARC's
    {text, label}, of [{text, label}], of {A: ...}, or of a field for each."""
    values = [path.get(record) for path in choices]
    texts: Any = (
        [v for v in values if v not in (None, "")]
        if choices[1:]
        else json_in(values[0])
    )
    labels: Any = None
    if isinstance(texts, dict) and isinstance(texts.get("text"), list):
        texts, labels = texts["text"], texts.get("label")
    elif isinstance(texts, dict):
        texts, labels = list(texts.values()), list(texts)
    elif isinstance(texts, list) and all(isinstance(choice, dict) for choice in texts):
        texts, labels = (
            [choice.get(key) for choice in texts] for key in ("text", "label")
        )
    fields = ",".join(path.text for path in choices)
    if not isinstance(texts, list):
        raise paths.wrong_type(texts, fields, "list")
    if not isinstance(labels, list) or len(labels) != len(texts) or None in labels:
        labels = [*ascii_uppercase[: len(texts)]]
    for odd in (
        x for x in (*labels, *texts) if isinstance(x, bool | list | dict) or x is None
    ):
        raise paths.wrong_type(odd, f"{fields}[]", "text")
    if not 2 <= len(texts) == len(labels):
        raise DataError("choices", field=fields, count=len(texts))
    return [(str(label), str(text)) for label, text in zip(labels, texts, strict=True)]


def find_choices(head: Sequence[Any]) -> Choices:
    """The fields that look like the choices of the question beside them; none if there are none.

    >>> [path.text for path in find_choices([{"A": "x", "B": "y", "C": "z", "answer": "B"}])]
    ['A', 'B', 'C']
    """
    objects = [record for record in head if isinstance(record, dict)]
    keys = list(dict.fromkeys(key for record in objects for key in record))
    lists = (*CHOICE_LISTS, *["answers"] * ("label" in keys))  # ReClor's
    likely = [[FieldPath((key,))] for key in keys if key.lower() in lists]
    for key, inner in objects[0].items() if objects else ():
        # ARC's own files: the question is an object that has them.
        inside = inner if isinstance(inner, dict) else ()
        likely += [[FieldPath((key, name))] for name in CHOICE_LISTS if name in inside]
    # MMLU's own files have no header: a question, its choices, and the letter of the answer.
    letters = [*ascii_uppercase[: len(keys) - 2]]
    is_bare = len(keys) > 2 and keys == [f"column{place}" for place in range(len(keys))]
    has_letters = is_bare and all(record.get(keys[-1]) in letters for record in objects)
    columns = {
        "right or wrong": list(filter(_RIGHT_OR_WRONG.fullmatch, keys)),
        "no header": keys[1:-1] if has_letters else [],
    }
    for key in keys:
        if match := _COLUMN.fullmatch(key):
            columns.setdefault(match["name"] or "", []).append(key)
    for name, names in columns.items():
        if name.lower().startswith("ans") and not any(map(_SAYS_WHICH.match, keys)):
            continue
        if len(names) >= (2 if name.lower().rstrip("_ ") in _SURE_NAMES else 3):
            likely.append([FieldPath((key,)) for key in names])
    for choices in map(tuple, likely):
        count = 0
        for record in objects:
            with suppress(DataError):
                count += bool(labelled(choices, record))
        if count * 2 > len(head):
            return choices
    return ()


def with_choices(question: Selection, choices: Choices) -> Selection:
    return replace(
        question,
        label=f"{question.label} + choices",
        paths=(*question.paths, *choices),
        prompt=lambda record: (
            question.prompt(record).strip() + choice_lines(choices, record)
        ),
        is_plain=False,
    )


def _holds_choices(selection: Selection, choices: Choices, head: Sequence[Any]) -> bool:
    """Whether most prompts hold the choices already, as a set of formatted questions does."""
    count = 0
    for record in head:
        with suppress(DataError, RecursionError):
            prompt = selection.prompt(record)
            count += all(text in prompt for _, text in labelled(choices, record))
    return count * 2 > len(head)


class ScoredRows(HarnessLog):
    """Plain rows, for each of whose choices a likelihood is asked."""

    def __init__(self, selection: Selection, choices: Choices) -> None:
        super().__init__(LogHeader(harness="rows", order="as read"))
        self.selection, self.choices = selection, choices

    def requests(self, row: Any) -> Iterator[SentRequest]:
        """As lm-eval sends MMLU: the letter of each choice after the whole question."""
        context = self.selection.prefix + self.selection.prompt(row)
        for label, _ in labelled(self.choices, row):
            yield SentRequest(
                prompt=context,
                continuation=f" {label}",
                kind="likelihood",
                special_tokens=True,
            )
        self.add_document()
