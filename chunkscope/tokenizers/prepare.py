"""A tokenizer made ready once: what is known of it without loading a library, kept in the cache.

transformers takes a second to import and, for some exports, does not count as the raw
`tokenizer.json` does. Its view, which is what vLLM serves, is therefore saved once as a
tokenizer.json; later runs load that with `tokenizers` and never import transformers.
"""

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from chunkscope.artefacts import codec, folders
from chunkscope.artefacts.digests import sha256_of_file
from chunkscope.artefacts.folders import cache_folder, do_without_cache
from chunkscope.console import say
from chunkscope.tokenizers.reference import (
    Reference,
    TokenizersReference,
    TransformersReference,
    engine_name,
    load_source,
)
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.strings import sentences

_LAYOUT = "7"  # raise when the files in the cache change their meaning
_MOST_BYTES = 2 << 30  # some two hundred tokenizers


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What runs need to know of a tokenizer whatever library counts with it."""

    package: str  # the reference's
    special_added: int
    chat_template: Any = None
    special_tokens: dict[str, Any] = field(default_factory=dict)
    runs_code: bool = False  # only the tokenizer's own Python counts with it
    json_sha256: str = ""  # of the tokenizer.json in the cache

    @property
    def begin_text(self) -> str:
        """The text of the token that it puts before a prompt; empty if there is none."""
        begin = self.special_tokens.get("bos_token") if self.special_added else None
        return begin if isinstance(begin, str) else ""


@dataclass(frozen=True, slots=True)
class PreparedTokenizer:
    """A tokenizer's facts, and its place in the cache."""

    files: TokenizerFiles
    trust_remote_code: bool
    folder: Path
    facts: TokenizerFacts

    @property
    def reference_name(self) -> str:
        return engine_name(self.facts.package)

    @property
    def json_file(self) -> Path | None:
        """The tokenizer.json that counts; None where the reference is not made of one."""
        return self.folder / "tokenizer.json" if self.facts.json_sha256 else None

    def load(self) -> Reference:
        """The reference: its counts are right by definition."""
        if self.json_file:
            return TokenizersReference.of_file(self.json_file)
        return load_source(self.files, trust_remote_code=self.trust_remote_code)


def prepared_before(
    files: TokenizerFiles, digest: str, trust_remote_code: bool
) -> PreparedTokenizer | None:
    """What an earlier run prepared; None if none did, or if its files in the cache are damaged."""
    folder = _folder(files, digest)
    with suppress(OSError, ValueError, TypeError):
        facts = TokenizerFacts(**orjson.loads(codec.read_checked(folder / "facts.json")))
        prepared = PreparedTokenizer(files, trust_remote_code, folder, facts)
        file = prepared.json_file
        is_whole = file is None or sha256_of_file(file) == facts.json_sha256
        if is_whole and (trust_remote_code or not facts.runs_code):  # each run is asked anew
            folders.mark_used(folder)
            return prepared
    return None


def prepare(
    files: TokenizerFiles, digest: str, trust_remote_code: bool
) -> tuple[PreparedTokenizer, Reference]:
    """Load a tokenizer from its own files, and keep what later runs need."""
    reference = load_source(files, trust_remote_code=trust_remote_code)
    facts = TokenizerFacts(package=reference.package, special_added=reference.special_added)
    document = b""
    if isinstance(reference, TransformersReference):
        auto = reference.tokenizer
        facts = replace(
            facts,
            chat_template=auto.chat_template,
            special_tokens={name: _text(token) for name, token in auto.special_tokens_map.items()},
            runs_code=trust_remote_code,
        )
        if backend := _equal_backend(reference):
            reference, document = backend, backend.backend.to_str().encode()
            facts = replace(facts, package=backend.package, runs_code=False)
    elif files.kind is TokenizerKind.RAW:
        raw = orjson.loads(files.files[0].read_bytes())
        document = orjson.dumps({**raw, "truncation": None, "padding": None})
    if document:
        facts = replace(facts, json_sha256=hashlib.sha256(document).hexdigest())
    try:
        folder = _write(_folder(files, digest), facts, document)
    except codec.CannotWriteError as error:
        do_without_cache()
        say(f"{error.message}; going on without the cache")
        folder = _write(_folder(files, digest), facts, document)
    return PreparedTokenizer(files, trust_remote_code, folder, facts), reference


def _equal_backend(served: TransformersReference) -> TokenizersReference | None:
    """AutoTokenizer's Rust backend, where the Python around it changes no ids."""
    if (backend := getattr(served.tokenizer, "backend_tokenizer", None)) is None:
        return None
    texts, reference = sentences(), TokenizersReference(backend)
    for special in (True, False):
        wanted = served.encode(texts, special_tokens=special)
        if wanted != reference.encode(texts, special_tokens=special):
            return None
    return reference


def _text(token: Any) -> Any:
    """A special token, or several, as plain text, the way chat templates see them."""
    return list(map(str, token)) if isinstance(token, list | tuple) else str(token)


def _folder(files: TokenizerFiles, digest: str) -> Path:
    packages = ("transformers", "tokenizers") if files.kind is TokenizerKind.HF else ()
    parts = "\n".join([_LAYOUT, digest, *map(engine_name, packages)])
    return cache_folder() / "tokenizers" / hashlib.sha256(parts.encode()).hexdigest()[:32]


def _write(folder: Path, facts: TokenizerFacts, document: bytes) -> Path:
    if document:
        codec.write_atomically(folder / "tokenizer.json", document)
    codec.write_checked(folder / "facts.json", orjson.dumps(asdict(facts)))
    folders.prune(folder.parent, "*", most_bytes=_MOST_BYTES)
    return folder
