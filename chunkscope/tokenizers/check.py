"""Does the fast engine give the same ids as the reference? Asked once per tokenizer and
version; each run then compares a sample of its own rows."""

import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, TypeVar

import orjson

from chunkscope.artefacts.files import write_atomically
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.tokenizers import fast
from chunkscope.tokenizers.cache import cache_file, read_cached
from chunkscope.tokenizers.fast import FastEngine, GetReference
from chunkscope.tokenizers.foreign import engine_name, foreign_errors
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.strings import suite

SUITE = "13"  # raise when the strings change: old verdicts then no longer count
SAMPLE_WINDOW = 1_000  # characters of a longer row, that may lie anywhere in it
OFFERED = 32  # texts of a batch that may come into the sample

EQUAL, DIFFERENT = b"equal", b"different"

T = TypeVar("T")


def known_verdict(facts: TokenizerFacts) -> bool | None:
    """Whether an earlier run found the engine equal to the reference with this
    tokenizer; None where none compared them."""
    verdict = read_cached("verdicts", _key(facts))
    if verdict not in (EQUAL, DIFFERENT):
        return None
    return verdict == EQUAL


def record_verdict(facts: TokenizerFacts, *, is_equal: bool) -> None:
    # A cache that cannot be written costs time, not truth.
    with suppress(ChunkscopeError):
        file = cache_file("verdicts", _key(facts))
        write_atomically(file, EQUAL if is_equal else DIFFERENT)


def _key(facts: TokenizerFacts) -> str:
    engine, reference = engine_name(fast.PACKAGE), engine_name(facts.package)
    return f"{SUITE} {engine} {reference} {facts.json_digest or facts.digest}"


def proved_engine(facts: TokenizerFacts, reference: GetReference) -> FastEngine | None:
    """The fast engine, if it takes this tokenizer and gives the reference's ids."""
    is_equal = known_verdict(facts)
    if is_equal is False:
        return None
    try:
        with foreign_errors(fast.PACKAGE):
            engine = fast.load_engine(facts, reference)
            if is_equal is None:
                is_equal = _agrees(engine, facts, reference)
                record_verdict(facts, is_equal=is_equal)
    except InputError:
        # It refuses what it does not know, or stumbles over a test string.
        record_verdict(facts, is_equal=False)
        return None
    return engine if is_equal else None


def _agrees(engine: FastEngine, facts: TokenizerFacts, reference: GetReference) -> bool:
    """Whether it gives the same ids on all test strings."""
    document = {}
    if facts.json_file:
        document = orjson.loads(facts.json_file.read_bytes())
    texts = suite(document)
    return engine.id_bytes(texts) == reference().id_bytes(texts)


class Reservoir(Generic[T]):
    """`size` items out of all, each as likely as any other; the same on every
    machine."""

    def __init__(self, size: int = 64, seed: int = 0) -> None:
        self.size = size
        self.items: list[T] = []
        self.offered = 0
        self.chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)

    def add(self, items: Iterable[T]) -> None:
        for item in items:
            self.offered += 1
            if len(self.items) < self.size:
                self.items.append(item)
                continue
            place = self.chance.randrange(self.offered)
            if place < self.size:
                self.items[place] = item


class RowSample(Reservoir[str]):
    """Of the texts that an engine counted; of a long one some part that may lie
    anywhere in it."""

    def offer(self, texts: list[str]) -> None:
        for text in texts[:: max(1, len(texts) // OFFERED)]:
            start = self.chance.randint(0, max(0, len(text) - SAMPLE_WINDOW))
            self.add([text[start : start + SAMPLE_WINDOW]])
