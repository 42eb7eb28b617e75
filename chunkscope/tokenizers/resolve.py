"""What a `--tokenizer` value means: which files, and how they are to be read."""

import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import orjson

from chunkscope.errors import InputError, MissingError

DEFAULT = "default"
DEFAULT_FILE = "tekken_240911.json"

# What makes up a tokenizer in Hugging Face layout; config.json names the class for AutoTokenizer.
HF_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "tekken.json",
)
# What a tokenizer may consist of besides: other vocabularies, its own Python, more templates.
HF_PATTERNS = ("*.model", "*.tiktoken", "*.py", "additional_chat_templates/*.jinja")
ANY_VOCABULARY = {
    "tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model", "tokenizer_config.json",
}  # fmt: skip
TIKTOKEN_NAMES = (
    "cl100k_base", "o200k_base", "o200k_harmony", "p50k_base", "p50k_edit", "r50k_base",
)  # fmt: skip
_CHOICES = (
    "pass a folder with a tokenizer.json, a hub id such as Qwen/Qwen3-8B, a tiktoken encoding "
    "such as o200k_base, or leave --tokenizer out for the embedded default"
)


class Kind(StrEnum):
    HF = "hf"  # a folder for AutoTokenizer
    RAW = "tokenizer.json"  # that one file, with nothing around it
    TEKKEN = "tekken"  # mistral-common's own format
    SENTENCEPIECE = "sentencepiece"
    TIKTOKEN = "tiktoken"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer before it is loaded. `name` is what people see."""

    name: str
    kind: Kind
    files: tuple[Path, ...] = ()
    encoding: str = ""  # tiktoken's name for it


def resolve(name: str | None) -> TokenizerFiles:
    """Find the files behind a name, without loading any of them."""
    if name is None or name == DEFAULT:
        return TokenizerFiles(
            name=f"Mistral tekken ({DEFAULT_FILE})", kind=Kind.TEKKEN, files=(embedded_default(),)
        )
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(name, path)
    if path.is_file():
        return _file(name, path)
    if name.removeprefix("tiktoken:") in TIKTOKEN_NAMES or name.startswith("tiktoken:"):
        return TokenizerFiles(
            name=name, kind=Kind.TIKTOKEN, encoding=name.removeprefix("tiktoken:")
        )
    looks_like_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_a_path or path.suffix in (".json", ".model"):
        raise MissingError(f"no such tokenizer file or folder: {name}", hint=_CHOICES)
    from chunkscope.tokenizers.hub import from_hub

    return from_hub(name)


def embedded_default() -> Path:
    """The tokenizer file inside mistral-common, found without importing it (half a second)."""
    package = importlib.util.find_spec("mistral_common")
    if package is None or not package.submodule_search_locations:
        raise MissingError(
            "the embedded default tokenizer needs the package mistral-common",
            hint="pip install mistral-common, or pass --tokenizer",
        )
    return Path(package.submodule_search_locations[0]) / "data" / DEFAULT_FILE


def hf_folder(name: str, folder: Path) -> TokenizerFiles:
    named = [folder / file for file in HF_FILES if (folder / file).is_file()]
    others = sorted(file for pattern in HF_PATTERNS for file in folder.glob(pattern))
    files = tuple(dict.fromkeys([*named, *others]))  # each once, the named ones first
    return TokenizerFiles(name=name, kind=Kind.HF, files=files)


def _folder(name: str, folder: Path) -> TokenizerFiles:
    present = {path.name for path in folder.iterdir()}
    if present & ANY_VOCABULARY:
        return hf_folder(name, folder)
    for tekken in sorted(file for file in present if file.startswith("tekken")):
        return TokenizerFiles(name=name, kind=Kind.TEKKEN, files=(folder / tekken,))
    raise InputError(f"no tokenizer in {folder}: there is no tokenizer.json in it", hint=_CHOICES)


def _file(name: str, path: Path) -> TokenizerFiles:
    if ".model" in path.name:
        return TokenizerFiles(name=name, kind=Kind.SENTENCEPIECE, files=(path,))
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not a tokenizer: {error}", hint=_CHOICES) from error
    keys = set(document) if isinstance(document, dict) else set()
    if {"config", "vocab"} <= keys:
        return TokenizerFiles(name=name, kind=Kind.TEKKEN, files=(path,))
    if "model" not in keys:
        raise InputError(f"{path} is not a tokenizer: it has no model in it", hint=_CHOICES)
    # What vLLM serves is decided by the files beside tokenizer.json, where there are any.
    if path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file():
        return hf_folder(name, path.parent)
    return TokenizerFiles(name=name, kind=Kind.RAW, files=(path,))
