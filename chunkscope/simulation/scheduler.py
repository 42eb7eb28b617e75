"""vLLM's V1 scheduler, step for step and in its own words: `schedule` is the whole of
it.

Text models, no speculative decoding. Layers with a window or a state take and give back
blocks as vLLM's do; what it does not know of them, `Engine.notes` says. What
differs by version is data: chunkscope/vllm/rules.py.
tests/simulation/test_scheduler_twin.py compares it with the real one, token by token.
"""

from collections import deque

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.simulation.decodes import Decodes
from chunkscope.simulation.host_tier import HostTier
from chunkscope.simulation.kv_cache import KvCache
from chunkscope.simulation.policies import LONGEST_CHUNK, chunk_by_length
from chunkscope.simulation.requests import RequestState, Step
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings


class Scheduler:
    """`schedule` a step, then `update_from_output` with its result, as vLLM's engine
    does.

    Requests that only decode are kept in `decodes`, the other running ones in
    `in_turn`. Where all get what they ask for, nobody's turn matters; where blocks or
    the budget run short, all are asked one by one, in vLLM's order.
    """

    def __init__(
        self,
        settings: Settings,
        pool: KvPool,
        rules: Rules,
        *,
        window: AttentionWindow,
        policy: ChunkPolicy = ChunkPolicy.VLLM,
    ) -> None:
        self.settings, self.rules, self.policy = settings, rules, policy
        self.kv_cache = KvCache(settings, pool, rules)
        self.host_tier: HostTier | None = None
        if pool.host_tokens and self.kv_cache.caching:
            self.host_tier = HostTier(pool.host_tokens // pool.block_size)
        self.waiting: deque[RequestState] = deque()
        self.running: dict[RequestState, None] = {}  # in the order of admission
        self.in_turn: dict[RequestState, None] = {}  # in the order of admission
        groups = self.kv_cache.groups
        self.decodes = Decodes(settings.most_running, groups, window)
        self.adaptive_chunk = LONGEST_CHUNK  # of the policy of this name
        self.num_steps = 0
        self._window = window
        self._num_admissions = 0
        self._head_lacks_blocks = False  # of who waits, as the last step saw it
        self._threshold = settings.long_prefill_token_threshold or 0
        self._threshold_in_step = self._threshold

    def schedule(self) -> Step:
        """Running requests first; then waiting ones, if nobody was preempted."""
        step = Step(self.num_steps)
        self._set_threshold(len(self.running) + len(self.waiting))
        decode_blocks = self._blocks_of_decodes(step)
        tokens = self._tokens_if_all_get_theirs(decode_blocks)
        if tokens is not None:
            self.kv_cache.get_new_blocks(decode_blocks)
            token_budget = self._schedule_together(step, tokens)
        else:
            token_budget = self._schedule_in_turn(step)
        self._head_lacks_blocks = False
        if not step.preempted:
            self._schedule_waiting(step, token_budget)
        self._update_after_schedule(step)
        return step

    def uneventful_steps(self) -> int:
        """How many steps from now on give each running request its next token, and do
        nothing else. Who waits now, waits on: blocks become no more."""
        if self.in_turn or len(self.running) != len(self.decodes):
            return 0
        is_full = len(self.running) >= self.settings.most_running
        if self.waiting and not is_full and not self._head_lacks_blocks:
            return 0
        if len(self.decodes) > self.settings.step_tokens:
            return 0
        return self.decodes.uneventful_steps(self.kv_cache.num_free)

    def skip_steps(self, steps: int) -> None:
        """Take so many of them at once."""
        self.kv_cache.get_new_blocks(self.decodes.take_steps(steps))
        self.num_steps += steps

    # -- running requests

    def _blocks_of_decodes(self, step: Step) -> int:
        """For the next token of all that decode. The last give way where they do not
        fit.

        Where requests also read, or where blocks leave windows, each is asked in its
        turn.
        """
        groups = self.kv_cache.groups
        blocks = self.decodes.new_blocks()
        if self.in_turn or groups.window or groups.per_row > 1:
            return blocks
        while blocks > self.kv_cache.num_free:
            victim = next(reversed(self.running))
            if not victim.has_ended:
                self.decodes.leave(victim, self.num_steps - 1)
            self._preempt(victim, step)
            blocks = self.decodes.new_blocks()
        return blocks

    def _tokens_if_all_get_theirs(
        self, decode_blocks: int
    ) -> dict[RequestState, int] | None:
        """What each gets that does not just decode, if all requests get what they ask
        for, whoever is asked first; None if they do not."""
        left = self.settings.step_tokens - len(self.decodes)
        blocks = decode_blocks
        last = next(reversed(self.running), None)
        tokens: dict[RequestState, int] = {}
        for request in self.in_turn:
            num_new_tokens = self._num_new_tokens(request)
            if num_new_tokens > left:
                if request is not last:
                    return None
                num_new_tokens = left  # nobody is asked after it
            if num_new_tokens > 0:
                computed = request.num_computed_tokens
                blocks += self.kv_cache.groups.new_blocks(computed, num_new_tokens)
                tokens[request] = num_new_tokens
                left -= num_new_tokens
        if left < 0 or blocks > self.kv_cache.num_free:
            return None
        return tokens

    def _schedule_together(self, step: Step, tokens: dict[RequestState, int]) -> int:
        """The free blocks suffice without those that leave windows, so it does not
        matter when blocks are taken. What leaves windows is given back in the order of
        admission."""
        skipped = dict(self.decodes.leaving())
        requests = list(tokens)
        if skipped:
            requests = sorted([*skipped, *tokens], key=lambda one: one.admission)
        for request in requests:
            if request in tokens:
                flying = self._in_flight(request)
                self.kv_cache.allocate_slots(request, tokens[request], in_flight=flying)
            else:
                self.kv_cache.leave_window(request, skipped[request])
        left = self.settings.step_tokens - len(self.decodes) - sum(tokens.values())
        step.num_scheduled_tokens = tokens
        self.decodes.take_step(step)
        return left

    def _schedule_in_turn(self, step: Step) -> int:
        """In the order of admission; the last gives way when there is no room."""
        self.decodes.leave_all(self.num_steps - 1)
        self.in_turn = {}
        for request in self.running:
            if not request.has_ended:  # else its last token is on its way
                self.in_turn[request] = None
        token_budget = self.settings.step_tokens
        for request in tuple(self.in_turn):
            if token_budget <= 0:
                break
            if request not in self.running:
                continue  # it was preempted a moment ago
            num_new_tokens = min(self._num_new_tokens(request), token_budget)
            flying = self._in_flight(request)
            while not self.kv_cache.allocate_slots(
                request, num_new_tokens, in_flight=flying
            ):
                victim = next(reversed(self.running))
                token_budget += self._preempt(victim, step)
                if victim is request:
                    return token_budget
            step.num_scheduled_tokens[request] = num_new_tokens
            token_budget -= num_new_tokens
        return token_budget

    def _in_flight(self, request: RequestState) -> int:
        """Tokens of the step before, where that still runs and reads the window."""
        if not self.kv_cache.groups.keeps_running:
            return 0
        if request.scheduled_at != self.num_steps - 1:
            return 0
        return request.num_scheduled

    def _preempt(self, victim: RequestState, step: Step) -> int:
        """Take all blocks from a running request; the tokens that this step had given
        to it."""
        restored = step.num_scheduled_tokens.pop(victim, 0)
        del self.running[victim]
        self.in_turn.pop(victim, None)
        step.preempted.append(victim)
        victim.num_preemptions += 1
        tokens = cached = victim.num_computed_tokens + restored
        if self.rules.async_scheduling and victim.last_step == self.num_steps - 1:
            # The token that is still being sampled is not cached.
            cached = max(victim.caught_up, tokens - 1)
        self.kv_cache.free(victim, tokens, cached, comes_again=True)
        self._copy_to_host(victim, cached)
        if not victim.has_ended:
            victim.num_computed_tokens = victim.caught_up = 0
            self.waiting.appendleft(victim)
        return restored

    # -- waiting requests

    def _schedule_waiting(self, step: Step, token_budget: int) -> None:
        most_running = self.settings.most_running
        while self.waiting and token_budget > 0 and len(self.running) < most_running:
            request = self.waiting[0]
            hit = self.kv_cache.get_computed_blocks(request)
            found = hit.blocks * self.kv_cache.block_size
            loaded = self._tokens_on_host(request, hit.blocks)
            request.num_computed_tokens = found + loaded
            num_new_tokens = self._num_new_tokens(request)
            is_whole = num_new_tokens <= token_budget
            if not self.settings.enable_chunked_prefill and not is_whole:
                break
            num_new_tokens = min(num_new_tokens, token_budget)
            request.num_computed_tokens = found
            if not self.kv_cache.allocate_slots(request, loaded + num_new_tokens, hit):
                self._head_lacks_blocks = True
                break
            request.num_computed_tokens = found + loaded
            step.loaded_tokens += loaded
            self.waiting.popleft()
            self.running[request] = self.in_turn[request] = None
            if not request.num_preemptions:
                request.num_cached_tokens = request.num_computed_tokens
            request.admission = self._num_admissions
            self._num_admissions += 1
            step.num_scheduled_tokens[request] = num_new_tokens
            token_budget -= num_new_tokens

    def _tokens_on_host(self, request: RequestState, cached_blocks: int) -> int:
        """What the host's memory has of a request beyond what the KV cache has."""
        if self.host_tier is None or request.skips_cache:
            return 0
        block_size = self.kv_cache.block_size
        limit = (request.num_tokens - 1) // block_size
        found = self.host_tier.found(request.path, cached_blocks, limit)
        return (found - cached_blocks) * block_size

    def _copy_to_host(self, request: RequestState, tokens: int) -> None:
        if self.host_tier is not None:
            blocks = tokens // self.kv_cache.block_size
            self.host_tier.store(request.path, blocks)

    # -- how much of a prompt

    def _set_threshold(self, requests: int) -> None:
        """Since 0.31 a lone request is not capped, and the threshold may follow their
        number."""
        if not self._threshold or self.rules.lone_request_is_capped:
            return
        self._threshold_in_step = self._threshold
        if requests <= 1:
            self._threshold_in_step = 0
        elif self.settings.long_prefill_token_threshold_adaptive:
            share = self.settings.step_tokens // requests
            self._threshold_in_step = max(self._threshold, share)

    def _num_new_tokens(self, request: RequestState) -> int:
        """The tokens a request asks for: all it lacks, up to the threshold."""
        num_new_tokens = request.num_tokens - request.num_computed_tokens
        threshold = self._threshold_in_step
        if self.policy is ChunkPolicy.BY_LENGTH:
            threshold = chunk_by_length(request.num_prompt_tokens)
        elif self.policy is ChunkPolicy.ADAPTIVE:
            threshold = self.adaptive_chunk
        if 0 < threshold < num_new_tokens:
            return threshold
        return num_new_tokens

    # -- after a step

    def _update_after_schedule(self, step: Step) -> None:
        """Tokens count as computed from now on: the next step may be scheduled at
        once."""
        for request, tokens in step.num_scheduled_tokens.items():
            step.count(request, tokens, self._window)
            request.num_computed_tokens += tokens
            request.scheduled_at, request.num_scheduled = step.number, tokens
            if request.num_computed_tokens == request.num_tokens:
                self._give_token(request, step)
        if step:
            self.num_steps += 1

    def _give_token(self, request: RequestState, step: Step) -> None:
        """All that is known of it is computed, so this step samples one more."""
        if request.caught_up and request.last_step == step.number - 1:
            step.decoding_on += 1
        else:
            request.caught_up = request.num_computed_tokens
            if request.num_output_tokens:
                step.resumed.append(request.last_step)
            else:
                request.first_step = step.number
        request.last_step = step.number
        request.num_tokens += 1
        del self.in_turn[request]
        if request.has_ended:
            step.ended.append(request)
        else:
            self.decodes.join(request)

    def update_from_output(self, step: Step) -> None:
        """The result of a step is there: what has ended gives back its place and its
        blocks."""
        for request in sorted(step.ended, key=lambda one: one.admission):
            if request in self.running:
                self._head_lacks_blocks = False
                del self.running[request]
                tokens = request.num_computed_tokens
                comes_again = request.next_turn is not None
                self.kv_cache.free(request, tokens, tokens, comes_again=comes_again)
                self._copy_to_host(request, tokens)
