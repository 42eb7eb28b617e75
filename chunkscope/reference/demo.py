"""`chunkscope demo`: long prompts come while short ones are being answered.

Two short requests are decoding when two long ones arrive, and six more short ones
behind them. Without chunks all of them wait for the long prompts to be read.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.artefacts.artefact import now
from chunkscope.errors import EngineError, InputError, UsageError, first_line
from chunkscope.hardware.gpus import GIB
from chunkscope.reference.attention import not_taken
from chunkscope.reference.engine import (
    ReferenceRun,
    TokenRequest,
    generate,
    settings_for,
    workload_of,
)
from chunkscope.reference.models import (
    TINY,
    context_of,
    load_model,
    require_torch,
    tiny_model,
)
from chunkscope.simulation.workload import Workload
from chunkscope.verification.engine_run import machine_of
from chunkscope.verification.latencies import distribution_of, figures_of
from chunkscope.verification.result import (
    EngineKind,
    Run,
    Subject,
    Verification,
    WorkerMemory,
)
from chunkscope.vllm.log.failures import Status

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OUTPUT_TOKENS = 24
EARLY = (60, 100)  # prompt tokens of the short requests that are decoding
LATE = (40, 60, 80, 100, 120, 140)  # and of those behind the long ones
LONGEST_SHORT = max(*EARLY, *LATE)
LATE_ARRIVAL_S = 0.001  # while the first step is computed
# Logits of different batches differ by some roundings, measured in eps of the largest
# logit. Experts in 16 bits amplify them, so that more than this share of it is another
# answer.
ROUNDINGS = 256
LARGEST_DIFFERENCE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """The same requests with several settings, and what was measured as an artefact."""

    requests: tuple[TokenRequest, ...]
    runs: dict[str, ReferenceRun]  # by setting
    measured: Verification

    @property
    def same_answers(self) -> int:
        """Requests whose answers are the same with every setting, token by token."""
        by_request = zip(*(run.outputs for run in self.runs.values()), strict=True)
        return sum(len(set(outputs)) == 1 for outputs in by_request)

    @property
    def logits_apart(self) -> float:
        """The largest difference between settings of a logit after a prompt."""
        import torch

        largest = 0.0
        by_request = zip(*(run.first_logits for run in self.runs.values()), strict=True)
        for logits in by_request:
            low, high = torch.stack(logits).aminmax(dim=0)
            largest = max(largest, float((high - low).max()))
        return largest


def demo(
    *,
    model: str | None = None,
    chunk: str = "none,256",
    long: int = 3_072,
    seed: int = 0,
    answering: Callable[[str], None] = lambda _: None,
) -> Demonstration:
    """Show chunked prefill with a real model on this machine.

    `chunk` lists the tokens of a chunk: `demo(chunk="32,256,none")`. `answering` is
    called with the name of each setting before it runs.
    """
    chunks = read_chunks(chunk)
    require_torch("chunkscope demo")
    from chunkscope.verification.inside.chunkscope_probe import machine

    if model is None:
        loaded = tiny_model(seed)
        subject = Subject(name=TINY, load_format="dummy")
    else:
        loaded = load_model(model)
        name = Path(model).expanduser().resolve().name
        subject = Subject(name=name, load_format="auto")
    check_lengths(loaded, long)
    requests = demo_requests(loaded, long, seed)
    workload = replace(workload_of(requests, long_over=LONGEST_SHORT), seed=seed)
    check_answers(loaded, requests[: len(EARLY)])
    reference_runs = {}
    runs = []
    for size in chunks:
        name = f"with chunks of {size:,}" if size else "without chunks"
        answering(name)
        started = now()
        settings = settings_for(loaded, requests, chunk=size)
        try:
            reference_run = generate(loaded, requests, settings)
        except (RuntimeError, MemoryError) as error:  # what torch raises
            raise EngineError(
                f"the model failed {name}: {first_line(error)}"
            ) from error
        reference_runs[name] = reference_run
        runs.append(measured_run(name, reference_run, workload, started, loaded))
    measured = Verification(
        model=replace(subject, parameters=loaded.num_parameters()),
        measured=EngineKind.DEMO,
        workload=workload,
        repeats=1,
        runs=tuple(runs),
        machine=machine_of([machine()]),
    )
    return Demonstration(requests=requests, runs=reference_runs, measured=measured)


def read_chunks(text: str) -> list[int | None]:
    """The sizes in a text such as "32,256,none", each once; None for whole prompts."""
    sizes: list[int | None] = []
    for word in text.lower().split(","):
        size = chunk_size(word.strip())
        if size not in sizes:
            sizes.append(size)
    return sizes


def chunk_size(word: str) -> int | None:
    if word == "none":
        return None
    if not word.isdecimal() or len(word) > 9 or int(word) < 1:
        hint = "write sizes of at least 1, or none: `--chunk 32,128,512,none`"
        raise UsageError(f"--chunk {word!r} is not a number of tokens", hint=hint)
    return int(word)


def check_lengths(model: "PreTrainedModel", long: int) -> None:
    if long < 1:
        raise UsageError(f"--long must be at least 1, not {long}")
    longest = max(long, LONGEST_SHORT)
    context = context_of(model)
    if context is not None and longest + OUTPUT_TOKENS > context:
        raise InputError(
            f"a prompt of {longest:,} tokens and an answer of {OUTPUT_TOKENS} do not "
            f"fit the model's context of {context:,}",
            hint=f"pass --long {max(1, context - OUTPUT_TOKENS)}, or less",
        )


def demo_requests(
    model: "PreTrainedModel", long: int, seed: int
) -> tuple[TokenRequest, ...]:
    """Requests of random tokens, as words make no difference to how they are read."""
    vocabulary = range(model.get_input_embeddings().num_embeddings)
    generator = random.Random(seed)  # noqa: S311  (no secret)
    requests = []
    for number, length in enumerate([*EARLY, long, long, *LATE]):
        arrival_s = 0.0 if number < len(EARLY) else LATE_ARRIVAL_S
        request = TokenRequest(
            prompt=generator.choices(vocabulary, k=length),
            output_tokens=OUTPUT_TOKENS,
            arrival_s=arrival_s,
        )
        requests.append(request)
    return tuple(requests)


def check_answers(model: "PreTrainedModel", requests: Sequence[TokenRequest]) -> None:
    """Raise InputError for a model that answers differently in a batch.

    Some models attend, or count positions, in a way of their own. This warms it up,
    too.
    """
    import torch

    run = generate(model, requests, settings_for(model, requests, chunk=32))
    eps = torch.finfo(model.dtype).eps
    for request, logits in zip(requests, run.first_logits, strict=True):
        tokens = torch.tensor([request.prompt], device=model.device)
        with torch.inference_mode():
            output = model(input_ids=tokens, use_cache=False)
        alone = output.logits[0, -1].float().cpu()
        tolerance = min(ROUNDINGS * eps, LARGEST_DIFFERENCE) * alone.abs().max()
        if (logits - alone).abs().max() > tolerance:
            raise not_taken(
                model, "its answers change when another request runs with it"
            )


def measured_run(
    name: str,
    reference_run: ReferenceRun,
    workload: Workload,
    started: str,
    model: "PreTrainedModel",
) -> Run:
    by_length = figures_of(reference_run.answers, workload.long_over)
    figures = replace(
        reference_run.run.figures, short=by_length.short, long=by_length.long
    )
    # These say nothing about chunks.
    settings = replace(
        reference_run.run.settings,
        max_model_len=None,
        enable_chunked_prefill=None,
        enable_prefix_caching=None,
    )
    memory = WorkerMemory(
        rank=0,
        activation_peak_gib=in_gib(reference_run.beyond_weights_bytes),  # with KV cache
        device_peak_gib=in_gib(reference_run.peak_bytes),
        weights_gib=sum(weights.nbytes for weights in model.parameters()) / GIB,
    )
    return Run(
        setting=name,
        settings=settings,
        status=Status.OK,
        started=started,
        took_s=figures.makespan_s,
        workers=(memory,),
        figures=figures,
        repeats=(figures,),
        distribution=distribution_of([reference_run.answers]),
    )


def in_gib(size: int | None) -> float | None:
    if not size:  # not measured on this system
        return None
    return size / GIB
