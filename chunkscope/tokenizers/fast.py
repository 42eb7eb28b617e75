"""The fast engine: `fastokens`, which vLLM and SGLang offer, too.

It counts ten to thirty times as fast as the reference and takes a second or two to load, so it is
for inputs of several MB. It is used for a tokenizer only after `check` found no difference.
"""

from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chunkscope.errors import InputError
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.reference import ID_BYTES, Reference, TiktokenReference

ENGINE = "fastokens"


class FastEngine:
    """Counts without special tokens. It releases the interpreter lock, so threads are enough."""

    package = ENGINE

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.longest_row: int | None = None  # with more characters the reference is faster

    def takes(self, texts: list[str]) -> bool:
        longest = self.longest_row
        return longest is None or all(len(text) <= longest for text in texts)

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text, ID_BYTES for each id."""
        ids, offsets = self._tokenizer.encode_batch_flat(texts, add_special_tokens=False)
        edges = [edge * ID_BYTES for edge in memoryview(offsets).cast("Q").tolist()]
        return [ids[start:end] for start, end in pairwise(edges)]


def load_fast(facts: TokenizerFacts, reference: Callable[[], Reference]) -> FastEngine:
    """The engine for this tokenizer. It raises what it likes where it does not know the kind."""
    from fastokens import Tokenizer

    if facts.json_file:
        return FastEngine(Tokenizer.from_json_str(facts.json_file.read_text("utf-8")))
    by = reference()
    if not isinstance(by, TiktokenReference):
        raise InputError(f"{ENGINE} has nothing for {by.package}")
    ranks = b"".join(b64encode(token) + b" %d\n" % rank for token, rank in by.ranks.items())
    with TemporaryDirectory() as folder:
        file = Path(folder) / "ranks.tiktoken"
        file.write_bytes(ranks)
        tokenizer = Tokenizer.from_tiktoken(str(file), pattern=by.pattern, special_tokens={})
    return FastEngine(tokenizer)
