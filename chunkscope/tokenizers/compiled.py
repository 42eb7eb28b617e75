"""What is known about a tokenizer that was made ready: the value that all parts here share."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from chunkscope.tokenizers.files import TokenizerFiles

JSON_FILE = "tokenizer.json"
RANKS_FILE = "ranks.tiktoken"
INDEX_FILE = "vocabulary.sqlite"
SKELETON_FILE = "skeleton.json"

Form = Literal["json", "ranks", "sentencepiece", "transformers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What is known about a tokenizer without loading it.

    `form` says what the reference is: "json" (tokenizers), "ranks" (tiktoken), "sentencepiece",
    or "transformers" for one that only exists as Python code. `pattern`, `added` and `nfc` go
    with a ranks file, which byte-level vocabularies in JSON have besides.

    One that is not `prepared` has no files in its folder: its own library counts.
    """

    key: str
    folder: Path
    source: TokenizerFiles
    prepared: bool = True
    form: Form = "json"
    special_added: int = 0
    pattern: str = ""
    added: dict[str, int] = field(default_factory=dict)
    nfc: bool = False
    may_cut: bool = False
    chat_template: Any = None
    special_tokens: dict[str, Any] = field(default_factory=dict)
    mistral_chat: bool = False
    remote_code: bool = False
    notes: tuple[str, ...] = ()

    @property
    def begin_text(self) -> str:
        """The text of the token that it puts before a prompt; empty if there is none."""
        begin = self.special_tokens.get("bos_token") if self.special_added else None
        return begin if isinstance(begin, str) else ""

    @property
    def json_file(self) -> Path:
        return self.folder / JSON_FILE

    @property
    def document(self) -> dict[str, Any]:
        """The parsed tokenizer.json; nothing where the reference is not made of one."""
        return read_document(self.json_file) if self.form == "json" else {}

    @property
    def ranks_file(self) -> Path:
        return self.folder / RANKS_FILE


@lru_cache(maxsize=1)
def read_document(path: Path) -> dict[str, Any]:
    """A parsed tokenizer.json: several hundred thousand objects, so only while it is compiled."""
    document: dict[str, Any] = orjson.loads(path.read_bytes())
    return document
