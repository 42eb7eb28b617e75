"""vLLM's KV cache: who holds how many blocks, which are free, what is still cached in them."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from chunkscope.simulation.blocks import NO_HIT, BlockRun, CacheHit, FoundRun, SharedRun
from chunkscope.simulation.group_blocks import GroupBlocks
from chunkscope.simulation.request_state import RequestState
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs

Run = TypeVar("Run", bound=BlockRun)


class KvCache:
    """All blocks. The free queue: blank ones first, then cached ones, longest unused in front."""

    def __init__(self, args: EngineArgs, rules: Rules) -> None:
        self.groups = GroupBlocks(args, rules)
        self.block_size = args.block_size
        self.num_blocks = args.num_blocks
        self.num_free = self.num_blocks
        self._caching = args.enable_prefix_caching and self.groups.full > 0
        self._blank_blocks_first = rules.blank_blocks_first
        self._blank = self.num_blocks
        self._queue: OrderedDict[BlockRun, None] = OrderedDict()
        self._cached: dict[int, dict[SharedRun, None]] = {}  # by stretch, oldest first

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    # -- asking ------------------------------------------------------------------------------------

    def get_computed_blocks(self, request: RequestState) -> CacheHit:
        """The longest cached prefix; the last token is always computed, to have logits."""
        if not self._caching or request.skips_cache:
            return NO_HIT
        most = (request.num_tokens - 1) // self.block_size
        shared = tuple(self._find_shared(request, most)) if request.path else ()
        run, own = request.run, 0
        if run is not None and run.start == (shared[-1].end if shared else 0):
            own = max(0, min(run.end, most) - run.start)
        return CacheHit(shared, own) if shared or own else NO_HIT

    def _find_shared(self, request: RequestState, most: int) -> Iterator[FoundRun]:
        for stretch, start, end in request.path:
            place, limit = start, min(end, most)
            while place < limit:
                found = self._find_oldest(stretch, place, limit)
                if found is None:
                    return
                yield found
                place = found.end

    def _find_oldest(self, stretch: int, place: int, limit: int) -> FoundRun | None:
        """Of runs with the same blocks the oldest, up to where an older one begins."""
        for run in self._cached.get(stretch, ()):
            if run.start <= place < run.end:
                return FoundRun(run, place, min(run.end, limit))
            if place < run.start < limit:
                limit = run.start
        return None

    # -- taking ------------------------------------------------------------------------------------

    def allocate_slots(
        self,
        request: RequestState,
        num_new_tokens: int,
        hit: CacheHit | None = None,
        *,
        in_flight: int = 0,
        full_sequence_must_fit: bool = False,
        watermark_blocks: int = 0,
    ) -> bool:
        """Room for so many more tokens; a waiting request brings what it hit. False: no room.

        `in_flight`: computed tokens whose step still runs.
        """
        groups, computed = self.groups, request.num_computed_tokens
        if groups.window and hit is None:
            self._leave_window(request, computed - in_flight)
        after = computed + num_new_tokens
        need = most = groups.per_row * (self.blocks_for(after) - self.blocks_for(computed))
        if full_sequence_must_fit:
            most = max(need, groups.to_reserve(request.num_tokens, computed))
        found = groups.found(computed) if hit is not None else 0
        evictable = groups.full * hit.evictable if hit else 0
        if found + most > self.num_free - watermark_blocks - evictable:
            return False
        if hit is not None:
            self._touch(request, hit)
            request.num_skipped_blocks = groups.skipped(computed)
            need += found
        self.get_new_blocks(need)
        self._cache_full_blocks(request, after)
        return True

    def get_new_blocks(self, count: int) -> None:
        """Blank blocks first; then the longest unused cached ones, which are forgotten."""
        self.num_free -= count
        blank = min(count, self._blank)
        self._blank -= blank
        count -= blank
        while count > 0:
            unused = next(iter(self._queue))
            taken = min(-(-count // self.groups.full), len(unused))
            unused.end -= taken
            if unused.end == unused.start:
                del self._queue[unused]
                if isinstance(unused, SharedRun):
                    del self._cached[unused.stretch][unused]
            count -= taken * self.groups.full
        self._blank -= count  # of a row that was not needed whole

    def _touch(self, request: RequestState, hit: CacheHit) -> None:
        for found in hit.shared:
            run = self._part(found)
            if not run.holders:
                del self._queue[run]
                self.num_free -= self.groups.full * len(run)
            self._hold(request, run)
        if request.run is not None and hit.own:
            self.num_free -= self.groups.full * hit.own
            request.run.start += hit.own
            if not request.run:
                del self._queue[request.run]
        request.run = None

    def _cache_full_blocks(self, request: RequestState, tokens: int) -> None:
        """Full blocks are cached when they are scheduled: the next in this very step finds them."""
        if not self._caching or not request.path:
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

    def _part(self, found: FoundRun) -> SharedRun:
        """What is wanted of a run, as a run of its own."""
        run, start, end = found
        if end < run.end:
            self._split(run, end)
        return self._split(run, start) if run.start < start else run

    def _split(self, run: SharedRun, place: int) -> SharedRun:
        """The blocks from `place` on become a run of their own, as old and held as before."""
        rest = SharedRun(place, run.end, run.stretch, dict(run.holders))
        run.end = place
        for tracked in run.holders.values():
            tracked.insert(tracked.index(run) + 1, rest)
        cached = self._cached[run.stretch]
        self._cached[run.stretch] = dict.fromkeys(_replaced(cached, run, (run, rest)))
        if not run.holders:
            self._queue = OrderedDict.fromkeys(_replaced(self._queue, run, (rest, run)))
        return rest

    # -- giving back -------------------------------------------------------------------------------

    def free(self, request: RequestState, tokens: int, *, cached: int | None = None) -> None:
        """Give back the blocks of `tokens`, the last of them first.

        `cached` tokens of a request that will come again are in blocks that it may then find.
        """
        full = (tokens if cached is None else cached) // self.block_size if self._caching else 0
        groups, rows = self.groups, self.blocks_for(tokens)
        others = groups.state + groups.sliding * (rows - request.num_skipped_blocks)
        self.give_back(groups.full * (rows - full) + others)
        request.num_skipped_blocks = 0
        request.run = None
        held = request.num_tracked
        if full > held:
            run = BlockRun(held, full)
            self._queue[run] = None
            self.num_free += groups.full * (full - held)
            request.run = None if cached is None else run
        for shared in reversed(request.tracked):
            del shared.holders[request.id]
            if not shared.holders:
                self._queue[shared] = None
                self.num_free += groups.full * len(shared)
        request.tracked = []

    def _leave_window(self, request: RequestState, tokens: int) -> None:
        skipped = self.groups.skipped(tokens)
        if skipped > request.num_skipped_blocks:
            self.give_back(self.groups.sliding * (skipped - request.num_skipped_blocks))
            request.num_skipped_blocks = skipped

    def give_back(self, count: int) -> None:
        """Blocks that nobody will find again."""
        self.num_free += count
        if self._blank_blocks_first or not self._queue:
            self._blank += count
            return
        rows, rest = divmod(count, self.groups.full)
        self._blank += rest
        if rows:
            self._queue[BlockRun(0, rows)] = None


def _replaced(runs: Iterable[Run], one: Run, by: Iterable[Run]) -> Iterator[Run]:
    for run in runs:
        yield from by if run is one else (run,)
