"""A tokenizer made ready once: AutoTokenizer's view of it as plain files under a content hash.

transformers takes a second to import and, for some exports, does not count as the raw
`tokenizer.json` does. Its view is therefore saved once; later runs load that and never import
transformers. That takes several times as long as loading it: for the first few prompts it is used
`as_served`, by its own library.
"""

import gc
import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache, partial
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
from chunkscope.artefacts.digests import DigestMemo, sha256_of_file
from chunkscope.artefacts.folders import cache_folder, do_without_cache
from chunkscope.console import say
from chunkscope.errors import InputError
from chunkscope.tokenizers import auto
from chunkscope.tokenizers.byte_level import byte_level, merges, write_ranks
from chunkscope.tokenizers.byte_level import ranks as ranks_of
from chunkscope.tokenizers.compiled import (
    INDEX_FILE,
    JSON_FILE,
    RANKS_FILE,
    SKELETON_FILE,
    Compiled,
    read_document,
)
from chunkscope.tokenizers.conformance import differing, texts_for
from chunkscope.tokenizers.cutting import cuts_agree, may_cut_json, may_cut_pattern
from chunkscope.tokenizers.engines import Counts, version
from chunkscope.tokenizers.files import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.guard import guarded
from chunkscope.tokenizers.probe import prove_loadable
from chunkscope.tokenizers.references import (
    by_tokenizers,
    by_transformers,
    keep_loaded,
    load_json,
    load_sentencepiece,
    load_tiktoken,
    read_tekken,
    reference,
    source_reference,
)
from chunkscope.tokenizers.relevant import build_index, build_rank_index
from chunkscope.tokenizers.watch import Watch

_SERVED = "served.json"  # what is known of one that was used and not prepared
_LAYOUT = "6"  # raise when the files below change their meaning
_CONTENT = "content"
_MOST_BYTES = 2 << 30  # some sixty tokenizers


def digest(found: TokenizerFiles, memo: DigestMemo) -> str:
    """The content of a tokenizer's files as one hash."""
    parts = [f"{file.name}\0{memo.sha256(file)}" for file in found.files]
    if found.encoding:
        parts.append(f"{found.encoding}\0{version('tiktoken')}")
    return hashlib.sha256("\n".join([found.kind, *parts]).encode()).hexdigest()


def as_served(
    found: TokenizerFiles, content: str, *, trust_remote_code: bool = False
) -> tuple[Compiled, bool]:
    """What is known of it without preparing it, and whether its own library is loaded for that.

    An earlier run may have left what is asked for, without the library.
    """
    key = _key(found, content)
    folder = cache_folder() / "tokenizers" / key
    with suppress(OSError, ValueError, TypeError):
        known = _of_meta(orjson.loads(read_checked(folder / _SERVED)), folder, key, found)
        if not known.remote_code or trust_remote_code:
            return known, False
    blank = Compiled(key=key, folder=folder, source=found, prepared=False)
    with guarded(name := f"the tokenizer {found.name}"):
        _prove(found, written=False)
        load = partial(_SERVED_BY[found.kind], found, blank, trust_remote_code)
        served = Watch(name).call(load)
    try:
        write_checked(folder / _SERVED, orjson.dumps(_meta(served)), durable=False)
    except CannotWriteError as error:
        do_without_cache()
        say(f"{error.message}; going on without the cache")
    return served, True


def compile_once(
    found: TokenizerFiles, content: str, *, trust_remote_code: bool = False
) -> Compiled:
    """Load what an earlier run compiled, or compile it now."""
    key = _key(found, content)
    folder = cache_folder() / "tokenizers" / key
    try:
        compiled = _read(folder, key, found)
        if not compiled.remote_code or trust_remote_code:  # each run is asked anew
            pruning.mark_used(folder)
            return compiled
    except (OSError, ValueError, TypeError, KeyError):
        pass  # not there yet, or damaged: make it (again)
    try:
        return _compile(folder, key, found, trust_remote_code)
    except CannotWriteError as error:
        folder = do_without_cache() / "tokenizers" / key
        say(f"{error.message}; going on without the cache")
        return _compile(folder, key, found, trust_remote_code)


def _compile(folder: Path, key: str, found: TokenizerFiles, trust_remote_code: bool) -> Compiled:
    _make(folder)
    blank = Compiled(key=key, folder=folder, source=found)
    # Millions of small objects come and go; looking for cycles among them doubles the time.
    gc.disable()
    try:
        with guarded(name := f"the tokenizer {found.name}"):
            _prove(found, written=True)
            build = partial(_BUILDERS[found.kind], found, blank, trust_remote_code)
            compiled = Watch(name).call(build)
            meta = orjson.dumps({**_meta(compiled), _CONTENT: _content(folder)})
    finally:
        gc.enable()
        read_document.cache_clear()
    write_checked(folder / "meta.json", meta)
    pruning.prune(folder.parent, "*", most_bytes=_MOST_BYTES)
    return compiled


def _prove(found: TokenizerFiles, *, written: bool) -> None:
    """That it can be loaded within limits; meanwhile what is needed next is imported."""
    with ThreadPoolExecutor(1) as beside:
        trial = beside.submit(prove_loadable, found, written=written)
        if found.kind is TokenizerKind.HF:
            auto.auto_tokenizer()
        trial.result()


def is_quickly_served(found: TokenizerFiles) -> bool:
    """Whether its own library loads it in much less time than all is made ready in."""
    return found.kind in _SERVED_BY


def is_compiled(found: TokenizerFiles, content: str) -> bool:
    return (cache_folder() / "tokenizers" / _key(found, content) / "meta.json").is_file()


def is_served(found: TokenizerFiles, content: str) -> bool:
    return (cache_folder() / "tokenizers" / _key(found, content) / _SERVED).is_file()


def _key(found: TokenizerFiles, content: str) -> str:
    packages = ("transformers", "tokenizers") if found.kind is TokenizerKind.HF else ()
    versions = [f"{package} {version(package)}" for package in packages]
    return hashlib.sha256("\n".join([_LAYOUT, content, *versions]).encode()).hexdigest()[:32]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(
            f"cannot make the cache folder {folder}: {error.strerror}",
            hint="set CHUNKSCOPE_CACHE_DIR to a folder that can be written",
        ) from error


def _meta(compiled: Compiled) -> dict[str, Any]:
    not_kept = {"key", "folder", "source"}
    names = [field.name for field in fields(compiled) if field.name not in not_kept]
    return {name: getattr(compiled, name) for name in names}


def _read(folder: Path, key: str, found: TokenizerFiles) -> Compiled:
    meta = orjson.loads(read_checked(folder / "meta.json"))
    if meta.pop(_CONTENT) != _content(folder):
        raise ValueError(f"{folder} is not as it was written")
    return _of_meta(meta, folder, key, found)


def _of_meta(meta: dict[str, Any], folder: Path, key: str, found: TokenizerFiles) -> Compiled:
    meta["notes"] = tuple(meta["notes"])
    return Compiled(key=key, folder=folder, source=found, **meta)


def _content(folder: Path) -> dict[str, str]:
    """What is there beside meta.json; verdicts come later, and are checked by who reads them."""
    files = (folder / name for name in (JSON_FILE, RANKS_FILE, INDEX_FILE, SKELETON_FILE))
    return {file.name: _digest_at(file, *_stamp(file)) for file in files if file.is_file()}


def _stamp(file: Path) -> tuple[int, ...]:
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


@lru_cache(maxsize=64)
def _digest_at(file: Path, *_stamp: int) -> str:
    """Once per process and change, not remembered on disk: that would be believing the cache."""
    return sha256_of_file(file)


# -- as it is served ---------------------------------------------------------------------------


def _auto_served(found: TokenizerFiles, blank: Compiled, remote_code: bool) -> Compiled:
    """AutoTokenizer's, which vLLM serves: what it says is right by definition."""
    served = auto.load_auto(found.files[0].parent, trust_remote_code=remote_code)
    served(["a"], add_special_tokens=True)  # one whose special tokens are not there panics now
    compiled = _of_auto(served, blank, remote_code)
    keep_loaded(compiled, by_transformers(served))
    return compiled


def _tekken_served(_: TokenizerFiles, blank: Compiled, __: bool) -> Compiled:
    compiled = _of_tekken(blank)
    keep_loaded(compiled, source_reference(compiled))
    return compiled


def _of_tekken(blank: Compiled) -> Compiled:
    """Prompts begin with one <s>, as vLLM feeds them."""
    return replace(blank, form="ranks", special_added=1, mistral_chat=True)


def _of_auto(served: Any, blank: Compiled, remote_code: bool) -> Compiled:
    return replace(
        blank,
        form="transformers",
        special_added=served.num_special_tokens_to_add(),
        chat_template=served.chat_template,
        special_tokens=_texts(served.special_tokens_map),
        remote_code=remote_code,
    )


# -- builders: each fills in what is still blank -----------------------------------------------


def _from_auto(found: TokenizerFiles, blank: Compiled, remote_code: bool) -> Compiled:
    """What AutoTokenizer makes of a folder, which is what vLLM serves."""
    served = auto.load_auto(found.files[0].parent, trust_remote_code=remote_code)
    only_code = _of_auto(served, blank, remote_code)
    backend = getattr(served, "backend_tokenizer", None)
    if backend is None:
        return only_code
    compiled = _from_backend(backend, replace(only_code, form="json", remote_code=False))
    texts = texts_for(compiled)[::4]  # AutoTokenizer's own call is slow, and this is one backend
    wanted = [len(ids) for ids in served(texts, add_special_tokens=True)["input_ids"]]
    counted = [n + compiled.special_added for n in reference(compiled).count(texts)]
    if wanted != counted:  # the Python side does more than its backend
        return only_code
    raw = next((file for file in found.files if file.name == "tokenizer.json"), None)
    note = _raw_differs(raw, compiled.document, texts, counted) if raw else None
    return _with_cuts(compiled, notes=(note,) if note else ())


def _from_raw(found: TokenizerFiles, blank: Compiled, _: bool) -> Compiled:
    return _with_cuts(_from_backend(load_json(found.files[0]), blank))


def _from_backend(backend: Any, blank: Compiled) -> Compiled:
    # Truncation and padding baked into an export would silently cap every length.
    backend.no_truncation()
    backend.no_padding()
    write_atomically(blank.json_file, backend.to_str().encode())
    compiled = replace(blank, special_added=backend.num_special_tokens_to_add(is_pair=False))
    keep_loaded(compiled, by_tokenizers(backend))
    return replace(compiled, **_as_ranks(compiled, backend.model))


def _as_ranks(compiled: Compiled, model: Any) -> dict[str, Any]:
    """Also write the vocabulary as ranks and as an index, where it is that simple."""
    document = compiled.document
    parts = byte_level(document)
    ranks = ranks_of(document, model) if parts else None
    if parts is None or ranks is None:
        return {}
    write_atomically(compiled.ranks_file, write_ranks(ranks))
    build_index(compiled.folder, document, merges(document))
    return {"pattern": parts.pattern, "added": parts.added, "nfc": parts.nfc}


def _from_tekken(found: TokenizerFiles, blank: Compiled, _: bool) -> Compiled:
    """Mistral's format: ranks and a pattern."""
    ranks, pattern = read_tekken(found.files[0])
    return _from_ranks(_of_tekken(blank), ranks, pattern)


def _from_tiktoken(found: TokenizerFiles, blank: Compiled, _: bool) -> Compiled:
    encoding = load_tiktoken(found.encoding)
    ranks = sorted(encoding._mergeable_ranks.items(), key=lambda item: item[1])
    return _from_ranks(blank, ranks, encoding._pat_str)


def _from_ranks(blank: Compiled, ranks: list[tuple[bytes, int]], pattern: str) -> Compiled:
    write_atomically(blank.ranks_file, write_ranks(ranks))
    build_rank_index(blank.folder, ranks)
    return _with_cuts(replace(blank, form="ranks", pattern=pattern))


def _from_sentencepiece(found: TokenizerFiles, blank: Compiled, _: bool) -> Compiled:
    begins = int(load_sentencepiece(found.files[0]).bos_id() >= 0)
    return replace(blank, form="sentencepiece", special_added=begins)


def _with_cuts(compiled: Compiled, notes: tuple[str, ...] = ()) -> Compiled:
    """Allow cutting texts between words if this tokenizer's structure and behaviour permit it."""
    document = compiled.document
    by_structure = may_cut_json(document) if document else may_cut_pattern(compiled.pattern)
    may_cut = by_structure and cuts_agree(reference(compiled), texts_for(compiled)[::4])
    return replace(compiled, may_cut=may_cut, notes=notes)


def _raw_differs(
    raw: Path, document: dict[str, Any], texts: list[str], counted: Counts
) -> str | None:
    """A sentence when the raw tokenizer.json would give other lengths than AutoTokenizer."""
    try:
        if _says_the_same(orjson.loads(raw.read_bytes()), document):
            return None  # no need to load it
        backend = load_json(raw)
    except (InputError, OSError, ValueError):
        return None
    backend.no_truncation()
    backend.no_padding()
    plain = [len(e) for e in backend.encode_batch_fast(texts, add_special_tokens=True)]
    if not (different := differing(plain, counted)):
        return None
    return (
        f"tokenizer.json by itself counts {different:,} of {len(texts):,} test strings "
        "differently from AutoTokenizer; counted as AutoTokenizer does, which is what vLLM serves"
    )


def _says_the_same(one: Any, other: dict[str, Any]) -> bool:
    """Whether two tokenizer.json differ in how they are written at most, and in truncation."""

    def content(document: dict[str, Any]) -> dict[str, Any]:
        model = {**document["model"], "merges": merges(document)}
        return {**document, "truncation": None, "padding": None, "model": model}

    try:
        return content(one) == content(other)
    except (KeyError, TypeError, ValueError):
        return False


def _texts(special: dict[str, Any]) -> dict[str, Any]:
    """Special tokens as plain strings, the way chat templates see them."""
    return {
        name: [str(item) for item in value] if isinstance(value, list | tuple) else str(value)
        for name, value in special.items()
    }


# The kinds that take long to be made ready.
_SERVED_BY = {TokenizerKind.HF: _auto_served, TokenizerKind.TEKKEN: _tekken_served}
_BUILDERS = {
    TokenizerKind.HF: _from_auto,
    TokenizerKind.RAW: _from_raw,
    TokenizerKind.TEKKEN: _from_tekken,
    TokenizerKind.TIKTOKEN: _from_tiktoken,
    TokenizerKind.SENTENCEPIECE: _from_sentencepiece,
}
