"""A tokenizer before it is loaded: its files, and how they are to be read."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

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


class TokenizerKind(StrEnum):
    HF = "hf"  # a folder for AutoTokenizer
    RAW = "tokenizer.json"  # that one file, with nothing around it
    TEKKEN = "tekken"  # mistral-common's own format
    SENTENCEPIECE = "sentencepiece"
    TIKTOKEN = "tiktoken"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer before it is loaded. `name` is what people see."""

    name: str
    kind: TokenizerKind
    files: tuple[Path, ...] = ()
    encoding: str = ""  # tiktoken's name for it


def hf_folder(name: str, folder: Path) -> TokenizerFiles:
    named = [folder / file for file in HF_FILES if (folder / file).is_file()]
    others = sorted(file for pattern in HF_PATTERNS for file in folder.glob(pattern))
    files = tuple(dict.fromkeys([*named, *others]))  # each once, the named ones first
    return TokenizerFiles(name=name, kind=TokenizerKind.HF, files=files)
