"""What a splitting pattern can take in one piece, read off the pattern itself.

Trying it on texts would not do: `New York|\\p{L}+|\\s+` takes a letter and the space after it, but
in one name only. So the pattern is taken apart, and what is not understood is not permitted.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_letters

WHITE = " \n"
_ESCAPE = r"\\[pP]\{\^?\w+\}|\\[sSdDwWrntfv]|\\[^\w\s]"
_CLASS = rf"\[\^?(?:{_ESCAPE}|[^\[\]\\])+\]"
_CHARACTER = re.compile(rf"{_CLASS}|{_ESCAPE}|[^\\\[\](){{|?*+^$]")
_SET_OPERATION = re.compile(r"&&|\|\||--|~~")  # engines do not agree on what they mean in a class
_TIMES = re.compile(r"(?:[*+?]|\{(?:\d+(?:,\d*)?|,\d+)\})[+?]?")
_MAY_BE_NONE = re.compile(r"[*?]|\{0|\{,")
_GROUP = re.compile(r"\((?:\?(?:i?:|>))?(?!\?)")
# True before white space and at the end of a text alike, so a cut changes nothing for it.
_NO_WORD_AHEAD = r"(?!\S)"


def never_joins_words(pattern: str) -> bool:
    """Whether no match holds an ASCII letter and the space or newline after it.

    And whether none depends on such white space being there: then a text can be cut before it.

    >>> never_joins_words(r" ?\\p{L}+|\\s+(?!\\S)|\\s+"), never_joins_words(r"New York|\\p{L}+|\\s")
    (True, False)
    """
    try:
        part = _Parser(pattern).whole()
    except _NotUnderstood:
        return False
    return not (part.across or part.empty)


def parts_words(pattern: str) -> bool:
    """Whether a piece always ends between a letter and the space or newline after it.

    >>> parts_words(r" ?\\p{L}+|\\s+(?!\\S)|\\s+"), parts_words(r"\\p{N}{1,3}")
    (True, False)
    """
    import regex

    taken = regex.compile(pattern).match
    every_letter = all(taken(letter + white) for letter in ascii_letters for white in WHITE)
    return every_letter or all(taken(white + after) for white in WHITE for after in ("x", " ", ""))


class _NotUnderstood(Exception):  # noqa: N818  (nothing went wrong)
    pass


@dataclass(frozen=True, slots=True)
class _Part:
    """What a part of a pattern can take: nothing; first white space; last a letter; both within."""

    empty: bool = False
    starts_white: bool = False
    ends_letter: bool = False
    across: bool = False

    def then(self, other: "_Part") -> "_Part":
        return _Part(
            self.empty and other.empty,
            self.starts_white or (self.empty and other.starts_white),
            other.ends_letter or (other.empty and self.ends_letter),
            self.across or other.across or (self.ends_letter and other.starts_white),
        )

    def either(self, other: "_Part") -> "_Part":
        return _Part(
            self.empty or other.empty,
            self.starts_white or other.starts_white,
            self.ends_letter or other.ends_letter,
            self.across or other.across,
        )


_NOTHING = _Part(empty=True)
# After white space it is as true in a text as at its end; after a letter a cut would make it true.
_END = _Part(starts_white=True)


class _Parser:
    """Reads a pattern from left to right. Knows what GPT-style patterns are made of."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> _Part:
        part = self._alternatives()
        if self._at < len(self._pattern):
            raise _NotUnderstood
        return part

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._skip("|"):
            part = part.either(self._sequence())
        return part

    def _sequence(self) -> _Part:
        part = _NOTHING
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            part = part.then(self._repeated())
        return part

    def _repeated(self) -> _Part:
        part = self._one()
        times = self._take(_TIMES)
        if not times:
            return part
        if times[0] != "?":
            part = part.either(part.then(part))
        return part.either(_NOTHING) if _MAY_BE_NONE.match(times) else part

    def _one(self) -> _Part:
        if self._skip(_NO_WORD_AHEAD):
            return _NOTHING
        if self._skip("$"):
            return _END
        if self._take(_GROUP):
            part = self._alternatives()
            if not self._skip(")"):
                raise _NotUnderstood
            return part
        if character := self._take(_CHARACTER):
            return _character(character)
        raise _NotUnderstood

    def _skip(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _take(self, what: "re.Pattern[str]") -> str:
        match = what.match(self._pattern, self._at)
        self._at = match.end() if match else self._at
        return match[0] if match else ""


@lru_cache(maxsize=256)
def _character(source: str) -> _Part:
    import regex

    if _SET_OPERATION.search(source):
        raise _NotUnderstood
    try:
        # Groups may ignore case: then the long s is an s, and the Kelvin sign a k.
        patterns = [regex.compile(source, flags) for flags in (0, regex.IGNORECASE)]
    except regex.error as error:
        raise _NotUnderstood from error
    takes = {c for c in ascii_letters + WHITE for pattern in patterns if pattern.fullmatch(c)}
    return _Part(
        starts_white=not takes.isdisjoint(WHITE), ends_letter=not takes.isdisjoint(ascii_letters)
    )
