"""Does the fast engine give the same ids as the reference? Asked once per tokenizer and version.

The strings reach for what engines get wrong: every Unicode class, white space of all kinds,
digits, contractions, special tokens spelled out, long runs, decomposed text, random mixtures. One
difference, and the reference counts everything. Each run then compares a sample of its own rows.
"""

import random
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from chunkscope.artefacts.codec import read_checked, write_checked
from chunkscope.errors import ChunkscopeError

_SUITE = "6"  # raise when the strings change: old verdicts then no longer count
# Of the many alike (ideographs, Hangul, private use), some stand for all.
_SAMPLED = {range(0x3400, 0xA000): 8, range(0xAC00, 0xD800): 8, range(0xE000, 0xF900): 16}
_SPACES = (" ", "\n", "\t", "\r\n", "  ", "\n\n", "\u00a0", "\u2028", "\u3000", "\x0b", "\x85")
_SENTENCES = (
    "A train leaves the station at 9:45 and travels 128.5 km; how long does it take?",
    "I'm sure they'll say we've won, but SHE'D rather it wasn't so. It’s you’re D'OH!",
    "def area(width: float, height: float) -> float:\n    return width * height  # m²\n",
    '{"role": "user", "content": "caf\\u00e9 \\"quoted\\"", "n": [1, -2.5e-3, null, true]}',
    "Der Fluß überquert die Straße; ça coûte 3,50 €. ¿Dónde está el niño?",
    "Сколько будет семью восемь? Ответ: 56.\n\n日本語の文章と中文句子，混在しています。",
    "한국어 문장도 있습니다. สวัสดีครับ नमस्ते दुनिया مرحبا بالعالم שלום עולם",
    "$\\int_0^1 x^2\\,dx = \\frac{1}{3}$ and H₂O ≠ CO₂ → 10⁻⁹ ½ ⅔",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n\n* item\n\t- nested    \n```python\nx = 1\n```",
    "https://example.org/path?query=1&x=%20#frag  foo@bar.io  ../a/b_c-d.py:42 C:\\dir\\f.txt",
    "👩‍👩‍👧‍👦 🇩🇪🇯🇵 👍🏽 e\u0301 n\u0303 \u0301 \ufeffBOM zero\u200bwidth \u202eright",
)
# Pairs that became one character under NFC in Unicode 13 and 16: older tables leave them apart.
_YOUNG_COMPOSITIONS = (
    "\U00011935\U00011930",
    "\U00016d67\U00016d67", "\U00016d63\U00016d67", "\U00016d69\U00016d67",
    "\U0001611e\U0001611e", "\U0001611e\U00016129", "\U0001611e\U0001611f",
    "\U00011382\U000113c9", "\U00011384\U000113bb", "\U0001138b\U000113c2",
    "\U00011390\U000113c9", "\U000113c2\U000113c2", "\U000113c2\U000113b8",
)  # fmt: skip
# A tokenizer that never splits a text reads a long row as one word: an engine may take quadratic
# time over it. Rows are long from here on.
_LONG_ROW = 20_000
_LONG_ROWS = (" " * _LONG_ROW + "word " * _LONG_ROW, "a" * 2 * _LONG_ROW, "ab\n " * _LONG_ROW)
_SLOWER = 2.0  # than the reference: the engine does not get long rows

_SAMPLE_TEXTS = 128
_SAMPLE_WINDOW = 1000  # of a longer row, some part that may lie anywhere in it
_SAMPLE_CHARS = 24_000

Count = Callable[[list[str]], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether an engine may be used; `longest_row` is the longest (characters) that it gets."""

    agrees: bool
    strings: int
    different: int
    longest_row: int | None = None


def known_verdict(folder: Path, engine: str, reference: str) -> Verdict | None:
    """The verdict of an earlier run on one tokenizer, whose place in the cache is `folder`."""
    with suppress(OSError, ValueError, TypeError):
        return Verdict(**orjson.loads(read_checked(_place(folder, engine, reference))))
    return None


def record_verdict(folder: Path, engine: str, reference: str, verdict: Verdict) -> None:
    with suppress(ChunkscopeError):  # a cache that cannot be written costs time, not truth
        write_checked(_place(folder, engine, reference), orjson.dumps(asdict(verdict)))


def _place(folder: Path, engine: str, reference: str) -> Path:
    return folder / f"{_SUITE} {engine} against {reference}.json".replace(" ", "-")


def longest_row(engine: Count, reference: Count) -> int | None:
    """How long a row the engine counts in about the reference's time; None for any."""
    for text in _LONG_ROWS:
        if _seconds(engine, text) > _SLOWER * _seconds(reference, text):
            return _LONG_ROW
    return None


def _seconds(count: Count, text: str) -> float:
    def measured() -> float:
        begin = perf_counter()
        count([text])
        return perf_counter() - begin

    return min(measured(), measured())


# -- the strings -------------------------------------------------------------------------------


def suite(document: dict[str, Any]) -> list[str]:
    """The test strings, with the words and special tokens of this tokenizer.json among them."""
    return [*_common(), *_vocabulary_words(document), *_with_specials(_specials(document))]


def sentences() -> list[str]:
    """A few hundred of them: to tell whether two ways into one library are the same."""
    mixtures = _mixtures(random.Random(0), 200)  # noqa: S311  (a test, not a secret)
    return ["", *_SENTENCES, *_white_space(), *mixtures]


@cache
def _common() -> tuple[str, ...]:
    return tuple(_all_common())


def _all_common() -> Iterator[str]:
    yield ""
    yield from _SENTENCES
    yield from _code_points()
    yield from _YOUNG_COMPOSITIONS
    yield from _white_space()
    yield from _runs()
    yield from (unicodedata.normalize(form, s) for form in ("NFD", "NFKC") for s in _SENTENCES)
    yield from _mixtures(random.Random(0), 1500)  # noqa: S311  (a test, not a secret)


def _code_points() -> Iterator[str]:
    """Every code point of the first plane and some above, at the edges of words and digits."""
    points = [*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x10000)]
    points += [point for some, step in _SAMPLED.items() for point in some[::step]]
    points += [*range(0x10000, 0x12000), *range(0x12000, 0x16000, 7), *range(0x16000, 0x17000)]
    points += [*range(0x17000, 0x1E000, 7), *range(0x1E000, 0x1F000), *range(0x1F000, 0x34000, 7)]
    for start in range(0, len(points), 16):
        yield "".join(_around(chr(point)) for point in points[start : start + 16])


def _around(c: str) -> str:
    """A character between others, doubled, and among marks, where its place may be changed."""
    return f"x{c}y {c}{c}7{c}\n{c} a\u0345{c}\u0316 "


def _white_space() -> Iterator[str]:
    for first in _SPACES:
        for second in _SPACES:
            yield f"{first}word{first}{second}Word{second}{first}{second}9{second}.{first}{second}"


def _runs() -> Iterator[str]:
    for unit in ("a", "A", " ", "\n", "\t", "0", "7", ".", "-", "=", "é", "中", "🙂", "ab", "a b"):
        for length in (2, 3, 4, 7, 16, 63, 256, 1500):
            yield unit * length
            yield f"x{unit * length}y {unit * length} z"


def _mixtures(chance: random.Random, count: int) -> Iterator[str]:
    pieces = [*_SPACES, *(word for s in _SENTENCES for word in s.split(" "))]
    pieces += ["'s", "'LL", "1234567", "3.14", "__init__", "...", "?!", "ﬁ", "İ", "ß", "Σς"]
    for _ in range(count):
        joiner = chance.choice(("", " ", "\n"))
        yield joiner.join(chance.choices(pieces, k=chance.randint(1, 24)))


def _vocabulary_words(document: dict[str, Any]) -> Iterator[str]:
    """Entries of the tokenizer's vocabulary, alone and in a row: merges must end the same way."""
    vocabulary = document.get("model", {}).get("vocab") or {}
    if not isinstance(vocabulary, dict):
        return
    words = sorted(vocabulary)
    shown = [word.replace("Ġ", " ").replace("Ċ", "\n") for word in words[:: 1 + len(words) // 3000]]
    for start in range(0, len(shown), 8):
        yield "".join(shown[start : start + 8])
        yield " ".join(shown[start : start + 8])


def _with_specials(specials: list[str]) -> Iterator[str]:
    for token in specials:
        yield token
        yield f"before{token}after {token} {token}{token}\n{token}.{token[:-1]} {token[1:]}"


def _specials(document: dict[str, Any]) -> list[str]:
    if not document:
        return ["<s>", "[INST]", "<|endoftext|>", "<|im_start|>"]
    contents = [token["content"] for token in document.get("added_tokens") or []]
    # Vocabularies reserve hundreds of alike tokens: the first ones, and some of the rest, do.
    return contents[:64] + contents[64::37]


# -- the run's own rows ------------------------------------------------------------------------


class RowSample:
    """A reservoir: every text that was offered is as likely to be in it as any other."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._offered = 0
        self._chance = random.Random(0)  # noqa: S311  (a sample, not a secret)

    def offer(self, texts: list[str]) -> None:
        for text in texts[:: max(1, len(texts) // 32)]:
            self._offered += 1
            place = len(self._texts)
            if place == _SAMPLE_TEXTS:
                place = self._chance.randrange(self._offered)
            if place < _SAMPLE_TEXTS:
                self._texts[place : place + 1] = [self._window(text)]

    def texts(self) -> list[str]:
        """As many of them, in any order, as can be counted at once."""
        chosen = self._chance.sample(self._texts, len(self._texts))
        ends = accumulate(map(len, chosen))
        return [text for text, end in zip(chosen, ends, strict=True) if end <= _SAMPLE_CHARS]

    def _window(self, text: str) -> str:
        start = self._chance.randint(0, max(0, len(text) - _SAMPLE_WINDOW))
        return text[start : start + _SAMPLE_WINDOW]
