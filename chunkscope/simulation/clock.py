"""The times of a run: when requests are sent, when steps end, how long tokens keep people waiting.

A step: the host prepares and launches it, the GPU computes, the host hands out its tokens. With
async scheduling the host launches a step before it asks for the result of the one before: the two
work side by side, and a token is late by whatever the host does first.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from math import inf

from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.requests import RequestState, Step

# Of a step, in seconds: on the GPU; on the host to prepare it, to launch it, to hand out tokens.
StepTimes = Callable[[Step], tuple[float, float, float, float]]


class Arrivals:
    """Requests still to come, in their order. With `concurrency`, as clients of harnesses have one,
    the next is sent when one ends, a closed loop: its time counts from there."""

    def __init__(self, requests: Sequence[RequestState], concurrency: int) -> None:
        self._coming = deque(requests)
        self._free = deque([requests[0].arrival_s] * min(concurrency, len(requests)))

    def __bool__(self) -> bool:
        return bool(self._coming)

    @property
    def next_s(self) -> float:
        """When the next is sent: never, as far as is known, while all are under way."""
        return self._coming[0].arrival_s if self._coming and self._free else inf

    def due(self, now: float) -> Iterator[RequestState]:
        while self.next_s <= now:
            request = self._coming.popleft()
            request.arrival_s = max(request.arrival_s, self._free.popleft())
            yield request

    def ended(self, requests: int, now: float) -> None:
        self._free.extend([now] * requests)


def step_times(model: StepModel, step: Step) -> tuple[float, float, float, float]:
    """As the model has it."""
    tokens = step.total_num_scheduled_tokens
    requests = step.prefill_requests + step.decode_requests
    gpu_s = model.gpu_s(
        tokens, step.prefill_pairs, step.decode_context_tokens, requests
    )
    return gpu_s, *model.host_parts(tokens, requests, step.prefill_requests)


class Clock:
    """`launch` a step, `finish` the oldest that is launched.

    `gpu_s`: what the GPU computed in all; where all requests come at once, as long as the run would
    take with a host that takes no time.
    """

    def __init__(self, times: StepTimes, start: float) -> None:
        self.now = self._gpu_free = start
        self.ends: dict[
            int, float
        ] = {}  # of steps by number: of those that are alike, the last
        self.num_steps = 0
        self.gaps: defaultdict[int, list[float]] = defaultdict(
            list
        )  # by how many wait for each
        self.gpu_s = 0.0
        self.tokens = 0
        self._times = times
        # Steps that are not finished: when they were launched, are computed, and handing them out.
        self.launched: deque[tuple[Step, float, float, float]] = deque()

    def launch(self, step: Step) -> None:
        """Kernel by kernel, the GPU cannot be done before the last is launched."""
        launched = self.now
        gpu_s, prepare, launch, hand_out = self._times(step)
        self._last = step, prepare, launch, hand_out
        ready = launched + prepare
        self.now = ready + launch
        computed = max(self._gpu_free, ready) + gpu_s
        self._gpu_free = max(computed, self.now)
        self.launched.append((step, launched, self._gpu_free, hand_out))
        self.tokens += step.total_num_scheduled_tokens
        self.gpu_s += gpu_s

    def finish(self) -> tuple[Step, float]:
        """The tokens that a step gives are there at its end; how long it took."""
        step, launched, computed, hand_out = self.launched.popleft()
        end, ends = max(computed, self.now) + hand_out, self.ends
        before = ends.get(self.num_steps - 1, launched)
        if step.decoding_on:
            self.gaps[step.decoding_on].append(end - before)
        for last_step in step.resumed:
            self.gaps[1].append(end - ends[last_step])
        ends[self.num_steps] = self.now = end
        self.num_steps += 1
        return step, end - (launched if launched > before else before)

    def repeat(self, seconds: Iterator[float], until: float) -> int:
        """Steps like the one launched last, until a time: each is launched, the oldest finished, as
        above. `seconds` on the GPU: no more are taken than steps, which come back."""
        step, prepare, launch, hand_out = self._last
        now, gpu_free, gpu_total_s = self.now, self._gpu_free, self.gpu_s
        gaps, lags = self.gaps[step.decoding_on], bool(self.launched)
        first = len(gaps)
        for gpu_s in seconds if now < until else ():
            gpu_total_s += gpu_s
            before, ready, oldest = now, now + prepare, gpu_free
            now = ready + launch
            gpu_free = (gpu_free if gpu_free > ready else ready) + gpu_s
            gpu_free = gpu_free if gpu_free > now else now
            computed = oldest if lags else gpu_free
            now = (computed if computed > now else now) + hand_out
            gaps.append(now - before)
            if now >= until:
                break
        taken = len(gaps) - first
        self.gaps.pop(0, None)  # nobody waits for them
        if lags and taken:
            self.launched[0] = (step, before, gpu_free, hand_out)
        self.num_steps += taken
        self.ends[self.num_steps - 1] = self.now = now
        self._gpu_free, self.gpu_s = gpu_free, gpu_total_s
        self.tokens += step.total_num_scheduled_tokens * taken
        return taken
