"""The prompt, found by looking at the first records: candidates in order, the surest sign first.

What is known for certain by its keys comes before what is only a likely name. A further form of
record (a harness's log, say) is one more candidate at the head of `_Candidates.in_order`, with a
selection of its own: `extract` may give several prompts for one record.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from chunkscope.errors import InputError
from chunkscope.prompts import traces
from chunkscope.prompts.chat import (
    TOOL_FIELDS,
    has_functions,
    looks_like_messages,
    messages_of,
)
from chunkscope.prompts.each import each
from chunkscope.prompts.fields import (
    RECORD,
    FieldPath,
    Leaf,
    dotted,
    field_table,
    leaves,
    parse_path,
    quote_key,
)
from chunkscope.prompts.left_out import (
    how_to_include,
    likely_fields,
    likely_options,
    longer_field,
)
from chunkscope.prompts.message_lists import conversations_beside, message_lists
from chunkscope.prompts.prompt_names import (
    ASKED_ONE_BY_ONE,
    OFTEN_LABELS,
    PROMPT_WORDS,
    TEXT_FIELDS,
    TEXT_KEYS,
    are_identifiers,
    are_labels,
    is_no_prompt,
    is_prose,
    name_parts,
)
from chunkscope.prompts.selection import Selection, SelectionBuilder

# Beside a field of one of these names, messages are what went before it, unless they are a run.
_ASKS = ("prompt", "question", "query", "instruction", "input", "problem")
_QUESTIONS = ("question", "query", "prompt", "instruction", "problem")
_RUNS = {"traj", "trajectory", "trajectories", "messages", "chat"}


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

    @cached_property
    def likely(self) -> list[Leaf]:
        return likely_fields(self.head)

    def in_order(self) -> Iterator[Candidate]:
        yield self._whole()
        # OpenAI's messages, and request bodies of its batch files.
        yield from map(self._chat, ("messages", "body.messages", "body.input"))
        yield from self._texts("body.prompt", "body.input")
        yield from map(self._chat, ("conversations", "conversation", "prompt", ""))
        columns = traces.find_columns(self.head)
        if columns and columns.output:
            yield self._trace(columns)
        found = message_lists(self.head)
        sure = [path for path in found if self._is_the_request(path)]
        yield from map(self._found_chat, sure)
        yield from self._asked_one_by_one()
        yield from self._texts(*_as_spelled(TEXT_FIELDS, self.head))
        yield from map(self._found_chat, (path for path in found if path not in sure))
        yield from self._within_objects()
        # A lone input_length beside a text prompt says little: then the text is counted.
        if columns and not columns.output:
            yield self._trace(columns)
        yield from self._headerless()
        yield from self._alike_names()
        yield from self._only_text()

    def _whole(self) -> Candidate:
        label = "whole file" if len(self.head) == 1 else "line"
        return Candidate(partial(_has_text, RECORD), partial(self.build.text, RECORD, label=label))

    def _chat(self, name: str) -> Candidate:
        return self._found_chat(parse_path(name) if name else RECORD)

    def _found_chat(self, path: FieldPath) -> Candidate:
        def fits(record: Any) -> bool:
            return looks_like_messages(messages_of(path.find(record)))

        def build() -> Selection:
            left_out = []
            if (count := conversations_beside(self.head, path)) > 1:
                outer = path.text.removesuffix("[0]")
                left_out.append(
                    f'counted only "{path.text}", the first of up to {count} conversations in a '
                    f"row: --field {shlex.quote(f'{outer}[1]')} counts the second"
                )
            if longer := longer_field(self.head, self.likely, path, [], chat=True):
                left_out.append(
                    f'counted only "{path.text}"; "{longer}" holds more text: --template puts it '
                    "together with others, as text"
                )
            return self.build.chat(path, *left_out)

        return Candidate(fits, build)

    def _is_the_request(self, path: FieldPath) -> bool:
        """Messages are what was sent, unless a question stands beside what went before it."""
        names = {name for step in path.steps if isinstance(step, str) for name in [step.lower()]}
        asks = [key for key in keys_of(self.head) if key.lower() in _ASKS]
        texts = [key for key in asks if most_fit(self.head, partial(_has_text, FieldPath.to(key)))]
        return bool(names & _RUNS) or not texts

    def _trace(self, columns: traces.TraceColumns) -> Candidate:
        fits = partial(_has_key, columns.prompt)
        return Candidate(fits, partial(self.build.lengths, FieldPath.to(columns.prompt), columns))

    def _texts(self, *names: str) -> Iterator[Candidate]:
        spelled = {name.lower(): name for name in names}
        for name in names:
            path = parse_path(name) if "." in name else FieldPath.to(name)
            if self._is_no_text(path, often_labels=name.lower() in OFTEN_LABELS):
                continue
            if name.lower() == "input" and "instruction" in spelled:
                yield self._alpaca(FieldPath.to(spelled["instruction"]), path)
            yield self._text(path)
            yield self._first_of_texts(path)

    def _asked_one_by_one(self) -> Iterator[Candidate]:
        """A document and questions about it: L-Eval's with as many answers, or objects with both.

        Only where there is no question of the row as a whole.
        """
        prose = [path for leaf in self.likely if (path := parse_path(leaf.path)).key]
        if not prose or self._has_one_question():
            return
        for key in keys_of(self.head):
            listed = FieldPath.to(key)
            by_name = [listed] if key.lower() in ASKED_ONE_BY_ONE else []
            for path in (*by_name, *(_nested(key, name) for name in _QUESTIONS)):
                fits = partial(_is_asked, listed, path)
                if most_fit(self.head, fits):
                    note = f'one prompt for each of "{listed.text}", after "{prose[0].text}"'
                    one = self.build.text(prose[0], path)
                    yield Candidate(fits, partial(each, [listed], one, note))

    def _has_one_question(self) -> bool:
        asks = [FieldPath.to(key) for key in keys_of(self.head) if key.lower() in _QUESTIONS]
        return any(most_fit(self.head, partial(_has_text, path)) for path in asks)

    def _within_objects(self) -> Iterator[Candidate]:
        """`question.stem`, `row.prompt`: the text of an object, and the prompt in one."""
        for key in _as_spelled(TEXT_FIELDS, self.head):
            yield from (self._text(_nested(key, inner)) for inner in TEXT_KEYS)
        records = [record for record in self.head[:20] if isinstance(record, dict)]
        for key in keys_of(records):
            if not is_no_prompt(key) and any(isinstance(row.get(key), dict) for row in records):
                yield from (self._text(_nested(key, inner)) for inner in TEXT_FIELDS)

    def _alike_names(self) -> Iterator[Candidate]:
        """`question_content`, `user_prompt`: of names that sound like one, that with most text."""
        alike = [
            leaf
            for leaf in self.likely
            if PROMPT_WORDS & {*name_parts(leaf.path)} and parse_path(leaf.path).key
        ]
        yield from (self._text(parse_path(leaf.path)) for leaf in alike[:1])

    def _alpaca(self, instruction: FieldPath, more: FieldPath) -> Candidate:
        def fits(record: Any) -> bool:
            return _has_text(instruction, record) and more.key in record

        return Candidate(fits, partial(self.build.alpaca, instruction, more))

    def _text(self, path: FieldPath) -> Candidate:
        def build() -> Selection:
            tools = self._tools()
            closed = [*self._not_beside(), *([tools] if tools else [])]
            longer = longer_field(self.head, self.likely, path, closed, chat=False)
            beside = f'"{longer}" holds more text' if longer else f'tools are in "{tools}"'
            fields = [name for name in (tools and f"{tools}|json", longer) if name]
            if not fields:
                return self.build.text(path)
            use = how_to_include(fields, path.text)
            said = f'counted only "{path.text}"; {beside}: use {use}, or --template'
            return self.build.text(path, left_out=said)

        return Candidate(partial(_has_text, path), build)

    def _tools(self) -> str | None:
        """The field of tools beside a prompt that is text."""
        for name in TOOL_FIELDS:
            if most_fit(self.head, partial(has_functions, name)):
                return name
        return None

    def _first_of_texts(self, path: FieldPath) -> Candidate:
        first = FieldPath(f"{path.text}[0]", (*path.steps, 0))

        def build() -> Selection:
            longer = longer_field(self.head, self.likely, path, self._not_beside(), chat=False)
            more = f'; "{longer}" holds more text' if longer else ""
            fields = f" {how_to_include([longer], path.text)}" if longer else ""
            said = (
                f'counted only "{first.text}", the first of a list of texts{more}: --field '
                f"chooses, --each {shlex.quote(path.text)}{fields} makes a prompt of each"
            )
            return self.build.text(first, left_out=said)

        return Candidate(partial(_has_texts, path), build)

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
        """The only field that holds text in most records, unless it is there to name them."""
        paths = map(FieldPath.to, keys_of(self.head))
        texts = [path for path in paths if most_fit(self.head, partial(_has_text, path))]
        texts = [path for path in texts if not are_identifiers(self._values(path))]
        if len(texts) != 1 or is_no_prompt(texts[0].text):
            return
        if not are_labels(self._values(texts[0])):
            yield self._text(texts[0])

    def _is_no_text(self, path: FieldPath, *, often_labels: bool) -> bool:
        """A field of a likely name that holds labels, or ids while another field holds text."""
        values = self._values(path)
        if often_labels and are_labels(values):
            return True
        is_a_word = are_labels(values) and not any(map(is_prose, values))
        return (is_a_word or are_identifiers(values)) and bool(self.likely)

    def _values(self, path: FieldPath) -> list[str]:
        return [value for record in self.head if isinstance(value := path.find(record), str)]

    def _not_beside(self) -> list[str]:
        """Columns of answers and choices, of which something else is said."""
        output = [self.build.output.column] if self.build.output else []
        return [name for name in (*output, *self.build.choices) if name]


def _nested(key: str, inner: str) -> FieldPath:
    return FieldPath(f"{quote_key(key)}{dotted(inner)}", (key, inner))


def _is_asked(listed: FieldPath, path: FieldPath, record: Any) -> bool:
    """Whether a list holds questions as objects, or as texts with as many answers beside it."""
    value = listed.find(record)
    if not isinstance(value, list) or not value:
        return False
    if path is not listed:
        return all(
            isinstance(one, dict) and isinstance(one.get(path.steps[1]), str) for one in value
        )
    return _has_texts(listed, record) and any(
        isinstance(held, list) and len(held) == len(value) and is_no_prompt(str(key))
        for key, held in record.items()
    )


def _nothing_found(head: Sequence[Any]) -> InputError:
    if not head:
        return InputError("there are no records to look at")
    table = field_table(head)
    if not table:
        return InputError("the records hold no fields", hint="expected objects with text in them")
    likely = likely_options(head)
    return InputError(
        f"cannot tell which field is the prompt; there are:\n{table}",
        hint=f"is it {likely}? Or put it together with --template '{{a}} {{b}}'"
        if likely
        else "name it with --field, or put it together with --template '{a} {b}'",
    )


def most_fit(head: Sequence[Any], fits: Callable[[Any], bool]) -> bool:
    return sum(map(fits, head)) * 2 > len(head)


def keys_of(head: Sequence[Any]) -> list[str]:
    """The top-level keys, in order of appearance."""
    return list(dict.fromkeys(k for record in head if isinstance(record, dict) for k in record))


def _as_spelled(names: Sequence[str], head: Sequence[Any]) -> list[str]:
    """The names as the records spell them: many sets say `Question`."""
    spelled: dict[str, list[str]] = {}
    for key in keys_of(head):
        spelled.setdefault(str(key).lower(), []).append(key)
    return [key for name in names for key in spelled.get(name, ())]


def _has_text(path: FieldPath, record: Any) -> bool:
    return isinstance(path.find(record), str)


def _has_texts(path: FieldPath, record: Any) -> bool:
    value = path.find(record)
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _has_key(key: str, record: Any) -> bool:
    return isinstance(record, dict) and key in record
