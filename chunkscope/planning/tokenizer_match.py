"""Was a profile counted with the tokenizer of this model? Told without a network.

Names decide where both are of the table of models; else the digest of the files that are here.
"""

from pathlib import Path

from chunkscope.artefacts.note import Note
from chunkscope.errors import ChunkscopeError
from chunkscope.lengths.profile import TokenizerInfo
from chunkscope.models import ModelShape
from chunkscope.models.find import known_model
from chunkscope.tokenizers.resolve import (
    DEFAULT_FILE,
    TIKTOKEN_NAMES,
    cached_tokenizer,
    resolve,
)

ALIKE = {"r50k_base": "gpt2", "o200k_base": "o200k_harmony"}  # but for special tokens


def tokenizer_note(counted: TokenizerInfo, model: ModelShape) -> Note | None:
    """What to say of lengths that are, or may be, of another tokenizer than the model's."""
    name = counted.name.partition("@")[0]
    if counted.kind == "none" or name.casefold() == model.load_name.casefold():
        return None
    ours, theirs = _family(counted), _of_model(model.load_name)
    same = ours == theirs if ours and theirs else _same_files(counted, model.load_name)
    if same:
        return None
    code = "tokenizer_not_known" if same is None else "other_tokenizer"
    values = {"tokenizer": counted.name, "model": model.load_name, "name": model.name}
    return Note(code=code, values={**values})


def _family(counted: TokenizerInfo) -> str | None:
    plain = counted.name.partition("@")[0].removeprefix("tiktoken:")
    if DEFAULT_FILE in counted.name:
        return "tekken"
    return ALIKE.get(plain, plain) if plain in TIKTOKEN_NAMES else _of_model(plain)


def _of_model(name: str) -> str | None:
    known = known_model(name)
    return known.tokenizer if known else None


def _same_files(counted: TokenizerInfo, model: str) -> bool | None:
    """None where the model's tokenizer is not on this machine, or its files differ: the same
    tokens may be written down in two ways."""
    try:
        files = resolve(model) if Path(model).expanduser().exists() else cached_tokenizer(model)
        return True if files and files.digest() == counted.digest else None
    except (ChunkscopeError, OSError):
        return None
