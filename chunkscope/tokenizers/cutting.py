"""Cutting a text without changing its token count.

A cut is made only between an ASCII letter and the space or newline after it. The patterns of
GPT-style tokenizers never match a letter and the white space after it in one piece, and look at
nothing before the piece they are at; so both sides are tokenized as they would be in one. Which
tokenizers are of that kind is decided here, by structure (`patterns`) and by trial.
"""

import re
from collections.abc import Iterator
from operator import add
from typing import Any

from chunkscope.tokenizers.engines import CountingEngine
from chunkscope.tokenizers.patterns import never_joins_words, parts_words

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


def cuts_agree(engine: CountingEngine, texts: list[str]) -> bool:
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
