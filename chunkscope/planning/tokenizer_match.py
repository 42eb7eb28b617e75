"""Was a profile counted with the tokenizer of this model? Told without a network.

Names decide where both are of the table of models; else the files that are here, and the number of
tokens that tokenizer and model know. What cannot be told is said as such.
"""

from pathlib import Path

import orjson

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.errors import ChunkscopeError
from chunkscope.lengths.profile import TokenizerInfo
from chunkscope.models import ModelShape
from chunkscope.models.find import tokenizer_family
from chunkscope.tokenizers.resolve import (
    DEFAULT_FILE,
    TIKTOKEN_NAMES,
    TokenizerFiles,
    TokenizerKind,
    cached_tokenizer,
    resolve,
)

_TEKKEN_SIZE = 131_072  # of the embedded default, as of all of Mistral's that are called so
_ALIKE = {"r50k_base": "gpt2", "o200k_base": "o200k_harmony"}  # but for special tokens
_PADDING = 1.02  # a model's table may have some rows more than its tokenizer has tokens


def tokenizer_doubt(counted: TokenizerInfo, model: ModelShape) -> str | None:
    """What to say of lengths that are, or may be, of another tokenizer than the model's."""
    if counted.kind == "none" or _same_name(counted.name, model.load_name):
        return None
    is_same = _by_family(counted, model)
    if is_same is None:
        is_same = _by_files(counted, model)
    if is_same:
        return None
    if is_same is None:
        return (
            f"the prompts were counted with the tokenizer {counted.name}: whether that of "
            f"{model.load_name} counts alike is not known here; `analyze --model {model.name}` does"
        )
    return (
        f"the prompts were counted with the tokenizer {counted.name}, not with that of "
        f"{model.load_name}, which gives other lengths: analyze again with --model {model.name}"
    )


def _same_name(counted: str, wanted: str) -> bool:
    return counted.partition("@")[0].casefold() == wanted.casefold()


def _by_family(counted: TokenizerInfo, model: ModelShape) -> bool | None:
    plain = counted.name.partition("@")[0].removeprefix("tiktoken:")
    family = tokenizer_family(plain)
    if DEFAULT_FILE in counted.name:
        family = "tekken"
    elif plain in TIKTOKEN_NAMES:
        family = _ALIKE.get(plain, plain)
    wanted = tokenizer_family(model.load_name)
    return None if family is None or wanted is None else family == wanted


def _by_files(counted: TokenizerInfo, model: ModelShape) -> bool | None:
    wanted = _here(model.load_name)
    if wanted and wanted.digest(DigestMemo()) == counted.digest:
        return True
    files = None if DEFAULT_FILE in counted.name else _here(counted.name)
    size = _TEKKEN_SIZE if counted.kind == TokenizerKind.TEKKEN else _size(files)
    if size is None:
        return None
    if not size <= model.vocab <= size * _PADDING:
        return False
    # As many tokens need not be the same ones: only the same file is sure to hold them.
    return True if _vocabulary(files) == _vocabulary(wanted) or wanted is None else None


def _here(name: str) -> TokenizerFiles | None:
    """The files of a tokenizer that is in a folder, or in the hub's cache."""
    try:
        if Path(name).expanduser().exists():
            return resolve(name)
        return cached_tokenizer(name)
    except (ChunkscopeError, OSError):
        return None


def _size(files: TokenizerFiles | None) -> int | None:
    """How many tokens there are, by a tokenizer.json."""
    try:
        document = orjson.loads(_vocabulary(files) or b"")
        tokens = document["model"]["vocab"]
        added = [token["id"] for token in document.get("added_tokens") or ()]
        known = tokens.values() if isinstance(tokens, dict) else range(len(tokens))
        return int(max((*known, *added))) + 1
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _vocabulary(files: TokenizerFiles | None) -> bytes | None:
    try:
        found = (file for file in files.files if file.name == "tokenizer.json") if files else ()
        return next((file.read_bytes() for file in found), None)
    except OSError:
        return None
