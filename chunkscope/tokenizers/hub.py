"""Tokenizers by hub id: from the local cache, else downloaded where there is a network."""

import os
from pathlib import Path

from chunkscope.errors import MissingError
from chunkscope.network import expect_hub
from chunkscope.tokenizers.files import (
    ANY_VOCABULARY,
    HF_FILES,
    HF_PATTERNS,
    TokenizerFiles,
    TokenizerKind,
    hf_folder,
)


def from_hub(name: str) -> TokenizerFiles:
    """Find `org/name` or `org/name@revision`, the local cache first.

    A tokenizer hardly ever changes under its name, and a second run must work without a network.
    """
    repo, _, revision = name.partition("@")
    return cached(name) or _in_folder(name, _downloaded(repo, revision or None))


def cached(name: str) -> TokenizerFiles | None:
    """The same without a network."""
    repo, _, revision = name.partition("@")
    folder = _cached(repo, revision or "main")
    return _in_folder(name, folder) if folder else None


def _in_folder(name: str, folder: Path) -> TokenizerFiles:
    found = hf_folder(name, folder)
    present = {file.name for file in found.files}
    if present & ANY_VOCABULARY:
        return found
    if "tekken.json" in present:
        return TokenizerFiles(name=name, kind=TokenizerKind.TEKKEN, files=(folder / "tekken.json",))
    raise MissingError(f"{name} has no tokenizer files", hint="pass another --tokenizer")


def _cached(repo: str, revision: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for file in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json"):
        try:
            found = try_to_load_from_cache(repo, file, revision=revision)
        except HFValidationError:
            raise _not_found(repo) from None
        if isinstance(found, str):
            return Path(found).parent
    return None


def _downloaded(repo: str, revision: str | None) -> Path:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise MissingError(
            f"the tokenizer of {repo} is not in the local cache, and HF_HUB_OFFLINE is set",
            hint="download it once with a network, or pass a local folder as --tokenizer",
        )
    expect_hub()
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=[*HF_FILES, *HF_PATTERNS], max_workers=4
        )
    except Exception as error:  # the hub client raises many kinds; each means "not to be had"
        raise _not_found(repo) from error
    return Path(folder)


def _not_found(repo: str) -> MissingError:
    return MissingError(
        f"no tokenizer called {repo}: not a file here, not in the local cache, and the hub "
        "does not have it",
        hint="check the spelling and the network (HF_TOKEN for gated models), or pass a local "
        "folder with a tokenizer.json as --tokenizer",
    )
