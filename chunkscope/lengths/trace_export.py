"""The requests of an analysis as Mooncake's jsonl, which benchmarks of servers can replay.

A line has `timestamp` (0: all are sent at once), `input_length`, `output_length` and `hash_ids`:
small numbers, each of which stands for so many tokens of the prompt and all before them; the last
block of a prompt may be shorter. It is read by `vllm bench serve` (timed_trace).

While prompts are counted, each dataset's go to a file of their own. What they are made of comes
before their lengths, and in the same order; so do the lengths of answers.
"""

import weakref
from array import array
from collections import defaultdict, deque
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
    blocks: list[int]  # what each is known by


class TraceRows:
    """The requests of one dataset."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.longest_first = False  # how they are sent, if not as they come
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  (read later)
        weakref.finalize(self, self._file.close)
        self._prompts: deque[tuple[int, int, list[int]]] = deque()
        self._outputs: dict[int, deque[tuple[int, bool]]] = defaultdict(deque)

    def answer(self, position: int, tokens: int | None, *, otherwise: int | None = None) -> None:
        """How long the answer to the next prompt of this row is; where not known, `otherwise`."""
        known = (tokens, False) if tokens is not None else (otherwise or DEFAULT_OUTPUT, True)
        self._outputs[position].append(known)

    def prompt(self, position: int, ids: bytes) -> None:
        """What the next prompt of this row is made of."""
        size = self.block_size * ID_BYTES
        parts = (ids[start : start + size] for start in range(0, len(ids), size))
        self._prompts.append((position, len(ids) // ID_BYTES, _known_by(parts)))

    def named_prompt(self, position: int, tokens: int, names: Sequence[int]) -> None:
        """The same by names that a trace has for its blocks, if they are as large as these."""
        if len(names) != -(-tokens // self.block_size):
            return
        starts = range(0, tokens, self.block_size)
        held = (min(self.block_size, tokens - start) for start in starts)
        parts = (b"%d %d;" % pair for pair in zip(names, held, strict=True))
        self._prompts.append((position, tokens, _known_by(parts)))

    def add(self, positions: Sequence[int], lengths: Sequence[int]) -> None:
        """Prompts that were counted, in the order in which they are sent."""
        for position, length in zip(positions, lengths, strict=True):
            known = bool(self._prompts) and self._prompts[0][:2] == (position, length)
            blocks = self._prompts.popleft()[2] if known else []
            waiting = self._outputs.get(position)
            output, is_assumed = waiting.popleft() if waiting else (DEFAULT_OUTPUT, True)
            if not waiting:
                self._outputs.pop(position, None)
            row = (length, output, is_assumed, len(blocks), *blocks)
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


def _known_by(blocks: Iterable[bytes]) -> list[int]:
    """By block, 64 bits for it and all before it: the same in every process, to be sorted by."""
    past = blake2b(digest_size=_NUMBER_BYTES)
    known: list[int] = []
    for block in blocks:
        past.update(block)
        known.append(int.from_bytes(past.digest(), "little", signed=True))
    return known


@dataclass(slots=True, kw_only=True)
class TraceExport:
    """Collects the requests of an analysis; `write` puts them into a file."""

    block_size: int = MOONCAKES_BLOCK
    datasets: list[TraceRows] = field(default_factory=list)
    summary: TraceSummary = field(default_factory=TraceSummary)

    def rows(self) -> TraceRows:
        return TraceRows(self.block_size)

    def write(self, path: Path) -> TraceSummary:
        codec.write_atomically(path, self._lines())
        return self.summary

    def _lines(self) -> Iterator[bytes]:
        numbers: dict[int, int] = {}  # by what a block is known by, as they occur
        used = requests = tokens = cached = assumed = unknown = 0
        for length, output, is_assumed, blocks in chain.from_iterable(
            rows.in_order() for rows in self.datasets
        ):
            new = [block for block in blocks if block not in numbers]
            numbers.update(zip(new, range(used, used + len(new)), strict=True))
            is_unknown = bool(length) and not blocks
            ids = [numbers[block] for block in blocks]
            if is_unknown:
                ids = list(range(used, used - (-length // self.block_size)))
            known = (len(blocks) - len(new)) * self.block_size
            used += len(ids) if is_unknown else len(new)
            requests, tokens = requests + 1, tokens + length
            cached += max(0, min(known, length - 1)) // BLOCK_SIZE * BLOCK_SIZE
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
