"""vLLM's KV cache: who holds how many blocks, which are free, what is still cached in them."""

from collections import OrderedDict

from chunkscope.simulation.blocks import NO_HIT, Block, BlockRun, CacheHit
from chunkscope.simulation.request_state import RequestState


class KvCache:
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
        self._queue: OrderedDict[BlockRun | Block, None] = OrderedDict()
        self._cached: dict[int, dict[Block, None]] = {}  # by place in the prefix, oldest first

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
        shared: list[Block] = []
        for place in range(min(request.shared_blocks, most)):
            cached = self._cached.get(place)
            if not cached:
                break
            shared.append(next(iter(cached)))
        run, own = request.run, 0
        if run is not None and len(shared) == run.start:
            own = max(0, min(run.end, most) - run.start)
        return CacheHit(tuple(shared), own) if shared or own else NO_HIT

    # -- taking ------------------------------------------------------------------------------------

    def allocate_slots(
        self,
        request: RequestState,
        num_new_tokens: int,
        hit: CacheHit | None = None,
        *,
        full_sequence_must_fit: bool = False,
        watermark_blocks: int = 0,
    ) -> bool:
        """Room for so many more tokens; a waiting request brings what it hit. False: no room."""
        held = self.blocks_for(request.num_computed_tokens)
        after = request.num_computed_tokens + num_new_tokens
        need = most = self.blocks_for(after) - held
        if full_sequence_must_fit:
            most = max(need, self.blocks_for(request.num_tokens) - held)
        if most > self.num_free - watermark_blocks - (hit.evictable if hit else 0):
            return False
        if hit is not None:
            self._touch(request, hit)
        self.get_new_blocks(need)
        self._cache_full_blocks(request, after)
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

    def _touch(self, request: RequestState, hit: CacheHit) -> None:
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
            run = BlockRun(len(request.tracked), full)
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
            self._queue[BlockRun(0, count)] = None
