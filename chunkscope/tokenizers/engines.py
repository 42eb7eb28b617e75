"""Engines: list of texts in, token counts out, without the special tokens a prompt begins with.

The fast ones, which are here, are an order of magnitude quicker than the `references` and are
trusted only after `conformance` found no difference. All of them release the interpreter lock
while they count, so threads are enough.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from itertools import islice, pairwise
from operator import sub
from typing import Any
from unicodedata import normalize, unidata_version

from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.lean import lean_json

Counts = list[int]
ID_BYTES = 4  # of a token id, where a text's ids are bytes
version = lru_cache(metadata.version)  # asked for every dataset, and it reads a file each time
Ids = list[list[int]]


@dataclass(frozen=True, slots=True)
class CountingEngine:
    """`count` is the hot path; `ids` is for proving that two engines agree.

    `flat_ids` are the same ids as bytes, which the fast engines give as quickly as they count.
    """

    name: str
    count: Callable[[list[str]], Counts]
    ids: Callable[[list[str]], Ids]
    flat_ids: Callable[[list[str]], list[bytes]] | None = None

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text, ID_BYTES for each id."""
        if self.flat_ids is not None:
            return self.flat_ids(texts)
        return [pack(found) for found in self.ids(texts)]


def pack(ids: list[int]) -> bytes:
    """Ids as bytes.

    >>> pack([1, 256])
    b'\\x01\\x00\\x00\\x00\\x00\\x01\\x00\\x00'
    """
    return struct.pack(f"<{len(ids)}I", *ids)


def splintr_ranks(compiled: Compiled) -> CountingEngine | None:
    """Loads in a tenth of a second: the choice for most evaluation sets."""
    if not compiled.pattern:
        return None
    import splintr

    ranks = compiled.ranks_file.read_bytes()
    engine = _splintr(splintr.Tokenizer.from_bytes(ranks, compiled.pattern, {}))
    if compiled.nfc:
        engine = _normalizing(engine)
    return _with_added_tokens(engine, compiled.added) if compiled.added else engine


def _normalizing(engine: CountingEngine) -> CountingEngine:
    def normalized(texts: list[str]) -> list[str]:
        if all(map(str.isascii, texts)):
            return texts
        return [text if text.isascii() else normalize("NFC", text) for text in texts]

    return CountingEngine(
        engine.name,
        lambda texts: engine.count(normalized(texts)),
        lambda texts: engine.ids(normalized(texts)),
        lambda texts: engine.id_bytes(normalized(texts)),
    )


def _with_added_tokens(engine: CountingEngine, added: dict[str, int]) -> CountingEngine:
    """Cut the added tokens out first, as the reference does, and count each as one."""
    packed = {content: pack([number]) for content, number in added.items()}
    beginnings = {content[:2] for content in added}

    @cache  # hundreds of reserved tokens take a tenth of a second, and most texts have none
    def token() -> "re.Pattern[str]":
        longest_first = sorted(added, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))

    def may_hold(text: str) -> bool:
        return any(beginning in text for beginning in beginnings)

    def count(texts: list[str]) -> Counts:
        found = {i: p for i, t in enumerate(texts) if may_hold(t) and (p := token().findall(t))}
        if not found:
            return engine.count(texts)
        plain = [token().split(t) if i in found else [t] for i, t in enumerate(texts)]
        counts = iter(engine.count([part for parts in plain for part in parts]))
        return [
            sum(islice(counts, len(found[i]) + 1)) + len(found[i]) if i in found else next(counts)
            for i in range(len(texts))
        ]

    def ids(texts: list[str]) -> Ids:
        result = []
        for text in texts:
            parts, tokens = token().split(text), token().findall(text)
            numbers = engine.ids(parts)
            for place, content in enumerate(tokens):
                numbers[place].append(added[content])
            result.append([number for part in numbers for number in part])
        return result

    def flat_ids(texts: list[str]) -> list[bytes]:
        cut = [token().split(t) if may_hold(t) else [t] for t in texts]
        found = iter(engine.id_bytes([part for parts in cut for part in parts]))
        result = []
        for text, parts in zip(texts, cut, strict=True):
            pieces = [next(found)]
            for content in token().findall(text) if len(parts) > 1 else ():
                pieces += [packed[content], next(found)]
            result.append(b"".join(pieces))
        return result

    return CountingEngine(engine.name, count, ids, flat_ids)


def splintr_json(compiled: Compiled) -> CountingEngine | None:
    if compiled.form != "json":
        return None
    import splintr

    return _splintr(splintr.from_json(str(compiled.json_file)))


def _splintr(tokenizer: Any) -> CountingEngine:
    import splintr

    before, after = _put_around(tokenizer)

    def count(texts: list[str]) -> Counts:
        lengths = _between(tokenizer.encode_batch_flat(texts)[1])
        added = before + after
        return [length - added for length in lengths] if added else lengths

    def flat_ids(texts: list[str]) -> list[bytes]:
        found = _parts(*tokenizer.encode_batch_flat(texts))
        if not (before or after):
            return found
        return [ids[before * ID_BYTES : len(ids) - after * ID_BYTES] for ids in found]

    def ids(texts: list[str]) -> Ids:
        return [memoryview(found).cast("I").tolist() for found in flat_ids(texts)]

    return CountingEngine(f"splintr {splintr.__version__}", count, ids, flat_ids)


def _put_around(tokenizer: Any) -> tuple[int, int]:
    """How many special tokens it puts by itself before and after a prompt: from JSON it does."""
    around, with_them = _parts(*tokenizer.encode_batch_flat(["", "a"]))
    added = len(around) // ID_BYTES
    if not added:
        return 0, 0
    alone = pack(tokenizer.encode_raw("a"))
    for before in range(added + 1):
        cut = before * ID_BYTES
        if around[:cut] + alone + around[cut:] == with_them:
            return before, added - before
    raise ValueError("it puts something else around a prompt than around none")


def fastokens(compiled: Compiled) -> CountingEngine | None:
    """Takes a second to load, then it is the fastest: the choice for large inputs."""
    if compiled.form not in ("json", "ranks"):
        return None
    from fastokens import Tokenizer

    if compiled.form == "json":
        tokenizer = Tokenizer.from_json_str(lean_json(compiled))
    else:
        tokenizer = Tokenizer.from_tiktoken(
            str(compiled.ranks_file), pattern=compiled.pattern, special_tokens={}
        )

    def count(texts: list[str]) -> Counts:
        return _between(tokenizer.encode_batch_flat(texts, add_special_tokens=False)[1])

    def ids(texts: list[str]) -> Ids:
        return [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def flat_ids(texts: list[str]) -> list[bytes]:
        return _parts(*tokenizer.encode_batch_flat(texts, add_special_tokens=False))

    return CountingEngine(f"fastokens {version('fastokens')}", count, ids, flat_ids)


def _between(offsets: bytes) -> Counts:
    """Lengths from the offsets of a flat result (64-bit integers).

    >>> _between(bytes(8) + (3).to_bytes(8, "little"))
    [3]
    """
    edges = memoryview(offsets).cast("Q").tolist()
    return list(map(sub, edges[1:], edges))


def _parts(ids: bytes, offsets: bytes) -> list[bytes]:
    """A flat result, cut at its offsets."""
    edges = [edge * ID_BYTES for edge in memoryview(offsets).cast("Q").tolist()]
    return [ids[start:end] for start, end in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Loader:
    """A fast engine that may or may not take a tokenizer. It raises what it likes if not."""

    label: str
    distribution: str
    load: Callable[[Compiled], CountingEngine | None]

    @property
    def name(self) -> str:
        return f"{self.label} {version(self.distribution)}"


QUICK_TO_LOAD = (
    # Its own normalizer is Python's: the verdict is good for that Unicode version.
    Loader(f"splintr-ranks-unicode-{unidata_version}", "splintr-rs", splintr_ranks),
    Loader("splintr", "splintr-rs", splintr_json),
)
QUICK_TO_COUNT = Loader("fastokens-lean", "fastokens", fastokens)
