"""The requests of an analysis as Mooncake's jsonl, which benchmarks of servers can replay.

A line has `timestamp` (0: all are sent at once), `input_length`, `output_length` and `hash_ids`:
small numbers, each of which stands for so many tokens of the prompt and all before them; the last
block of a prompt may be shorter. It is read by `vllm bench serve` (timed_trace).
"""

import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

import orjson

from chunkscope.artefacts import codec
from chunkscope.lengths.profile import DEFAULT_OUTPUT
from chunkscope.prefixes.reuse import BLOCK_SIZE
from chunkscope.tokenizers.reference import ID_BYTES

MOONCAKES_BLOCK = 512
_IN_MEMORY = 1 << 20  # bytes of each dataset's; more go to a disk
_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What was written; `cached_tokens` are those that vLLM finds if it forgets nothing."""

    requests: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    assumed_outputs: int = 0  # of which the data has none
    unknown_prompts: int = 0  # of which only the length is known: they share nothing


class TraceRow(NamedTuple):
    """A request; of a prompt of which only the length is known there are no blocks."""

    tokens: int
    output: int
    is_assumed: bool  # the output
    blocks: list[int]  # hashes


class TraceRows:
    """The requests of one dataset, in a file of their own."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.longest_first = False  # how they are sent, if not as they come
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  (read later)
        weakref.finalize(self, self._file.close)

    def add(
        self,
        lengths: Sequence[int],
        outputs: Sequence[int | None] | None,
        output_caps: Sequence[int | None] | None,
        ids: Sequence[bytes | None],
    ) -> None:
        """Requests as they are sent; one without an answer has its limit, or the usual length."""
        size = self.block_size * ID_BYTES
        for place, length in enumerate(lengths):
            cap = output_caps[place] if output_caps else None
            own = ids[place] or b""
            blocks = _hashes(own[start : start + size] for start in range(0, len(own), size))
            self._write(length, outputs[place] if outputs else None, cap, blocks)

    def _write(self, length: int, output: int | None, cap: int | None, blocks: list[int]) -> None:
        answer = output if output is not None else cap or DEFAULT_OUTPUT
        row = (length, answer, output is None, len(blocks), *blocks)
        self._file.write(array("q", row).tobytes())

    def in_order(self) -> Iterable[TraceRow]:
        """As they are sent; of equal length, those that begin alike one after the other."""
        rows = self._read()
        return (
            sorted(rows, key=lambda row: (-row.tokens, row.blocks)) if self.longest_first else rows
        )

    def _read(self) -> Iterator[TraceRow]:
        self._file.seek(0)
        while start := self._file.read(4 * _NUMBER_BYTES):
            length, output, is_assumed, count = array("q", start)
            blocks = array("q", self._file.read(count * _NUMBER_BYTES)).tolist()
            yield TraceRow(length, output, bool(is_assumed), blocks)


def _hashes(blocks: Iterable[bytes]) -> list[int]:
    """By block, 64 bits for it and all before it: the same in every process, to be sorted by."""
    past = blake2b(digest_size=_NUMBER_BYTES)
    hashes: list[int] = []
    for block in blocks:
        past.update(block)
        hashes.append(int.from_bytes(past.digest(), "little", signed=True))
    return hashes


@dataclass(slots=True, kw_only=True)
class TraceExport:
    """Collects the requests of an analysis, dataset by dataset; `write` makes a file of them."""

    block_size: int = MOONCAKES_BLOCK
    datasets: dict[str, TraceRows] = field(default_factory=dict)
    summary: TraceSummary = field(default_factory=TraceSummary)

    def rows(self, name: str) -> TraceRows:
        """For a dataset that is about to be counted, perhaps once more."""
        self.datasets[name] = TraceRows(self.block_size)
        return self.datasets[name]

    def write(self, path: Path) -> TraceSummary:
        codec.write_atomically(path, self._lines())
        return self.summary

    def _lines(self) -> Iterator[bytes]:
        numbers: dict[int, int] = {}  # by the hash of a block, as they occur
        used = requests = tokens = cached = assumed = unknown = 0
        for length, output, is_assumed, blocks in chain.from_iterable(
            rows.in_order() for rows in self.datasets.values()
        ):
            new = [block for block in blocks if block not in numbers]
            numbers.update(zip(new, range(used, used + len(new)), strict=True))
            is_unknown = bool(length) and not blocks
            ids = [numbers[block] for block in blocks]
            if is_unknown:
                ids = list(range(used, used - (-length // self.block_size)))
            found = (len(blocks) - len(new)) * self.block_size
            used += len(ids) if is_unknown else len(new)
            requests, tokens = requests + 1, tokens + length
            cached += max(0, min(found, length - 1)) // BLOCK_SIZE * BLOCK_SIZE
            assumed, unknown = assumed + is_assumed, unknown + is_unknown
            line = {"timestamp": 0, "input_length": length, "output_length": output}
            yield orjson.dumps({**line, "hash_ids": ids}, option=orjson.OPT_APPEND_NEWLINE)
        self.summary = TraceSummary(
            requests=requests,
            tokens=tokens,
            cached_tokens=cached,
            assumed_outputs=assumed,
            unknown_prompts=unknown,
        )
