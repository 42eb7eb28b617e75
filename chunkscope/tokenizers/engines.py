"""Engines: list of texts in, token counts out, without the special tokens a prompt begins with.

A *reference* engine is the library vLLM itself uses. The fast ones (splintr, fastokens) are an
order of magnitude quicker and are trusted only after `conformance` found no difference.
All of them release the interpreter lock while they count, so threads are enough.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from operator import sub
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope.errors import InputError

if TYPE_CHECKING:
    from chunkscope.tokenizers.compiled import Compiled

Counts = list[int]
Ids = list[list[int]]


@dataclass(frozen=True, slots=True)
class Engine:
    """`count` is the hot path; `ids` is for proving that two engines agree."""

    name: str
    count: Callable[[list[str]], Counts]
    ids: Callable[[list[str]], Ids]


def reference(compiled: "Compiled") -> Engine:
    """The library whose counts are right by definition."""
    return _REFERENCES[compiled.form](compiled)


def reference_name(compiled: "Compiled") -> str:
    package = {"json": "tokenizers", "ranks": "tiktoken"}.get(compiled.form, compiled.form)
    return f"{package} {version(package)}"


def splintr(compiled: "Compiled") -> Engine | None:
    """Loads in a third of a second: the choice for most evaluation sets."""
    import splintr as library

    try:
        if compiled.form == "json":
            tokenizer: Any = library.from_json(str(compiled.json_file))
        elif compiled.form == "ranks":
            ranks = compiled.ranks_file.read_bytes()
            tokenizer = library.Tokenizer.from_bytes(ranks, compiled.pattern, {})
        else:
            return None
    except Exception:  # it refuses what it does not know, with errors of several kinds
        return None

    def lengths(texts: list[str]) -> Counts:
        return _between(tokenizer.encode_batch_flat(texts)[1])

    added = lengths([""])[0]  # it adds the special tokens of a prompt by itself

    def count(texts: list[str]) -> Counts:
        return [length - added for length in lengths(texts)] if added else lengths(texts)

    def ids(texts: list[str]) -> Ids:
        return [tokenizer.encode_raw(text) for text in texts]

    return Engine(f"splintr {library.__version__}", count, ids)


def fastokens(compiled: "Compiled") -> Engine | None:
    """Takes a second to load, then it is the fastest: the choice for large inputs."""
    from fastokens import Tokenizer

    try:
        if compiled.form == "json":
            tokenizer = Tokenizer.from_file(str(compiled.json_file))
        elif compiled.form == "ranks":
            tokenizer = Tokenizer.from_tiktoken(
                str(compiled.ranks_file), pattern=compiled.pattern, special_tokens={}
            )
        else:
            return None
    except Exception:  # as above
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
        return encoding.encode_ordinary_batch(texts, num_threads=2)

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


def read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


_REFERENCES: dict[str, Callable[["Compiled"], Engine]] = {
    "json": _json_reference,
    "ranks": _ranks_reference,
    "sentencepiece": _sentencepiece_reference,
    "transformers": _transformers_reference,
}
FAST = {"splintr": splintr, "fastokens": fastokens}
