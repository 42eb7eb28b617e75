"""vLLM's V1 scheduler, step for step and in its own words: `schedule` is the whole of it.

Text models, no speculative decoding. Layers with a window or a state take and give back blocks as
vLLM's do; what it does not know of them, `Deployment.notes` says. What differs by version is
data: chunkscope/vllm/rules.py. It is compared with the real one by
tests/simulation/test_scheduler_twin.py; fast_scheduler.py takes the same steps sooner.
"""

from heapq import heappop

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.simulation.kv_cache import KvCache
from chunkscope.simulation.policies import Policy
from chunkscope.simulation.requests import RequestState, Step, WaitingQueue
from chunkscope.vllm.settings import KvPool


class Scheduler:
    """`schedule` a step, then `update_from_output` with its result, as vLLM's engine does."""

    def __init__(self, policy: Policy, pool: KvPool, window: AttentionWindow) -> None:
        self.policy, self.window = policy, window
        self.settings, self.rules = policy.settings, policy.rules
        self.most_running = self.settings.most_running
        self.waiting = WaitingQueue(by_priority=policy.by_priority)
        self.running: dict[RequestState, None] = {}  # in the order of admission
        self.in_turn = self.running  # those that are asked one by one
        self.kv_cache = KvCache(self.settings, pool, self.rules)
        self.num_steps = 0
        self.num_admissions = 0

    def schedule(self) -> Step:
        """Running requests first; then waiting ones, if nobody was preempted."""
        step = Step(self.num_steps)
        self.policy.start_step(len(self.running) + len(self.waiting))
        token_budget = self._schedule_running(step, self.settings.step_tokens)
        if not step.preempted:
            self._schedule_waiting(step, token_budget)
        self._update_after_schedule(step)
        return step

    def _schedule_running(self, step: Step, token_budget: int) -> int:
        """In the order of admission; the last gives way when there is no room. What is left."""
        groups = self.kv_cache.groups
        for request in tuple(self.in_turn):
            if token_budget <= 0:
                break
            if request not in self.running or request.has_ended:
                continue  # preempted a moment ago, or its last token is on its way
            num_new_tokens = min(self._num_new_tokens(request), token_budget)
            # Tokens of it in the step before, where that still runs and reads its window.
            runs = request.scheduled_at == self.num_steps - 1 and groups.keeps_running
            flying = request.num_scheduled if runs else 0
            while not self.kv_cache.allocate_slots(
                request, num_new_tokens, in_flight=flying
            ):
                victim = self._victim()
                token_budget += self._preempt(victim, step)
                if victim is request:
                    return token_budget
            step.num_scheduled_tokens[request] = num_new_tokens
            token_budget -= num_new_tokens
        return token_budget

    def _schedule_waiting(self, step: Step, token_budget: int) -> None:
        skipped: list[RequestState] = []
        cache, running = self.kv_cache, self.running
        while self.waiting and token_budget > 0 and len(running) < self.most_running:
            request = self.waiting[0][1]
            hit = cache.get_computed_blocks(request)
            request.num_computed_tokens = hit.blocks * cache.block_size
            num_new_tokens = self._num_new_tokens(request)
            if (
                not self.settings.enable_chunked_prefill
                and num_new_tokens > token_budget
            ):
                if self.rules.unchunked_stops_the_queue:
                    break
                skipped.append(request)
                heappop(self.waiting)
                continue
            num_new_tokens = min(num_new_tokens, token_budget)
            if not cache.allocate_slots(request, num_new_tokens, hit):
                break
            heappop(self.waiting)
            self.running[request] = None
            if not request.num_preemptions:
                request.num_cached_tokens = request.num_computed_tokens
            request.admission = self.num_admissions
            self.num_admissions += 1
            step.num_scheduled_tokens[request] = num_new_tokens
            token_budget -= num_new_tokens
        for request in skipped:  # vLLM, too, turns them around
            self.waiting.add(request, in_front=True)

    def update_from_output(self, step: Step) -> None:
        """The result of a step is there: what has ended gives back its place and its blocks."""
        for request in sorted(step.ended, key=lambda request: request.admission):
            if request in self.running:
                del self.running[request]
                self.kv_cache.free(request, request.num_computed_tokens)

    def _num_new_tokens(self, request: RequestState) -> int:
        """The tokens a request asks for: all it lacks, up to the threshold."""
        num_new_tokens = request.num_tokens - request.num_computed_tokens
        threshold = self.policy.threshold_of(request)
        return threshold if 0 < threshold < num_new_tokens else num_new_tokens

    def _victim(self) -> RequestState:
        """The last admitted, or the one with the least priority."""
        return (
            max(self.running)
            if self.policy.by_priority
            else next(reversed(self.running))
        )

    def _preempt(self, victim: RequestState, step: Step) -> int:
        """Take all blocks from a running request; the tokens that this step had given to it."""
        restored = step.num_scheduled_tokens.pop(victim, 0)
        del self.running[victim]
        step.preempted.append(victim)
        victim.num_preemptions += 1
        tokens = cached = victim.num_computed_tokens + restored
        if self.rules.async_scheduling and victim.last_step == self.num_steps - 1:
            cached = max(
                victim.caught_up, tokens - 1
            )  # not the one that is still being sampled
        self.kv_cache.free(victim, tokens, cached=cached)
        if not victim.has_ended:
            victim.num_computed_tokens = victim.caught_up = 0
            self.waiting.add(victim, in_front=True)
        return restored

    def _update_after_schedule(self, step: Step) -> None:
        """Tokens count as computed from now on: the next step may be scheduled at once."""
        for request, tokens in step.num_scheduled_tokens.items():
            step.count(request, tokens, self.window)
            request.num_computed_tokens += tokens
            request.scheduled_at, request.num_scheduled = step.number, tokens
            if request.num_computed_tokens == request.num_tokens:
                self._give_token(request, step)
        self.num_steps += bool(step)

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
        if request.has_ended:
            step.ended.append(request)
