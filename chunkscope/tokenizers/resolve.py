"""What a `--tokenizer` value means: which files, and which library reads them."""

import hashlib
import os
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from chunkscope.artefacts.artefact import INCIDENTAL
from chunkscope.artefacts.note import Note
from chunkscope.errors import InputError, MissingError
from chunkscope.network import expect_hub
from chunkscope.sources.base import cannot_read
from chunkscope.tokenizers.cache import file_digest
from chunkscope.tokenizers.foreign import engine_name

DEFAULT = "default"
DEFAULT_FILE = "tekken_240911.json"
TIKTOKEN_NAMES = (
    "cl100k_base", "o200k_base", "o200k_harmony", "p50k_base", "p50k_edit", "r50k_base",
)  # fmt: skip
# What makes up a tokenizer in Hugging Face layout; config.json names the class for
# AutoTokenizer.
_HF_FILES = [
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "*.model",
    "*.tiktoken", "*.py", "tekken.json", "config.json", "chat_template.jinja",
    "chat_template.json", "additional_chat_templates/*.jinja",
]  # fmt: skip
HF_SIGNS = {"tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt"}
_CHOICES = (
    "pass a folder with a tokenizer.json, a hub id such as Qwen/Qwen3-8B, a tiktoken "
    "encoding such as o200k_base, or leave --tokenizer out for the built-in one"
)


class TokenizerKind(StrEnum):
    HF = "hf"  # a folder for AutoTokenizer
    RAW = "tokenizer.json"  # that one file, with nothing around it
    TEKKEN = "tekken"  # mistral-common's own format
    TIKTOKEN = "tiktoken"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerInfo:
    """Which tokenizer counted, and by which engine: lengths mean nothing without it."""

    name: str = field(default="none", metadata=INCIDENTAL)
    digest: str = ""
    kind: str = "none"
    engine: str = field(default="none", metadata=INCIDENTAL)
    reference: str = field(default="none", metadata=INCIDENTAL)
    special_tokens_added: int = 0
    chat_template: str | None = None
    notes: tuple[Note, ...] = field(default=(), metadata=INCIDENTAL)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """A tokenizer before it is loaded. `name` is what people see."""

    name: str
    kind: TokenizerKind
    files: tuple[Path, ...] = ()
    encoding: str = ""  # tiktoken's name for it
    is_complete: bool = (
        True  # False: a cache without tokenizer_config.json, and no network
    )

    def digest(self) -> str:
        """The content of its files as one hash."""
        try:
            parts = [f"{file.name}\0{file_digest(file)}" for file in self.files]
        except OSError as error:
            raise cannot_read(str(error.filename), error) from error
        if self.encoding:
            parts.append(f"{self.encoding}\0{engine_name('tiktoken')}")
        return hashlib.sha256("\n".join([self.kind, *parts]).encode()).hexdigest()


def resolve(name: str | None) -> TokenizerFiles:
    """Find the files behind a name."""
    if name is None or name == DEFAULT:
        label = f"Mistral tekken ({DEFAULT_FILE})"
        return TokenizerFiles(label, TokenizerKind.TEKKEN, (embedded_default(),))
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(name, path)
    if path.is_file():
        return _file(name, path)
    if name.removeprefix("tiktoken:") in TIKTOKEN_NAMES or name.startswith("tiktoken:"):
        encoding = name.removeprefix("tiktoken:")
        return TokenizerFiles(name, TokenizerKind.TIKTOKEN, encoding=encoding)
    looks_like_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_a_path or path.suffix in (".json", ".model"):
        raise MissingError(f"no such tokenizer file or folder: {name}", hint=_CHOICES)
    return _from_hub(name)


def embedded_default() -> Path:
    """The tokenizer file inside mistral-common, found without importing it (half a
    second)."""
    package: Any = find_spec("mistral_common")
    return Path(package.origin).with_name("data") / DEFAULT_FILE


def _folder(name: str, folder: Path) -> TokenizerFiles:
    present = sorted(path.name for path in folder.iterdir())
    models = [file for file in present if file.endswith(".model")]
    if not HF_SIGNS.isdisjoint(present) or (models and "config.json" in present):
        return _hf_folder(name, folder)
    for tekken in present:
        if tekken.startswith("tekken"):
            return TokenizerFiles(name, TokenizerKind.TEKKEN, (folder / tekken,))
    raise InputError(
        f"no tokenizer in {folder}: there is no tokenizer.json in it, nor a "
        "tokenizer.model with the model's config.json",
        hint=_CHOICES,
    )


def _hf_folder(name: str, folder: Path) -> TokenizerFiles:
    files = (file for pattern in _HF_FILES for file in sorted(folder.glob(pattern)))
    return TokenizerFiles(name, TokenizerKind.HF, tuple(files))


def _file(name: str, path: Path) -> TokenizerFiles:
    if ".model" in path.name:
        raise InputError(
            f"{path} does not say how it is used",
            hint="pass the folder, with the model's config.json in it",
        )
    document = read_json(path)
    keys = set(document) if isinstance(document, dict) else set()
    if {"config", "vocab"} <= keys:
        return TokenizerFiles(name, TokenizerKind.TEKKEN, (path,))
    if "model" not in keys:
        raise InputError(
            f"{path} is not a tokenizer: it has no model in it", hint=_CHOICES
        )
    # What vLLM serves is decided by the files beside tokenizer.json, if there are any.
    if (
        path.name == "tokenizer.json"
        and (path.parent / "tokenizer_config.json").is_file()
    ):
        return _hf_folder(name, path.parent)
    return TokenizerFiles(name, TokenizerKind.RAW, (path,))


def read_json(path: Path) -> Any:
    """What a tokenizer's file holds. Raises DataError, naming it."""
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise cannot_read(str(path), error) from error


def _from_hub(name: str) -> TokenizerFiles:
    """Find `org/name` or `org/name@revision`: in the local cache, else by download. A
    cache that another tool left with a tokenizer.json alone is completed: its chat
    template is elsewhere."""
    repo, _, revision = name.partition("@")
    folder, is_complete = _cached(repo, revision or "main")
    if folder is None or not is_complete:
        try:
            folder = _downloaded(repo, revision or None)
        except MissingError:
            if folder is None:
                raise
            return replace(_folder(name, folder), is_complete=False)
    return _folder(name, folder)


def cached_tokenizer(name: str) -> TokenizerFiles | None:
    """A hub id's files in the local cache, without a network."""
    repo, _, revision = name.partition("@")
    folder, _ = _cached(repo, revision or "main")
    return _folder(name, folder) if folder else None


def _cached(repo: str, revision: str) -> tuple[Path | None, bool]:
    """The folder in the local cache, and whether it has what a tokenizer.json leaves
    out."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    names = (
        "tokenizer_config.json",
        "tekken.json",
        "tokenizer.json",
        "tokenizer.model",
    )
    try:  # each file's path, None, or a mark that the hub does not have it
        files = [
            try_to_load_from_cache(repo, name, revision=revision) for name in names
        ]
    except HFValidationError:
        return None, False
    is_complete = files[0] is not None or isinstance(files[1], str)
    for file in files:
        if isinstance(file, str):
            return Path(file).parent, is_complete
    return None, is_complete


def _downloaded(repo: str, revision: str | None) -> Path:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise MissingError(
            f"the tokenizer of {repo} is not in the local cache, and HF_HUB_OFFLINE is "
            "set",
            hint="download it once with a network, or pass a local folder as "
            "--tokenizer",
        )
    expect_hub()
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=_HF_FILES, max_workers=4
        )
    except Exception as error:  # of many kinds, each of which means "not to be had"
        raise MissingError(
            f"no tokenizer called {repo}: not a file here, not in the local cache, and "
            "the hub does not have it",
            hint="check the spelling and the network (HF_TOKEN for gated models), or "
            "pass a local folder with a tokenizer.json as --tokenizer",
        ) from error
    return Path(folder)
