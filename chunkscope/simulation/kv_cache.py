"""vLLM's KV cache: who holds how many blocks, which are free, what is still cached in
them.

Blocks have no numbers here, as vLLM's choices never depend on them. Cached blocks that
a request may look for are kept in runs, for each group of layers by the part of a
prompt that they hold: a stretch that prompts share, or the one that the turns of a
session have for themselves. So a shared beginning, a session's next turn and a
preempted request find their blocks in one way.
"""

import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from chunkscope.models.layers import KvKind
from chunkscope.prefixes.sharing import Path
from chunkscope.simulation.requests import ANONYMOUS, BlockRun, RequestState
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings


class GroupBlocks:
    """How many blocks tokens take in all groups of layers.

    A row is the blocks of all `full` and `sliding` groups for the same tokens. Groups
    with a window give back the rows that left it. A state takes its blocks once.
    """

    def __init__(self, settings: Settings, pool: KvPool, rules: Rules) -> None:
        kinds = [group.kind for group in pool.groups]
        windows = [group.window for group in pool.groups if group.window]
        states = [group for group in pool.groups if group.kind is KvKind.STATE]
        self.full = kinds.count(KvKind.FULL) if kinds else 1
        self.sliding = len(windows)
        self.per_row = self.full + self.sliding
        self.state = sum(group.state_blocks for group in states)
        self.window = windows[0] if windows else 0  # models have one size of windows
        # A step that still runs reads what was in the window when it was launched.
        keeps = rules.async_scheduling and rules.keeps_window_of_running_step
        self.keeps_running = self.window > 0 and keeps
        self.block_size = pool.block_size
        self._most_rows = sys.maxsize
        if rules.window_caps_admission:
            steps = 2 if self.keeps_running else 1
            tokens = self.window - 1 + steps * settings.step_tokens
            if settings.max_model_len:
                tokens = min(tokens, settings.max_model_len)
            self._most_rows = self.rows(tokens) + 1

    def rows(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def new_blocks(self, computed: int, tokens: int) -> int:
        """Blocks that a request begins with so many more tokens."""
        return self.per_row * (self.rows(computed + tokens) - self.rows(computed))

    def skipped(self, tokens: int) -> int:
        """Rows that lie before the window of the token after so many."""
        outside = tokens - self.window + 1
        if self.window == 0 or outside < 0:
            return 0
        return outside // self.block_size

    def to_reserve(self, tokens: int, held: int = 0) -> int:
        """Blocks that must be free for a request of so many tokens, of which it has
        some rows."""
        rows = self.rows(tokens)
        sliding = min(rows, self._most_rows)
        blocks = self.full * (rows - held) + self.sliding * max(0, sliding - held)
        return blocks + self.state


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks `start` to `end` of a run, which a request may take over."""

    run: BlockRun
    start: int
    end: int


@dataclass(slots=True)
class CacheHit:
    """Leading blocks of a request that are cached, and in which runs, by group."""

    blocks: int = 0
    pieces: list[list[Piece]] = field(default_factory=list)

    @property
    def evictable(self) -> int:
        """Free blocks among them: taking one makes the free ones fewer."""
        blocks = 0
        for pieces in self.pieces:
            for piece in pieces:
                if not piece.run.holders:
                    blocks += piece.end - piece.start
        return blocks


class KvCache:
    """All blocks. Blank ones are taken first, then cached ones, the longest unused in
    front."""

    def __init__(self, settings: Settings, pool: KvPool, rules: Rules) -> None:
        self.groups = GroupBlocks(settings, pool, rules)
        self.block_size = pool.block_size
        self.num_free = self._blank = pool.num_blocks
        caches = settings.enable_prefix_caching and self.groups.per_row > 0
        self.caching = bool(caches)
        self._blank_first = rules.blank_blocks_first
        self._reserves_full_prompt = rules.reserves_full_prompt
        self._queue: OrderedDict[BlockRun, None] = OrderedDict()
        # By group and stretch, the runs with blocks of it, the oldest first.
        self._cached: list[dict[int, dict[BlockRun, None]]] = [
            {} for _ in range(self.groups.per_row)
        ]

    # -- what is cached

    def get_computed_blocks(self, request: RequestState) -> CacheHit:
        """The longest cached prefix; the last token is always computed, to have
        logits."""
        if not self.caching or request.skips_cache:
            return CacheHit()
        blocks = (request.num_tokens - 1) // self.block_size
        for group in range(self.groups.full):
            blocks = self._prefix(group, request.path, blocks)
        start = 0
        if self.groups.sliding and blocks:
            blocks = self._window_hit(request.path, blocks)
            start = max(0, blocks - self._window_blocks)
        if blocks == 0:
            return CacheHit()
        pieces = []
        for group in range(self.groups.per_row):
            first = 0 if group < self.groups.full else start
            pieces.append(list(self._pieces(group, request.path, first, blocks)))
        return CacheHit(blocks, pieces)

    @property
    def _window_blocks(self) -> int:
        """Neighbouring blocks that a hit needs where layers have a window."""
        return max(1, self.groups.rows(self.groups.window - 1))

    def _prefix(self, group: int, path: Path, limit: int) -> int:
        """Leading blocks that are cached in a group which keeps all of them."""
        blocks = 0
        for piece in self._pieces(group, path, 0, limit):
            if piece.start > blocks:
                break
            blocks = piece.end
        return blocks

    def _window_hit(self, path: Path, limit: int) -> int:
        """Up to which block a window is cached in all groups that have one, as far
        right as possible; a beginning may be shorter than a window."""
        end = limit
        while end > 0:
            least = max(0, end - self._window_blocks)
            gap = least  # the blocks from here on are cached in all groups
            for group in range(self.groups.full, self.groups.per_row):
                gap = max(gap, self._start_of_span(group, path, end, gap))
            if gap == least:
                return end
            end = gap - 1
        return 0

    def _start_of_span(self, group: int, path: Path, end: int, least: int) -> int:
        """From which block on all before `end` are cached; no less than `least`."""
        place = end
        for part in reversed(path):
            runs = self._cached[group].get(part.stretch, {})
            while max(part.start, least) < place <= part.end:
                run = next((run for run in runs if run.start < place <= run.end), None)
                if run is None:
                    return place
                place = max(run.start, part.start)
        return max(place, least)

    def _pieces(
        self, group: int, path: Path, first: int, limit: int
    ) -> Iterator[Piece]:
        """What is cached of these blocks of a path, in their order."""
        cached = self._cached[group]
        for stretch, start, end in path:
            runs = cached.get(stretch)
            if runs is None:
                continue
            place, last = max(start, first), min(end, limit)
            while place < last:
                run, until = _oldest(runs, place, last)
                if run is not None:
                    yield Piece(run, place, until)
                place = until

    # -- taking blocks

    def allocate_slots(
        self,
        request: RequestState,
        num_new_tokens: int,
        hit: CacheHit | None = None,
        *,
        in_flight: int = 0,
    ) -> bool:
        """Room for so many more tokens; a waiting request brings what it hit. False: no
        room.

        `in_flight`: computed tokens whose step still runs.
        """
        groups, computed = self.groups, request.num_computed_tokens
        if hit is None:
            self.leave_window(request, groups.skipped(computed - in_flight))
        need = to_be_free = groups.new_blocks(computed, num_new_tokens)
        if hit is not None:
            need += groups.state
            to_be_free = need
            if self._reserves_full_prompt:
                reserve = groups.to_reserve(request.num_tokens, hit.blocks)
                to_be_free = max(need, reserve)
            to_be_free += hit.evictable
        if to_be_free > self.num_free:
            return False
        if hit is not None:
            self._touch(request, hit)
            request.num_skipped_blocks = groups.skipped(computed)
        self.get_new_blocks(need)
        self.cache_full_blocks(request, computed + num_new_tokens)
        return True

    def get_new_blocks(self, count: int) -> None:
        """Blank blocks, then those that were unused for longest, which are
        forgotten."""
        self.num_free -= count
        self._blank -= count
        while self._blank < 0:
            run = next(iter(self._queue))
            taken = min(-self._blank, len(run))
            run.end -= taken  # the last of a prompt's blocks goes first
            self._blank += taken
            if len(run) == 0:
                del self._queue[run]
                self._forget(run)

    def _forget(self, run: BlockRun) -> None:
        if run.stretch == ANONYMOUS:
            return
        runs = self._cached[run.group][run.stretch]
        del runs[run]
        if not runs:
            del self._cached[run.group][run.stretch]

    def _touch(self, request: RequestState, hit: CacheHit) -> None:
        """Hold what was hit; what is wanted of a run becomes a run of its own."""
        request.held = [[] for _ in range(self.groups.per_row)]
        for group, pieces in enumerate(hit.pieces):
            parts = []
            for piece in reversed(pieces):  # so that a run that is split stays in front
                run = piece.run
                if piece.end < run.end:
                    self._split(run, piece.end)
                if run.start < piece.start:
                    run = self._split(run, piece.start)
                if not run.holders:
                    del self._queue[run]
                    self.num_free -= len(run)
                parts.append(run)
            for run in reversed(parts):
                self._hold(request, group, run)
        request.num_tracked_blocks = hit.blocks

    def cache_full_blocks(self, request: RequestState, tokens: int) -> None:
        """Full blocks that prompts share are cached when they are scheduled: the next
        request in this very step finds them. Others nobody looks for before they are
        given back."""
        tracked = request.num_tracked_blocks
        full = min(tokens // self.block_size, request.num_shared_blocks)
        if not self.caching or full <= tracked:
            return
        for stretch, start, end in request.path:
            if tracked < end and start < full:
                for group in range(self.groups.per_row):
                    run = BlockRun(group, stretch, max(start, tracked), min(end, full))
                    self._cached[group].setdefault(stretch, {})[run] = None
                    self._hold(request, group, run)
        request.num_tracked_blocks = full

    def _hold(self, request: RequestState, group: int, run: BlockRun) -> None:
        held = request.held[group]
        held.append(run)
        run.holders[request.id] = held

    def _split(self, run: BlockRun, place: int) -> BlockRun:
        """The blocks from `place` on become a run of their own, as old and held as
        before."""
        rest = BlockRun(run.group, run.stretch, place, run.end, dict(run.holders))
        run.end = place
        for held in run.holders.values():
            held.insert(held.index(run) + 1, rest)
        cached = list(self._cached[run.group][run.stretch])
        cached.insert(cached.index(run) + 1, rest)
        self._cached[run.group][run.stretch] = dict.fromkeys(cached)
        if not run.holders:
            queue = list(self._queue)
            queue.insert(queue.index(run), rest)
            self._queue = OrderedDict.fromkeys(queue)
        return rest

    # -- giving them back

    def leave_window(self, request: RequestState, skipped: int) -> None:
        """Give back the rows that have left the window since the last time."""
        before = request.num_skipped_blocks
        if skipped <= before:
            return
        request.num_skipped_blocks = skipped
        if not self.caching:
            self._give_back(self.groups.sliding * (skipped - before))
            return
        first = max(before, request.num_tracked_blocks)
        for group in range(self.groups.full, self.groups.per_row):
            if first < skipped:
                self._leave_own_blocks(request, group, first, skipped)
            self._let_go(request, group, skipped)

    def _leave_own_blocks(
        self, request: RequestState, group: int, first: int, end: int
    ) -> None:
        """Of a session's own blocks only the last that left the window can be of use:
        what is found later ends with a whole block, up to a block before the window
        did."""
        before = request.last_left.get(group)
        if before is not None and len(before):
            self._forget(before)
            before.stretch = ANONYMOUS
        run = BlockRun(group, request.own_stretch, end - 1, end)
        request.last_left[group] = run
        self._give_back_run(run)
        self._give_back_anonymous(end - 1 - first)

    def _let_go(self, request: RequestState, group: int, limit: int) -> None:
        """Of the runs that a request holds, give back the blocks before a limit, last
        first."""
        held = request.held[group]
        leaving = []
        while held and held[0].start < limit:
            if held[0].end > limit:
                self._split(held[0], limit)
            leaving.append(held.pop(0))
        for run in reversed(leaving):
            del run.holders[request.id]
            if not run.holders:
                self._queue[run] = None
                self.num_free += len(run)

    def free(
        self, request: RequestState, tokens: int, cached: int, *, comes_again: bool
    ) -> None:
        """Give back the blocks of a request's tokens, the last of them first.

        `cached` tokens are in blocks that can be found, if somebody `comes_again` for
        them: the same request after it was preempted, or the next turn of its session.
        """
        rows = self.groups.rows(tokens)
        full = cached // self.block_size if self.caching else 0
        for group in range(self.groups.per_row):
            first = 0 if group < self.groups.full else request.num_skipped_blocks
            first = max(first, request.num_tracked_blocks)
            self._give_back(rows - max(full, first))
            if first < full and comes_again:
                run = BlockRun(group, request.own_stretch, first, full)
                self._give_back_run(run)
            elif first < full:
                self._give_back_anonymous(full - first)
            self._let_go(request, group, rows)
        self._give_back(self.groups.state)
        request.num_tracked_blocks = request.num_skipped_blocks = 0
        request.last_left = {}

    def _give_back_run(self, run: BlockRun) -> None:
        """Blocks that were not in a run before."""
        self._cached[run.group].setdefault(run.stretch, {})[run] = None
        self._queue[run] = None
        self.num_free += len(run)

    def _give_back(self, count: int) -> None:
        """Blocks that are not cached."""
        if self._blank_first or not self._queue:
            self.num_free += count
            self._blank += count
        else:
            self._give_back_anonymous(count)

    def _give_back_anonymous(self, count: int) -> None:
        """Blocks that wait for their turn like cached ones, and that nobody will look
        for."""
        self.num_free += count
        last = next(reversed(self._queue), None)
        if last is not None and last.stretch == ANONYMOUS:
            last.end += count
        elif count:
            self._queue[BlockRun(0, ANONYMOUS, 0, count)] = None


def _oldest(
    runs: dict[BlockRun, None], place: int, limit: int
) -> tuple[BlockRun | None, int]:
    """The oldest run with this block, and up to where it is the oldest; or up to where
    there is none."""
    for run in runs:
        if run.start <= place < run.end:
            return run, min(run.end, limit)
        if place < run.start < limit:
            limit = run.start
    return None, limit
