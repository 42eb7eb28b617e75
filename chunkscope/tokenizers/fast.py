"""The fast engines: they count ten to thirty times as fast as the reference, and take time to load.

splintr loads in a tenth of a second; fastokens takes over one, then counts twice as fast. Each is
used for a tokenizer only after `check` found no difference, and where a wheel of it is installed.
"""

import os
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unicodedata import is_normalized

import orjson

from chunkscope.tokenizers.foreign import engine_name
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.reference import ID_BYTES, Reference, TiktokenReference

MUCH = 100_000_000  # characters: what counts faster comes before what loads faster


class FastEngine:
    """Counts without special tokens. It releases the interpreter lock, so threads are enough."""

    package = ""
    pays_from = 0  # characters: with less, the reference is faster, as it takes less time to load

    def __init__(
        self, facts: TokenizerFacts, reference: Callable[[], Reference]
    ) -> None:
        """It raises what it likes where it does not know the kind of tokenizer."""
        self.reference = reference
        self.only_nfc = (
            False  # text that normalizing would change goes to the reference
        )
        if facts.json_file:
            self.encode = self.load(facts.json_file)
            return
        by = cast("TiktokenReference", reference())  # of no other there are ranks
        ranks = b"".join(
            b64encode(token) + b" %d\n" % rank for token, rank in by.ranks.items()
        )
        with TemporaryDirectory() as folder:
            file = Path(folder) / "ranks.tiktoken"
            file.write_bytes(ranks)
            self.encode = self.load(file, by.pattern)

    def load(self, file: Path, pattern: str | None = None) -> Any:
        """What encodes texts: to all ids (ID_BYTES each) and the edges of texts (8 bytes each)."""

    def takes(self, text: str) -> bool:
        return not self.only_nfc or text.isascii() or is_normalized("NFC", text)

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text, ID_BYTES for each id."""
        taken = list(map(self.takes, texts))
        ids, offsets = self.encode(list(compress(texts, taken)))
        edges = [edge * ID_BYTES for edge in memoryview(offsets).cast("Q").tolist()]
        fast = (ids[start:end] for start, end in pairwise(edges))
        others = [
            text for text, is_taken in zip(texts, taken, strict=True) if not is_taken
        ]
        slow = iter(self.reference().id_bytes(others) if others else ())
        return [next(fast if is_taken else slow) for is_taken in taken]


class Splintr(FastEngine):
    package, pays_from = "splintr-rs", 1_000_000

    def load(self, file: Path, pattern: str | None = None) -> Any:
        import splintr

        if pattern is not None:
            return splintr.Tokenizer(str(file), pattern).encode_batch_flat
        head, key, model = file.read_bytes().partition(
            b'"model":{'
        )  # the bulk, not parsed here
        settings = orjson.loads(head.rstrip(b",") + b"}")
        settings["post_processor"] = (
            None  # else special tokens are put around each text
        )
        if settings.get("normalizer") == {"type": "NFC"}:
            # By younger tables of Unicode than the reference's. Text that is in NFC by these
            # (Python's are) is changed by neither, as Unicode never takes back a composition.
            settings["normalizer"], self.only_nfc = None, True
        # Without merges it loads in a quarter of the time, and joins what has the lowest id first:
        # the same, where no merge makes an earlier id than the last, and merges make every entry.
        vocabulary = model.partition(b',"merges":[')[0]
        plain = (
            orjson.dumps(settings)[:-1] + b"," + key + vocabulary + b',"merges":[]}}'
        )
        return splintr.from_json_bytes(plain).encode_batch_flat


class Fastokens(FastEngine):
    package, pays_from = "fastokens", 8_000_000

    def load(self, file: Path, pattern: str | None = None) -> Any:
        os.environ.setdefault(
            "FASTOKENS_BPE_THREADS", "1"
        )  # the threads that ask are enough
        from fastokens import Tokenizer

        if pattern is not None:
            tokenizer = Tokenizer.from_tiktoken(
                str(file), pattern=pattern, special_tokens={}
            )
        else:
            tokenizer = Tokenizer.from_file(str(file))
        return partial(tokenizer.encode_batch_flat, add_special_tokens=False)


def engines_for(chars: int) -> list[type[FastEngine]]:
    """Those that are faster than the reference for so much text, the fastest one first."""
    order = (Fastokens, Splintr) if chars >= MUCH else (Splintr, Fastokens)
    return [one for one in order if one.pays_from <= chars and engine_name(one.package)]
