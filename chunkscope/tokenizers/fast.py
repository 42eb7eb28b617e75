"""The fast engine: `fastokens`, which vLLM and SGLang offer, too.

It counts ten to thirty times as fast as the reference and takes a second or two to load, so it is
for inputs of several MB. It is used for a tokenizer only after `check` found no difference.
"""

import struct
from base64 import b64encode
from itertools import pairwise
from operator import sub
from tempfile import NamedTemporaryFile
from typing import Any

from chunkscope.tokenizers.prepare import PreparedTokenizer
from chunkscope.tokenizers.reference import Reference, TiktokenReference, engine_name

ID_BYTES = 4  # of a token id, where a text's ids are bytes
ENGINE = "fastokens"


def pack(ids: list[int]) -> bytes:
    """Ids as bytes.

    >>> pack([1, 256])
    b'\\x01\\x00\\x00\\x00\\x00\\x01\\x00\\x00'
    """
    return struct.pack(f"<{len(ids)}I", *ids)


class FastEngine:
    """Counts without special tokens. It releases the interpreter lock, so threads are enough."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.name = engine_name(ENGINE)
        self.longest_row: int | None = None  # with more characters the reference is faster

    def is_slow_with(self, text: str) -> bool:
        return self.longest_row is not None and len(text) > self.longest_row

    def count(self, texts: list[str]) -> list[int]:
        _, offsets = self._tokenizer.encode_batch_flat(texts, add_special_tokens=False)
        edges = memoryview(offsets).cast("Q").tolist()
        return list(map(sub, edges[1:], edges))

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text, ID_BYTES for each id."""
        ids, offsets = self._tokenizer.encode_batch_flat(texts, add_special_tokens=False)
        edges = [edge * ID_BYTES for edge in memoryview(offsets).cast("Q").tolist()]
        return [ids[start:end] for start, end in pairwise(edges)]


def load_fast(prepared: PreparedTokenizer, reference: Reference | None) -> FastEngine | None:
    """The engine, where there is one for this kind of tokenizer; it raises what it likes."""
    from fastokens import Tokenizer

    if prepared.json_file:
        return FastEngine(Tokenizer.from_json_str(prepared.json_file.read_text("utf-8")))
    if prepared.facts.package == TiktokenReference.package:
        reference = reference or prepared.load()
    if isinstance(reference, TiktokenReference):
        with NamedTemporaryFile(suffix=".tiktoken") as file:
            file.writelines(
                b64encode(token) + b" %d\n" % rank for token, rank in reference.ranks.items()
            )
            file.flush()
            pattern = reference.pattern
            return FastEngine(
                Tokenizer.from_tiktoken(file.name, pattern=pattern, special_tokens={})
            )
    return None
