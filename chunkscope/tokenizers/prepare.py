"""A tokenizer made ready once: what is known of it without loading a library, kept in
the cache.

transformers takes a second to import and, for some exports, does not count as the raw
`tokenizer.json` does. Its view, which is what vLLM serves, is therefore saved once as a
tokenizer.json; later runs load that with `tokenizers` and never import transformers.
"""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from xxhash import xxh3_128_hexdigest

from chunkscope.artefacts.files import cache_folder, write_atomically
from chunkscope.errors import InputError
from chunkscope.tokenizers.cache import (
    cache_file,
    file_digest,
    prune_cache,
    read_cached,
)
from chunkscope.tokenizers.foreign import engine_name
from chunkscope.tokenizers.reference import (
    Reference,
    TokenizersReference,
    TransformersReference,
    load_source,
)
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.strings import sentences

LAYOUT = "16"  # raise when the files in the cache change their meaning

Template = str | list[Any] | dict[str, Any] | None  # text, or several by name


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What runs need to know of a tokenizer whatever library counts with it."""

    digest: str  # of its files
    package: str  # the reference's
    special_added: int  # tokens around a prompt
    special_after: int = 0  # those of them that come after it
    chat_template: Template = None
    special_tokens: dict[str, Any] = field(default_factory=dict)
    begin_text: str = ""  # of the token that it puts before a prompt, if there is one
    runs_code: bool = False  # only the tokenizer's own Python counts with it
    json_digest: str = ""  # of the tokenizer.json in the cache

    @property
    def json_file(self) -> Path | None:
        """The tokenizer.json that counts; None where the reference is not made of
        one."""
        if not self.json_digest:
            return None
        return cache_folder() / f"tokenizers/{self.json_digest}.json"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tokenizer that is loaded."""

    facts: TokenizerFacts
    reference: Reference


def facts_before(
    files: TokenizerFiles, digest: str, *, trust_remote_code: bool
) -> TokenizerFacts | None:
    """What an earlier run prepared; None if none did, or if its files in the cache are
    damaged."""
    if files.kind is TokenizerKind.TEKKEN:  # these are all alike
        return TokenizerFacts(digest=digest, package="tiktoken", special_added=1)
    with suppress(OSError, ValueError, TypeError):
        facts = TokenizerFacts(**orjson.loads(read_cached("tokenizers", _key(digest))))
        if facts.runs_code and not trust_remote_code:  # each run is asked anew
            return None
        file = facts.json_file
        if file is None:
            return facts
        if file_digest(file) == facts.json_digest:
            os.utime(file)  # the cache forgets what is not used
            return facts
    return None


def prepare(files: TokenizerFiles, digest: str, *, trust_remote_code: bool) -> Prepared:
    """Load a tokenizer from its own files, and keep what later runs need."""
    reference = load_source(files, trust_remote_code=trust_remote_code)
    facts = TokenizerFacts(
        digest=digest,
        package=reference.package,
        special_added=reference.special_added,
        special_after=_special_after(reference),
    )
    if isinstance(reference, TransformersReference):
        facts = _with_template(facts, files, reference)
        facts = replace(facts, runs_code=trust_remote_code)
        backend = _equal_backend(reference)
        if backend is not None:
            reference = backend
            facts = replace(facts, package=backend.package, runs_code=False)
    try:
        if isinstance(reference, TokenizersReference):
            facts = _with_json(facts, reference)
        file = cache_file("tokenizers", _key(digest))
        write_atomically(file, orjson.dumps(asdict(facts)))
        prune_cache()
    except InputError:  # without a cache it only takes longer, as `analyze` says
        facts = replace(facts, json_digest="")
    return Prepared(facts, reference)


def _special_after(reference: Reference) -> int:
    """How many of the special tokens come after a prompt."""
    if not reference.special_added:
        return 0
    (alone,) = reference.encode(["a"], special_tokens=False)
    (whole,) = reference.encode(["a"], special_tokens=True)
    for before in range(len(whole)):
        if whole[before : before + len(alone)] == alone:
            return len(whole) - len(alone) - before
    return 0


def _with_template(
    facts: TokenizerFacts, files: TokenizerFiles, reference: TransformersReference
) -> TokenizerFacts:
    """The chat template and the special tokens that it may name."""
    template = reference.tokenizer.chat_template
    processor = files.files[0].with_name("chat_template.json")
    if processor.is_file():
        from chunkscope.tokenizers.chat_template import read_template

        # vLLM asks the processor first, unless there are tools.
        template = {"tool_use": template, "default": read_template(processor)}
    special: dict[str, Any] = {}  # text or a list of it, as chat templates see them
    for name, token in reference.tokenizer.special_tokens_map.items():
        if isinstance(token, list | tuple):
            special[name] = [str(each) for each in token]
        else:
            special[name] = str(token)
    begin = ""
    if facts.special_added > facts.special_after:
        begin = str(special.get("bos_token", ""))
    return replace(
        facts, chat_template=template, special_tokens=special, begin_text=begin
    )


def _with_json(facts: TokenizerFacts, reference: TokenizersReference) -> TokenizerFacts:
    """Keep the reference as a tokenizer.json in the cache."""
    data = reference.backend.to_str().encode()
    facts = replace(facts, json_digest=xxh3_128_hexdigest(data))
    if facts.json_file:
        write_atomically(facts.json_file, data)
    return facts


def _equal_backend(served: TransformersReference) -> TokenizersReference | None:
    """AutoTokenizer's Rust backend, where the Python around it changes no ids."""
    backend = getattr(served.tokenizer, "backend_tokenizer", None)
    # No tokenizer.json keeps that special tokens are split.
    if backend is None or backend.encode_special_tokens:
        return None
    texts, reference = sentences(), TokenizersReference(backend)
    for special in (True, False):
        right = served.encode(texts, special_tokens=special)
        if reference.encode(texts, special_tokens=special) != right:
            return None
    return reference


def _key(digest: str) -> str:
    versions = f"{engine_name('transformers')} {engine_name('tokenizers')}"
    return f"{LAYOUT} {digest} {versions}"
