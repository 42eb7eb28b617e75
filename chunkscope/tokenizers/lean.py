"""A tokenizer.json without the merges that never happen: engines load it in two thirds of the time.

Vocabularies that were made from ranks name every pair that makes a token. But when the text of a
token becomes that token, its pieces were merged as they are in that text alone: nothing reached
over its edges before. So of its pairs only the one that is merged last there can come up. Whether
an engine counts the same with it is checked by `conformance` like everything else.
"""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import orjson

from chunkscope.artefacts.codec import CannotWriteError, read_checked, write_checked
from chunkscope.tokenizers.byte_level import merges
from chunkscope.tokenizers.compiled import Compiled

_LEAN_FILE = "lean.json"
_WORTH_IT = 1.2  # as many pairs as tokens that they make

Pair = tuple[str, str]


def lean_json(compiled: Compiled) -> str:
    """The text of such a tokenizer.json, made once; the whole one where nothing can be left out."""
    path = compiled.folder / _LEAN_FILE
    try:
        data = read_checked(path)
    except (OSError, ValueError):  # not there yet, or damaged
        data = _made(orjson.loads(compiled.json_file.read_bytes()))
        with suppress(CannotWriteError):  # then it is made again next time
            write_checked(path, data)
    return (data or compiled.json_file.read_bytes()).decode()


def _made(document: dict[str, Any]) -> bytes:
    """Nothing where all pairs have to stay."""
    model = document["model"]
    if model.get("type", "BPE") != "BPE" or any(
        model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    ):
        return b""
    pairs = merges(document)
    needed = needed_pairs(pairs)
    if len(pairs) < _WORTH_IT * len(needed):
        return b""
    return orjson.dumps({**document, "model": {**model, "merges": needed}})


def needed_pairs(pairs: list[Pair]) -> list[Pair]:
    """The pairs that can come up, in order.

    >>> needed_pairs([("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")])
    [('a', 'b'), ('b', 'c'), ('ab', 'c')]
    """
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    ways: dict[str, int] = {}
    for left, right in pairs:
        ways[left + right] = ways.get(left + right, 0) + 1
    last = {token: _last_merge(token, ranks) for token, number in ways.items() if number > 1}
    return [pair for pair in pairs if last.get(pair[0] + pair[1], pair) in (pair, None)]


def _last_merge(token: str, ranks: dict[Pair, int]) -> Pair | None:
    """The pair that ends the merging of its characters; None if they do not become one."""
    never = len(ranks)
    parts = list(token)
    while len(parts) > 2:
        found = [ranks.get(pair, never) for pair in pairwise(parts)]
        if (least := min(found)) == never:
            return None
        place = found.index(least)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    pair = (parts[0], parts[1])
    return pair if pair in ranks else None
