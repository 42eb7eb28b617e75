"""`chunkscope demo`: long prompts come while short ones are being answered.

Two short requests are decoding when two long ones arrive, and six more short ones
behind them. Without chunks all of them wait for the long prompts to be read.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chunkscope.artefacts.artefact import now
from chunkscope.errors import EngineError, InputError, UsageError, first_line
from chunkscope.hardware.gpus import GIB
from chunkscope.reference.engine import (
    ReferenceRun,
    TokenRequest,
    generate,
    settings_for,
    workload_of,
)
from chunkscope.reference.model import (
    CONTEXT,
    NAME,
    SHAPE,
    random_model,
    require_torch,
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


def demo(
    *,
    chunk: str = "none,256",
    long: int = 3_072,
    seed: int = 0,
    answering: Callable[[str], None] = lambda _: None,
) -> Demonstration:
    """Show chunked prefill with a small random model on this machine.

    `chunk` lists the tokens of a chunk: `demo(chunk="32,256,none")`. `answering` is
    called with the name of each setting before it runs.
    """
    chunks = read_chunks(chunk)
    check_length(long)
    require_torch("chunkscope demo")
    from chunkscope.verification.inside.chunkscope_probe import machine

    model = random_model(seed)
    requests = demo_requests(long, seed)
    workload = workload_of(requests, long_over=LONGEST_SHORT, seed=seed)
    generate(model, requests[:1], settings_for(requests[:1], chunk=32))  # warms it up
    reference_runs = {}
    runs = []
    for size in chunks:
        name = f"with chunks of {size:,}" if size else "without chunks"
        answering(name)
        started = now()
        try:
            run = generate(model, requests, settings_for(requests, chunk=size))
        except (RuntimeError, MemoryError) as error:  # what torch raises
            raise EngineError(
                f"the model failed {name}: {first_line(error)}"
            ) from error
        reference_runs[name] = run
        runs.append(measured_run(name, run, workload, started, model))
    parameters = model.num_parameters()
    measured = Verification(
        model=Subject(name=NAME, load_format="dummy", parameters=parameters),
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


def check_length(long: int) -> None:
    if long < 1:
        raise UsageError(f"--long must be at least 1, not {long}")
    if long + OUTPUT_TOKENS > CONTEXT:
        raise InputError(
            f"a prompt of {long:,} tokens and an answer of {OUTPUT_TOKENS} do not "
            f"fit the model's context of {CONTEXT:,}",
            hint=f"pass --long {CONTEXT - OUTPUT_TOKENS}, or less",
        )


def demo_requests(long: int, seed: int) -> tuple[TokenRequest, ...]:
    """Requests of random tokens, as words make no difference to how they are read."""
    vocabulary = range(int(SHAPE["vocab_size"] or 0))
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
