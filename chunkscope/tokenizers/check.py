"""Does a fast engine give the same ids as the reference? Asked once per tokenizer and version.

One difference on the test strings, and the reference counts everything. Each run then compares a
sample of its own rows.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from time import process_time
from typing import Generic, TypeVar

import orjson

from chunkscope.artefacts.files import write_atomically
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.tokenizers.cache import cache_file, read_cached
from chunkscope.tokenizers.fast import FastEngine
from chunkscope.tokenizers.foreign import foreign_errors
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.reference import Reference, engine_name
from chunkscope.tokenizers.strings import suite

_SUITE = "8"  # raise when the strings change: old verdicts then no longer count
# A tokenizer that never splits a text reads a row as one word, over which an engine may take
# quadratic time. Such an engine gets no row of more than a quarter of these.
_LONG_ROW = 20_000
LONG_ROWS = (" " * _LONG_ROW + "word " * _LONG_ROW, "a" * 2 * _LONG_ROW, "ab\n " * _LONG_ROW)
_SLOWER = 3.0  # than the reference: the engine does not get long rows

T = TypeVar("T")
_SAMPLE_WINDOW = 1000  # of a longer row, some part that may lie anywhere in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether an engine may be used; `longest_row` is the longest (characters) that it gets."""

    agrees: bool
    longest_row: int | None = None


def known_verdict(engine: type[FastEngine], facts: TokenizerFacts) -> Verdict | None:
    """The verdict of an earlier run on an engine with this tokenizer."""
    with suppress(ValueError, TypeError):
        return Verdict(**orjson.loads(read_cached("verdicts", _key(engine, facts))))
    return None


def record_verdict(
    engine: type[FastEngine], facts: TokenizerFacts, verdict: Verdict | None = None
) -> None:
    data = orjson.dumps(asdict(verdict or Verdict(agrees=False)))
    with suppress(ChunkscopeError):  # a cache that cannot be written costs time, not truth
        write_atomically(cache_file("verdicts", _key(engine, facts)), data)


def _key(engine: type[FastEngine], facts: TokenizerFacts) -> str:
    return f"{_SUITE} {engine_name(engine.package)} {engine_name(facts.package)} {facts.digest}"


def proved_engine(
    engines: Sequence[type[FastEngine]], facts: TokenizerFacts, reference: Callable[[], Reference]
) -> FastEngine | None:
    """The first engine that takes this tokenizer and gives the ids of the reference."""
    for kind in engines:
        if (verdict := known_verdict(kind, facts)) and not verdict.agrees:
            continue
        try:
            with foreign_errors(kind.package):
                engine = kind(facts, reference)
                if verdict is None:
                    file = facts.json_file
                    texts = suite(orjson.loads(file.read_bytes()) if file else {})
                    verdict = judge(engine, reference(), list(filter(engine.takes, texts)))
                    record_verdict(kind, facts, verdict)
        except InputError:  # it refuses what it does not know, or stumbles over a test string
            record_verdict(kind, facts)
            continue
        if verdict.agrees:
            engine.longest_row = verdict.longest_row
            return engine
    return None


def judge(engine: FastEngine, reference: Reference, texts: list[str]) -> Verdict:
    """Compare the ids of the test strings, and the time that long rows take."""
    if engine.id_bytes(texts) != reference.id_bytes(texts):
        return Verdict(agrees=False)
    is_slow = any(
        cpu_seconds(engine, row) > _SLOWER * cpu_seconds(reference, row) for row in LONG_ROWS
    )
    return Verdict(agrees=True, longest_row=_LONG_ROW // 4 if is_slow else None)


def cpu_seconds(engine: FastEngine | Reference, text: str) -> float:
    """Asked once: a second call could find the answer in a cache."""
    begin = process_time()
    engine.id_bytes([text])
    return process_time() - begin


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
