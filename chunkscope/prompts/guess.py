"""The prompt's field where nobody names it: by the first records of the dataset alone.

In this order: whole texts and chats, well-known evaluation sets by their keys, an
ordered table of field names, other chats, traces, the only text column. Else an error
lists the fields.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.console import printable
from chunkscope.prompts.fields import (
    Field,
    are_identifiers,
    are_labels,
    are_prose,
    field_table,
    fields_of,
    is_chat,
    keys_of,
)
from chunkscope.prompts.paths import RECORD, FieldPath, Steps, parse_path
from chunkscope.prompts.prompt import (
    BATCH_INPUT,
    BATCH_MESSAGES,
    ChatReader,
    FieldTexts,
    PromptReader,
    TextReader,
    TraceReader,
)
from chunkscope.prompts.traces import find_trace
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import begins_a_chat

# Where conversations and request bodies are; these go before all texts.
CHAT_FIELDS: tuple[Steps, ...] = (
    ("messages",), BATCH_MESSAGES, BATCH_INPUT, ("conversations",), ("conversation",),
)  # fmt: skip
# Fields that hold the prompt, surest first. Many sets spell them with a capital.
TEXT_FIELDS = (
    "prompt", "question", "input", "inputs", "text", "instruction", "query", "problem",
    "problem_statement", "user_prompt", "task", "content", "sentence", "turns",
    "prompts", "questions", "goal", "intent", "premise", "ctx", "passage", "document",
    "article", "context", "story", "dialogue", "behavior",
)  # fmt: skip
PROMPT = "prompt"
# Inside an object of such a name, what is asked.
INNER_FIELDS = ("text", "stem", "content", "question", "prompt", "value")
# Parts of names of fields that hold what the model should say, or that no prompt is
# made of.
OTHER_FIELDS = re.compile(
    "(answer|output|target|response|solution|completion|label|reference|explanation"
    "|rationale|test|gold(en)?|expected|chosen|rejected|generated|generation|prediction"
    "|canary|metadata|id|uuid|url|hash|cot|hint|patch|diff|score|summary|feedback"
    "|file(name)?|path|date|version|type|difficulty|title|tag|author|license|log|name"
    "|error|model|reasoning|rubric|criteria|checklist|grading|thinking|proof|code)s?"
)
FEWEST_BREAKS = 9  # between the lines of a text each of which may be a prompt
LONG_CODE = 100  # characters: a longer word is encoded, and no prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSet:
    """A public evaluation set, recognised by its keys."""

    keys: frozenset[str]
    fields: tuple[FieldPath, ...]
    each: tuple[str, ...]  # lists that have to be named
    left_out: str | None  # what an evaluation sends, too


@cache
def known_sets() -> tuple[KnownSet, ...]:
    rows = json.loads(Path(__file__).with_name("known_sets.json").read_bytes())
    sets = []
    for row in rows:
        known_set = KnownSet(
            keys=frozenset(row["keys"]),
            fields=tuple(parse_path(field) for field in row["fields"]),
            each=tuple(row.get("each", ())),
            left_out=row.get("left_out"),
        )
        sets.append(known_set)
    return tuple(sets)


def is_no_prompt(name: str) -> bool:
    """Whether a name speaks of an answer, an identifier or something about the row."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    parts = re.findall(r"[a-z]+", spaced.lower())
    return any(OTHER_FIELDS.fullmatch(part) for part in parts)


def guess_prompt(head: Sequence[Any]) -> PromptReader:
    """The reader for records of this form. Raises DataError with the fields that there
    are.
    """
    guess = _Guess(head)
    for reader in guess.readers():
        return reader
    raise guess.error()


class _Guess:
    def __init__(self, head: Sequence[Any]) -> None:
        self.head = head
        self.fields = {field.path.steps: field for field in fields_of(head)}
        self.keys = keys_of(head)

    def readers(self) -> Iterator[PromptReader]:
        """Readers that fit most of the records, the surest first."""
        yield from self._whole_records()
        for steps in CHAT_FIELDS:
            yield from self._chat(steps)
        for name in self._names()[:1]:
            if name.lower() == PROMPT:  # whatever stands beside it
                yield from self._named(name, may_be_word=False)
        yield from self._known_sets()
        for steps in (("body", "prompt"), BATCH_INPUT):
            yield from self._text(steps, may_be_word=True)
        for name in self._names():
            yield from self._named(name, may_be_word=False)
        for steps in sorted(self.fields, key=len):
            if not is_no_prompt(self.fields[steps].name):
                yield from self._chat(steps)
        trace = find_trace(self.head)
        if trace is not None:
            yield TraceReader(trace)
        yield from self._only_text()
        for name in self._names():
            yield from self._named(name, may_be_word=True)
        yield from self._seldom_texts()

    def _is_most(self, count: int) -> bool:
        return count > 0 and count * 2 >= len(self.head)

    def _names(self) -> list[str]:
        """The keys that are in the table of names, in its order."""
        by_name: dict[str, str] = {}
        for key in self.keys:
            by_name.setdefault(key.lower(), key)
        return [by_name[name] for name in TEXT_FIELDS if name in by_name]

    def _whole_records(self) -> Iterator[PromptReader]:
        texts = [record for record in self.head if isinstance(record, str)]
        chats = [record for record in self.head if begins_a_chat(record)]
        if self._is_most(len(texts)):
            label = "whole file" if len(self.head) == 1 else "line"
            reader = TextReader(FieldTexts((RECORD,)), label=label)
            text = texts[0].strip()
            is_list = text.count("\n") >= FEWEST_BREAKS
            if len(self.head) == 1 and is_list and not re.search(r"\n\s*\n", text):
                reader.notes = (note("lines_together", count=text.count("\n") + 1),)
            yield reader
        elif self._is_most(len(chats)):
            yield ChatReader(RECORD)

    def _known_sets(self) -> Iterator[PromptReader]:
        for known_set in known_sets():
            if not known_set.keys.issubset(self.keys):
                continue
            path = known_set.fields[0]
            values = [value for value in map(path.find, self.head) if value]
            chats = [value for value in values if is_chat(value)]
            if known_set.each:
                if self._has_lists(known_set.each):
                    raise self.error(_options(known_set.fields, known_set.each))
            elif self._is_most(len(chats)):
                yield ChatReader(path)
            elif self._is_most(sum(isinstance(value, str) for value in values)):
                reader = TextReader(FieldTexts(known_set.fields, asks=0))
                reader.uncounted = self._left_out(known_set)
                yield reader

    def _has_lists(self, names: Sequence[str]) -> bool:
        path = parse_path(names[0])
        return any(isinstance(path.find(record), list) for record in self.head)

    def _left_out(self, known_set: KnownSet) -> tuple[Note, ...]:
        if known_set.left_out is not None:
            path = parse_path(known_set.left_out)
            if any(path.find(record) for record in self.head):
                return (left_out(known_set.left_out, known_set.fields),)
        return self._others(known_set.fields)

    def _chat(self, steps: Steps) -> Iterator[PromptReader]:
        field = self.fields.get(steps)
        if field is not None and self._is_most(field.chats) and not field.in_list:
            yield ChatReader(field.path)
        urls = 0
        if steps == BATCH_INPUT:  # of /v1/responses, where the input may be a text
            for record in self.head:
                is_body = FieldPath(BATCH_INPUT).find(record) is not None
                if is_body and str(record.get("url")).endswith("/responses"):
                    urls += 1
        if self._is_most(urls):
            yield ChatReader(FieldPath(BATCH_INPUT))

    def _named(self, name: str, *, may_be_word: bool) -> Iterator[PromptReader]:
        """A field of the table of names, or what is asked inside it."""
        yield from self._chat((name,))
        yield from self._text((name,), may_be_word=may_be_word)
        for key in INNER_FIELDS:
            yield from self._text((name, key), may_be_word=may_be_word)
        first = FieldPath((name, 0))
        texts = [first.find(record) for record in self.head]
        if self._is_most(sum(isinstance(text, str) for text in texts)):
            reader = TextReader(FieldTexts((first,)))
            second = FieldPath((name, 1))
            if any(second.find(record) for record in self.head):
                use = [f"--each={name}"]
                more = note("first_counted", counted=first.text, beside=[], use=use)
                reader.uncounted = (more,)
            yield reader

    def _text(self, steps: Steps, *, may_be_word: bool) -> Iterator[PromptReader]:
        field = self.fields.get(steps)
        if field is None or not field.texts or not self._is_most(field.strings):
            return
        is_word = are_identifiers(field.texts) or are_labels(field.texts)
        if _are_encoded(field.texts) or (is_word and not may_be_word):
            return
        yield self._reader(field)

    def _seldom_texts(self) -> Iterator[PromptReader]:
        """A field of a sure name, though most rows have something else in it."""
        for name in self._names():
            field = self.fields.get((name,))
            if field is not None and field.texts and not _are_encoded(field.texts):
                yield self._reader(field)

    def _reader(self, field: Field) -> TextReader:
        reader = TextReader(FieldTexts((field.path,)))
        reader.uncounted = self._others((field.path,))
        return reader

    def _only_text(self) -> Iterator[PromptReader]:
        """The only column of text, or the longest of a table without a header."""
        columns = []
        for field in self.fields.values():
            if len(field.path.steps) == 1 and self._is_most(len(field.texts)):
                columns.append(field)
        if self.keys and all(re.fullmatch(r"column\d+", key) for key in self.keys):
            yield from self._without_header(columns)
            return
        likely = [field for field in columns if _may_be_prompt(field)]
        if len(self.head) == 1 and self._longest_likely() not in (*likely, None):
            return  # a message beside the rows of a document
        if len(likely) == 1 and (are_prose(likely[0].texts) or len(columns) == 1):
            yield self._reader(likely[0])

    def _without_header(self, columns: Sequence[Field]) -> Iterator[PromptReader]:
        """The longest column of a table that names none."""
        longest = max(columns, key=attrgetter("chars"), default=None)
        if longest is not None:
            reader = TextReader(FieldTexts((longest.path,)))
            reader.notes = (note("no_header", field=longest.path.text),)
            yield reader

    def _others(self, counted: Sequence[FieldPath]) -> tuple[Note, ...]:
        """The longest text that is not counted, if it is longer than what is."""
        fields = [
            self.fields[path.steps] for path in counted if path.steps in self.fields
        ]
        chars = sum(field.chars for field in fields)
        longest: Field | None = None
        for field in self.fields.values():
            if (
                field in fields
                or not _may_be_prompt(field)
                or not are_prose(field.texts)
            ):
                continue
            if field.chars > chars and not _contains(fields, field):
                longest = field
                chars = field.chars
        if longest is None:
            return ()
        return (left_out(printable(longest.path.text), counted),)

    def error(self, likely: str = "") -> DataError:
        """That no field is surely the prompt; with the options to type, where one is
        likely.
        """
        if not self.fields:
            return DataError("no_fields")
        table = field_table(list(self.fields.values()))
        if not likely:
            longest = self._longest_likely()
            if longest is None:
                return DataError("unknown_prompt", **table)
            likely = _options(*self._of_one(longest.path))
        return DataError("unknown_prompt", **table, cause="likely", likely=likely)

    def _longest_likely(self) -> Field | None:
        """The field with the most text, preferably one that may be a prompt."""
        fields = []
        for field in self.fields.values():
            if are_prose(field.texts) or field.chats:
                fields.append(field)
        named = [field for field in fields if _may_be_prompt(field)]
        return max(named or fields, key=attrgetter("chars"), default=None)

    def _of_one(self, path: FieldPath) -> tuple[tuple[FieldPath, ...], tuple[str, ...]]:
        """Of a document whose rows are in a list: the field of a row, and the lists."""
        if len(self.head) > 1 or ... not in path.steps[:-1]:
            return (path,), ()
        steps: list[Any] = []
        lists: list[str] = []
        for step in path.steps:
            if step is ...:
                lists.append(FieldPath(tuple(steps)).text)
            else:
                steps.append(step)
        return (FieldPath(tuple(steps)),), tuple(lists)


def _are_encoded(texts: Sequence[str]) -> bool:
    return are_identifiers(texts) and min(len(text) for text in texts) > LONG_CODE


def _may_be_prompt(field: Field) -> bool:
    if is_no_prompt(field.name) or not field.texts:
        return False
    return not are_identifiers(field.texts) and not are_labels(field.texts)


def _contains(fields: Sequence[Field], other: Field) -> bool:
    """Whether a text is in the others already, as a question in a prompt."""
    for field in fields:
        if field.texts and other.texts:
            first = field.texts[0].strip()
            second = other.texts[0].strip()
            if second in first:
                return True
    return False


def left_out(beside: str, counted: Sequence[FieldPath]) -> Note:
    """That an evaluation probably sends another text, too, and the options that count
    it.
    """
    names = [path.text for path in counted]
    use = [f"--field={name}" for name in (beside, *names)]
    return note("left_out", counted=" + ".join(names), beside=[beside], use=use)


def _options(fields: Sequence[FieldPath], lists: Sequence[str]) -> str:
    """What to type after --field."""
    text = " --field ".join(shlex.quote(printable(path.text)) for path in fields)
    for name in lists:
        text += f" --each {shlex.quote(printable(name))}"
    return text
