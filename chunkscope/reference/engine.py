"""A continuous-batching engine over the demo's model, to see chunks at work.

It has no scheduler of its own: the loop and the scheduler of simulation/ decide every
step, and where a simulation asks how long the step would take, the model computes it
and the clock is read. So a run here takes the steps that `chunkscope simulate`
predicts, and vLLM's scheduler would take.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkscope.models.shape import BLOCK_TOKENS
from chunkscope.reference.model import CONTEXT, BatchPiece
from chunkscope.simulation.requests import Step
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.run import StepSeconds, simulate
from chunkscope.simulation.workload import GIVEN, Workload, single
from chunkscope.verification.inside.chunkscope_sessions import Answer
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import KvPool, Settings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

ENGINE = Engine(release=release("0.30"))  # whose scheduler decides every step


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A prompt in tokens, and the exact number of tokens to answer it with."""

    prompt: Sequence[int]
    output_tokens: int
    arrival_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """Measured times and answers of one setting, in the order of the requests."""

    run: SimulatedRun
    outputs: tuple[tuple[int, ...], ...]
    answers: tuple[Answer, ...]
    first_logits: "tuple[torch.Tensor, ...]"
    peak_bytes: int | None
    beyond_weights_bytes: int | None


class LiveRequest:
    """A request while it is answered."""

    def __init__(self, prompt: Sequence[int]) -> None:
        from transformers import DynamicCache

        self.tokens = list(prompt)  # the answer's follow
        self.prompt_tokens = len(prompt)
        self.answer_steps: list[int] = []  # by number, a step for each answer token
        self.first_logits: torch.Tensor  # after the last prompt token
        self.cache = DynamicCache()

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(self.tokens[self.prompt_tokens :])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTokens:
    """Tokens of a request in a step. `is_due`: the step gives its next token."""

    request: LiveRequest
    piece: BatchPiece
    is_due: bool


class ModelRunner:
    """Computes each step that the scheduler decides, and tells how long that took.

    Time stands still between steps: nobody waits for an arrival.
    """

    def __init__(
        self, model: "PreTrainedModel", requests: Sequence[LiveRequest]
    ) -> None:
        self._model = model
        self._requests = requests

    def __call__(self, step: Step) -> StepSeconds:
        """Compute the step, after which each request that is due has its next token."""
        began = time.perf_counter()
        batch = self._batch(step)
        due = [scheduled for scheduled in batch if scheduled.is_due]
        for scheduled, logits in zip(due, self.forward(batch), strict=True):
            request = scheduled.request
            if scheduled.piece.end == request.prompt_tokens:
                request.first_logits = logits
            request.tokens.append(int(logits.argmax()))
            request.answer_steps.append(step.number)
        seconds = time.perf_counter() - began
        return StepSeconds(gpu=seconds, prepare=0.0, launch=0.0, hand_out=0.0)

    def _batch(self, step: Step) -> list[ScheduledTokens]:
        """Decodes first, then chunks.

        The scheduler counts the tokens of this step, and the next token of a request
        that decodes, as computed already.
        """
        batch: list[ScheduledTokens] = []
        for state in step.decoding:
            request = self._requests[state.id]
            end = len(request.tokens)
            batch.append(self._scheduled(batch, request, end - 1, end, is_due=True))
        for state, tokens in step.num_scheduled_tokens.items():
            request = self._requests[state.id]
            end = state.num_computed_tokens
            is_due = state.last_step == step.number
            batch.append(
                self._scheduled(batch, request, end - tokens, end, is_due=is_due)
            )
        return batch

    def _scheduled(
        self,
        batch: Sequence[ScheduledTokens],
        request: LiveRequest,
        start: int,
        end: int,
        *,
        is_due: bool,
    ) -> ScheduledTokens:
        """Tokens `start` to `end` of a request, behind what is in the batch."""
        place = batch[-1].piece.in_batch.stop if batch else 0
        in_batch = slice(place, place + end - start)
        piece = BatchPiece(cache=request.cache, start=start, end=end, in_batch=in_batch)
        return ScheduledTokens(request=request, piece=piece, is_due=is_due)

    def forward(self, batch: Sequence[ScheduledTokens]) -> "torch.Tensor":
        """Logits, on the CPU, after the last token of each request that is due."""
        import torch

        device = self._model.device
        tokens: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        for scheduled in batch:
            piece = scheduled.piece
            tokens += scheduled.request.tokens[piece.start : piece.end]
            positions += range(piece.start, piece.end)
            if scheduled.is_due:
                last.append(piece.in_batch.stop - 1)
        # Where none is due, the head computes one row that is thrown away.
        rows = torch.tensor(last or [0], device=device)
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([tokens], device=device),
                position_ids=torch.tensor([positions], device=device),
                use_cache=False,  # each request has its own
                logits_to_keep=rows,
                pieces=[scheduled.piece for scheduled in batch],
            )
            # A GPU computes in the background; copying to the CPU waits for it.
            logits = output.logits[0].float().cpu()
        return logits[: len(last)]


def generate(
    model: "PreTrainedModel", requests: Sequence[TokenRequest], settings: Settings
) -> ReferenceRun:
    """Answer all requests greedily, and measure it. The KV cache holds all of them."""
    from chunkscope.verification.inside.chunkscope_probe import PeakMemory

    live = [LiveRequest(request.prompt) for request in requests]
    blocks = 1  # vLLM's null block
    for request in requests:
        tokens = len(request.prompt) + request.output_tokens
        blocks += -(-tokens // BLOCK_TOKENS)
    memory = PeakMemory()
    run = simulate(
        workload_of(requests),
        settings,
        ENGINE,
        ModelRunner(model, live),
        timeline=sys.maxsize,
        kv_pool=KvPool(tokens=blocks * BLOCK_TOKENS),
        async_scheduling=False,  # steps are scheduled one by one
    )
    return ReferenceRun(
        run=run,
        outputs=tuple(request.output for request in live),
        answers=answers_of(requests, live, run),
        first_logits=tuple(request.first_logits for request in live),
        peak_bytes=memory.peak_bytes(),
        beyond_weights_bytes=memory.beyond_bytes(),
    )


def answers_of(
    requests: Sequence[TokenRequest], live: Sequence[LiveRequest], run: SimulatedRun
) -> tuple[Answer, ...]:
    """When each token of each answer came: at the end of its step."""
    ends = []
    for step in run.timeline:
        ends.append(requests[0].arrival_s + step.start_s + step.duration_s)
    answers = []
    for place, (request, state) in enumerate(zip(requests, live, strict=True)):
        times = [ends[number] for number in state.answer_steps]
        answer = Answer(
            session=place,
            turn=0,
            prompt_tokens=state.prompt_tokens,
            sent=request.arrival_s,
            times=times,
            counts=[1] * len(times),
        )
        answers.append(answer)
    return tuple(answers)


def workload_of(
    requests: Sequence[TokenRequest], *, long_over: int = 0, seed: int = 0
) -> Workload:
    sessions = []
    for request in requests:
        prompt_tokens = len(request.prompt)
        sessions.append(single(prompt_tokens, request.output_tokens, request.arrival_s))
    return Workload(
        sessions=tuple(sessions),
        seed=seed,
        arrivals=GIVEN,
        task=Task.GENERATE,
        long_over=long_over,
    )


def settings_for(requests: Sequence[TokenRequest], *, chunk: int | None) -> Settings:
    """Settings under which a step reads at most `chunk` tokens of each prompt."""
    step_tokens = 0
    for request in requests:
        prompt_tokens = len(request.prompt)
        step_tokens += min(prompt_tokens, chunk or prompt_tokens)
    settings = Settings(
        max_model_len=CONTEXT,
        max_num_seqs=len(requests),
        long_prefill_token_threshold=chunk or 0,
        enable_chunked_prefill=True,
        enable_prefix_caching=False,
    )
    return settings.at_budget(step_tokens)
