"""What a `--tokenizer` value means: which files, and how they are to be read."""

from importlib.metadata import distribution
from pathlib import Path

import orjson

from chunkscope.errors import InputError, MissingError
from chunkscope.tokenizers.files import ANY_VOCABULARY, TokenizerFiles, TokenizerKind, hf_folder
from chunkscope.tokenizers.hub import from_hub

DEFAULT = "default"
DEFAULT_FILE = "tekken_240911.json"

TIKTOKEN_NAMES = (
    "cl100k_base", "o200k_base", "o200k_harmony", "p50k_base", "p50k_edit", "r50k_base",
)  # fmt: skip
_CHOICES = (
    "pass a folder with a tokenizer.json, a hub id such as Qwen/Qwen3-8B, a tiktoken encoding "
    "such as o200k_base, or leave --tokenizer out for the embedded default"
)


def resolve(name: str | None) -> TokenizerFiles:
    """Find the files behind a name, without loading any of them."""
    if name is None or name == DEFAULT:
        return TokenizerFiles(
            name=f"Mistral tekken ({DEFAULT_FILE})",
            kind=TokenizerKind.TEKKEN,
            files=(embedded_default(),),
        )
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(name, path)
    if path.is_file():
        return _file(name, path)
    if name.removeprefix("tiktoken:") in TIKTOKEN_NAMES or name.startswith("tiktoken:"):
        return TokenizerFiles(
            name=name, kind=TokenizerKind.TIKTOKEN, encoding=name.removeprefix("tiktoken:")
        )
    looks_like_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_a_path or path.suffix in (".json", ".model"):
        raise MissingError(f"no such tokenizer file or folder: {name}", hint=_CHOICES)
    return from_hub(name)


def embedded_default() -> Path:
    """The tokenizer file inside mistral-common, found without importing it (half a second)."""
    package = distribution("mistral-common")
    return Path(str(package.locate_file("mistral_common"))) / "data" / DEFAULT_FILE


def _folder(name: str, folder: Path) -> TokenizerFiles:
    present = {path.name for path in folder.iterdir()}
    models = sorted(name for name in present if name.endswith(".model"))
    if models and not present & {"config.json", *ANY_VOCABULARY.difference(models)}:
        # Nothing says what transformers should make of it: it is what SentencePiece makes of it.
        file = folder / models[0]
        return TokenizerFiles(name=name, kind=TokenizerKind.SENTENCEPIECE, files=(file,))
    if present & ANY_VOCABULARY:
        return hf_folder(name, folder)
    for tekken in sorted(file for file in present if file.startswith("tekken")):
        return TokenizerFiles(name=name, kind=TokenizerKind.TEKKEN, files=(folder / tekken,))
    raise InputError(f"no tokenizer in {folder}: there is no tokenizer.json in it", hint=_CHOICES)


def _file(name: str, path: Path) -> TokenizerFiles:
    if ".model" in path.name:
        return TokenizerFiles(name=name, kind=TokenizerKind.SENTENCEPIECE, files=(path,))
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not a tokenizer: {error}", hint=_CHOICES) from error
    keys = set(document) if isinstance(document, dict) else set()
    if {"config", "vocab"} <= keys:
        return TokenizerFiles(name=name, kind=TokenizerKind.TEKKEN, files=(path,))
    if "model" not in keys:
        raise InputError(f"{path} is not a tokenizer: it has no model in it", hint=_CHOICES)
    # What vLLM serves is decided by the files beside tokenizer.json, where there are any.
    if path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file():
        return hf_folder(name, path.parent)
    return TokenizerFiles(name=name, kind=TokenizerKind.RAW, files=(path,))
