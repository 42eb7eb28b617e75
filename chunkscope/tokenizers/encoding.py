"""Texts -> the very token ids a model is fed, special tokens included.

Counting needs none of this: engines count without special tokens, and some of them number the
tokens in a way of their own. All ids here are the reference's.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from chunkscope.tokenizers.engines import Ids, load_sentencepiece, reference
from chunkscope.tokenizers.resolve import Kind

if TYPE_CHECKING:
    from chunkscope.tokenizers.compiled import Compiled

# Texts in, ids out; with or without what a prompt begins (and ends) with.
Encode = Callable[[list[str], bool], Ids]

_TEKKEN_BOS = 1


def encoder(compiled: "Compiled", kind: str) -> Encode:
    """How this tokenizer encodes. `kind` says what its files are: tekken shifts its ranks."""
    if compiled.form == "json":
        return _json(compiled)
    if compiled.form == "transformers":
        return _transformers(compiled)
    if compiled.form == "sentencepiece":
        begin = load_sentencepiece(compiled.files[0]).bos_id()
        return _plain(compiled, begin=[begin] if begin >= 0 else [])
    if kind == Kind.TEKKEN:
        config = orjson.loads(compiled.files[0].read_bytes())["config"]
        return _plain(compiled, begin=[_TEKKEN_BOS], shift=config["default_num_special_tokens"])
    return _plain(compiled, begin=[])


def _plain(compiled: "Compiled", *, begin: list[int], shift: int = 0) -> Encode:
    engine = reference(compiled)

    def encode(texts: list[str], special: bool) -> Ids:
        start = begin if special else []
        return [[*start, *(number + shift for number in ids)] for ids in engine.ids(texts)]

    return encode


def _json(compiled: "Compiled") -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(compiled.json_file))

    def encode(texts: list[str], special: bool) -> Ids:
        return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=special)]

    return encode


def _transformers(compiled: "Compiled") -> Encode:
    from chunkscope.tokenizers.auto import load_auto

    tokenizer = load_auto(compiled.files[0].parent, trust_remote_code=compiled.remote_code)

    def encode(texts: list[str], special: bool) -> Ids:
        return list(tokenizer(texts, add_special_tokens=special)["input_ids"]) if texts else []

    return encode
