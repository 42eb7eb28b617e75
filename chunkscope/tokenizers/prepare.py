"""A tokenizer made ready once: what is known of it without loading a library, kept in the cache.

transformers takes a second to import and, for some exports, does not count as the raw
`tokenizer.json` does. Its view, which is what vLLM serves, is therefore saved once as a
tokenizer.json; later runs load that with `tokenizers` and never import transformers.
"""

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from chunkscope.artefacts import pruning
from chunkscope.artefacts.codec import (
    CannotWriteError,
    read_checked,
    write_atomically,
    write_checked,
)
from chunkscope.artefacts.digests import sha256_of_file
from chunkscope.artefacts.folders import cache_folder, do_without_cache
from chunkscope.console import say
from chunkscope.tokenizers.check import sentences
from chunkscope.tokenizers.reference import (
    Reference,
    TokenizersReference,
    TransformersReference,
    engine_name,
    load_source,
)
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind

_LAYOUT = "7"  # raise when the files in the cache change their meaning
_MOST_BYTES = 2 << 30  # some two hundred tokenizers


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What runs need to know of a tokenizer whatever library counts with it."""

    package: str  # the reference's
    special_added: int
    chat_template: Any = None
    special_tokens: dict[str, Any] = field(default_factory=dict)
    remote_code: bool = False  # only a tokenizer's own Python counts with it
    json_sha256: str = ""  # of the tokenizer.json in the cache

    @property
    def begin_text(self) -> str:
        """The text of the token that it puts before a prompt; empty if there is none."""
        begin = self.special_tokens.get("bos_token") if self.special_added else None
        return begin if isinstance(begin, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTokenizer:
    files: TokenizerFiles
    folder: Path  # its place in the cache
    facts: TokenizerFacts

    @property
    def json_file(self) -> Path | None:
        """The tokenizer.json that counts; None where the reference is not made of one."""
        return self.folder / "tokenizer.json" if self.facts.json_sha256 else None

    @property
    def reference_name(self) -> str:
        return engine_name(self.facts.package)

    def load(self) -> Reference:
        """The reference: its counts are right by definition."""
        if self.json_file:
            return TokenizersReference.of_file(self.json_file)
        return load_source(self.files, trust_remote_code=self.facts.remote_code)


def prepared_before(
    files: TokenizerFiles, digest: str, *, trust_remote_code: bool = False
) -> PreparedTokenizer | None:
    """What an earlier run prepared; None if none did, or if its files in the cache are damaged."""
    folder = _folder(files, digest)
    with suppress(OSError, ValueError, TypeError):
        facts = TokenizerFacts(**orjson.loads(read_checked(folder / "facts.json")))
        prepared = PreparedTokenizer(files=files, folder=folder, facts=facts)
        file = prepared.json_file
        is_whole = file is None or sha256_of_file(file) == facts.json_sha256
        if is_whole and (trust_remote_code or not facts.remote_code):  # each run is asked anew
            pruning.mark_used(folder)
            return prepared
    return None


def prepare(
    files: TokenizerFiles, digest: str, *, trust_remote_code: bool = False
) -> tuple[PreparedTokenizer, Reference]:
    """Load a tokenizer from its own files, and keep what later runs need."""
    reference = load_source(files, trust_remote_code=trust_remote_code)
    facts = TokenizerFacts(package=reference.package, special_added=reference.special_added)
    document = b""
    if isinstance(reference, TransformersReference):
        facts, backend = _facts_of_auto(reference, trust_remote_code)
        if backend is not None:
            reference, document = backend, backend.backend.to_str().encode()
    elif files.kind is TokenizerKind.RAW:
        document = orjson.dumps(
            {**orjson.loads(files.files[0].read_bytes()), "truncation": None, "padding": None}
        )
    sha256 = hashlib.sha256(document).hexdigest() if document else ""
    facts = TokenizerFacts(**{**asdict(facts), "json_sha256": sha256})
    try:
        folder = _write(_folder(files, digest), facts, document)
    except CannotWriteError as error:
        do_without_cache()
        say(f"{error.message}; going on without the cache")
        folder = _write(_folder(files, digest), facts, document)
    return PreparedTokenizer(files=files, folder=folder, facts=facts), reference


def _facts_of_auto(
    served: TransformersReference, trust_remote_code: bool
) -> tuple[TokenizerFacts, TokenizersReference | None]:
    """What AutoTokenizer says, and its Rust backend where that alone gives the same ids."""
    auto = served.tokenizer
    backend = getattr(auto, "backend_tokenizer", None)
    reference = TokenizersReference(backend) if backend is not None else None
    if reference is not None:
        texts = sentences()
        wanted = served.encode(texts, special_tokens=True)
        if wanted != reference.encode(texts, special_tokens=True):
            reference = None  # the Python side does more than its backend
    facts = TokenizerFacts(
        package=(reference or served).package,
        special_added=served.special_added,
        chat_template=auto.chat_template,
        special_tokens=_as_texts(auto.special_tokens_map),
        remote_code=trust_remote_code and reference is None,
    )
    return facts, reference


def _as_texts(special: dict[str, Any]) -> dict[str, Any]:
    """Special tokens as plain strings, the way chat templates see them."""
    return {
        name: [str(item) for item in value] if isinstance(value, list | tuple) else str(value)
        for name, value in special.items()
    }


def _folder(files: TokenizerFiles, digest: str) -> Path:
    packages = ("transformers", "tokenizers") if files.kind is TokenizerKind.HF else ()
    parts = "\n".join([_LAYOUT, digest, *map(engine_name, packages)])
    return cache_folder() / "tokenizers" / hashlib.sha256(parts.encode()).hexdigest()[:32]


def _write(folder: Path, facts: TokenizerFacts, document: bytes) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(
            f"cannot make the cache folder {folder}: {error.strerror}",
            hint="set CHUNKSCOPE_CACHE_DIR to a folder that can be written",
        ) from error
    if document:
        write_atomically(folder / "tokenizer.json", document)
    write_checked(folder / "facts.json", orjson.dumps(asdict(facts)))
    pruning.prune(folder.parent, "*", most_bytes=_MOST_BYTES)
    return folder
