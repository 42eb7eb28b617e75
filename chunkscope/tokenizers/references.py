"""The engines that are right by definition: the libraries that vLLM itself uses.

They also give the very ids a model is fed, special tokens included. Counting needs none of that:
engines count without special tokens, and the fast ones number the tokens in a way of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from chunkscope.errors import InputError
from chunkscope.tokenizers import auto
from chunkscope.tokenizers.byte_level import read_ranks
from chunkscope.tokenizers.compiled import Compiled, Form
from chunkscope.tokenizers.engines import CountingEngine, Counts, Ids, version

_TEKKEN_BOS = 1


@dataclass(frozen=True, slots=True)
class Reference(CountingEngine):
    """`encode` gives the ids with (or without) what a prompt begins and ends with."""

    encode: Callable[[list[str], bool], Ids] = field(kw_only=True)


_loaded: dict[str, Reference] = {}


def reference(compiled: Compiled) -> Reference:
    """The library whose counts are right by definition. Loaded once per process."""
    place = f"{compiled.form} {compiled.folder}"
    if place not in _loaded:
        _loaded[place] = _FORMS[compiled.form][1](compiled)
    return _loaded[place]


def reference_name(compiled: Compiled) -> str:
    package, _ = _FORMS[compiled.form]
    return f"{package} {version(package)}"


def _json(compiled: Compiled) -> Reference:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(compiled.json_file))

    def count(texts: list[str]) -> Counts:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [len(encoding) for encoding in encodings]  # len(e.ids) would copy every id

    def encode(texts: list[str], special: bool) -> Ids:
        return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=special)]

    def ids(texts: list[str]) -> Ids:
        return encode(texts, False)

    return Reference(reference_name(compiled), count, ids, encode=encode)


def _ranks(compiled: Compiled) -> Reference:
    import tiktoken

    encoding = tiktoken.Encoding(
        compiled.key,
        pat_str=compiled.pattern,
        mergeable_ranks=read_ranks(compiled.ranks_file),
        special_tokens={},
    )

    def ids(texts: list[str]) -> Ids:
        return list(encoding.encode_ordinary_batch(texts, num_threads=2))

    @cache
    def first_id() -> int:
        """Tekken's own tokens come before its ranks."""
        config = orjson.loads(compiled.files[0].read_bytes())["config"]
        return int(config["default_num_special_tokens"])

    def encode(texts: list[str], special: bool) -> Ids:
        if not compiled.mistral_chat:
            return ids(texts)
        begin = [_TEKKEN_BOS] if special else []
        return [[*begin, *(number + first_id() for number in found)] for found in ids(texts)]

    return Reference(reference_name(compiled), _lengths(ids), ids, encode=encode)


def _sentencepiece(compiled: Compiled) -> Reference:
    model = load_sentencepiece(compiled.files[0])

    def ids(texts: list[str]) -> Ids:
        return list(model.encode(texts, out_type=int))

    def encode(texts: list[str], special: bool) -> Ids:
        begin = [model.bos_id()] if special and model.bos_id() >= 0 else []
        return [[*begin, *found] for found in ids(texts)]

    return Reference(reference_name(compiled), _lengths(ids), ids, encode=encode)


def load_sentencepiece(path: Path) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise InputError(f"{path} is not a SentencePiece model") from error


def _transformers(compiled: Compiled) -> Reference:
    tokenizer = auto.load_auto(compiled.files[0].parent, trust_remote_code=compiled.remote_code)

    def encode(texts: list[str], special: bool) -> Ids:
        return list(tokenizer(texts, add_special_tokens=special)["input_ids"]) if texts else []

    def ids(texts: list[str]) -> Ids:
        return encode(texts, False)

    return Reference(reference_name(compiled), _lengths(ids), ids, encode=encode)


def _lengths(ids: Callable[[list[str]], Ids]) -> Callable[[list[str]], Counts]:
    return lambda texts: list(map(len, ids(texts)))


# By a tokenizer's form: the package, and how it is loaded.
_FORMS: dict[Form, tuple[str, Callable[[Compiled], Reference]]] = {
    "json": ("tokenizers", _json),
    "ranks": ("tiktoken", _ranks),
    "sentencepiece": ("sentencepiece", _sentencepiece),
    "transformers": ("transformers", _transformers),
}
