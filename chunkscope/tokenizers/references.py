"""The engines that are right by definition: the libraries that vLLM itself uses.

They also give the very ids a model is fed, special tokens included. Counting needs none of that:
engines count without special tokens, and the fast ones number the tokens in a way of their own.
"""

from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from chunkscope.errors import InputError, MissingError
from chunkscope.tokenizers import auto
from chunkscope.tokenizers.byte_level import read_ranks
from chunkscope.tokenizers.compiled import Compiled, Form
from chunkscope.tokenizers.engines import CountingEngine, Counts, Ids, version
from chunkscope.tokenizers.files import TokenizerKind

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
        load = _FORMS[compiled.form][1] if compiled.prepared else source_reference
        _loaded[place] = load(compiled)
    return _loaded[place]


def keep_loaded(compiled: Compiled, loaded: Reference) -> None:
    """It was loaded to see what it is: that need not be done again."""
    _loaded[f"{compiled.form} {compiled.folder}"] = loaded


def reference_name(compiled: Compiled) -> str:
    return _named(_FORMS[compiled.form][0])


def _named(package: str) -> str:
    return f"{package} {version(package)}"


def source_reference(compiled: Compiled) -> Reference:
    """The same by the tokenizer's own files, and nothing that was made of them before."""
    source = compiled.source
    if source.kind is TokenizerKind.HF:
        return _transformers(compiled)
    if source.kind is TokenizerKind.RAW:
        backend = load_json(source.files[0])
        backend.no_truncation()
        backend.no_padding()
        return by_tokenizers(backend)
    if source.kind is TokenizerKind.SENTENCEPIECE:
        return _sentencepiece(compiled)
    if source.kind is TokenizerKind.TIKTOKEN:
        return _by_tiktoken(compiled, load_tiktoken(source.encoding))
    return _by_tiktoken(compiled, load_tekken(source.files[0]))


def load_json(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise InputError(f"{path} is not a tokenizer.json: {error}") from error


def read_tekken(path: Path) -> tuple[list[tuple[bytes, int]], str]:
    """The ranks of Mistral's format, and its pattern."""
    try:
        document = orjson.loads(path.read_bytes())
        config = document["config"]
        words = config["default_vocab_size"] - config["default_num_special_tokens"]
        entries = document["vocab"][:words]
        ranks = [(a2b_base64(entry["token_bytes"]), entry["rank"]) for entry in entries]
        return ranks, config["pattern"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a tekken tokenizer: {error!r}") from error


def load_tekken(path: Path) -> Any:
    import tiktoken

    ranks, pattern = read_tekken(path)
    return tiktoken.Encoding(
        "source", pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={}
    )


def load_tiktoken(name: str) -> Any:
    import tiktoken

    try:
        return tiktoken.get_encoding(name)
    except ValueError as error:
        names = ", ".join(tiktoken.list_encoding_names())
        raise MissingError(
            f"tiktoken has no encoding called {name}", hint=f"it has {names}"
        ) from error
    except Exception as error:  # requests' errors, or a cached file that does not match its hash
        raise MissingError(
            f"tiktoken could not load {name}: it downloads the vocabulary once",
            hint="run it once with a network, or set TIKTOKEN_CACHE_DIR to a filled cache",
        ) from error


def _json(compiled: Compiled) -> Reference:
    return by_tokenizers(load_json(compiled.json_file))


def by_tokenizers(tokenizer: Any) -> Reference:
    def count(texts: list[str]) -> Counts:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [len(encoding) for encoding in encodings]  # len(e.ids) would copy every id

    def encode(texts: list[str], special: bool) -> Ids:
        return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=special)]

    def ids(texts: list[str]) -> Ids:
        return encode(texts, False)

    return Reference(_named("tokenizers"), count, ids, encode=encode)


def _ranks(compiled: Compiled) -> Reference:
    import tiktoken

    encoding = tiktoken.Encoding(
        compiled.key,
        pat_str=compiled.pattern,
        mergeable_ranks=read_ranks(compiled.ranks_file),
        special_tokens={},
    )
    return _by_tiktoken(compiled, encoding)


def _by_tiktoken(compiled: Compiled, encoding: Any) -> Reference:
    def ids(texts: list[str]) -> Ids:
        return list(encoding.encode_ordinary_batch(texts, num_threads=2))

    @cache
    def first_id() -> int:
        """Tekken's own tokens come before its ranks."""
        config = orjson.loads(compiled.source.files[0].read_bytes())["config"]
        return int(config["default_num_special_tokens"])

    def encode(texts: list[str], special: bool) -> Ids:
        if not compiled.mistral_chat:
            return ids(texts)
        begin = [_TEKKEN_BOS] if special else []
        return [[*begin, *(number + first_id() for number in found)] for found in ids(texts)]

    return Reference(_named("tiktoken"), _lengths(ids), ids, encode=encode)


def _sentencepiece(compiled: Compiled) -> Reference:
    model = load_sentencepiece(compiled.source.files[0])

    def ids(texts: list[str]) -> Ids:
        return list(model.encode(texts, out_type=int))

    def encode(texts: list[str], special: bool) -> Ids:
        begin = [model.bos_id()] if special and model.bos_id() >= 0 else []
        return [[*begin, *found] for found in ids(texts)]

    return Reference(_named("sentencepiece"), _lengths(ids), ids, encode=encode)


def load_sentencepiece(path: Path) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise InputError(f"{path} is not a SentencePiece model") from error


def _transformers(compiled: Compiled) -> Reference:
    folder = compiled.source.files[0].parent
    return by_transformers(auto.load_auto(folder, trust_remote_code=compiled.remote_code))


def by_transformers(tokenizer: Any) -> Reference:
    def encode(texts: list[str], special: bool) -> Ids:
        return list(tokenizer(texts, add_special_tokens=special)["input_ids"]) if texts else []

    def ids(texts: list[str]) -> Ids:
        return encode(texts, False)

    return Reference(_named("transformers"), _lengths(ids), ids, encode=encode)


def _lengths(ids: Callable[[list[str]], Ids]) -> Callable[[list[str]], Counts]:
    return lambda texts: list(map(len, ids(texts)))


# By a tokenizer's form: the package, and how it is loaded.
_FORMS: dict[Form, tuple[str, Callable[[Compiled], Reference]]] = {
    "json": ("tokenizers", _json),
    "ranks": ("tiktoken", _ranks),
    "sentencepiece": ("sentencepiece", _sentencepiece),
    "transformers": ("transformers", _transformers),
}
