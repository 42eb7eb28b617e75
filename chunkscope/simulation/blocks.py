"""vLLM's KV cache blocks: who holds how many, which are free, and what is still cached in them.

Blocks have no numbers here, for vLLM's choices never depend on them. Blocks that only one request
could ever want again are kept as runs; those of a prefix that requests share one by one.
"""

from collections import OrderedDict
from dataclasses import dataclass

from chunkscope.simulation.request import RequestState


class Run:
    """Free blocks `start` to `end` of one request, still cached; the last is reused first."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class Block:
    """One cached block of the shared prefix, with the number of requests that hold it."""

    __slots__ = ("place", "ref_cnt")

    def __init__(self, place: int) -> None:
        self.place, self.ref_cnt = place, 1


@dataclass(frozen=True, slots=True)
class Hit:
    """What the cache holds of a request: shared blocks, then its `own` from before preemption."""

    shared: tuple[Block, ...] = ()
    own: int = 0

    @property
    def blocks(self) -> int:
        return len(self.shared) + self.own

    @property
    def evictable(self) -> int:
        """Free blocks among them: taking one makes the free ones fewer."""
        return self.own + sum(not block.ref_cnt for block in self.shared)


NO_HIT = Hit()


class BlockPool:
    """All blocks. The free queue: blank ones first, then cached ones, longest unused in front."""

    def __init__(
        self, num_blocks: int, block_size: int, *, caching: bool, blank_blocks_first: bool
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self._caching = caching
        self._blank_blocks_first = blank_blocks_first
        self._blank = num_blocks
        self._queue: OrderedDict[Run | Block, None] = OrderedDict()
        self._cached: dict[int, dict[Block, None]] = {}  # by place in the prefix, oldest first

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    # -- asking ------------------------------------------------------------------------------------

    def get_computed_blocks(self, request: RequestState) -> Hit:
        """The longest cached prefix; the last token is always computed, to have logits."""
        if not self._caching or request.skips_cache:
            return NO_HIT
        most = (request.num_tokens - 1) // self.block_size
        shared: list[Block] = []
        for place in range(min(request.shared_blocks, most)):
            cached = self._cached.get(place)
            if not cached:
                break
            shared.append(next(iter(cached)))
        run, own = request.run, 0
        if run is not None and len(shared) == run.start:
            own = max(0, min(run.end, most) - run.start)
        return Hit(tuple(shared), own)

    # -- taking ------------------------------------------------------------------------------------

    def allocate_slots(self, request: RequestState, tokens: int) -> bool:
        """Room for `tokens` more of a running request; False when there is none."""
        after = request.computed + tokens
        need = self.blocks_for(after) - self.blocks_for(request.computed)
        if need > self.num_free:
            return False
        self.get_new_blocks(need)
        self._cache_full_blocks(request, after)
        return True

    def admit(
        self, request: RequestState, hit: Hit, tokens: int, *, whole: bool, watermark: int
    ) -> bool:
        """Room for the first `tokens` of a waiting request after a hit; or for the `whole`."""
        free = self.num_free - hit.evictable - watermark
        computed = hit.blocks * self.block_size
        need = self.blocks_for(computed + tokens) - hit.blocks
        if max(need, self.blocks_for(request.num_tokens) - hit.blocks if whole else 0) > free:
            return False
        self._touch(request, hit)
        self.get_new_blocks(need)
        request.computed = computed
        self._cache_full_blocks(request, computed + tokens)
        return True

    def get_new_blocks(self, count: int) -> None:
        """Blank blocks first; then the longest unused cached ones, which are forgotten."""
        self.num_free -= count
        blank = min(count, self._blank)
        self._blank -= blank
        count -= blank
        while count:
            unused = next(iter(self._queue))
            if isinstance(unused, Block):
                self._forget(unused)
                taken = 1
            else:
                taken = min(count, unused.end - unused.start)
                unused.end -= taken
            if isinstance(unused, Block) or unused.start == unused.end:
                del self._queue[unused]
            count -= taken

    def _touch(self, request: RequestState, hit: Hit) -> None:
        for block in hit.shared:
            if not block.ref_cnt:
                del self._queue[block]
                self.num_free -= 1
            block.ref_cnt += 1
        request.tracked = list(hit.shared)
        if request.run is not None and hit.own:
            self.num_free -= hit.own
            request.run.start += hit.own
            if request.run.start == request.run.end:
                del self._queue[request.run]
        request.run = None

    def _cache_full_blocks(self, request: RequestState, tokens: int) -> None:
        """Full blocks are cached when they are scheduled: the next in this very step finds them."""
        if not self._caching:
            return
        full = min(tokens // self.block_size, request.shared_blocks)
        for place in range(len(request.tracked), full):
            block = Block(place)
            request.tracked.append(block)
            self._cached.setdefault(place, {})[block] = None

    def _forget(self, block: Block) -> None:
        same = self._cached[block.place]
        del same[block]
        if not same:
            del self._cached[block.place]

    # -- giving back -------------------------------------------------------------------------------

    def free(self, request: RequestState, tokens: int, *, cached: int | None = None) -> None:
        """Give back the blocks of `tokens`, the last of them first.

        `cached` tokens of a request that will come again are in blocks that it may then find.
        """
        full = (tokens if cached is None else cached) // self.block_size if self._caching else 0
        self._free_blank(self.blocks_for(tokens) - full)
        request.run = None
        if full > len(request.tracked):
            run = Run(len(request.tracked), full)
            self._queue[run] = None
            self.num_free += run.end - run.start
            request.run = None if cached is None else run
        for block in reversed(request.tracked):
            block.ref_cnt -= 1
            if not block.ref_cnt:
                self._queue[block] = None
                self.num_free += 1
        request.tracked = []

    def _free_blank(self, count: int) -> None:
        self.num_free += count
        if self._blank_blocks_first or not self._queue:
            self._blank += count
        elif count:
            self._queue[Run(0, count)] = None
