"""Small tokenizers made for one point each, and the shared ones made ready."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from chunkscope.tokenizers import tokenizer as ours

BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
WORDS = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def bpe(*merges: str, **settings: Any) -> Tokenizer:
    """A byte-level model with exactly these merges: bpe("t h", "th e") knows "the"."""
    vocabulary = {
        character: i for i, character in enumerate(sorted(ByteLevel.alphabet()))
    }
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    for left, right in pairs:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(BPE(vocabulary, pairs, **settings))
    tokenizer.pre_tokenizer = BYTES
    return tokenizer


def splitting(pattern: str, *merges: str, behavior: str = "isolated") -> Tokenizer:
    tokenizer = bpe(*merges)
    tokenizer.pre_tokenizer = Sequence([Split(Regex(pattern), behavior), BYTES])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, **config: Any) -> Path:
    """A tokenizer folder as `save_pretrained` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def lengths(name: Path | str | None, texts: list[str]) -> list[int]:
    """As a run counts them, with the special tokens of a prompt."""
    tokenizer = ours.Tokenizer(str(name) if name else None)
    return [n + tokenizer.facts.special_added for n in tokenizer.count(texts)]
