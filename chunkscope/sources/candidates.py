"""The prompt, found by looking at the first records: candidates in order, the surest sign first.

What is known for certain by its keys comes before what is only a likely name. A further form of
record (a harness's log, say) is one more candidate at the head of `_Candidates.in_order`, with a
selection of its own: `extract` may give several prompts for one record.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from chunkscope.errors import InputError
from chunkscope.sources import traces
from chunkscope.sources.chat import looks_like_messages
from chunkscope.sources.fields import (
    RECORD,
    FieldPath,
    escape,
    field_table,
    leaves,
    parse_path,
    quote_key,
)
from chunkscope.sources.selection import Selection, SelectionBuilder

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


class Candidate(NamedTuple):
    """A form that records may have: whether one has it, and what is then selected."""

    fits: Callable[[Any], bool]
    build: Callable[[], Selection]


def find_prompt(head: Sequence[Any], build: SelectionBuilder) -> Selection:
    """The first candidate that fits most records, else the one that fits the most of them."""
    best: Candidate | None = None
    best_count = 0
    for candidate in _Candidates(head, build).in_order():
        count = sum(map(candidate.fits, head))
        if count and count * 2 >= len(head):
            return candidate.build()
        if count > best_count:
            best, best_count = candidate, count
    if best is None:
        raise _nothing_found(head)
    return best.build()


class _Candidates:
    def __init__(self, head: Sequence[Any], build: SelectionBuilder) -> None:
        self.head = head
        self.build = build

    def in_order(self) -> Iterator[Candidate]:
        yield self._whole()
        # OpenAI's messages, and request bodies of its batch files.
        yield from map(self._chat, ("messages", "body.messages", "body.input"))
        yield from self._texts("body.prompt", "body.input")
        yield from map(self._chat, ("conversations", "conversation", "prompt", ""))
        columns = traces.find_columns(self.head)
        if columns and columns.output:
            yield self._trace(columns)
        yield from self._texts(*_as_spelled(_TEXT_FIELDS, self.head))
        # A lone input_length beside a text prompt says little: then the text is counted.
        if columns and not columns.output:
            yield self._trace(columns)
        yield from self._headerless()
        yield from self._only_text()

    def _whole(self) -> Candidate:
        label = "whole file" if len(self.head) == 1 else "line"
        return Candidate(partial(_has_text, RECORD), partial(self.build.text, RECORD, label=label))

    def _chat(self, name: str) -> Candidate:
        path = parse_path(name) if name else RECORD

        def fits(record: Any) -> bool:
            return looks_like_messages(path.find(record))

        return Candidate(fits, partial(self.build.chat, path))

    def _trace(self, columns: traces.TraceColumns) -> Candidate:
        fits = partial(_has_key, columns.prompt)
        return Candidate(fits, partial(self.build.lengths, FieldPath.to(columns.prompt), columns))

    def _texts(self, *names: str) -> Iterator[Candidate]:
        spelled = {name.lower(): name for name in names}
        for name in names:
            path = parse_path(name) if "." in name else FieldPath.to(name)
            if name.lower() in _OFTEN_LABELS and self._are_labels(path):
                continue
            if name.lower() == "input" and "instruction" in spelled:
                yield self._alpaca(FieldPath.to(spelled["instruction"]), path)
            yield self._text(path)
            yield self._first_of_texts(path)

    def _alpaca(self, instruction: FieldPath, more: FieldPath) -> Candidate:
        def fits(record: Any) -> bool:
            return _has_text(instruction, record) and more.key in record

        return Candidate(fits, partial(self.build.alpaca, instruction, more))

    def _text(self, path: FieldPath) -> Candidate:
        def build() -> Selection:
            longer = self._longer_sibling(path)
            if longer is None:
                return self.build.text(path)
            both = " ".join(f"--field {shlex.quote(name)}" for name in (longer, path.text))
            note = f'counted only "{path.text}"; "{longer}" holds more text: use {both}'
            return self.build.text(path, note=f"{note}, or --template")

        return Candidate(partial(_has_text, path), build)

    def _first_of_texts(self, path: FieldPath) -> Candidate:
        first = FieldPath(f"{path.text}[0]", (*path.steps, 0))
        note = f'counted only "{first.text}", the first of a list of texts; --field chooses'
        return Candidate(partial(_has_texts, path), partial(self.build.text, first, note=note))

    def _headerless(self) -> Iterator[Candidate]:
        """The longest column of a table without a header, whose columns readers call column0..."""
        keys = keys_of(self.head)
        if not keys or not all(re.fullmatch(r"column\d+", str(key)) for key in keys):
            return
        found = leaves(self.head)
        longest = max(keys, key=lambda key: found[key].chars if key in found else 0)
        path = FieldPath.to(longest)
        note = f'the table has no header: counted "{longest}", its longest text; --field chooses'
        yield Candidate(partial(_has_text, path), partial(self.build.text, path, note=note))

    def _only_text(self) -> Iterator[Candidate]:
        """The only field that holds text in most records, whatever its name."""
        paths = map(FieldPath.to, keys_of(self.head))
        texts = [path for path in paths if most_fit(self.head, partial(_has_text, path))]
        if len(texts) == 1 and not self._are_labels(texts[0]):
            yield self._text(texts[0])

    def _are_labels(self, path: FieldPath) -> bool:
        """Whether a field holds a few short words over and over, such as the name of a subtask."""
        values = [value for record in self.head if isinstance(value := path.find(record), str)]
        short = all(len(value) <= 40 for value in values)
        return len(values) > 3 and short and len(set(values)) * 2 <= len(values)

    def _longer_sibling(self, path: FieldPath) -> str | None:
        """A field that looks like part of the prompt and has more text than the one found."""
        found, output = leaves(self.head), self.build.output
        own = found.get(quote_key(path.key) if path.key else path.text)
        siblings = [
            leaf
            for leaf in found.values()
            if leaf.chars > (own.chars if own else 0)
            and leaf.kind == "text"
            and not (output and leaf.path == output.text)
            and parse_path(leaf.path).column not in self.build.choices
            and not any(map(_NOT_PROMPT.fullmatch, _name_parts(leaf.path)))
        ]
        return escape(max(siblings, key=lambda leaf: leaf.chars).path) if siblings else None


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


def most_fit(head: Sequence[Any], fits: Callable[[Any], bool]) -> bool:
    return sum(map(fits, head)) * 2 > len(head)


def keys_of(head: Sequence[Any]) -> list[str]:
    """The top-level keys, in order of appearance."""
    return list(dict.fromkeys(k for record in head if isinstance(record, dict) for k in record))


def _as_spelled(names: Sequence[str], head: Sequence[Any]) -> list[str]:
    """The names as the records spell them: many sets say `Question`."""
    keys = keys_of(head)
    return [key for name in names for key in keys if str(key).lower() == name]


def _has_text(path: FieldPath, record: Any) -> bool:
    return isinstance(path.find(record), str)


def _has_texts(path: FieldPath, record: Any) -> bool:
    value = path.find(record)
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _has_key(key: str, record: Any) -> bool:
    return isinstance(record, dict) and key in record


def _name_parts(name: str) -> list[str]:
    """`"longAnswer_text"` -> `["long", "answer", "text"]`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z]+", spaced.lower())
