"""The prompt's field, guessed from the first records: by what names and values say of each.

The surest sign comes first: a name that makes it certain before a likely one.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.console import printable
from chunkscope.prompts import chat, paths
from chunkscope.prompts.harness.log import as_dict, as_list
from chunkscope.prompts.paths import (
    QUESTIONS,
    RECORD,
    FieldPath,
    Leaf,
    Steps,
    lists_in,
    of_one,
)
from chunkscope.prompts.selection import (
    Selection,
    chat_of,
    lengths_of,
    text_of,
    trace_columns,
)
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import begins_a_chat

# Surest first. Many sets spell them with a capital.
TEXT_FIELDS = (
    *(
        "prompt",
        "question",
        "input",
        "inputs",
        "text",
        "instruction",
        "query",
        "problem",
    ),
    *(
        "problem_statement",
        "task",
        "content",
        "sentence",
        "turns",
        "prompts",
        "questions",
    ),
    *(
        "goal",
        "intent",
        "premise",
        "ctx",
        "passage",
        "document",
        "article",
        "context",
        "story",
    ),
    *("sentence1", "question1", "dialogue", "behavior"),
)
# Two fields that are one prompt.
_PAIRS = (("instruction", "input"), ("premise", "hypothesis"))
# These names often hold a label, or the name of a file, beside a prompt of another name.
_OFTEN_LABELS = {
    "task",
    "content",
    "goal",
    "text",
    "input",
    "document",
    "context",
    "intent",
}
_FEWEST_BREAKS = 9  # between lines, of a text without empty ones: each may be a prompt
# Inside an object called `question` or `prompt`, what is asked.
_TEXT_KEYS = ("text", "stem", "content", "question", "prompt", "value", "body")
# A part of a longer name that says as much: `question_content`, `user_input`.
_PROMPT_WORDS = {*QUESTIONS, "task", "intent", "statement", "input", "user", "qa"}
# A part of the name of what is sent with a question, however short.
_GIVEN = {
    "context",
    "contexts",
    "passage",
    "history",
    "body",
    "sentence",
    "pre",
    "post",
    "suffix",
}
_GIVEN |= {"rule", "rules", "requirements", "interface", "starter_code", "cropped_code"}
_GIVEN |= {"options", "choices", "all_answers", "passages", "document", "documents"}
_RUNS = {
    "traj",
    "trajectory",
    "trajectories",
    "messages",
    "chat",
}  # whatever stands beside them
# Parts of names of fields that hold what the model should say, or that no prompt is made of.
_NOT_PROMPT = re.compile(
    "(answer|output|target|response|solution|completion|label|reference|explanation|rationale|test"
    "|code|gold(en)?|expected|chosen|rejected|generat(ed|ion)|prediction|canary|meta(data)?|u?u?id"
    "|url|hash|canonical|cot|ideal|annotation|hint|exp|revis(ed|ion)|patch|diff|score|summary"
    "|highlight|critique|feedback|file(name)?|path|uri|sha|md5|digest|date|timestamp|version|type"
    "|difficulty|title|editorial|tag|author|license|log|observation|concept|name|format|template"
    "|bot|assistant|gpt.*|truth|replie|error|continuation|pass|fail|ori(g(inal)?)?|seed|analysis"
    "|reason(ing)?|rubric|criteri(on|a)|checklist|grading|thinking|thought|proof|attempt|judge)s?\\d*"
)
_shape = partial(re.sub, r"\d+(?![a-z\d])", "#")  # one for `sentence1` and `sentence2`
_WORD = re.compile(r"[\w./:@#~%&=+-]+", re.ASCII)
_MARK = re.compile(r"[\d_/]|::|\.\w{1,5}$", re.ASCII)
_MOMENT_OR_PLACE = re.compile(r"\d{4}-\d\d-\d\d[ T][\d:.+Z-]+|\w+://\S+")


@lru_cache(4096)
def _name_parts(name: str) -> list[str]:
    """`"longAnswer_text"` -> `["long", "answer", "text"]`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    whole = r"(?:starter|cropped)_code|responses_create|all_answers"
    return re.findall(rf"{whole}|[a-z]+\d*", spaced.lower())


@lru_cache(4096)
def is_no_prompt(name: str) -> bool:
    """Whether a name speaks of an answer, an identifier or something about the row."""
    return any(map(_NOT_PROMPT.fullmatch, _name_parts(name)))


def are_identifiers(values: Sequence[str]) -> bool:
    """Whether texts are ids, hashes, numbers, dates, addresses or names of files.

    >>> are_identifiers(["multi_turn_0", "9b1deb4d"]), are_identifiers(["Why?", "swe_main"])
    (True, False)
    """
    texts = [value.strip() for value in values if value.strip()]
    return bool(texts) and all(
        (_WORD.fullmatch(text) and _MARK.search(text))
        or _MOMENT_OR_PLACE.fullmatch(text)
        for text in texts
    )


def are_labels(values: Sequence[str]) -> bool:
    """Whether texts are a few short words over and over, such as the name of a subtask."""
    return (
        len(values) > 3
        and max(map(len, values)) <= 40
        and len({*values}) * 2 <= len(values)
    )


def is_prose(text: str) -> bool:
    """More than one word and no SQL, or a script that has no blanks between words."""
    return (" " in text.strip() and text[:7].upper() != "SELECT ") or not text.isascii()


# A form that records may have: how many have it, and what is then selected.
Candidate = tuple[int, Selection]


class Guess:
    """`answers` is where answers and choices are, which are not pointed at as text to include."""

    def __init__(self, head: Sequence[Any], answers: Sequence[Steps]) -> None:
        self.head, self.answers = head, answers
        self.keys = paths.keys_of(head)
        self.leaves = {leaf.path.steps: leaf for leaf in paths.leaves(head)}
        others = (
            k for k in self.keys if (k,) not in self.leaves and not is_no_prompt(k)
        )
        self.tables = [key for key in others if "table" in key.lower()]
        # A length that most records give, of more tokens than they have characters.
        name = (trace_columns(head) or ("",))[0]
        sizes = [(str(as_dict(one).get(name)), len(str(one))) for one in head if name]
        long = sum(size.isdecimal() and int(size[:15]) > chars for size, chars in sizes)
        self.longer = [name] if long * 2 > len(head) else []
        # Columns in which most records have a text, and those of them that ask something.
        columns = [leaf for leaf in self.leaves.values() if len(leaf.path.steps) == 1]
        self.common = [
            leaf for leaf in columns if sum(map(bool, leaf.texts)) * 2 > len(head)
        ]
        names = [
            leaf.path.text for leaf in self.common if not is_no_prompt(leaf.path.text)
        ]
        self.asks = {part for name in names for part in _name_parts(name)} & {
            *QUESTIONS,
            "input",
        }
        texts = (
            leaf
            for leaf in self.leaves.values()
            if leaf.chats
            or sum(map(is_prose, leaf.texts)) * 2 > sum(map(bool, leaf.texts))
            if "generated" not in leaf.path.text  # as in the results of `vllm bench`
        )
        self.prose = prose = sorted(
            texts, key=lambda f: ("rejected" in f.path.text, -f.chars)
        )
        # Fields of prose that no name speaks against, the longest first; code, if not the answer.
        code = (
            {"code"}
            if {"answer", "output", "label"} & {*map(str.lower, self.keys)}
            else set()
        )
        self.likely = [
            f for f in prose if f.path.text in code or not is_no_prompt(f.path.text)
        ]

    def best(self) -> Selection:
        """The first candidate that fits most records, else the one that fits the most of them."""
        best, selection = 0, None
        for count, candidate in self.candidates():
            if count and count * 2 >= len(self.head):
                return candidate
            if count > best:
                best, selection = count, candidate
        if selection:
            return selection
        if not any(self.leaves):
            raise DataError("no_fields")
        table = paths.field_table([*self.leaves.values()])
        for leaf in (self.likely or self.prose)[:1]:
            steps = leaf.path.steps
            rows = lists_in(steps[:-1]) if len(self.head) == 1 else ()  # of a document
            parts = [of_one(steps, steps), *rows]
            names = (
                [part.text for part in parts]
                if rows
                else [self._option(leaf, is_chat=True)]
            )
            likely = " --each ".join(shlex.quote(printable(name)) for name in names)
            raise DataError("unknown_prompt", **table, cause="likely", likely=likely)
        raise DataError("unknown_prompt", **table)

    def candidates(self) -> Iterator[Candidate]:
        whole = "whole file" if len(self.head) == 1 else "line"
        plain = [record for record in self.head if isinstance(record, str)]
        text = plain[0].strip() if len(self.head) == len(plain) == 1 else ""
        is_list = text.count("\n") >= _FEWEST_BREAKS and not re.search(r"\n\s*\n", text)
        about = [note("lines_together", count=text.count("\n") + 1)] if is_list else []
        yield len(plain), text_of(RECORD, label=whole, notes=about)
        # OpenAI's messages, and request bodies of its batch files: of /v1/responses also a text.
        given = FieldPath(("body", "input"))
        urls = [str(record.get("url")) for record in self.head if given.find(record)]
        yield sum(url.endswith("/responses") for url in urls), self._chat(given)
        yield from self._chats(("messages",), ("body", "messages"), ("body", "input"))
        yield from self._chats(("conversations",), ("conversation",), ("prompt",))
        yield from self._texts(("body", "prompt"), ("body", "input"))
        lists = [record for record in self.head if isinstance(record, list)]
        yield sum(map(begins_a_chat, lists)), self._chat(RECORD)
        chats = [f.path.steps for f in self.likely if f.chats * 2 >= len(self.head)]
        chats.sort(key=len)
        # Messages are what was sent, unless a question stands beside what went before it.
        sure = [
            one
            for one in chats
            if not self.asks or _RUNS & {str(s).lower() for s in one}
        ]
        yield from self._chats(*sure)
        yield from self._one_by_one()
        # `question`, or the text of an object of that name: `question.stem`.
        names = [
            key for name in TEXT_FIELDS for key in self.keys if key.lower() == name
        ]
        for name in names:
            yield from self._texts((name,))
            inner = (self.leaves.get((name, key)) for key in _TEXT_KEYS)
            yield from map(self._text, filter(None, inner))
        first, second = (
            FieldPath(("turns", turn, "content")) for turn in (0, 1)
        )  # Arena-Hard's
        single = [r for r in self.head if first.find(r) and second.find(r) is None]
        yield len(single), text_of(first)
        yield from self._chats(*(steps for steps in chats if steps not in sure))
        keys = [key for key in self.keys if not is_no_prompt(key)]  # `row.prompt`
        inner = (self.leaves.get((key, name)) for key in keys for name in TEXT_FIELDS)
        yield from map(self._text, filter(None, inner))
        # A length beside a text prompt says little of another tokenizer: then the text is counted.
        above = dict.fromkeys(
            s[:n] for s in self.leaves for n in range(len(s)) if ... not in s
        )
        for place in sorted(above, key=len):
            objects = [as_dict(FieldPath(place).find(record)) for record in self.head]
            if trace := trace_columns(objects):
                yield (
                    sum(trace.prompt in r for r in objects),
                    lengths_of(trace, self.head, place),
                )
        # The longest column of a table without a header, whose columns readers call column0...
        if self.keys and all(re.fullmatch(r"column\d+", key) for key in self.keys):
            column = max(self.leaves.values(), key=lambda leaf: leaf.chars)
            notes = (note("no_header", field=column.path.text),)
            yield len(column.texts), text_of(column.path, notes=notes)
        # `question_content`, `user_prompt`: of names that sound like one, that with most text.
        texts = [
            leaf for leaf in self.likely if not leaf.chats and len(leaf.path.steps) == 1
        ]
        yield from [self._text(leaf) for leaf in texts if _sounds_like_a_prompt(leaf)][
            :1
        ]
        # The only text in most records, or the only likely one, unless it is there to name them.
        common = [leaf for leaf in self.common if not are_identifiers(leaf.texts)]
        likely = (
            self.likely if self.head[1:] else self.likely[:1]
        )  # a message beside the rows?
        if likely and (
            len(common) == 1 or (self.head[1:] and likely == self.prose[:1])
        ):
            common = [leaf for leaf in common if leaf in likely]
        for leaf in (
            common if len(common) == 1 and not are_labels(common[0].texts) else ()
        ):
            is_asked = (
                leaf in self.prose or len(self.leaves) == 1
            )  # no word beside numbers
            if is_asked and (
                not is_no_prompt(leaf.path.text) or _sounds_like_a_prompt(leaf)
            ):
                yield self._text(leaf)

    def _chats(self, *fields: Steps) -> Iterator[Candidate]:
        for leaf in filter(None, map(self.leaves.get, fields)):
            yield leaf.chats, self._chat(leaf.path)

    def _chat(self, path: FieldPath) -> Selection:
        uncounted, outer = [], FieldPath(path.steps[:-1])
        if path.steps[-1:] == (0,) and any(
            map(FieldPath((*outer.steps, 1)).find, self.head)
        ):
            uncounted.append(_left_out(path.text, [], [], f"--each={outer.text}"))
        beside = [path.steps[:1], *((name,) for name in chat.ROW_FIELDS)]
        more, notes = self._companions([path], beside, is_chat=True)
        uncounted += [_left_out(path.text, more, [f"{path.text}|json"])] if more else []
        lists = lists_in(path.steps)
        path = of_one(path.steps, path.steps) if lists else path
        return chat_of(path, uncounted=uncounted, lists=lists, notes=notes)

    def _texts(self, *fields: Steps) -> Iterator[Candidate]:
        """Fields of likely names, apart from those that hold labels or ids."""
        by_name = {key.lower(): self.leaves.get((key,)) for key in self.keys}
        for steps in fields:
            name, leaf = str(steps[0]).lower(), self.leaves.get(steps)
            values = (
                [text for text in leaf.texts if re.search(r"\w", text)] if leaf else []
            )
            labels = are_labels(values)
            is_a_word = (labels and not any(map(is_prose, values))) or are_identifiers(
                values
            )
            is_encoded = is_a_word and min(map(len, values)) > 100  # BrowseComp's
            if (
                (labels and name in _OFTEN_LABELS)
                or (is_a_word and self.likely)
                or is_encoded
            ):
                continue
            pairs = [
                [*filter(None, map(by_name.get, pair))]
                for pair in _PAIRS
                if name in pair
            ]
            yield from (self._text(*pair) for pair in pairs if len(pair) > 1)
            if leaf and values:
                yield self._text(leaf)
            if (*steps, ...) in self.leaves:
                first = FieldPath((*steps, 0))
                texts = sum(isinstance(first.find(record), str) for record in self.head)
                longer, _ = self._companions([path := FieldPath(steps)])
                rest = _left_out(first.text, longer, [path.text], f"--each={path.text}")
                has_more = longer or any(map(FieldPath((*steps, 1)).find, self.head))
                yield texts, text_of(first, uncounted=(rest,) if has_more else ())

    def _text(self, *fields: Leaf) -> Candidate:
        own = [leaf.path for leaf in fields]
        numbered = [
            f.path for f in self.common if _shape(f.path.text) == _shape(own[0].text)
        ]
        own = numbered if len(numbered) > 1 else own
        half, known = (
            len(self.head) / 2,
            [name for name in chat.TOOL_FIELDS if name in self.keys],
        )
        as_json = [
            n
            for n in known
            if sum(chat.holds_functions(n, r) for r in self.head) > half
        ][:1]
        as_json += self.tables
        more, notes = self._companions(own, [(name,) for name in as_json])
        beside = [*(f"{name}|json" for name in as_json), *more]
        names = [path.text for path in own]
        others = [leaf.path for leaf in self.likely if leaf.path != own[0]]
        wholes = [
            path.text for path in others if self._holds(path, own[0])
        ] + self.longer
        parts = (wholes[:1], []) if wholes else (beside, names)
        uncounted = [_left_out(" + ".join(names), *parts)] if parts[0] else []
        return len(fields[0].texts), text_of(
            *own, asks=0, uncounted=uncounted, notes=notes
        )

    def _one_by_one(self) -> Iterator[Candidate]:
        """A document and questions about it: L-Eval's with as many answers, or objects that ask,
        as in SQuAD's lists of lists. Only where no question is of the whole row."""
        texts = [leaf.path.steps for leaf in self.likely if not leaf.chats]
        rows = {
            s: sum(_holds_questions(s, r) for r in self.head)
            for s in self.leaves
            if ... in s
        }
        for steps, count in rows.items() if not self.asks - {"input"} else ():
            last = max(n for n, step in enumerate(steps) if step is ...)
            beside = [
                s
                for s in texts
                if s[:last] != steps[:last] and self._is_about(steps, s)
            ]
            if beside and count * 2 > len(self.head):
                form = _shape(FieldPath(beside[0]).text)
                parts = [
                    s
                    for s in self.leaves
                    if s in texts and _shape(FieldPath(s).text) == form
                ]
                rest = [s for s in beside if s not in parts]
                rest += [s for s in rows if rows[s] and s not in (*rest, steps)]
                others = self.tables + [FieldPath(s).text for s in rest]
                notes = (
                    [note("not_counted", field=others, is_text=True)] if others else []
                )
                prompt = text_of(
                    *(of_one(s, steps) for s in (*parts, steps)), notes=notes
                )
                yield count, replace(prompt, lists=lists_in(steps))

    def _holds(self, whole: FieldPath, part: FieldPath) -> bool:
        """Whether the one text is inside the other, in most of the first records."""
        head = self.head[:9] if ... not in whole.steps else ()
        pairs = [
            [str(path.find(one) or "").strip() for path in (whole, part)]
            for one in head
        ]
        return sum(0 < len(b) < len(a) and b in a for a, b in pairs) * 2 > len(pairs)

    def _is_about(self, questions: Steps, text: Steps) -> bool:
        """Whether questions may be about a text: it is longer, and in no other list that asks."""
        place = text.index(...) + 1 if ... in text else 0
        inside = [one for one in self.leaves if place and one[:place] == text[:place]]
        asks = any(str(one[-1]).lower() in QUESTIONS for one in inside)
        longest = [
            max(map(len, self.leaves[one].texts), default=0)
            for one in (text, questions)
        ]
        return longest[0] > longest[1] and (
            not asks or text[:place] == questions[:place]
        )

    def _option(self, leaf: Leaf, *, is_chat: bool = False) -> str:
        """What counts it: as JSON a chat beside a text, or a list whose elements may lack it."""
        path, text = leaf.path, printable(leaf.path.text)
        if ... in path.steps and sum(map(bool, map(path.find, self.head))) * 2 <= len(
            self.head
        ):
            return text[: text.index("[]")] + "|json"
        return text.removesuffix("[0]") + "|json" * bool(leaf.chats and not is_chat)

    def _companions(
        self,
        own: Sequence[FieldPath],
        others: Sequence[Steps] = (),
        *,
        is_chat: bool = False,
    ) -> tuple[list[str], list[Note]]:
        """The likely field with the most text, if more than the chosen ones, and what by its name
        is sent with them; then a note of what may be the prompt, too. No answers or steps."""
        chosen = [steps for path in own for steps in (path.steps, (*path.steps, ...))]
        seen = [self.leaves[steps] for steps in chosen if steps in self.leaves]
        chars, texts = (
            sum(leaf.chars for leaf in seen),
            [t for leaf in seen for t in leaf.texts],
        )
        apart, first = (*self.answers, *others, *chosen), own[0].steps
        above = first[: -2 if first[-1:] == (0,) else -1]
        names = set() if is_chat else {*chat.SYSTEMS, "instructions", *_GIVEN}
        companions, prompts = dict[str, str](), list[str]()
        for leaf in self.likely:
            steps, place = leaf.path.steps, len(above)
            name = str([*steps, ""][place if steps[:place] == above else 0])
            parts = [name.lower(), *_name_parts(name)]
            is_inner = is_chat and "[]." in leaf.path.text
            is_apart = is_inner or any(steps[: len(one)] == one for one in apart)
            start = next(filter(None, map(str.strip, leaf.texts)), "")
            if is_apart or any(start and start in text for text in texts):
                continue
            is_longer = (
                leaf.chars > chars and not companions and not are_labels(leaf.texts)
            )
            if is_longer or not names.isdisjoint(parts):
                companions.setdefault(name, self._option(leaf, is_chat=is_chat))
            elif {*steps} <= {name, 0} and bool(leaf.chats) == is_chat:
                is_one = _sounds_like_a_prompt(leaf) and not are_labels(leaf.texts)
                prompts += [self._option(leaf, is_chat=is_chat)] * is_one
        notes = [note("not_counted", field=prompts, is_text=True)] if prompts else []
        return list(companions.values()), notes


def _left_out(counted: str, beside: list[str], own: list[str], *use: str) -> Note:
    """That only this is counted, of a list the first; which options count the rest, too."""
    fields = [f"--field={name}" for name in (*beside, *own) if beside]
    code = "left_out" if beside else "first_counted"
    return note(code, counted=counted, beside=beside, use=[*use, *fields])


def _sounds_like_a_prompt(leaf: Leaf) -> bool:
    parts = _name_parts(leaf.path.text)
    return "system" not in parts and not _PROMPT_WORDS.isdisjoint(parts)


def _holds_questions(steps: Steps, record: Any) -> bool:
    """Whether lists hold questions in objects, or one as texts with as many answers beside it."""
    name, *above = (str(step).lower() for step in reversed(steps) if step is not ...)
    if ... in steps[:-1]:  # `qas[].question`, CoQA's `questions[].input_text`
        asks = name in QUESTIONS or (
            name == "input_text" and above[0].rstrip("s") in QUESTIONS
        )
        return asks and bool(FieldPath(steps).find(record))
    is_named = steps[-1] is ... and name.rstrip("s") in QUESTIONS
    holder = as_dict(FieldPath(steps[:-2]).find(record)) if is_named else {}
    asked = as_list(holder.get(str(steps[-2])) if is_named else None)
    as_many = [
        key for key in holder if asked and len(as_list(holder[key])) == len(asked)
    ]
    return any(is_no_prompt(str(key)) for key in as_many)
