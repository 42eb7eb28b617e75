"""Does a fast engine give the same ids as the reference? Asked once per tokenizer and version.

The strings reach for what engines get wrong: every Unicode class, white space of all kinds,
digits, contractions, special tokens spelled out, long runs, decomposed text, random mixtures.
"""

import random
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import orjson

from chunkscope.artefacts.codec import read_checked, write_checked
from chunkscope.artefacts.folders import cache_folder
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.engines import CountingEngine
from chunkscope.tokenizers.guard import guarded

_SUITE = (
    "5"  # raise when the strings or what is made of them change: old verdicts then no longer count
)
# An engine that stumbles over more than this is wrong in another way than by its Unicode version.
_MAX_SUSPECTS = 4000
_MAX_BLOCKS = 8
_FIRST_MARK = "\u0300"
_FIRST_ABOVE = "\U00010000"  # from here on only some code points are tried: a block stands or falls
# Unicode's tables of another year differ in marks, in what was unknown, and in signs.
_MAY_DIFFER = ("Mn", "Mc", "Me", "Cn", "Cf", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "So")
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


def texts_for(compiled: Compiled) -> list[str]:
    """The test strings, with this tokenizer's own special tokens among them."""
    return [*_common(), *_own_words(compiled), *_with_specials(_specials(compiled))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Whether an engine may be used, and for which characters it may not.

    Engines carry Unicode tables of different years: rows with marks and scripts that are too
    young for one of them are left to the reference, all others are counted fast.
    `except_characters` is the inside of a regular expression's class.
    """

    agrees: bool
    strings: int
    different: int
    except_characters: str = ""

    def exceptions(self) -> "re.Pattern[str] | None":
        """Matches what the engine must not count."""
        return re.compile(f"[{self.except_characters}]") if self.except_characters else None


def judge(
    compiled: Compiled, loader: str, engine: CountingEngine, reference: CountingEngine
) -> Agreement:
    """Compare the ids of all test strings, and keep the verdict on disk under `loader`."""
    texts = texts_for(compiled)
    try:
        with guarded(engine.name):
            failed = _differing_texts(engine, reference, texts)
            excepted = _to_blame(engine, reference, failed)
    except InputError:  # an engine that stumbles over a test string is not to be trusted
        failed, excepted = texts, None
    verdict = Agreement(
        agrees=excepted is not None,
        strings=len(texts),
        different=len(failed),
        except_characters=excepted or "",
    )
    record(compiled, loader, reference.name, verdict)
    return verdict


def _differing_texts(
    engine: CountingEngine, reference: CountingEngine, texts: list[str]
) -> list[str]:
    if not texts:
        return []
    pairs = zip(texts, engine.ids(texts), reference.ids(texts), strict=True)
    return [text for text, ours, theirs in pairs if ours != theirs]


def _to_blame(engine: CountingEngine, reference: CountingEngine, failed: list[str]) -> str | None:
    """The characters without which none of these texts fails; None if it is not just characters."""
    suspects = sorted({c for text in failed for c in text if c >= _FIRST_MARK})
    if len(suspects) > _MAX_SUSPECTS:
        return None
    probes = {_around(c): c for c in suspects}
    blamed = {probes[text] for text in _differing_texts(engine, reference, list(probes))}
    if still := _still_failing(engine, reference, failed, blamed):
        blamed |= {c for text in still for c in text if c >= _FIRST_ABOVE}
        if _still_failing(engine, reference, still, blamed):
            return None
    below = sorted(c for c in blamed if c < _FIRST_ABOVE)
    blocks = sorted({ord(c) >> 12 for c in blamed if c >= _FIRST_ABOVE})
    odd = any(unicodedata.category(c) not in _MAY_DIFFER or _is_sampled(c) for c in below)
    if odd or len(blocks) > _MAX_BLOCKS:
        return None
    return "".join([*below, *(f"{chr(b << 12)}-{chr((b << 12) + 0xFFF)}" for b in blocks)])


def _is_sampled(c: str) -> bool:
    return any(ord(c) in some for some in _SAMPLED)


def _still_failing(
    engine: CountingEngine, reference: CountingEngine, failed: list[str], without: set[str]
) -> list[str]:
    left_out = dict.fromkeys(map(ord, without))
    rest = {text.translate(left_out): text for text in failed}
    return [rest[text] for text in _differing_texts(engine, reference, list(rest))]


def known(compiled: Compiled, engine: str, reference: str) -> Agreement | None:
    """The verdict of an earlier run."""
    with suppress(OSError, ValueError, TypeError):
        return Agreement(**orjson.loads(read_checked(_place(compiled, engine, reference))))
    return None


def record(compiled: Compiled, engine: str, reference: str, verdict: Agreement) -> None:
    with suppress(ChunkscopeError):  # a cache that cannot be written costs time, not truth
        write_checked(_place(compiled, engine, reference), orjson.dumps(asdict(verdict)))


def differing(ours: list[int], theirs: list[int]) -> int:
    return sum(a != b for a, b in zip(ours, theirs, strict=True))


def _place(compiled: Compiled, engine: str, reference: str) -> Path:
    name = f"{_SUITE} {engine} against {reference}.json".replace(" ", "-")
    return cache_folder() / "tokenizers" / compiled.key / name


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
    yield from _mixtures(random.Random(0))  # noqa: S311  (a test, not a secret)


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
            yield f"{unit * length}"
            yield f"x{unit * length}y {unit * length} z"


def _mixtures(chance: random.Random) -> Iterator[str]:
    pieces = [*_SPACES, *(word for s in _SENTENCES for word in s.split(" "))]
    pieces += ["'s", "'LL", "1234567", "3.14", "__init__", "...", "?!", "ﬁ", "İ", "ß", "Σς"]
    for _ in range(1500):
        joiner = chance.choice(("", " ", "\n"))
        yield joiner.join(chance.choices(pieces, k=chance.randint(1, 24)))


def _own_words(compiled: Compiled) -> Iterator[str]:
    """Entries of the tokenizer's vocabulary, alone and in a row: merges must end the same way."""
    vocabulary = compiled.document.get("model", {}).get("vocab") or {}
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


def _specials(compiled: Compiled) -> list[str]:
    if not compiled.document:
        return ["<s>", "[INST]", "<|endoftext|>", "<|im_start|>"]
    contents = [token["content"] for token in compiled.document.get("added_tokens") or []]
    # Vocabularies reserve hundreds of alike tokens: the first ones, and some of the rest, do.
    return contents[:64] + contents[64::37]
