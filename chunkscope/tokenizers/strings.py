"""The strings on which two ways to tokenize are compared.

They reach for what engines get wrong: every Unicode class, white space of all kinds,
digits, contractions, special tokens spelled out, long runs, decomposed text, random
mixtures. Those that are the same for every tokenizer stand in strings.json; the
compositions there are pairs that became one character under NFC in Unicode 13 and 16.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import category, combining, decomposition, normalize

import orjson

FILE = Path(__file__).with_name("strings.json")
FEW_MIXTURES = 200
RUNS = (
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
)
RUN_LENGTHS = (2, 3, 4, 7, 16, 63, 256, 1_500)
AT_ONCE = 16  # code points in a string
WORDS = 16_000  # of a vocabulary
USUAL_SPECIAL_TOKENS = ("<s>", "[INST]", "<|endoftext|>", "<|im_start|>")

# Code points, of which each is seen; of those that all tables of Unicode have alike
# only some are.
EACH = (
    *range(0x3400),
    *range(0x4DB0, 0x4E00),
    *range(0x9FA0, 0xAC00),
    *range(0xD7A0, 0xD800),
    *range(0xF900, 0x10000),
)
SOME = (
    *range(0x3400, 0xD800, 64),
    *range(0xE000, 0xF900, 64),
    *range(0x10000, 0x20000, 7),
    *range(0x20000, 0x34000, 64),
)
YOUNG = (
    *range(0x10000, 0x12000),
    *range(0x16000, 0x17000),
    *range(0x1D000, 0x1F000),
)


def suite(document: dict[str, Any]) -> list[str]:
    """The test strings, with the words and special tokens of this tokenizer.json among
    them."""
    data = orjson.loads(FILE.read_bytes())
    texts = ["", *data["sentences"], *data["young_compositions"]]
    texts += [*data["white_space"], *data["mixtures"], *_runs()]
    for form in ("NFD", "NFKC"):
        texts += [normalize(form, sentence) for sentence in data["sentences"]]
    # Whether one is a letter, a digit, a blank or none of these shows in what becomes
    # of the 's, the blanks and the 777 beside it.
    texts += _around("x{0}'s  {0}777{0}\n", (*EACH, *SOME))
    if document.get("normalizer"):
        marks = [point for point in (*EACH, *YOUNG) if _may_change(chr(point))]
        texts += _around("a\u0345{0}\u0316", marks)
    return [*texts, *_words(document), *_special_tokens(document)]


def sentences() -> list[str]:
    """A few hundred of them: to tell whether two ways into one library are the same."""
    data = orjson.loads(FILE.read_bytes())
    few = data["mixtures"][:FEW_MIXTURES]
    return ["", *data["sentences"], *data["white_space"], *few]


def _around(form: str, points: tuple[int, ...] | list[int]) -> Iterator[str]:
    """Characters in a form, several in a string."""
    for start in range(0, len(points), AT_ONCE):
        shown = [form.format(chr(point)) for point in points[start : start + AT_ONCE]]
        yield "".join(shown)


def _may_change(char: str) -> bool:
    """Whether a normalizer may change it, by its own table of Unicode or a younger."""
    return bool(combining(char) or decomposition(char) or category(char) == "Cn")


def _runs() -> Iterator[str]:
    for unit in RUNS:
        for length in RUN_LENGTHS:
            yield unit * length
            yield f"x{unit * length}y {unit * length} z"


def _words(document: dict[str, Any]) -> Iterator[str]:
    """Entries of the tokenizer's vocabulary, in lines: merges must end alike."""
    from tokenizers.decoders import ByteLevel

    words = list(document.get("model", {}).get("vocab", ()))
    shown = words[:: 1 + len(words) // WORDS]
    decoder = ByteLevel()
    for start in range(0, len(shown), 8):
        some = shown[start : start + 8]
        yield decoder.decode(["Ċ".join(some)])
        yield decoder.decode(["".join(some)])


def _special_tokens(document: dict[str, Any]) -> Iterator[str]:
    tokens = USUAL_SPECIAL_TOKENS
    if document:
        added = document.get("added_tokens") or []
        tokens = tuple(token["content"] for token in added)
    # Vocabularies reserve hundreds of alike tokens: the first ones, and some, do.
    for token in tokens[:64] + tokens[64::37]:
        yield token
        yield f"before{token}after {token} {token}{token}\n"
        yield f"{token}.{token[:-1]} {token[1:]}"
