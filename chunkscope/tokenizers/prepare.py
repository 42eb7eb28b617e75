"""A tokenizer made ready once: what is known of it without loading a library, kept in the cache.

transformers takes a second to import and, for some exports, does not count as the raw
`tokenizer.json` does. Its view, which is what vLLM serves, is therefore saved once as a
tokenizer.json; later runs load that with `tokenizers` and never import transformers.
"""

import gc
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

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
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind, resolve
from chunkscope.tokenizers.strings import sentences

_LAYOUT = "15"  # raise when the files in the cache change their meaning


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
    json_digest: str = ""  # of the tokenizer.json in the cache

    @property
    def json_file(self) -> Path | None:
        """The tokenizer.json that counts; None where the reference is not made of one."""
        return (
            cache_folder() / f"tokenizers/{name}.json"
            if (name := self.json_digest)
            else None
        )


def facts_before(
    files: TokenizerFiles, digest: str, trust_remote_code: bool
) -> TokenizerFacts | None:
    """What an earlier run prepared; None if none did, or if its files in the cache are damaged."""
    if files.kind is TokenizerKind.TEKKEN:  # these are all alike
        return TokenizerFacts(digest=digest, package="tiktoken", special_added=1)
    with suppress(OSError, ValueError, TypeError):
        facts = TokenizerFacts(**orjson.loads(read_cached("tokenizers", _key(digest))))
        file = facts.json_file
        is_whole = file is None or file_digest(file) == facts.json_digest
        if is_whole and (
            trust_remote_code or not facts.runs_code
        ):  # each run is asked anew
            if file:
                os.utime(file)  # the cache forgets what is not used
            return facts
    return None


def prepare(
    files: TokenizerFiles, digest: str, trust_remote_code: bool
) -> tuple[TokenizerFacts, Reference]:
    """Load a tokenizer from its own files, and keep what later runs need."""
    reference = load_source(files, trust_remote_code)
    package, added = reference.package, reference.special_added
    facts = TokenizerFacts(digest=digest, package=package, special_added=added)
    if isinstance(reference, TransformersReference):
        auto, template = reference.tokenizer, reference.tokenizer.chat_template
        if (processor := files.files[0].with_name("chat_template.json")).is_file():
            from chunkscope.tokenizers.chat_template import read_template

            # vLLM asks the processor first, unless there are tools.
            template = {"tool_use": template, "default": read_template(processor)}
        special = {  # plain text, or a list of it, the way chat templates see them
            name: list(map(str, token))
            if isinstance(token, list | tuple)
            else str(token)
            for name, token in auto.special_tokens_map.items()
        }
        facts = replace(
            facts,
            chat_template=template,
            special_tokens=special,
            begin_text=str(special.get("bos_token", "")) if facts.special_added else "",
            runs_code=trust_remote_code,
        )
        if backend := _equal_backend(reference):
            reference = backend
            facts = replace(facts, package=backend.package, runs_code=False)
    try:
        if isinstance(reference, TokenizersReference):
            facts = _with_json(facts, orjson.loads(reference.backend.to_str()))
        write_atomically(
            cache_file("tokenizers", _key(digest)), orjson.dumps(asdict(facts))
        )
        prune_cache()
    except InputError:  # without a cache it only takes longer, as `analyze` says
        facts = replace(facts, json_digest="")
    return facts, reference


def run_apart(folder: str, digest: str, trust_remote_code: bool) -> None:
    """What another process does, while this one loads the raw tokenizer.json."""
    gc.disable()
    vars(sys)["modules"]["torch"] = (
        None  # transformers imports it if it can, which takes seconds
    )
    prepare(resolve(folder), digest, trust_remote_code)
    os._exit(0)  # not Python's own end, which frees every object first


def of_raw(file: Path) -> tuple[TokenizerFacts, Reference]:
    """A tokenizer.json alone: what transformers makes of it mostly counts alike."""
    facts = TokenizerFacts(
        digest="", package=TokenizersReference.package, special_added=0
    )
    facts = _with_json(facts, orjson.loads(file.read_bytes()))
    return facts, TokenizersReference.of_file(cast("Path", facts.json_file))


def _with_json(facts: TokenizerFacts, document: dict[str, Any]) -> TokenizerFacts:
    """Keep a tokenizer.json in the cache, in one spelling, without what ids do not depend on."""
    model = document["model"]
    if "merges" in model:
        model = {
            name: value for name, value in model.items() if value not in (None, False)
        }
        # Merges as texts, which older files have, load in up to a quarter less time.
        texts = model["merges"]
        texts = [*map(" ".join, texts)] if {*map(type, texts)} == {list} else texts
        if "".join(texts).count(" ") == len(texts):  # none has a blank of its own
            model["merges"] = texts
    document.update(truncation=None, padding=None, decoder=None, model=model)
    data = orjson.dumps(document).replace(
        b'"trim_offsets":true', b'"trim_offsets":false'
    )
    facts = replace(facts, json_digest=xxh3_128_hexdigest(data))
    write_atomically(cast("Path", facts.json_file), data)
    return facts


def _equal_backend(served: TransformersReference) -> TokenizersReference | None:
    """AutoTokenizer's Rust backend, where the Python around it changes no ids."""
    backend = getattr(served.tokenizer, "backend_tokenizer", None)
    if (
        backend is None or backend.encode_special_tokens
    ):  # which no tokenizer.json keeps
        return None
    texts, reference = sentences(), TokenizersReference(backend)
    ways = [{"special_tokens": special} for special in (True, False)]
    same = all(
        served.encode(texts, **how) == reference.encode(texts, **how) for how in ways
    )
    return reference if same else None


def _key(digest: str) -> str:
    return " ".join(
        [_LAYOUT, digest, *map(engine_name, ("transformers", "tokenizers"))]
    )
