"""Engines: list of texts in, token counts out, without the special tokens a prompt begins with.

A *reference* engine is the library vLLM itself uses. The fast ones (splintr, fastokens) are an
order of magnitude quicker and are trusted only after `conformance` found no difference.
All of them release the interpreter lock while they count, so threads are enough.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from itertools import islice
from operator import sub
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize, unidata_version

import orjson

from chunkscope.errors import InputError

if TYPE_CHECKING:
    from chunkscope.tokenizers.compiled import Compiled

Counts = list[int]
version = lru_cache(metadata.version)  # asked for every dataset, and it reads a file each time
Ids = list[list[int]]


@dataclass(frozen=True, slots=True)
class Engine:
    """`count` is the hot path; `ids` is for proving that two engines agree."""

    name: str
    count: Callable[[list[str]], Counts]
    ids: Callable[[list[str]], Ids]


_loaded: dict[str, Engine] = {}


def reference(compiled: "Compiled") -> Engine:
    """The library whose counts are right by definition. Loaded once per process."""
    place = f"{compiled.form} {compiled.folder}"
    if place not in _loaded:
        _loaded[place] = _REFERENCES[compiled.form](compiled)
    return _loaded[place]


def reference_name(compiled: "Compiled") -> str:
    package = {"json": "tokenizers", "ranks": "tiktoken"}.get(compiled.form, compiled.form)
    return f"{package} {version(package)}"


def splintr_ranks(compiled: "Compiled") -> Engine | None:
    """Loads in a tenth of a second: the choice for most evaluation sets."""
    if not compiled.pattern:
        return None
    import splintr

    ranks = compiled.ranks_file.read_bytes()
    engine = _splintr(splintr.Tokenizer.from_bytes(ranks, compiled.pattern, {}))
    if compiled.nfc:
        engine = _normalizing(engine)
    return _with_added_tokens(engine, compiled.added) if compiled.added else engine


def _normalizing(engine: Engine) -> Engine:
    def normalized(texts: list[str]) -> list[str]:
        if all(map(str.isascii, texts)):
            return texts
        return [text if text.isascii() else normalize("NFC", text) for text in texts]

    return Engine(
        engine.name,
        lambda texts: engine.count(normalized(texts)),
        lambda texts: engine.ids(normalized(texts)),
    )


def _with_added_tokens(engine: Engine, added: dict[str, int]) -> Engine:
    """Cut the added tokens out first, as the reference does, and count each as one."""
    longest_first = sorted(added, key=len, reverse=True)
    token = re.compile("|".join(map(re.escape, longest_first)))
    first_characters = {content[0] for content in added}

    def may_hold(text: str) -> bool:
        return any(character in text for character in first_characters)

    def count(texts: list[str]) -> Counts:
        found = {i: p for i, t in enumerate(texts) if may_hold(t) and (p := token.findall(t))}
        if not found:
            return engine.count(texts)
        plain = [token.split(t) if i in found else [t] for i, t in enumerate(texts)]
        counts = iter(engine.count([part for parts in plain for part in parts]))
        return [
            sum(islice(counts, len(found[i]) + 1)) + len(found[i]) if i in found else next(counts)
            for i in range(len(texts))
        ]

    def ids(texts: list[str]) -> Ids:
        result = []
        for text in texts:
            parts, tokens = token.split(text), token.findall(text)
            numbers = engine.ids(parts)
            for place, content in enumerate(tokens):
                numbers[place].append(added[content])
            result.append([number for part in numbers for number in part])
        return result

    return Engine(engine.name, count, ids)


def splintr_json(compiled: "Compiled") -> Engine | None:
    if compiled.form != "json":
        return None
    import splintr

    return _splintr(splintr.from_json(str(compiled.json_file)))


def _splintr(tokenizer: Any) -> Engine:
    import splintr

    def lengths(texts: list[str]) -> Counts:
        return _between(tokenizer.encode_batch_flat(texts)[1])

    added = lengths([""])[0]  # from JSON it adds the special tokens of a prompt by itself

    def count(texts: list[str]) -> Counts:
        return [length - added for length in lengths(texts)] if added else lengths(texts)

    def ids(texts: list[str]) -> Ids:
        return [tokenizer.encode_raw(text) for text in texts]

    return Engine(f"splintr {splintr.__version__}", count, ids)


def fastokens(compiled: "Compiled") -> Engine | None:
    """Takes a second to load, then it is the fastest: the choice for large inputs."""
    from fastokens import Tokenizer

    if compiled.form == "json":
        tokenizer = Tokenizer.from_file(str(compiled.json_file))
    elif compiled.form == "ranks":
        tokenizer = Tokenizer.from_tiktoken(
            str(compiled.ranks_file), pattern=compiled.pattern, special_tokens={}
        )
    else:
        return None

    def count(texts: list[str]) -> Counts:
        return _between(tokenizer.encode_batch_flat(texts, add_special_tokens=False)[1])

    def ids(texts: list[str]) -> Ids:
        return [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    return Engine(f"fastokens {version('fastokens')}", count, ids)


def _between(offsets: bytes) -> Counts:
    """Lengths from the offsets of a flat result (64-bit integers).

    >>> _between(bytes(8) + (3).to_bytes(8, "little"))
    [3]
    """
    edges = memoryview(offsets).cast("Q").tolist()
    return list(map(sub, edges[1:], edges))


def _json_reference(compiled: "Compiled") -> Engine:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(compiled.json_file))

    def count(texts: list[str]) -> Counts:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [len(encoding) for encoding in encodings]  # len(e.ids) would copy every id

    def ids(texts: list[str]) -> Ids:
        return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    return Engine(reference_name(compiled), count, ids)


def _ranks_reference(compiled: "Compiled") -> Engine:
    import tiktoken

    encoding = tiktoken.Encoding(
        compiled.key,
        pat_str=compiled.pattern,
        mergeable_ranks=read_ranks(compiled.ranks_file),
        special_tokens={},
    )

    def ids(texts: list[str]) -> Ids:
        return list(encoding.encode_ordinary_batch(texts, num_threads=2))

    return Engine(reference_name(compiled), lambda texts: list(map(len, ids(texts))), ids)


def _sentencepiece_reference(compiled: "Compiled") -> Engine:
    model = load_sentencepiece(compiled.files[0])

    def ids(texts: list[str]) -> Ids:
        return list(model.encode(texts, out_type=int))

    return Engine(reference_name(compiled), lambda texts: list(map(len, ids(texts))), ids)


def load_sentencepiece(path: Path) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise InputError(f"{path} is not a SentencePiece model") from error


def _transformers_reference(compiled: "Compiled") -> Engine:
    from chunkscope.tokenizers.auto import load_auto

    tokenizer = load_auto(compiled.files[0].parent, trust_remote_code=compiled.remote_code)

    def ids(texts: list[str]) -> Ids:
        return list(tokenizer(texts, add_special_tokens=False)["input_ids"])

    return Engine(reference_name(compiled), lambda texts: list(map(len, ids(texts))), ids)


def write_ranks(ranks: Sequence[tuple[bytes, int]]) -> bytes:
    """tiktoken's own file format: base64 of the token's bytes, and its rank."""
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks)


@lru_cache(maxsize=1)
def read_document(path: Path) -> dict[str, Any]:
    """A parsed tokenizer.json: several hundred thousand objects, so only while it is compiled."""
    document: dict[str, Any] = orjson.loads(path.read_bytes())
    return document


def read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


_REFERENCES: dict[str, Callable[["Compiled"], Engine]] = {
    "json": _json_reference,
    "ranks": _ranks_reference,
    "sentencepiece": _sentencepiece_reference,
    "transformers": _transformers_reference,
}


@dataclass(frozen=True, slots=True)
class Loader:
    """A fast engine that may or may not take a tokenizer. It raises what it likes if not."""

    label: str
    distribution: str
    load: Callable[["Compiled"], Engine | None]

    @property
    def name(self) -> str:
        return f"{self.label} {version(self.distribution)}"


QUICK_TO_LOAD = (
    # Its own normalizer is Python's: the verdict is good for that Unicode version.
    Loader(f"splintr-ranks-unicode-{unidata_version}", "splintr-rs", splintr_ranks),
    Loader("splintr", "splintr-rs", splintr_json),
)
QUICK_TO_COUNT = Loader("fastokens", "fastokens", fastokens)
