"""When requests came and how long they were, by lines of each request or of each step.

`--enable-log-requests` logs when each came; nothing else of such a line is kept, since it may hold
the prompt. `--enable-logging-iteration-details` logs how many prompts a step read, of how many
tokens, beside how many answers. A prompt goes on in the next step where the budget was spent and
an answer is missing there; else an answer that is missing has ended. Which of several it was, the
lines do not tell: the tokens of prompts that were read in one step are shared out evenly, and the
oldest answer ends first. Sums are exact.
"""

from collections import deque
from dataclasses import dataclass, field

from chunkscope.vllm.log.steps import LoggedStep

MOST_ARRIVALS = 100_000  # what comes later is counted, not kept


@dataclass(slots=True, kw_only=True)
class LoggedRequest:
    came_s: float
    prompt_tokens: float = 0.0
    output_tokens: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedArrivals:
    """By time since the log's first line. `requests` where steps were logged, else none."""

    times: tuple[float, ...]
    requests: tuple[LoggedRequest, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class _Engine:
    """One scheduler: what it has been reading and writing, step by step."""

    steps: int = 0
    now_s: float = 0.0
    largest: int = 0  # tokens of a step: the budget, where the log does not say it
    last: LoggedRequest | None = None  # the prompt that ended a full step, whole or not
    answering: deque[tuple[LoggedRequest | None, int]] = field(default_factory=deque)


class ArrivalReader:
    """Of one life of an engine."""

    def __init__(self) -> None:
        self._received: list[float] = []
        self._added: list[float] = []
        self._from_steps: list[LoggedRequest] = []
        self._engines: dict[str, _Engine] = {}
        self._left_out = 0

    def request(self, at: float | None, *, received: bool) -> None:
        times = self._received if received else self._added
        if at is None or len(times) >= MOST_ARRIVALS:
            self._left_out += received
            return
        times.append(at)

    def step(self, step: LoggedStep, at: float | None, engine: str, budget: int | None) -> None:
        prompts, tokens, answers, ms = step
        one = self._engines.setdefault(engine, _Engine())
        one.steps += 1
        one.now_s = max(at or 0.0, one.now_s)  # lines tell whole seconds
        carried = [one.last] if one.last and prompts and answers <= len(one.answering) else []
        if one.last and not carried:
            one.answering.append((one.last, one.steps - 1))
        while len(one.answering) > answers:
            ended, since = one.answering.popleft()
            if ended is not None:
                ended.output_tokens = max(1, one.steps - since)
        while len(one.answering) < answers:  # they came before the log begins
            one.answering.append((None, one.steps))
        begun = [self._begun(one.now_s) for _ in range(prompts - len(carried))]
        reading = [*carried, *begun]
        for request in reading:
            request.prompt_tokens += tokens / len(reading)
        one.largest = max(one.largest, budget or tokens + answers)
        spent = bool(reading) and tokens + answers >= one.largest
        one.last = reading.pop() if spent else None
        one.answering.extend((request, one.steps) for request in reading)
        one.now_s += ms / 1000

    def _begun(self, at: float) -> LoggedRequest:
        request = LoggedRequest(came_s=at)
        if len(self._from_steps) < MOST_ARRIVALS:
            self._from_steps.append(request)
        else:
            self._left_out += 1
        return request

    def found(self) -> LoggedArrivals | None:
        times = self._received or self._added
        requests = sorted(self._from_steps, key=lambda request: request.came_s)
        for engine in self._engines.values():
            for request, since in engine.answering:
                if request is not None:
                    request.output_tokens = max(1, engine.steps + 1 - since)
        if not times and not requests:
            return None
        if requests and len(times) != len(requests):
            times = [request.came_s for request in requests]
        return LoggedArrivals(
            times=tuple(sorted(times)), requests=tuple(requests), left_out=self._left_out
        )
