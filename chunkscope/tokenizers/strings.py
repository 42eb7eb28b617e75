"""The strings on which two ways to tokenize are compared.

They reach for what engines get wrong: every Unicode class, white space of all kinds, digits,
contractions, special tokens spelled out, long runs, decomposed text, random mixtures.
"""

import random
from collections.abc import Iterator
from typing import Any
from unicodedata import category, combining, decomposition, normalize

_SPACES = (
    " ",
    "\n",
    "\t",
    "\r\n",
    "  ",
    "\n\n",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\x0b",
    "\x85",
)
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
    "\U00016d67\U00016d67",
    "\U0001611e\U0001611f",
)


def suite(document: dict[str, Any]) -> list[str]:
    """The test strings, with the words and special tokens of this tokenizer.json among them."""
    texts = [
        "",
        *_SENTENCES,
        *_YOUNG_COMPOSITIONS,
        *_white_space(),
        *_runs(),
        *_mixtures(1500),
    ]
    texts += [normalize(form, s) for form in ("NFD", "NFKC") for s in _SENTENCES]
    return [
        *texts,
        *_code_points(document),
        *_words(document),
        *_special_tokens(document),
    ]


def sentences() -> list[str]:
    """A few hundred of them: to tell whether two ways into one library are the same."""
    return ["", *_SENTENCES, *_white_space(), *_mixtures(200)]


def _code_points(document: dict[str, Any]) -> Iterator[str]:
    """Whether one is a letter, a digit, a blank or none of these shows in what becomes of the 's,
    the blanks and the 777 beside it. Of those that are alike in all of Unicode's tables some do."""
    points = [*range(0x3400), *range(0x4DB0, 0x4E00), *range(0x9FA0, 0xAC00)]
    points += [*range(0xD7A0, 0xD800), *range(0xF900, 0x10000)]
    alike = [*range(0x3400, 0xD800, 64), *range(0xE000, 0xF900, 64)]
    alike += [*range(0x10000, 0x20000, 7), *range(0x20000, 0x34000, 64)]
    shown = [("x{0}'s  {0}777{0}\n", points + alike)]
    if document.get(
        "normalizer"
    ):  # which changes marks, and what younger tables may call one
        points += [
            *range(0x10000, 0x12000),
            *range(0x16000, 0x17000),
            *range(0x1D000, 0x1F000),
        ]
        chars = ((point, chr(point)) for point in points)
        marks = [
            p
            for p, c in chars
            if combining(c) or decomposition(c) or category(c) == "Cn"
        ]
        shown.append(("a\u0345{0}\u0316", marks))
    for form, points in shown:
        for start in range(0, len(points), 16):
            yield "".join(map(form.format, map(chr, points[start : start + 16])))


def _white_space() -> Iterator[str]:
    for first in _SPACES:
        for second in _SPACES:
            yield f"{first}word{first}{second}Word{second}{first}{second}9{second}.{first}{second}"


def _runs() -> Iterator[str]:
    for unit in (
        "a",
        "A",
        " ",
        "\n",
        "\t",
        "0",
        "7",
        ".",
        "-",
        "=",
        "é",
        "中",
        "🙂",
        "ab",
        "a b",
    ):
        for length in (2, 3, 4, 7, 16, 63, 256, 1500):
            yield unit * length
            yield f"x{unit * length}y {unit * length} z"


def _mixtures(count: int) -> Iterator[str]:
    chance = random.Random(0)  # noqa: S311  (a test, not a secret)
    pieces = [*_SPACES, *(word for s in _SENTENCES for word in s.split(" "))]
    pieces += [
        "'s",
        "'LL",
        "'ſ",
        "1234567",
        "3.14",
        "__init__",
        "...",
        "?!",
        "ﬁ",
        "İ",
        "ß",
        "Σς",
    ]
    for _ in range(count):
        joiner = chance.choice(("", " ", "\n"))
        yield joiner.join(chance.choices(pieces, k=chance.randint(1, 24)))


def _words(document: dict[str, Any]) -> Iterator[str]:
    """Entries of the tokenizer's vocabulary, in lines and in a row: merges must end alike."""
    from tokenizers.decoders import ByteLevel

    words = list(document.get("model", {}).get("vocab", ()))
    for joiner, most in (("Ċ", 16_000), ("", 3000)):
        shown = words[:: 1 + len(words) // most]
        for start in range(0, len(shown), 8):
            yield ByteLevel().decode([joiner.join(shown[start : start + 8])])


def _special_tokens(document: dict[str, Any]) -> Iterator[str]:
    own = [token["content"] for token in document.get("added_tokens") or []]
    tokens = own if document else ["<s>", "[INST]", "<|endoftext|>", "<|im_start|>"]
    # Vocabularies reserve hundreds of alike tokens: the first ones, and some of the rest, do.
    for token in tokens[:64] + tokens[64::37]:
        yield token
        yield f"before{token}after {token} {token}{token}\n{token}.{token[:-1]} {token[1:]}"
