"""Does a fast engine give the same ids as the reference? Asked once per tokenizer and version; each
run then compares a sample of its own rows."""

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import orjson

from chunkscope.artefacts.files import write_atomically
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.tokenizers.cache import cache_file, read_cached
from chunkscope.tokenizers.fast import FastEngine
from chunkscope.tokenizers.foreign import engine_name, foreign_errors
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.reference import Reference
from chunkscope.tokenizers.strings import suite

_SUITE = "11"  # raise when the strings change: old verdicts then no longer count

T = TypeVar("T")
_SAMPLE_WINDOW = 1000  # of a longer row, some part that may lie anywhere in it


def known_verdict(engine: type[FastEngine], facts: TokenizerFacts) -> bool | None:
    """Whether an earlier run found an engine equal to the reference with this tokenizer."""
    return {b"equal": True, b"different": False}.get(
        read_cached("verdicts", _key(engine, facts))
    )


def record_verdict(
    engine: type[FastEngine], facts: TokenizerFacts, *, is_equal: bool
) -> None:
    data = b"equal" if is_equal else b"different"
    with suppress(
        ChunkscopeError
    ):  # a cache that cannot be written costs time, not truth
        write_atomically(cache_file("verdicts", _key(engine, facts)), data)


def _key(engine: type[FastEngine], facts: TokenizerFacts) -> str:
    names = f"{_SUITE} {engine_name(engine.package)} {engine_name(facts.package)}"
    return f"{names} {facts.json_digest or facts.digest}"


def proved_engine(
    engines: Sequence[type[FastEngine]],
    facts: TokenizerFacts,
    reference: Callable[[], Reference],
) -> FastEngine | None:
    """The first engine that takes this tokenizer and gives the ids of the reference."""
    for kind in engines:
        if (is_equal := known_verdict(kind, facts)) is False:
            continue
        try:
            with foreign_errors(kind.package):
                engine = kind(facts, reference)
                if is_equal is None:
                    is_equal = _agrees(engine, facts, reference())
                    record_verdict(kind, facts, is_equal=is_equal)
        except (
            InputError
        ):  # it refuses what it does not know, or stumbles over a test string
            record_verdict(kind, facts, is_equal=False)
            continue
        if is_equal:
            return engine
    return None


def _agrees(engine: FastEngine, facts: TokenizerFacts, reference: Reference) -> bool:
    """Whether it gives the same ids on all test strings. splintr goes by the order of ids alone, so
    no merge may make an earlier one than those before it."""
    document = orjson.loads(facts.json_file.read_bytes()) if facts.json_file else {}
    model = {"merges": (), **document.get("model", {})}
    pairs = (one if isinstance(one, str) else "".join(one) for one in model["merges"])
    made = [model["vocab"][pair.replace(" ", "")] for pair in pairs]
    texts = list(filter(engine.takes, suite(document)))
    return made == sorted(made) and engine.id_bytes(texts) == reference.id_bytes(texts)


class Reservoir(Generic[T]):
    """`size` items out of all, each as likely as any other; the same on every machine."""

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
            elif (place := self.chance.randrange(self.offered)) < self.size:
                self.items[place] = item


class RowSample(Reservoir[str]):
    """Of the texts that an engine counted; of a long one some part that may lie anywhere in it."""

    def offer(self, texts: list[str]) -> None:
        for text in texts[:: max(1, len(texts) // 32)]:
            start = self.chance.randint(0, max(0, len(text) - _SAMPLE_WINDOW))
            self.add([text[start : start + _SAMPLE_WINDOW]])
