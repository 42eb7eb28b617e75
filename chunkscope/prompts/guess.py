"""The prompt's field where nobody names it: by the first records of the dataset alone.

In this order: whole texts and chats, well-known evaluation sets by their keys, an
ordered table of field names, other chats, traces, the only text column. Else an error
lists the fields.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.console import printable
from chunkscope.prompts.fields import Field, field_table, fields_of, is_chat, keys_of
from chunkscope.prompts.paths import RECORD, FieldPath, Step, Steps, parse_path
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

# Where conversations are; these go before all texts.
CHAT_FIELDS = (
    ("messages",), BATCH_MESSAGES, BATCH_INPUT, ("conversations",), ("conversation",),
)  # fmt: skip
# Of requests to /v1/completions and /v1/embeddings.
BATCH_TEXTS = (("body", "prompt"), BATCH_INPUT)
# Fields that hold the prompt, surest first. Many sets spell them with a capital.
TEXT_FIELDS = (
    "prompt", "question", "input", "inputs", "text", "instruction", "query", "problem",
    "problem_statement", "user_prompt", "task", "content", "sentence", "goal", "intent",
    "premise", "ctx", "passage", "document", "article", "context", "story", "dialogue",
    "behavior",
)  # fmt: skip
# Parts of names of fields that hold what the model should say, or that no prompt is
# made of.
OTHER_FIELDS = re.compile(
    "(answer|output|target|response|solution|completion|label|reference|explanation"
    "|rationale|test|gold(en)?|expected|chosen|rejected|generated|generation|prediction"
    "|canary|metadata|id|uuid|url|hash|cot|hint|patch|diff|score|summary|feedback"
    "|file(name)?|path|date|version|type|difficulty|title|tag|author|license|log|name"
    "|error|model|choice|option|reasoning|rubric|criteria|checklist|grading|thinking"
    "|proof|code)s?"
)
PROMPT = "prompt"
LONG_WORD = 100  # characters: a longer one is encoded, and no prompt
FEWEST_BREAKS = 9  # between the lines of a text each of which may be a prompt


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
    return Guess(head).reader()


class Guess:
    def __init__(self, head: Sequence[Any]) -> None:
        self.head = head
        self.fields = {field.path.steps: field for field in fields_of(head)}
        self.keys: dict[str, str] = {}  # by their lower case
        for key in keys_of(head):
            self.keys.setdefault(key.lower(), key)

    def reader(self) -> PromptReader:
        """The surest that fits most of the records."""
        steps: tuple[Callable[[], PromptReader | None], ...] = (
            self.whole_records,
            self.usual_chat,
            self.known_set,
            self.named_text,
            self.any_chat,
            self.trace,
            self.only_text,
            self.named_word,
        )
        for step in steps:
            reader = step()
            if reader is not None:
                return reader
        raise self.error()

    def is_most(self, count: int) -> bool:
        return count > 0 and count * 2 >= len(self.head)

    # --- the steps --------------------------------------------------------------------

    def whole_records(self) -> PromptReader | None:
        texts = [record for record in self.head if isinstance(record, str)]
        if self.is_most(sum(begins_a_chat(record) for record in self.head)):
            return ChatReader(RECORD)
        if not self.is_most(len(texts)):
            return None
        name = "whole file" if len(self.head) == 1 else "line"
        reader = TextReader(FieldTexts((RECORD,)), name=name)
        breaks = texts[0].strip().count("\n")
        if len(self.head) == 1 and breaks >= FEWEST_BREAKS and "\n\n" not in texts[0]:
            reader.notes = (note("lines_together", count=breaks + 1),)
        return reader

    def usual_chat(self) -> PromptReader | None:
        for steps in CHAT_FIELDS:
            if self.is_chat(steps):
                return ChatReader(FieldPath(steps))
        if BATCH_INPUT in self.fields:  # /v1/responses takes a text for a message
            urls = [FieldPath(("url",)).find(record) for record in self.head]
            if self.is_most(sum(str(url).endswith("/responses") for url in urls)):
                return ChatReader(FieldPath(BATCH_INPUT))
        return None

    def known_set(self) -> PromptReader | None:
        if PROMPT in self.keys:  # which is the prompt, whatever stands beside
            return None
        for known_set in known_sets():
            if known_set.keys.issubset(self.keys.values()):
                reader = self.reader_of(known_set)
                if reader is not None:
                    return reader
        return None

    def reader_of(self, known_set: KnownSet) -> PromptReader | None:
        """None where the rows are not those of the set."""
        if known_set.each:
            path = parse_path(known_set.each[0])
            if any(isinstance(path.find(record), list) for record in self.head):
                raise self.error(options(known_set.fields, known_set.each))
            return None
        path = known_set.fields[0]
        values = [value for value in map(path.find, self.head) if value]
        if self.is_most(sum(is_chat(value) for value in values)):
            return ChatReader(path)
        if not self.is_most(sum(isinstance(value, str) for value in values)):
            return None
        reader = TextReader(FieldTexts(known_set.fields, asks=0))
        reader.uncounted = self.left_out_of(known_set)
        return reader

    def left_out_of(self, known_set: KnownSet) -> tuple[Note, ...]:
        first = known_set.fields[0]
        if first.steps[-1] == 0:  # MT-Bench's first question
            following = FieldPath((*first.steps[:-1], 1))
            if any(following.find(record) for record in self.head):
                use = [f"--each={FieldPath(first.steps[:-1]).text}"]
                return (note("first_counted", counted=first.text, beside=[], use=use),)
        if known_set.left_out is not None:
            path = parse_path(known_set.left_out)
            if any(path.find(record) for record in self.head):
                return (left_out(known_set.left_out, known_set.fields),)
        return self.longer_text(known_set.fields)

    def named_text(self) -> PromptReader | None:
        for steps in (*BATCH_TEXTS, *self.named()):
            if self.is_chat(steps):
                return ChatReader(FieldPath(steps))
            if self.is_text(steps) and self.fields[steps].is_prose:
                return self.text_reader(steps)
        return None

    def any_chat(self) -> PromptReader | None:
        for steps in sorted(self.fields, key=len):
            if self.is_chat(steps) and not is_no_prompt(self.fields[steps].name):
                return ChatReader(FieldPath(steps))
        return None

    def trace(self) -> PromptReader | None:
        trace = find_trace(self.head)
        return None if trace is None else TraceReader(trace)

    def only_text(self) -> PromptReader | None:
        """The only column that may be the prompt, unless a text inside is longer."""
        likely = [field for field in self.fields.values() if may_be_prompt(field)]
        columns = [field for field in likely if len(field.path.steps) == 1]
        longest = max(likely, key=attrgetter("chars"), default=None)
        if len(columns) == 1 and self.is_text(columns[0].path.steps):
            if columns[0] is longest:
                return self.text_reader(columns[0].path.steps)
        return None

    def named_word(self) -> PromptReader | None:
        """A field of the table whose texts are single words, or seldom texts at all."""
        for steps in (*BATCH_TEXTS, *self.named()):
            field = self.fields.get(steps)
            if field is None or not field.texts:
                continue
            longest = max(len(text) for text in field.texts)
            if longest <= LONG_WORD or field.name == PROMPT:
                return self.text_reader(steps)
        return None

    # --- what they ask ----------------------------------------------------------------

    def named(self) -> list[Steps]:
        """The fields that are in the table of names, in its order."""
        return [(self.keys[name],) for name in TEXT_FIELDS if name in self.keys]

    def is_chat(self, steps: Steps) -> bool:
        field = self.fields.get(steps)
        return field is not None and self.is_most(field.chats) and ... not in steps

    def is_text(self, steps: Steps) -> bool:
        field = self.fields.get(steps)
        if field is None or not field.texts:
            return False
        return self.is_most(field.strings)

    def text_reader(self, steps: Steps) -> PromptReader:
        path = FieldPath(steps)
        reader = TextReader(FieldTexts((path,)))
        reader.uncounted = self.longer_text((path,))
        return reader

    def longer_text(self, counted: Sequence[FieldPath]) -> tuple[Note, ...]:
        """The longest text that is not counted, if it is longer than what is."""
        paths = [path.steps for path in counted]
        fields = [self.fields[steps] for steps in paths if steps in self.fields]
        longest: Field | None = None
        chars = sum(field.chars for field in fields)
        for field in self.fields.values():
            if field not in fields and may_be_prompt(field) and field.chars > chars:
                longest = field
                chars = field.chars
        if longest is None:
            return ()
        return (left_out(printable(longest.path.text), counted),)

    # --- where none fits --------------------------------------------------------------

    def error(self, likely: str = "") -> DataError:
        """That no field is surely the prompt; with the options to type, where one is
        likely.
        """
        if not self.fields:
            return DataError("no_fields")
        table = field_table(list(self.fields.values()))
        longest = self.longest_text()
        if not likely and longest is not None:
            likely = self.options_of(longest.path)
        if not likely:
            return DataError("unknown_prompt", **table)
        return DataError("unknown_prompt", **table, cause="likely", likely=likely)

    def longest_text(self) -> Field | None:
        """The field with the most text, preferably one that may be a prompt."""
        texts = [field for field in self.fields.values() if field.is_prose]
        chats = [field for field in self.fields.values() if field.chats]
        likely = [field for field in texts if may_be_prompt(field)]
        return max(likely or texts or chats, key=attrgetter("chars"), default=None)

    def options_of(self, path: FieldPath) -> str:
        """What counts a field; of a single record, whose rows are in a list, each."""
        if len(self.head) > 1 or ... not in path.steps[:-1]:
            return options((path,), ())
        steps: list[Step] = []
        lists: list[str] = []
        for step in path.steps:
            if step is ...:
                lists.append(FieldPath(tuple(steps)).text)
            else:
                steps.append(step)
        return options((FieldPath(tuple(steps)),), lists)


def may_be_prompt(field: Field) -> bool:
    return field.is_prose and not is_no_prompt(field.name)


def left_out(beside: str, counted: Sequence[FieldPath]) -> Note:
    """That an evaluation probably sends another text, too, and the options that count
    it.
    """
    names = [path.text for path in counted]
    use = [f"--field={name}" for name in (beside, *names)]
    return note("left_out", counted=" + ".join(names), beside=[beside], use=use)


def options(fields: Sequence[FieldPath], lists: Sequence[str]) -> str:
    """What to type after --field."""
    text = " --field ".join(shlex.quote(printable(path.text)) for path in fields)
    for name in lists:
        text += f" --each {shlex.quote(printable(name))}"
    return text
