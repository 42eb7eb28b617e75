"""How much of a prompt one step may take, and who comes first: vLLM's own, and others.

Only `vllm`, `fixed` and `interactive-first` can be run with vLLM; the others are experiments from
the literature, to see what they would bring.
"""

from dataclasses import dataclass

from chunkscope.simulation.request_state import RequestState
from chunkscope.simulation.step import Step
from chunkscope.vllm.choices import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs

BY_LENGTH = ((4_096, 512), (16_384, 1_024))  # prompts below -> chunk; longer ones: LONGEST_CHUNK
LONGEST_CHUNK = 2_048
FIXED_THRESHOLD = 2_048
INTERACTIVE_TOKENS = 1_024
SMALLEST_CHUNK = 64
TARGET_STEP_S = 0.1
CROWDED_SHARE = 0.5  # decoding requests, of max_num_seqs


class Policy:
    """`threshold_of` caps one request's tokens in a step; 0 is no cap."""

    by_priority = False

    def __init__(self, args: EngineArgs, rules: Rules) -> None:
        self.args, self.rules = args, rules

    def start_step(self, requests: int) -> None:
        """So many are running or waiting, before anything is scheduled."""

    def threshold_of(self, request: RequestState) -> int:
        raise NotImplementedError

    def after_step(self, step: Step, seconds: float) -> None:
        """Learn how long it took."""

    def priority_of(self, request: RequestState) -> int:
        return request.priority


class VllmPolicy(Policy):
    """long_prefill_token_threshold, with the two rules that 0.31 brought."""

    def __init__(self, args: EngineArgs, rules: Rules) -> None:
        super().__init__(args, rules)
        unchunked = not (args.enable_chunked_prefill or args.enable_prefix_caching)
        dropped = unchunked and rules.unchunked_drops_the_threshold
        self._asked = 0 if dropped else args.long_prefill_token_threshold
        self._threshold = self._asked

    def start_step(self, requests: int) -> None:
        if not self._asked or self.rules.lone_request_is_capped:
            return
        self._threshold = self._asked if requests > 1 else 0
        if requests > 1 and self.args.long_prefill_token_threshold_adaptive:
            self._threshold = max(self._asked, self.args.max_num_batched_tokens // requests)

    def threshold_of(self, request: RequestState) -> int:  # noqa: ARG002
        return self._threshold


class VllmPriorityPolicy(VllmPolicy):
    """The same with `--scheduling-policy priority`."""

    by_priority = True


class InteractiveFirst(VllmPriorityPolicy):
    """Short prompts are somebody waiting, long ones are batch work and give way."""

    def priority_of(self, request: RequestState) -> int:
        return int(request.num_prompt_tokens > INTERACTIVE_TOKENS)


def chunk_by_length(prompt_tokens: int) -> int:
    """The longer the prompt, the larger its chunks.

    prompt            chunk
    < 4096            512
    < 16384           1024
    longer            2048

    >>> chunk_by_length(4_000), chunk_by_length(100_000)
    (512, 2048)
    """
    return next((chunk for below, chunk in BY_LENGTH if prompt_tokens < below), LONGEST_CHUNK)


class ByLength(Policy):
    def threshold_of(self, request: RequestState) -> int:
        return chunk_by_length(request.num_prompt_tokens)


class Adaptive(Policy):
    """Half the chunk when a step was slow or decodes crowd; twice when there is time to spare."""

    def __init__(self, args: EngineArgs, rules: Rules) -> None:
        super().__init__(args, rules)
        self._chunk = LONGEST_CHUNK
        self._crowd = CROWDED_SHARE * args.max_num_seqs

    def threshold_of(self, request: RequestState) -> int:  # noqa: ARG002
        return self._chunk

    def after_step(self, step: Step, seconds: float) -> None:
        if not step.prefill_requests:
            return
        if step.decode_requests and (seconds > TARGET_STEP_S or step.going_on > self._crowd):
            self._chunk = max(SMALLEST_CHUNK, self._chunk // 2)
        elif seconds < TARGET_STEP_S / 2:
            self._chunk = min(self.args.max_num_batched_tokens, self._chunk * 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Who decides; can vLLM do that, and how?"""

    policy: type[Policy]
    text: str
    runs_in_vllm: bool = True


DESCRIBED = {
    ChunkPolicy.VLLM: Described(policy=VllmPolicy, text="vLLM's own scheduling"),
    ChunkPolicy.FIXED: Described(
        policy=VllmPolicy,
        text="a fixed threshold: vLLM can run it with long_prefill_token_threshold",
    ),
    ChunkPolicy.INTERACTIVE_FIRST: Described(
        policy=InteractiveFirst,
        text=f"prompts up to {INTERACTIVE_TOKENS:,} tokens first: vLLM can run it with its "
        "priority scheduling and a priority in each request",
    ),
    ChunkPolicy.BY_LENGTH: Described(
        policy=ByLength,
        text="chunks of 512, 1,024 or 2,048 tokens by prompt length: an experiment, vLLM cannot "
        "run it",
        runs_in_vllm=False,
    ),
    ChunkPolicy.ADAPTIVE: Described(
        policy=Adaptive,
        text="the chunk halves under decode pressure and doubles while steps take less than "
        f"{TARGET_STEP_S / 2 * 1000:.0f} ms: an experiment, vLLM cannot run it",
        runs_in_vllm=False,
    ),
}


def make_policy(name: ChunkPolicy, args: EngineArgs, rules: Rules) -> Policy:
    """A fresh one: the adaptive policy remembers."""
    return DESCRIBED[name].policy(args, rules)
