"""A workload -> the requests that an engine or a server is sent.

What sends requests reads the workload here, and nowhere else.
"""

from dataclasses import dataclass

from chunkscope.simulation.workload import Workload

WARM_UP_REQUESTS = 2_048  # more than run at the same time
WARM_UP_OUTPUT = 16  # tokens
# Of `--check-outputs`: how many prompts are answered, and tokens of an answer at most.
SAMPLE_PROMPTS = 64
SAMPLE_OUTPUT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """One request. Without a place in the workload its prompt shares nothing."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    place: int | None = None
    is_scored: bool = False  # asks for the likelihood of its prompt

    @property
    def tokens(self) -> int:
        """The room that it takes: its prompt and its answer."""
        return self.prompt_tokens + self.output_tokens


def requests_of(workload: Workload) -> list[TaskRequest]:
    """What is sent in one repeat, in the order of the workload."""
    scored = workload.likelihoods
    requests = []
    for place, request in enumerate(workload.requests):
        sent = TaskRequest(
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            arrival_s=request.arrival_s,
            place=place,
            is_scored=place in scored,
        )
        requests.append(sent)
    return requests


def sharing_of(workload: Workload) -> tuple[list[tuple[int, int]], list[int]]:
    """What `SharingIds` makes prompts of: the stretches, and where each prompt ends."""
    stretches = [(stretch.parent, stretch.tokens) for stretch in workload.stretches]
    ends = [request.stretch for request in workload.requests]
    return stretches, ends


def warm_up(workload: Workload, longest_prompt: int) -> list[TaskRequest]:
    """The longest prompt of the data, and the requests with short answers.

    The longest prompt decides the memory peak, though it may not be among the requests.
    Fewer requests will not do: vLLM compiles some kernels when it first meets a step of
    their size.
    """
    requests = requests_of(workload)
    all_scored = all(request.is_scored for request in requests)
    longest = TaskRequest(
        prompt_tokens=longest_prompt, output_tokens=1, is_scored=all_scored
    )
    warming = [longest]
    for request in requests[:WARM_UP_REQUESTS]:
        short = TaskRequest(
            prompt_tokens=request.prompt_tokens,
            output_tokens=min(request.output_tokens, WARM_UP_OUTPUT),
            place=request.place,
            is_scored=request.is_scored,
        )
        warming.append(short)
    return warming


def output_sample(workload: Workload) -> list[TaskRequest]:
    """Requests whose answers are compared: of all lengths, with the longest."""
    ranked = sorted(requests_of(workload), key=lambda r: -r.prompt_tokens)
    count = min(len(ranked), SAMPLE_PROMPTS)
    sample = []
    for number in range(count):
        request = ranked[number * len(ranked) // count]
        shortened = TaskRequest(
            prompt_tokens=request.prompt_tokens,
            output_tokens=SAMPLE_OUTPUT,
            place=request.place,
        )
        sample.append(shortened)
    return sorted(sample, key=lambda request: request.place or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """So many requests of one kind, all at once."""

    count: int
    request: TaskRequest
