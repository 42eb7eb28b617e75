"""Cutting a text without changing its token count, and counting a shared beginning once.

A cut is made only between an ASCII letter and the space or newline after it. The patterns of
GPT-style tokenizers never match a letter and the white space after it in one piece, and look at
nothing before the piece they are at; so both sides are tokenized as they would be in one. Which
tokenizers are of that kind is decided here, by structure (`patterns`) and by trial.

Few-shot prompts share most of their text. `SharedPrefixes` finds such beginnings and counts each
once, and cuts rows of many megabytes into pieces that an engine can hold.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any

from chunkscope.tokenizers.patterns import never_joins_words, parts_words

if TYPE_CHECKING:
    from chunkscope.tokenizers.engines import Counts, Engine

_KEY = 256  # characters that must be alike before a shared beginning is looked for
_LONGEST_PREFIX = 1 << 15
_PIECE = 1 << 18  # rows longer than twice this are counted in pieces
_MAX_CANDIDATES = 1024  # texts seen once, kept in case a second one begins alike
_TRIAL_ROWS = 2000  # by then a dataset has shown whether its prompts share anything
_CUT = re.compile(r"(?<=[A-Za-z])(?=[ \n])")
# A normalizer may remove what stands between the two.
_LETTER_THEN_SPACE = re.compile(r"[A-Za-z].*\s", re.DOTALL)
_PLAIN_NORMALIZERS = {"NFC", "BertNormalizer"}
_PLAIN_STEPS = {"Digits", "Punctuation", "BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


def may_cut_pattern(pattern: str) -> bool:
    """Whether a pattern by itself splits a text so that it can be cut between words."""
    return never_joins_words(pattern) and parts_words(pattern)


def may_cut_json(document: dict[str, Any]) -> bool:
    """Whether the structure of a tokenizer.json permits cuts between words."""
    model = document.get("model", {})
    return (
        all(step["type"] in _PLAIN_NORMALIZERS for step in _steps(document.get("normalizer")))
        and model.get("type", "BPE") in ("BPE", "WordPiece")
        and not model.get("dropout")
        and _steps_permit(list(_steps(document.get("pre_tokenizer"))))
        and not any(map(_spans_words, document.get("added_tokens") or []))
    )


def _steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A normalizer or pre-tokenizer as a flat list of steps."""
    if not part:
        return
    if part["type"] == "Sequence":
        for step in part.get("pretokenizers") or part.get("normalizers") or []:
            yield from _steps(step)
    else:
        yield part


def _steps_permit(steps: list[dict[str, Any]]) -> bool:
    splits = False
    for step in steps:
        match step:
            case {"type": "ByteLevel", "add_prefix_space": False}:
                splits = splits or step.get("use_regex", True)
            case {"type": "Split", "pattern": {"Regex": pattern}}:
                if step.get("behavior") not in ("Isolated", "Removed"):
                    return False
                if not never_joins_words(pattern):
                    return False
                splits = splits or parts_words(pattern)
            case {"type": kind} if kind in _PLAIN_STEPS:
                splits = splits or kind not in ("Digits", "Punctuation")
            case _:
                return False
    return splits


def _spans_words(token: dict[str, Any]) -> bool:
    """Whether an added token could lie across a cut, or depend on what is beyond it."""
    content = token["content"]
    return bool(
        _LETTER_THEN_SPACE.search(content)
        or token.get("single_word")
        or (token.get("rstrip") and content[-1:].isalpha())
    )


def cuts_agree(engine: "Engine", texts: list[str]) -> bool:
    """Try it: cut every text at some allowed place and compare the sums."""
    chosen = []
    for index, text in enumerate(texts):
        places = [match.start() for match in _CUT.finditer(text)]
        if places:  # another place in each text, so that all kinds of neighbours come up
            chosen.append((text, places[index % len(places)]))
    whole = engine.count([text for text, _ in chosen])
    left = engine.count([text[:place] for text, place in chosen])
    right = engine.count([text[place:] for text, place in chosen])
    return whole == list(map(add, left, right))


def last_cut(text: str, low: int, high: int) -> int:
    """The last allowed cut in `low <= place <= high`, or -1.

    >>> last_cut("one two three", 1, 8)
    7
    """
    place = min(high, len(text) - 1)
    while place >= low:
        place = max(text.rfind(" ", low, place + 1), text.rfind("\n", low, place + 1))
        if place < 1 or (text[place - 1].isascii() and text[place - 1].isalpha()):
            return place if place >= max(low, 1) else -1
        place -= 1
    return -1


@dataclass(slots=True, eq=False)
class Prefix:
    """A beginning that several prompts share; `tokens` is known once it was counted."""

    text: str
    parent: "Prefix | None"
    tokens: int = -1
    children: dict[str, "Prefix | str"] = field(default_factory=dict)

    def counted(self, own_tokens: int) -> None:
        self.tokens = own_tokens + (self.parent.tokens if self.parent else 0)


@dataclass(slots=True)
class Job:
    """Texts for an engine, and how their counts add up to the lengths of the rows.

    The first `rows` texts are what is left of each row after its shared beginning. Behind them
    come beginnings that are new and further pieces of very long rows, described by `tail`.
    """

    texts: list[str]
    rows: int
    heads: list[Prefix | None] | None
    tail: list["Prefix | int"]

    def lengths(self, counts: "Counts") -> "Counts":
        """Jobs must be finished in the order they were made: later ones use counted prefixes."""
        lengths = counts[: self.rows]
        for target, count in zip(self.tail, islice(counts, self.rows, None), strict=True):
            if isinstance(target, Prefix):
                target.counted(count)
            else:
                lengths[target] += count
        if self.heads is None:
            return lengths
        return [n + h.tokens if h else n for n, h in zip(lengths, self.heads, strict=True)]


class SharedPrefixes:
    """Turns rows into jobs, remembering the beginnings they share. One per dataset."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._sharing = allowed
        self._root: dict[str, Prefix | str] = {}
        self._rows = 0
        self._hits = 0

    def job(self, texts: list[str]) -> Job:
        if not self._allowed:
            return Job(texts, len(texts), None, [])
        heads, rests, tail = self._share(texts) if self._sharing else (None, texts, [])
        self._rows += len(texts)
        if self._sharing and self._rows > _TRIAL_ROWS and self._hits * 50 < self._rows:
            self._sharing = False
            self._root.clear()
        job = Job(rests, len(texts), heads, list(tail))
        job.texts = [*rests, *(prefix.text for prefix in tail)] if tail else list(rests)
        _cut_long_rows(job)
        return job

    def _share(self, texts: list[str]) -> tuple[list[Prefix | None], list[str], list[Prefix]]:
        heads: list[Prefix | None] = []
        rests: list[str] = []
        new: list[Prefix] = []
        for text in texts:
            head, start = self._place(text, new) if len(text) > _KEY else (None, 0)
            heads.append(head)
            rests.append(text[start:] if start else text)
            self._hits += head is not None
        return heads, rests, new

    def _place(self, text: str, new: list[Prefix]) -> tuple[Prefix | None, int]:
        """Walk down the known beginnings as far as `text` follows them; learn one where it ends."""
        node: Prefix | None = None
        table, start = self._root, 0
        while True:
            key = text[start : start + _KEY]
            known = table.get(key)
            if known is None:
                _remember(table, key, text[start : start + _LONGEST_PREFIX])
                return node, start
            if isinstance(known, Prefix) and _follows(text, start, known.text):
                node, table, start = known, known.children, start + len(known.text)
                continue
            alike = known.text if isinstance(known, Prefix) else known
            if (length := _shared_length(alike, text, start)) < _KEY:
                return node, start
            # Either a second text like one seen once, or a beginning that is shorter than it
            # looked. A new node, because earlier jobs still refer to the old one.
            node = table[key] = Prefix(alike[:length], node)
            new.append(node)
            return node, start + length


def _follows(text: str, start: int, prefix: str) -> bool:
    end = start + len(prefix)
    return text.startswith(prefix, start) and text[end : end + 1] in (" ", "\n")


def _remember(table: dict[str, Prefix | str], key: str, text: str) -> None:
    if len(key) < _KEY:
        return
    if len(table) >= _MAX_CANDIDATES:  # forget those that nobody shared
        for old in [k for k, known in table.items() if isinstance(known, str)]:
            del table[old]
        if len(table) >= _MAX_CANDIDATES:
            return
    table[key] = text


def _shared_length(alike: str, text: str, start: int) -> int:
    """How far `alike` and `text[start:]` run together, back to an allowed cut in both."""
    low, high = 0, min(len(alike), len(text) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(alike[low:middle], start + low):
            low = middle
        else:
            high = middle - 1
    # Both must go on with white space after the cut, so the cut lies before the difference.
    return last_cut(alike, _KEY, min(low - 1, len(text) - start - 1))


def _cut_long_rows(job: Job) -> None:
    """Count a row of many megabytes in pieces: an engine's result is several times its text."""
    for row in range(job.rows):
        text = job.texts[row]
        if len(text) <= 2 * _PIECE:
            continue
        pieces = list(_pieces(text))
        job.texts[row] = pieces[0]
        job.texts += pieces[1:]
        job.tail += [row] * (len(pieces) - 1)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > 2 * _PIECE:
        cut = last_cut(text, start + 1, start + _PIECE)
        if cut < 0:
            break  # nothing to cut at for a quarter of a million characters: take it whole
        yield text[start:cut]
        start = cut
    yield text[start:]
