"""A tokenizer made ready once: what is known of it without loading a library, kept in the cache.

transformers takes a second to import and, for some exports, does not count as the raw
`tokenizer.json` does. Its view, which is what vLLM serves, is therefore saved once as a
tokenizer.json; later runs load that with `tokenizers` and never import transformers.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import orjson

from chunkscope.artefacts.files import cache_folder, write_atomically
from chunkscope.errors import InputError
from chunkscope.tokenizers.cache import cache_file, prune_cache, read_cached, sha256
from chunkscope.tokenizers.reference import (
    Reference,
    TokenizersReference,
    TransformersReference,
    engine_name,
    load_source,
)
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.strings import sentences

_LAYOUT = "11"  # raise when the files in the cache change their meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What runs need to know of a tokenizer whatever library counts with it."""

    digest: str  # of its files
    package: str  # the reference's
    special_added: int
    chat_template: Any = None
    special_tokens: dict[str, Any] = field(default_factory=dict)
    begin_text: str = ""  # of the token that it puts before a prompt, if there is one
    runs_code: bool = False  # only the tokenizer's own Python counts with it
    json_sha256: str = ""  # of the tokenizer.json in the cache
    few_tokens: str = ""  # a tekken file with the first tokens only

    @property
    def json_file(self) -> Path | None:
        """The tokenizer.json that counts; None where the reference is not made of one."""
        name = self.json_sha256
        return cache_folder() / "tokenizers" / f"{name}.json" if name else None


def facts_before(
    files: TokenizerFiles, digest: str, trust_remote_code: bool
) -> TokenizerFacts | None:
    """What an earlier run prepared; None if none did, or if its files in the cache are damaged."""
    with suppress(OSError, ValueError, TypeError):
        facts = TokenizerFacts(**orjson.loads(read_cached("tokenizers", _key(files, digest))))
        file = facts.json_file
        is_whole = file is None or sha256(file) == facts.json_sha256
        if is_whole and (trust_remote_code or not facts.runs_code):  # each run is asked anew
            if file:
                os.utime(file)  # the cache forgets what is not used
            return facts
    return None


def prepare(
    files: TokenizerFiles, digest: str, trust_remote_code: bool
) -> tuple[TokenizerFacts, Reference]:
    """Load a tokenizer from its own files, and keep what later runs need."""
    reference = load_source(files, trust_remote_code)
    known = {name: getattr(reference, name) for name in ("package", "special_added", "few_tokens")}
    facts = TokenizerFacts(digest=digest, **known)
    if isinstance(reference, TransformersReference):
        auto = reference.tokenizer
        special = {  # plain text, or a list of it, the way chat templates see them
            name: list(map(str, token)) if isinstance(token, list | tuple) else str(token)
            for name, token in auto.special_tokens_map.items()
        }
        facts = replace(
            facts,
            chat_template=auto.chat_template,
            special_tokens=special,
            begin_text=str(special.get("bos_token", "")) if facts.special_added else "",
            runs_code=trust_remote_code,
        )
        if backend := _equal_backend(reference):
            reference = backend
            facts = replace(facts, package=backend.package, runs_code=False)
    try:
        if isinstance(reference, TokenizersReference):
            document = orjson.loads(reference.backend.to_str())
            # Merges as texts, which older files have, load in up to a quarter less time.
            merges = list(map(" ".join, document["model"].get("merges", ())))
            if merges and "".join(merges).count(" ") == len(merges):  # none has a blank of its own
                document["model"]["merges"] = merges
            data = orjson.dumps(document)
            facts = replace(facts, json_sha256=hashlib.sha256(data).hexdigest())
            write_atomically(cast("Path", facts.json_file), data)
        write_atomically(cache_file("tokenizers", _key(files, digest)), orjson.dumps(asdict(facts)))
        prune_cache()
    except InputError:  # without a cache it only takes longer, as `analyze` says
        facts = replace(facts, json_sha256="")
    return facts, reference


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


def _key(files: TokenizerFiles, digest: str) -> str:
    packages = ("transformers", "tokenizers") if files.kind is TokenizerKind.HF else ()
    return " ".join([_LAYOUT, digest, *map(engine_name, packages)])
