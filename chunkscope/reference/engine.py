"""A continuous-batching engine over a transformers model, to see chunked prefill at work.

It has no scheduler of its own: the loop and the scheduler of simulation/ decide every step, and
where a simulation asks how long the step would take, the model computes it and the clock is read.
So a run here takes the steps that `chunkscope simulate` predicts, and vLLM's scheduler would take.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chunkscope.errors import InputError
from chunkscope.models.shape import BLOCK_TOKENS
from chunkscope.reference.attention import by_piece
from chunkscope.reference.batch import BatchPiece, LiveRequest
from chunkscope.reference.models import context_of
from chunkscope.simulation.requests import Step
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.run import StepSeconds, simulate
from chunkscope.simulation.workload import GIVEN, Session, Workload, single
from chunkscope.verification.latencies import Answer
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import KvPool, Settings

if TYPE_CHECKING:
    import torch

ENGINE = Engine(release=release("0.30"))  # its scheduler decides every step


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A prompt in tokens, and how many to answer: always so many, whatever they are."""

    prompt: Sequence[int]
    output_tokens: int
    arrival_s: float = 0.0

    @property
    def session(self) -> Session:
        """As the scheduler sees it."""
        return single(len(self.prompt), self.output_tokens, self.arrival_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """What one setting did to the requests, which are in their order; all times are measured."""

    run: SimulatedRun
    outputs: tuple[tuple[int, ...], ...]
    answers: tuple[Answer, ...]
    first_logits: "tuple[torch.Tensor, ...]"
    peak_bytes: int | None
    beyond_weights_bytes: int | None


class ModelRunner:
    """Where a simulation would look up how long a step takes, the model computes it: afterwards
    every request that was due has its most likely token more.

    Time goes on while the model computes and stands still otherwise: nobody waits for an arrival.
    """

    def __init__(
        self, model: Any, requests: Sequence[LiveRequest], *, attends_by: str
    ) -> None:
        self._model, self._requests, self._attends_by = model, requests, attends_by

    def __call__(self, step: Step) -> StepSeconds:
        import torch

        began = time.perf_counter()
        for state in step.preempted:
            self._requests[state.id].forget()
        pieces = self._pieces(step)
        with torch.inference_mode():
            logits = self.forward(pieces)
        for piece, row in zip((p for p in pieces if p.is_due), logits, strict=True):
            request = piece.request
            if piece.end == request.prompt_tokens:
                request.first_logits = row
            request.tokens.append(int(row.argmax()))
            request.steps.append(step.number)
        for state in step.ended:
            self._requests[state.id].forget()
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
        seconds = time.perf_counter() - began
        return StepSeconds(gpu=seconds, prepare=0.0, launch=0.0, hand_out=0.0)

    def _pieces(self, step: Step) -> list[BatchPiece]:
        """All of a step. The scheduler has counted their tokens, and the next, as computed."""
        pieces, place = [], 0
        for state in step.decoding:
            request = self._requests[state.id]
            end = len(request.tokens)
            piece = BatchPiece(
                request=request,
                start=end - 1,
                end=end,
                in_batch=slice(place, place + 1),
                is_due=True,
            )
            pieces.append(piece)
            place += 1
        for state, tokens in step.num_scheduled_tokens.items():
            piece = BatchPiece(
                request=self._requests[state.id],
                start=state.num_computed_tokens - tokens,
                end=state.num_computed_tokens,
                in_batch=slice(place, place + tokens),
                is_due=state.last_step == step.number,
            )
            pieces.append(piece)
            place += tokens
        return pieces

    def forward(self, pieces: Sequence[BatchPiece]) -> "torch.Tensor":
        """Logits after the last token of each piece that is due, on the CPU."""
        import torch

        device = self._model.device
        tokens = [token for p in pieces for token in p.request.tokens[p.start : p.end]]
        positions = [position for p in pieces for position in range(p.start, p.end)]
        last = [piece.in_batch.stop - 1 for piece in pieces if piece.is_due]
        wanted = torch.tensor(
            last or [0], device=device
        )  # the head is not asked for others
        logits = self._model(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,  # requests keep their own
            logits_to_keep=wanted,
            pieces=pieces,
            attends_by=self._attends_by,
        ).logits[0]
        return logits[: len(last)].float().cpu()


def generate(
    model: Any,
    requests: Sequence[TokenRequest],
    settings: Settings,
    *,
    kv_cache_tokens: int | None = None,
) -> ReferenceRun:
    """Answer all requests greedily, and measure it. By default all of them fit at once."""
    from chunkscope.verification.inside.chunkscope_probe import PeakMemory

    if settings.enable_prefix_caching:
        raise InputError("the reference engine has no prefix caching")
    live = [LiveRequest(request.prompt, request.output_tokens) for request in requests]
    workload = workload_of(requests)
    tokens = [len(request.prompt) + request.output_tokens for request in requests]
    room = BLOCK_TOKENS * (1 + sum(-(-size // BLOCK_TOKENS) for size in tokens))
    pool = KvPool(tokens=kv_cache_tokens or room)
    model.eval()
    with by_piece(model) as attends_by:
        runner = ModelRunner(model, live, attends_by=attends_by)
        memory = PeakMemory()
        run = simulate(
            workload,
            settings,
            ENGINE,
            runner,
            timeline=sys.maxsize,
            kv_pool=pool,
            async_scheduling=False,  # steps are scheduled one by one
        )
        peak, beyond = memory.peak_bytes(), memory.beyond_bytes()
    ends = [
        requests[0].arrival_s + step.start_s + step.duration_s for step in run.timeline
    ]
    return ReferenceRun(
        run=run,
        outputs=tuple(tuple(one.tokens[one.prompt_tokens :]) for one in live),
        answers=tuple(
            Answer(
                sent=request.arrival_s,
                times=[ends[n] for n in one.steps],
                counts=[1] * len(one.steps),
            )
            for request, one in zip(requests, live, strict=True)
        ),
        first_logits=tuple(request.first_logits for request in live),
        peak_bytes=peak,
        beyond_weights_bytes=beyond,
    )


def workload_of(requests: Sequence[TokenRequest]) -> Workload:
    return Workload(
        sessions=tuple(request.session for request in requests),
        seed=0,
        arrivals=GIVEN,
        task=Task.GENERATE,
    )


def settings_for(
    model: Any, requests: Sequence[TokenRequest], *, chunk: int | None
) -> Settings:
    """`chunk` is the most a step reads of one prompt; of all it reads as much as there is."""
    most = sum(
        min(len(request.prompt), chunk or len(request.prompt)) for request in requests
    )
    return Settings(
        max_model_len=context_of(model),
        max_num_seqs=len(requests),
        long_prefill_token_threshold=chunk or 0,
        enable_chunked_prefill=True,
        enable_prefix_caching=False,
    ).at_budget(most)
