"""The reference engine with only the part of its vocabulary that a few texts can reach.

Checking a sample of every run against the reference must not cost more than the run: loading a
whole vocabulary takes half a second. But byte-pair merging looks at nothing except substrings of
the pieces a text is split into. So the substrings of the sample's pieces are looked up in an
index of the vocabulary, and the reference library is given those entries alone: it tokenizes
these texts exactly as it would with all of them.
"""

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson

from chunkscope.artefacts.codec import CannotWriteError, write_atomically
from chunkscope.tokenizers.compiled import INDEX_FILE, SKELETON_FILE, Compiled

_LONGEST_PIECE = 64
_PATIENCE_S = 10.0  # a pattern may go astray in a text; the whole reference is asked then
_MANY = 30_000  # sqlite takes this many parameters at once


def build_index(folder: Path, document: dict[str, Any], merges: list[tuple[str, str]]) -> None:
    """Write the index of a tokenizer.json's vocabulary, and the JSON without a vocabulary."""
    by_result: dict[str, list[tuple[int, int]]] = {}
    for rank, (left, right) in enumerate(merges):
        by_result.setdefault(left + right, []).append((rank, len(left)))
    vocabulary: dict[str, int] = document["model"]["vocab"]
    rows = (
        (token, number, orjson.dumps(by_result.get(token, [])))
        for token, number in vocabulary.items()
    )
    _write(folder, rows)
    model = {**document["model"], "vocab": {}, "merges": []}
    write_atomically(folder / SKELETON_FILE, orjson.dumps({**document, "model": model}))


def build_rank_index(folder: Path, ranks: Iterable[tuple[bytes, int]]) -> None:
    _write(folder, ((token, rank, None) for token, rank in ranks))


def _write(folder: Path, rows: Iterable[tuple[str | bytes, int, bytes | None]]) -> None:
    # Made beside its place and then moved there: another run may be doing the same.
    temporary = folder / f".{INDEX_FILE}.{os.getpid()}.{threading.get_ident()}"
    try:
        temporary.unlink(missing_ok=True)
        with closing(sqlite3.connect(temporary)) as index:
            index.execute("PRAGMA journal_mode = OFF")
            index.execute("CREATE TABLE vocabulary (token PRIMARY KEY, id, merges) WITHOUT ROWID")
            index.executemany("INSERT OR IGNORE INTO vocabulary VALUES (?, ?, ?)", rows)
            index.commit()
        temporary.replace(folder / INDEX_FILE)
    except (sqlite3.OperationalError, OSError) as error:
        raise CannotWriteError(f"cannot write {folder / INDEX_FILE}: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def count(compiled: Compiled, texts: list[str]) -> list[int | None] | None:
    """Counts by the reference, None for a text this cannot be done with; None if not at all."""
    found = ids(compiled, texts)
    if found is None:
        return None
    return [None if numbers is None else len(numbers) for numbers in found]


def ids(compiled: Compiled, texts: list[str]) -> list[list[int] | None] | None:
    """The ids, likewise."""
    if not (compiled.folder / INDEX_FILE).is_file():
        return None
    encode = _json_ids if compiled.form == "json" else _rank_ids
    try:
        return encode(compiled, texts)
    except (sqlite3.Error, OSError, ValueError):  # a damaged index: the whole reference, then
        return None


def _json_ids(compiled: Compiled, texts: list[str]) -> list[list[int] | None]:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    skeleton = orjson.loads((compiled.folder / SKELETON_FILE).read_bytes())
    tokenizer = Tokenizer.from_str(orjson.dumps(skeleton).decode())
    with suppress(Exception):  # it has no vocabulary to encode with
        # A pattern that never ends does so here, where it lets other threads run.
        tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    plain = _between_added_tokens(skeleton)
    pieces = {text: _pieces(tokenizer, plain(text)) for text in texts}
    usable = [text for text in texts if pieces[text] is not None]
    found = _look_up(compiled.folder, _substrings(p for t in usable for p in pieces[t] or ()))
    vocabulary = {token: number for token, number, _ in found}
    tokenizer.model = BPE(vocabulary, _merges(found), **_settings(skeleton["model"]))
    encodings = tokenizer.encode_batch_fast(usable, add_special_tokens=False)
    numbers = dict(zip(usable, (encoding.ids for encoding in encodings), strict=True))
    return [numbers.get(text) for text in texts]


def _between_added_tokens(skeleton: dict[str, Any]) -> Callable[[str], list[str]]:
    """Added tokens are cut out before anything else: what is between them is split and merged."""
    added = [token["content"] for token in skeleton.get("added_tokens") or []]
    if not added:
        return lambda text: [text]
    return re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True)))).split


def _pieces(tokenizer: Any, texts: list[str]) -> list[str] | None:
    """What texts are split into, in the vocabulary's alphabet; None if a piece is very long."""
    normalizer, split = tokenizer.normalizer, tokenizer.pre_tokenizer.pre_tokenize_str
    normal = [normalizer.normalize_str(text) if normalizer else text for text in texts]
    pieces = [piece for text in normal for piece, _ in split(text)]
    return pieces if max(map(len, pieces), default=0) <= _LONGEST_PIECE else None


def _merges(found: list[tuple[Any, int, bytes]]) -> list[tuple[str, str]]:
    ranked = [
        (rank, token[:length], token[length:])
        for token, _, merges in found
        for rank, length in orjson.loads(merges)
    ]
    return [(left, right) for _, left, right in sorted(ranked)]


def _settings(model: dict[str, Any]) -> dict[str, Any]:
    names = ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges")
    return {name: model[name] for name in names if model.get(name) is not None}


def _rank_ids(compiled: Compiled, texts: list[str]) -> list[list[int] | None]:
    import regex
    import tiktoken

    pattern = regex.compile(compiled.pattern)
    split = {
        text: [piece.encode() for piece in pattern.findall(text, timeout=_PATIENCE_S)]
        for text in texts
    }
    usable = [t for t in texts if max(map(len, split[t]), default=0) <= _LONGEST_PIECE]
    found = _look_up(compiled.folder, _substrings(p for text in usable for p in split[text]))
    encoding = tiktoken.Encoding(
        "relevant",
        pat_str=compiled.pattern,
        mergeable_ranks={token: rank for token, rank, _ in found},
        special_tokens={},
    )
    numbers = {text: encoding.encode_ordinary(text) for text in usable}
    return [numbers.get(text) for text in texts]


def _substrings(pieces: Iterable[Any]) -> list[Any]:
    """All of them, of each different piece. Works for text and for bytes.

    >>> sorted(_substrings(["ab", "ab"]))
    ['a', 'ab', 'b']
    """
    found: set[Any] = set()
    for piece in set(pieces):
        size = len(piece)
        found.update(piece[i:j] for i in range(size) for j in range(i + 1, size + 1))
    return list(found)


def _look_up(folder: Path, tokens: list[Any]) -> list[tuple[Any, int, bytes]]:
    found: list[tuple[Any, int, bytes]] = []
    place = (folder / INDEX_FILE).absolute().as_uri()
    with closing(sqlite3.connect(f"{place}?mode=ro", uri=True)) as index:
        for start in range(0, len(tokens), _MANY):
            some = tokens[start : start + _MANY]
            holes = ",".join("?" * len(some))
            query = f"SELECT token, id, merges FROM vocabulary WHERE token IN ({holes})"  # noqa: S608
            found += index.execute(query, some)
    return found
