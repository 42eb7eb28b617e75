"""Adds up the lengths of one dataset while it is read, and what came of it."""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from chunkscope.artefacts.note import Note
from chunkscope.errors import ChunkscopeError
from chunkscope.lengths.histogram import LengthHistogram, added_up
from chunkscope.lengths.profile import DatasetProfile, LongPrompt
from chunkscope.lengths.trace_export import TraceRows
from chunkscope.prefixes.reuse import Scoring
from chunkscope.sources.base import BadRow, Problems

if TYPE_CHECKING:
    from chunkscope.prefixes.block_hashes import BlockHashes  # numpy: not for lengths alone
    from chunkscope.prefixes.near_misses import NearMisses
    from chunkscope.prefixes.trace_blocks import TraceBlocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The profile of a dataset, or of a piece of it, with its engines and its error as values."""

    profile: DatasetProfile
    engines: tuple[str, ...] = ()
    error: ChunkscopeError | None = None
    notes: tuple[Note, ...] = ()  # as values, to be added up with those of other pieces
    positions: int = 0  # how many there are in a piece; those of the next come after them
    trace: TraceRows | None = None
    order: tuple[int, ...] = ()  # positions, those that begin alike together, where asked for

    @property
    def brought_its_lengths(self) -> bool:
        """No tokenizer was needed: a trace, or a log that has the server's own counts."""
        of_a_log = self.profile.kind == "requests" and not self.engines and not self.error
        return self.profile.kind == "lengths" or of_a_log


def joined(pieces: Sequence[Counted], keep_longest: int) -> Counted:
    """A dataset, from the pieces it was counted in; those after one that failed do not count."""
    failed = next((n for n, piece in enumerate(pieces) if piece.profile.failure), len(pieces))
    pieces = pieces[: failed + 1]
    if len(pieces) == 1:
        return pieces[0]
    first, profiles = pieces[0], [piece.profile for piece in pieces]
    notes = _notes_together(note for piece in pieces for note in piece.notes)
    engines = tuple(sorted({engine for piece in pieces for engine in piece.engines}))
    known_chars = [profile.chars for profile in profiles if profile.chars is not None]
    outputs = [p.output_lengths for p in profiles if p.output_lengths is not None]
    longest: list[LongPrompt] = []
    bad_rows: list[BadRow] = []
    before = 0
    for piece in pieces:
        longest += (replace(p, position=before + p.position) for p in piece.profile.longest)
        bad_rows += (replace(r, position=before + r.position) for r in piece.profile.bad_rows)
        before += piece.positions
    profile = replace(
        first.profile,
        lengths=added_up(profile.lengths for profile in profiles),
        output_lengths=added_up(outputs) if outputs else None,
        chars=sum(known_chars) if known_chars else None,
        skipped=sum(profile.skipped for profile in profiles),
        longest=tuple(heapq.nlargest(keep_longest, longest, key=lambda prompt: prompt.tokens)),
        bad_rows=tuple(bad_rows[: Problems().keep]),
        failure=profiles[-1].failure,
        notes=notes,
        engine=" + ".join(engines) or None,
    )
    return replace(
        first,
        profile=profile,
        engines=engines,
        error=pieces[-1].error,
        notes=notes,
        positions=before,
    )


def _notes_together(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each once, in order; their counts of rows are added up."""
    counts: dict[str, int] = {}
    first: dict[str, Note] = {}
    for note in notes:
        rest = {name: value for name, value in note.values.items() if name != "count"}
        key = f"{note.code} {rest}"
        first.setdefault(key, note)
        if isinstance(count := note.values.get("count"), int):
            counts[key] = counts.get(key, 0) + count
    return tuple(
        replace(note, values={**note.values, "count": counts[key]}) if key in counts else note
        for key, note in first.items()
    )


class Tally:
    """Counts, characters and the longest prompts of the rows seen so far."""

    def __init__(self, keep_longest: int, trace: TraceRows | None = None) -> None:
        self.trace = trace  # where each prompt goes besides
        self.rows = 0
        self.tokens = 0
        self.chars: int | None = None
        self.media_rows = 0
        self.ignored_tools = 0  # conversations with tools that the chat template leaves out
        self.begun_twice = 0  # prompts that have the tokenizer's first token in their text too
        self.engines: tuple[str, ...] = ()
        self.request_kinds: Counter[str] = Counter()  # of a harness's log
        self.output_caps: Counter[int] = Counter()
        self.rendered_chats = False
        self.compared: BlockHashes | TraceBlocks | None = None
        self.near_misses: NearMisses | None = None
        self.scoring: Scoring | None = None
        self._keep = keep_longest
        self._counts: Counter[int] = Counter()
        self._outputs: Counter[int] | None = None
        self._longest: list[tuple[int, int]] = []
        self._shortest_kept = -1  # of those kept when they were last sorted

    def add(self, positions: Sequence[int], lengths: list[int]) -> None:
        if not lengths:
            return
        if self.trace is not None:
            self.trace.add(positions, lengths)
        self._counts.update(lengths)
        self.rows += len(lengths)
        self.tokens += sum(lengths)
        # Most chunks hold none of the longest prompts; one `max` tells.
        room = len(self._longest) < self._keep
        if room or (self._keep and max(lengths) > self._shortest_kept):
            self._longest += zip(lengths, positions, strict=True)
            if len(self._longest) >= 2 * self._keep:  # seldom, however many are to be kept
                self._sort()

    def _sort(self) -> None:
        """Keep the longest; of equal ones, those that come first."""
        self._longest = heapq.nlargest(self._keep, self._longest, key=itemgetter(0))
        if self._longest:
            self._shortest_kept = self._longest[-1][0]

    def add_chars(self, chars: int) -> None:
        self.chars = (self.chars or 0) + chars

    def offer(self, positions: Sequence[int], texts: Sequence[str]) -> None:
        """Texts to compare, if that is wanted."""
        if self.near_misses is not None:
            self.near_misses.offer(positions, texts)

    def add_outputs(self, lengths: Iterable[int]) -> None:
        if self._outputs is None:
            self._outputs = Counter()
        self._outputs.update(lengths)

    def add_answers(self, positions: Sequence[int], lengths: Sequence[int | None]) -> None:
        """The outputs of rows whose prompts come next; None where there is none."""
        self.add_outputs(length for length in lengths if length is not None)
        if self.trace is not None:
            for position, length in zip(positions, lengths, strict=True):
                self.trace.answer(position, length)

    def add_requests(self, kind: str, output_cap: int | None, number: int) -> None:
        self.request_kinds[kind] += number
        if output_cap is not None:
            self.output_caps[output_cap] += number

    @property
    def lengths(self) -> LengthHistogram:
        return LengthHistogram(dict(self._counts))

    @property
    def output_lengths(self) -> LengthHistogram | None:
        return LengthHistogram(dict(self._outputs)) if self._outputs is not None else None

    @property
    def longest(self) -> tuple[LongPrompt, ...]:
        self._sort()
        return tuple(LongPrompt(tokens=n, position=at) for n, at in self._longest)
