"""vLLM's V1 scheduler, step for step: `schedule` is the whole of it.

Text models with full attention, no speculative decoding. It is compared with the real one by
tests/simulation/test_scheduler_twin.py.
"""

from dataclasses import replace

from chunkscope.engine.rules import Rules
from chunkscope.engine.settings import EngineArgs
from chunkscope.simulation.blocks import BlockPool
from chunkscope.simulation.decoding import Decoding
from chunkscope.simulation.policies import Policy, VllmPolicy
from chunkscope.simulation.request import FcfsQueue, PriorityQueue, RequestState


class Step:
    """What one step computes. `tokens` holds the requests that do more than go on decoding."""

    __slots__ = (
        "decode_context_tokens",
        "decode_requests",
        "ended",
        "going_on",
        "launched",
        "number",
        "preempted",
        "prefill_pairs",
        "prefill_requests",
        "prefill_tokens",
        "resumed",
        "tokens",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: dict[RequestState, int] = {}
        self.preempted: list[RequestState] = []
        self.ended: list[RequestState] = []  # with the result of this step
        self.resumed: list[tuple[RequestState, int]] = []  # with the step of their last token
        self.launched = 0.0  # when
        self.going_on = 0  # requests that decode and did in the step before
        self.decode_requests = 0
        self.decode_context_tokens = 0
        self.prefill_requests = 0
        self.prefill_tokens = 0
        self.prefill_pairs = 0

    def __bool__(self) -> bool:
        return bool(self.decode_requests or self.prefill_requests)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return self.decode_requests + self.prefill_tokens


class Scheduler:
    """`schedule` a step, then `update` with its result, as vLLM's engine does."""

    def __init__(self, args: EngineArgs, rules: Rules, policy: Policy | None = None) -> None:
        plain = not (args.enable_chunked_prefill or args.enable_prefix_caching)
        if plain and rules.unchunked_drops_the_threshold:
            args = replace(args, long_prefill_token_threshold=0)
        self.args = args
        self.rules = rules
        self.policy = policy or VllmPolicy()
        self.waiting = PriorityQueue() if self.policy.by_priority else FcfsQueue()
        self.running: dict[RequestState, None] = {}  # in the order of admission
        self.pool = BlockPool(
            args.num_blocks,
            args.block_size,
            caching=args.enable_prefix_caching,
            blank_blocks_first=rules.blank_blocks_first,
        )
        self.watermark_blocks = int(args.watermark * (args.num_blocks + 1))
        self.decoding = Decoding(args.block_size)
        self._busy: dict[RequestState, None] = {}  # running, and more to it than decoding on
        self._steps = 0
        self.cached_tokens = 0  # of prompts, found when they were admitted

    def __bool__(self) -> bool:
        return bool(self.running or len(self.waiting))

    def add(self, request: RequestState) -> None:
        self.waiting.add(request)

    def schedule(self) -> Step:
        """Running requests first, in order; then waiting ones, if nobody was preempted."""
        step = Step(self._steps)
        token_budget = self.args.max_num_batched_tokens
        self.policy.start_step(self)
        if not self._all_can_go_on(token_budget):
            self._make_room(step)
        token_budget -= self._decode(step)

        for request in tuple(self._busy):
            if token_budget <= 0:
                break
            if request not in self._busy:
                continue  # preempted a moment ago
            num_new_tokens = min(self._wanted(request), token_budget)
            while not self.pool.allocate_slots(request, num_new_tokens):
                victim = self._victim()
                token_budget += self._preempt(victim, step)
                if victim is request:
                    break
            if request not in self._busy:
                break  # it was the last that could be preempted
            step.tokens[request] = num_new_tokens
            token_budget -= num_new_tokens

        skipped = []
        while (
            self.waiting
            and not step.preempted
            and token_budget > 0
            and len(self.running) < self.args.max_num_seqs
        ):
            request = self.waiting.peek()
            hit = self.pool.get_computed_blocks(request)
            request.computed = hit.blocks * self.args.block_size
            num_new_tokens = self._wanted(request)
            if not self.args.enable_chunked_prefill and num_new_tokens > token_budget:
                if self.rules.unchunked_stops_the_queue:
                    break
                skipped.append(self.waiting.pop())
                continue
            num_new_tokens = min(num_new_tokens, token_budget)
            if not self.pool.admit(
                request,
                hit,
                num_new_tokens,
                whole=self.rules.reserves_full_prompt,
                watermark=self.watermark_blocks if self.running else 0,
            ):
                break
            self.cached_tokens += 0 if request.preemptions else request.computed
            self.running[self.waiting.pop()] = None
            self._busy[request] = None
            step.tokens[request] = num_new_tokens
            token_budget -= num_new_tokens
        self.waiting.put_back(reversed(skipped))  # vLLM, too, turns them around
        self._advance(step)
        return step

    def update(self, step: Step) -> None:
        """The result of a step is there: what has ended gives back its place and its blocks."""
        for request in step.ended:
            if request in self.running:
                del self.running[request]
                self.pool.free(request, request.computed)

    # -- decoding on -------------------------------------------------------------------------------

    @property
    def steps_of_decoding(self) -> int:
        """How many steps in a row will only decode: nobody can be admitted, and nobody ends."""
        full = len(self.running) >= self.args.max_num_seqs
        if self._busy or (self.waiting and not full) or len(self.decoding) < len(self.running):
            return 0
        return self.decoding.steps_before_an_end

    def decode_on(self) -> int | None:
        """One of those steps, and its context tokens; None when there is no block for it."""
        blocks = self.decoding.blocks_to_come
        if blocks > self.pool.num_free:
            return None
        if blocks:
            self.pool.get_new_blocks(blocks)
        self._steps += 1
        return self.decoding.go_on()

    # -- running requests --------------------------------------------------------------------------

    def _wanted(self, request: RequestState) -> int:
        """The tokens a request asks for: all it lacks, up to the threshold."""
        lacking = request.num_tokens - request.computed
        threshold = self.policy.threshold_of(request)
        return threshold if 0 < threshold < lacking else lacking

    def _all_can_go_on(self, token_budget: int) -> bool:
        """Does every running request get what it asks for, in whatever order they are asked?"""
        left = token_budget - len(self.decoding)
        blocks = self.decoding.blocks_to_come
        last = next(reversed(self.running), None)
        for request in self._busy:
            tokens = self._wanted(request)
            if tokens > left:
                if request is not last:
                    return False
                tokens = left  # nobody is behind it
            left -= tokens
            after = self.pool.blocks_for(request.computed + tokens)
            blocks += after - self.pool.blocks_for(request.computed)
        return left >= 0 and blocks <= self.pool.num_free

    def _make_room(self, step: Step) -> None:
        """Somebody must wait or give way. The last do, if all ask for the same: one token.

        Else each decoding request is asked by itself from here on, in its turn.
        """
        if self._busy or self.policy.by_priority:
            self._part()
        while self.decoding.blocks_to_come > self.pool.num_free:
            self._preempt(self._victim(), step)

    def _part(self) -> None:
        self.decoding.part(self._steps - 1)
        ended = {r for r in self.running if r.computed == r.last_token}
        self._busy = {request: None for request in self.running if request not in ended}

    def _decode(self, step: Step) -> int:
        """One token for each request that goes on decoding; their number."""
        step.decode_requests = step.going_on = len(self.decoding)
        if self.decoding:
            self.pool.get_new_blocks(self.decoding.blocks_to_come)
            step.ended += self.decoding.advance()
            step.decode_context_tokens = self.decoding.context_tokens
        for request in step.ended:
            self.decoding.leave(request)
            request.last_step = step.number
        return step.going_on

    def _victim(self) -> RequestState:
        """The last admitted, or the one with the least priority."""
        return max(self.running) if self.policy.by_priority else next(reversed(self.running))

    def _preempt(self, victim: RequestState, step: Step) -> int:
        """Take all blocks from a running request; the tokens that this step had given to it."""
        restored = step.tokens.pop(victim, 0)
        del self.running[victim]
        step.preempted.append(victim)
        victim.preemptions += 1
        if victim in self.decoding:
            self.decoding.leave(victim)
            victim.last_step = self._steps - 1
        in_flight = victim.computed == victim.last_token
        self._busy.pop(victim, None)
        self.pool.free(victim, victim.computed + restored, cached=self._cached(victim, restored))
        if not in_flight:  # else its last token is being computed: nothing is left to do
            victim.computed = 0
            self.waiting.put_back([victim])
        return restored

    def _cached(self, victim: RequestState, scheduled: int) -> int:
        """Tokens in blocks that are cached, if full: not one that is still being sampled."""
        tokens = victim.computed + scheduled
        if self.args.async_scheduling and victim.last_step == self._steps - 1:
            return max(victim.caught_up, tokens - 1)
        return tokens

    # -- after scheduling --------------------------------------------------------------------------

    def _advance(self, step: Step) -> None:
        """Tokens count as computed from now on: the next step may be scheduled at once."""
        for request, tokens in step.tokens.items():
            self._count(request, tokens, step)
            request.computed += tokens
            if request.computed < request.num_tokens:
                continue
            if request.outputs:
                step.resumed.append((request, request.last_step))
            else:
                request.first_step = step.number
            request.last_step = step.number
            request.caught_up = request.computed
            request.num_tokens += 1
            del self._busy[request]
            if request.computed == request.last_token:
                step.ended.append(request)
            else:
                self.decoding.join(request)
        if step:
            self._steps += 1

    def _count(self, request: RequestState, tokens: int, step: Step) -> None:
        if request.outputs and request.num_tokens - request.computed == 1:
            step.decode_requests += 1
            step.decode_context_tokens += request.num_tokens
            return
        if not request.outputs:
            request.chunks += 1
        step.prefill_requests += 1
        step.prefill_tokens += tokens
        step.prefill_pairs += tokens * request.computed + tokens * (tokens + 1) // 2
