"""vLLM's KV cache: who holds how many blocks, which are free, what is still cached in them.

Blocks have no numbers here, for vLLM's choices never depend on them. They are kept as runs: blocks
that one request could want again, or that several prompts share, in a stretch of the prefix tree.
"""

import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from chunkscope.models.layers import KvKind
from chunkscope.prefixes.sharing import Path
from chunkscope.simulation.requests import BlockRun, RequestState, SharedRun
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings


def clipped(path: Path, blocks: int) -> Path:
    """The same for a prompt that has only so many full blocks."""
    if not path or path[-1].end <= blocks:
        return path
    return tuple(
        part._replace(end=min(part.end, blocks)) for part in path if part.start < blocks
    )


WantedRun = tuple[SharedRun, int, int]  # of which these blocks are wanted: from, to


class CacheHit(NamedTuple):
    """What the cache holds of a request: shared runs, then its `own` from before preemption."""

    shared: tuple[WantedRun, ...] = ()
    own: int = 0

    @property
    def blocks(self) -> int:
        return self.own + (self.shared[-1][2] if self.shared else 0)

    @property
    def evictable(self) -> int:
        """Free blocks among them: taking one makes the free ones fewer."""
        return self.own + sum(
            end - start for run, start, end in self.shared if not run.holders
        )


class GroupBlocks:
    """A row is the blocks of `full` + `sliding` groups for the same tokens. Groups with a window
    give back the rows that left it. A state takes its blocks once."""

    def __init__(self, settings: Settings, pool: KvPool, rules: Rules) -> None:
        kinds = [group.kind for group in pool.groups]
        windows = [group.window for group in pool.groups if group.window]
        self.full = kinds.count(KvKind.FULL) if kinds else 1
        self.sliding = len(windows)
        self.per_row = self.full + self.sliding
        states = (group for group in pool.groups if group.kind is KvKind.STATE)
        self.state = sum(group.state_blocks for group in states)
        self.window = windows[0] if windows else 0  # of all that have one
        # A step that still runs reads what was in the window when it was launched.
        keeps = rules.async_scheduling and rules.keeps_window_of_running_step
        self.keeps_running = bool(windows) and keeps
        self._block_size = pool.block_size
        tokens = self.window - 1 + (1 + self.keeps_running) * settings.step_tokens
        held = self.rows(min(tokens, settings.max_model_len or tokens)) + 1
        self._most_rows = held if rules.window_caps_admission else sys.maxsize

    def rows(self, tokens: int) -> int:
        return -(-tokens // self._block_size)

    def to_read(self, computed: int, tokens: int) -> int:
        """Blocks that a request begins with so many more tokens."""
        return self.per_row * (self.rows(computed + tokens) - self.rows(computed))

    def skipped(self, tokens: int) -> int:
        """Rows that lie before the window of the token after so many."""
        outside = tokens - self.window + 1
        return outside // self._block_size if self.window and outside > 0 else 0

    def to_reserve(self, tokens: int, held: int = 0) -> int:
        """For rows that vLLM wants to be free before it lets a request of so many tokens in."""
        rows = self.rows(tokens)
        sliding = min(rows, self._most_rows)
        return self.full * (rows - held) + self.sliding * max(0, sliding - held)


class KvCache:
    """All blocks. The free queue: blank ones first, then cached ones, longest unused in front."""

    def __init__(self, settings: Settings, pool: KvPool, rules: Rules) -> None:
        self.groups = GroupBlocks(settings, pool, rules)
        self.block_size = pool.block_size
        self.num_free = self._blank = pool.num_blocks
        self.wanted = (
            0  # free blocks that the first who waits would need; 0 where nobody can say
        )
        self._caching = bool(settings.enable_prefix_caching) and self.groups.full > 0
        self._rules = rules
        self._queue: OrderedDict[BlockRun, bool] = (
            OrderedDict()
        )  # may somebody come for them?
        self._cached: dict[int, dict[SharedRun, None]] = {}  # by stretch, oldest first

    # -- what is cached

    def get_computed_blocks(self, request: RequestState) -> CacheHit:
        """The longest cached prefix; the last token is always computed, to have logits."""
        if (
            not self._caching
            or request.skips_cache
            or not (request.path or request.run)
        ):
            return CacheHit()
        most = (request.num_tokens - 1) // self.block_size
        hit, run = CacheHit(tuple(self._find_shared(request, most))), request.run
        if run is not None and run.start == hit.blocks:
            hit = hit._replace(own=max(0, min(run.end, most) - run.start))
        return hit

    def _find_shared(self, request: RequestState, most: int) -> Iterator[WantedRun]:
        for stretch, start, end in request.path:
            place, limit = start, min(end, most)
            while place < limit:
                wanted = self._find_oldest(stretch, place, limit)
                if wanted is None:
                    return
                yield wanted
                place = wanted[2]

    def _find_oldest(self, stretch: int, place: int, limit: int) -> WantedRun | None:
        """Of runs with the same blocks the oldest, up to where an older one begins."""
        for run in self._cached.get(stretch, ()):
            if run.start <= place < run.end:
                return run, place, min(run.end, limit)
            if place < run.start < limit:
                limit = run.start
        return None

    # -- taking blocks

    def allocate_slots(
        self,
        request: RequestState,
        num_new_tokens: int,
        hit: CacheHit | None = None,
        *,
        in_flight: int = 0,
    ) -> bool:
        """Room for so many more tokens; a waiting request brings what it hit. False: no room.
        `in_flight`: computed tokens whose step still runs."""
        groups, computed = self.groups, request.num_computed_tokens
        if groups.window and hit is None:
            skipped = groups.skipped(computed - in_flight)
            if skipped > request.num_skipped_blocks:
                self.give_back(groups.sliding * (skipped - request.num_skipped_blocks))
                request.num_skipped_blocks = skipped
        held, after = groups.rows(computed), computed + num_new_tokens
        need = most = groups.per_row * (groups.rows(after) - held)
        free = self.num_free
        if hit is not None:  # what it holds besides rows of full groups
            if self._rules.reserves_full_prompt:
                most = max(need, groups.to_reserve(request.num_tokens, held))
            skipped = groups.skipped(computed)
            beside = groups.state + groups.sliding * (held - skipped)
            free -= beside + groups.full * hit.evictable
        if most > free:
            self.wanted = most + self.num_free - free
            return False
        if hit is not None:
            self._touch(request, hit)
            request.num_skipped_blocks, self.wanted = skipped, 0
            need += beside
        self.get_new_blocks(need)
        self.cache_full_blocks(request, after)
        return True

    def get_new_blocks(self, count: int) -> None:
        """Blank blocks first; then the longest unused cached ones, which are forgotten."""
        self.num_free -= count
        self._blank -= count
        full = self.groups.full
        while self._blank < 0:
            unused, is_wanted = next(iter(self._queue.items()))
            taken = unused.end - unused.start
            if is_wanted:  # others become blank: nobody will find them again
                taken = min(-(self._blank // full), taken)
            unused.end -= taken
            if unused.end == unused.start:
                del self._queue[unused]
                if isinstance(unused, SharedRun):
                    del self._cached[unused.stretch][unused]
            self._blank += taken * full

    def _touch(self, request: RequestState, hit: CacheHit) -> None:
        for run, start, end in hit.shared:  # what is wanted becomes a run of its own
            if end < run.end:
                self._split(run, end)
            part = self._split(run, start) if run.start < start else run
            if not part.holders:
                del self._queue[part]
                self.num_free -= self.groups.full * len(part)
            self._hold(request, part)
        if request.run is not None and hit.own:
            self.num_free -= self.groups.full * hit.own
            request.run.start += hit.own
            if not request.run:
                del self._queue[request.run]
        request.run = None

    def cache_full_blocks(self, request: RequestState, tokens: int) -> None:
        """Full blocks are cached when they are scheduled: the next in this very step finds them."""
        if not (request.path and self._caching):
            return
        full = min(tokens // self.block_size, request.path[-1].end)
        held = request.num_tracked
        if held >= full:
            return
        for stretch, start, end in request.path:
            if held < end and start < full:
                run = SharedRun(max(start, held), min(end, full), stretch)
                self._hold(request, run)
                self._cached.setdefault(stretch, {})[run] = None

    def _hold(self, request: RequestState, run: SharedRun) -> None:
        run.holders[request.id] = request.tracked
        request.tracked.append(run)

    def _split(self, run: SharedRun, place: int) -> SharedRun:
        """The blocks from `place` on become a run of their own, as old and held as before."""
        rest = SharedRun(place, run.end, run.stretch, dict(run.holders))
        run.end = place
        for tracked in run.holders.values():
            tracked.insert(tracked.index(run) + 1, rest)
        cached = list(self._cached[run.stretch])
        cached.insert(cached.index(run) + 1, rest)
        self._cached[run.stretch] = dict.fromkeys(cached)
        if not run.holders:
            queue = list(self._queue)
            queue.insert(queue.index(run), rest)
            self._queue = OrderedDict.fromkeys(queue, True)
        return rest

    # -- giving them back

    def free(
        self, request: RequestState, tokens: int, *, cached: int | None = None
    ) -> None:
        """Give back the blocks of `tokens`, the last of them first.

        `cached` tokens of a request that will come again are in blocks that it may then find.
        """
        full = (
            (tokens if cached is None else cached) // self.block_size
            if self._caching
            else 0
        )
        groups, rows = self.groups, self.groups.rows(tokens)
        others = groups.state + groups.sliding * (rows - request.num_skipped_blocks)
        self.give_back(groups.full * (rows - full) + others)
        request.num_skipped_blocks = self.wanted = 0
        request.run = None
        held = request.num_tracked
        if full > held:
            run = BlockRun(held, full)
            self._queue[run] = cached is not None
            self.num_free += groups.full * (full - held)
            request.run = None if cached is None else run
        for shared in reversed(request.tracked):
            del shared.holders[request.id]
            if not shared.holders:
                self._queue[shared] = True
                self.num_free += groups.full * len(shared)
        request.tracked = []

    def give_back(self, count: int) -> None:
        """Blocks that nobody will find again."""
        self.num_free += count
        if self._rules.blank_blocks_first or not self._queue:
            self._blank += count
            return
        rows, rest = divmod(count, self.groups.full)
        self._blank += rest
        if rows:
            self._queue[BlockRun(0, rows)] = False
