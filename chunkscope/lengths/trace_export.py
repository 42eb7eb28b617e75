"""The requests of an analysis as Mooncake's jsonl, which benchmarks can replay.

A line has `timestamp` (0: all are sent at once), `input_length`, `output_length` and
`hash_ids`: small numbers, each of which stands for so many tokens of the prompt and all
before them; the last block of a prompt may be shorter. It is read by `vllm bench serve`
(timed_trace).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import orjson

from chunkscope.artefacts.files import write_atomically
from chunkscope.lengths.profile import DEFAULT_OUTPUT
from chunkscope.prompts.harness.log import SessionTurn
from chunkscope.tokenizers.reference import ID_BYTES

MOONCAKES_BLOCK = 512


class SentPrompt(NamedTuple):
    """A prompt as it reached the model."""

    position: int  # in its file
    tokens: int
    ids: bytes | None = None  # None where only their number is known
    output: int | None = None  # tokens of the answer; None where there is none
    # From vLLM's prefix cache; requests that ask for a likelihood do not.
    reads: bool = True
    output_cap: int | None = None
    turn: SessionTurn | None = None  # where it stands in its session
    blocks: Sequence[int] | None = None  # their names, in a trace that has them
    text: str = ""  # of a chat that belongs to a session
    thoughts: str = ""  # of its answer


def output_tokens(prompt: SentPrompt) -> int:
    """Those of its answer, else its limit, else the usual length."""
    if prompt.output is not None:
        return prompt.output
    if not prompt.reads:  # a likelihood is one token
        return 1
    return prompt.output_cap or DEFAULT_OUTPUT


# A request: its tokens, those of its answer and, for each block, a hash of it and all
# before it. Of a prompt of which only the length is known there are no blocks.
TraceRow = tuple[int, int, list[bytes]]


class TraceRows:
    """The requests of one dataset."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.longest_first = False  # how they are sent, if not as they come
        self._rows: list[TraceRow] = []

    def add(self, prompts: Sequence[SentPrompt]) -> None:
        for prompt in prompts:
            row = (
                prompt.tokens,
                output_tokens(prompt),
                self._blocks(prompt.ids or b""),
            )
            self._rows.append(row)

    def _blocks(self, ids: bytes) -> list[bytes]:
        """For each block a hash of it and all before it."""
        size = self.block_size * ID_BYTES
        past = blake2b(digest_size=8)
        blocks = []
        for start in range(0, len(ids), size):
            past.update(ids[start : start + size])
            blocks.append(past.digest())
        return blocks

    def in_order(self) -> list[TraceRow]:
        """As they are sent; of equal length, those that begin alike together."""
        if not self.longest_first:
            return self._rows
        return sorted(self._rows, key=lambda row: (-row[0], row[2]))


@dataclass(slots=True, kw_only=True)
class TraceExport:
    """Collects the requests of an analysis by dataset; `write` makes a file of them."""

    block_size: int = MOONCAKES_BLOCK
    datasets: dict[str, TraceRows] = field(default_factory=dict)

    def rows(self, name: str) -> TraceRows:
        """For a dataset that is about to be counted, perhaps once more."""
        self.datasets[name] = TraceRows(self.block_size)
        return self.datasets[name]

    def write(self, path: Path) -> int:
        """How many requests were written."""
        rows = [row for dataset in self.datasets.values() for row in dataset.in_order()]
        write_atomically(path, self._lines(rows))
        return len(rows)

    def _lines(self, rows: Sequence[TraceRow]) -> Iterator[bytes]:
        numbers: dict[bytes, int] = {}  # by the hash of a block, as they occur
        alone = 0  # blocks of prompts of which only the length is known
        for tokens, output, blocks in rows:
            ids = [numbers.setdefault(block, alone + len(numbers)) for block in blocks]
            if tokens and not blocks:
                start = alone + len(numbers)
                count = -(-tokens // self.block_size)
                ids = list(range(start, start + count))
                alone += count
            line = {"timestamp": 0, "input_length": tokens, "output_length": output}
            yield orjson.dumps(
                {**line, "hash_ids": ids}, option=orjson.OPT_APPEND_NEWLINE
            )
