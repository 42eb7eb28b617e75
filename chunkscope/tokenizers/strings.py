"""The strings on which two ways to tokenize are compared.

They reach for what engines get wrong: every Unicode class, white space of all kinds,
digits, contractions, special tokens spelled out, long runs, decomposed text, random
mixtures. Those that are the same for every tokenizer stand in strings.json; the
compositions there are pairs that became one character under NFC in Unicode 13 and 16.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

import orjson

FILE = Path(__file__).with_name("strings.json")
FEW_MIXTURES = 200
RUNS = ("a", "A", " ", "\n", "\t", "0", ".", "-", "é", "中", "🙂", "ab", "a b")
RUN_LENGTHS = (2, 3, 4, 7, 16, 63, 256, 1_500)
AT_ONCE = 16  # code points in a string
WORDS = 16_000  # of a vocabulary
USUAL_SPECIAL_TOKENS = ("<s>", "[INST]", "<|endoftext|>", "<|im_start|>")

# Code points: all of the usual scripts, and some of the others.
POINTS = (
    *range(0x3400),
    *range(0x3400, 0xD800, 64),
    *range(0xE000, 0xF900, 64),
    *range(0xF900, 0x10000),
    *range(0x10000, 0x20000, 7),
    *range(0x20000, 0x34000, 64),
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
    texts += _around("x{0}'s  {0}777{0}\n", POINTS)
    if document.get("normalizer"):
        texts += _around("a\u0345{0}\u0316", POINTS)
    return [*texts, *_words(document), *_special_tokens(document)]


def sentences() -> list[str]:
    """A few hundred of them: to tell whether two ways into one library are the same."""
    data = orjson.loads(FILE.read_bytes())
    few = data["mixtures"][:FEW_MIXTURES]
    return ["", *data["sentences"], *data["white_space"], *few]


def _around(form: str, points: tuple[int, ...]) -> Iterator[str]:
    """Characters in a form, several in a string."""
    for start in range(0, len(points), AT_ONCE):
        shown = [form.format(chr(point)) for point in points[start : start + AT_ONCE]]
        yield "".join(shown)


def _runs() -> Iterator[str]:
    for unit in RUNS:
        for length in RUN_LENGTHS:
            yield unit * length
            yield f"x{unit * length}y {unit * length} z"


def _words(document: dict[str, Any]) -> Iterator[str]:
    """Entries of the tokenizer's vocabulary, in lines: merges must end alike."""
    from tokenizers.decoders import ByteLevel

    words = list(document.get("model", {}).get("vocab", ()))
    decoder = ByteLevel()
    for start in range(0, len(words), 8 * (1 + len(words) // WORDS)):
        few = words[start : start + 8]
        yield decoder.decode(["Ċ".join(few)])
        yield decoder.decode(["".join(few)])


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
