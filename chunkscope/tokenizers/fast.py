"""The fast engine: splintr, which counts about ten times as fast as the reference.

It is used for a tokenizer only after `check` found no difference, and where a wheel of
it is installed. It was chosen for what it loses least, of two engines. Seconds of
`analyze` with Llama 3.1's tokenizer on two cores, the engine loaded anew:

| data | splintr | fastokens |
|---|---:|---:|
| 2 MB of prompts | 0.4 | 1.3 |
| 16 MB of unique text | 0.7 | 1.4 |
| 64 MB of few-shot prompts | 0.5 | 1.4 |
| 107 MB of unique text | 2.7 | 2.2 |
| 438 MB of unique text | 6.5 | 3.9 |

It also reads the tokenizers of gpt-oss and GPT-4o, which fastokens refuses.
"""

from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from unicodedata import is_normalized

import orjson

from chunkscope.tokenizers.foreign import engine_name
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.reference import ID_BYTES, Reference, TiktokenReference

PACKAGE = "splintr-rs"
# Characters from which on the time to load the engine, and to prove it, pays off.
PAYS_FROM = 1_000_000
RANKS_PAY_FROM = 4_000_000  # where the reference has to be loaded to make the engine

GetReference = Callable[[], Reference]
EncodeFlat = Callable[[list[str]], tuple[bytes, bytes]]


class FastEngine:
    """Counts without special tokens. It releases the interpreter lock: threads are
    enough."""

    package = PACKAGE

    def __init__(
        self, encode: EncodeFlat, reference: GetReference, *, only_nfc: bool = False
    ) -> None:
        # To all ids (ID_BYTES each), and the edges of the texts (8 bytes each).
        self._encode = encode
        self._reference = reference
        self._only_nfc = only_nfc  # other text goes to the reference

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text, ID_BYTES for each id."""
        fast, slow = [], []
        for text in texts:
            if self._takes(text):
                fast.append(text)
            else:
                slow.append(text)
        fast_ids = iter(self._fast_ids(fast))
        if not slow:
            return list(fast_ids)
        slow_ids = iter(self._reference().id_bytes(slow))
        found = []
        for text in texts:
            found.append(next(fast_ids) if self._takes(text) else next(slow_ids))
        return found

    def _takes(self, text: str) -> bool:
        return not self._only_nfc or text.isascii() or is_normalized("NFC", text)

    def _fast_ids(self, texts: list[str]) -> list[bytes]:
        ids, offsets = self._encode(texts)
        edges = memoryview(offsets).cast("Q").tolist()
        found = []
        for start, end in pairwise(edges):
            found.append(ids[start * ID_BYTES : end * ID_BYTES])
        return found


def load_engine(facts: TokenizerFacts, reference: GetReference) -> FastEngine:
    """The engine for this tokenizer. It raises what it likes where it does not know
    the kind."""
    if facts.json_file is None:
        return _of_ranks(reference)
    import splintr

    document = orjson.loads(facts.json_file.read_bytes())
    document["post_processor"] = None  # else special tokens are put around each text
    # splintr normalizes by younger tables of Unicode than the reference. Text that is
    # in NFC by Python's tables is changed by neither.
    only_nfc = document.get("normalizer") == {"type": "NFC"}
    if only_nfc:
        document["normalizer"] = None
    tokenizer = splintr.from_json_bytes(orjson.dumps(document))
    return FastEngine(tokenizer.encode_batch_flat, reference, only_nfc=only_nfc)


def _of_ranks(reference: GetReference) -> FastEngine:
    import splintr

    loaded = reference()
    if not isinstance(loaded, TiktokenReference):
        raise TypeError(f"{loaded.package} has no ranks")
    lines = []
    for token, rank in loaded.ranks.items():
        lines.append(b"%s %d\n" % (b64encode(token), rank))
    tokenizer = splintr.Tokenizer.from_bytes(b"".join(lines), loaded.pattern)
    return FastEngine(tokenizer.encode_batch_flat, reference)


def pays_off(facts: TokenizerFacts, chars: int) -> bool:
    """Whether the engine saves time with so many characters, if it is installed."""
    pays_from = PAYS_FROM if facts.json_file else RANKS_PAY_FROM
    return chars >= pays_from and bool(engine_name(PACKAGE))
