"""`chunkscope demo`: long prompts come while short ones are being answered, with chunks or without.

Two short requests are decoding when two long ones arrive, and six more short ones behind them.
Without chunks all of them wait for the long prompts to be read.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import now
from chunkscope.errors import EngineError, InputError, UsageError
from chunkscope.hardware.gpus import GIB
from chunkscope.reference.attention import not_taken
from chunkscope.reference.engine import (
    ReferenceRun,
    TokenRequest,
    generate,
    settings_for,
)
from chunkscope.reference.models import (
    TINY,
    context_of,
    load_model,
    load_torch,
    tiny_model,
)
from chunkscope.simulation.workload import GIVEN, Workload
from chunkscope.verification.engine_run import machine_of
from chunkscope.verification.latencies import distribution_of, figures_of
from chunkscope.verification.result import (
    EngineKind,
    Run,
    Subject,
    Verification,
    WorkerMemory,
)
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.failures import Status

OUTPUT_TOKENS = 24
EARLY, LATE = (60, 100), (40, 60, 80, 100, 120, 140)  # tokens of the short prompts
MOST_APART = 0.25  # of the largest logit, where 16 bits and experts round otherwise
LATER_S = 0.001  # while the first step is computed
# Of the settings of a run, what says nothing about chunks.
NOT_TOLD = ("max_model_len", "enable_chunked_prefill", "enable_prefix_caching")


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
        """The largest difference of a logit after a prompt, between any two settings."""
        import torch

        by_request = zip(*(run.first_logits for run in self.runs.values()), strict=True)
        spread = [torch.stack(logits).aminmax(dim=0) for logits in by_request]
        return max(float((most - least).max()) for least, most in spread)


def demo(
    *,
    model: str | None = None,
    chunk: str = "none,256",
    long: int = 3_072,
    seed: int = 0,
    answering: Callable[[str], None] = lambda _: None,
) -> Demonstration:
    """Show chunked prefill with a real model on this machine: `demo(chunk="32,256,none")`."""
    chunks = dict.fromkeys(
        _chunk_size(word.strip().lower()) for word in chunk.split(",")
    )
    load_torch("chunkscope demo")
    from chunkscope.verification.inside.chunkscope_probe import machine

    loaded = tiny_model(seed) if model is None else load_model(model)
    check_lengths(loaded, long)
    requests = tuple(demo_requests(loaded, long, seed))
    _warm_up(loaded, requests[: len(EARLY)])
    workload = Workload(
        sessions=tuple(request.session for request in requests),
        seed=seed,
        arrivals=GIVEN,
        task=Task.GENERATE,
        long_over=max(*EARLY, *LATE),
    )
    runs, rows = {}, []
    for size in chunks:
        name = f"with chunks of {size:,}" if size else "without chunks"
        answering(name)
        started, settings = now(), settings_for(loaded, requests, chunk=size)
        try:
            runs[name] = generate(loaded, requests, settings)
        except (
            RuntimeError,
            MemoryError,
        ) as error:  # torch's own, of whatever the model provokes
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise EngineError(f"the model failed {name}: {first}") from error
        rows.append(_run(name, runs[name], workload, started, loaded))
    name = Path(model).expanduser().resolve().name if model else TINY
    load_format = "auto" if model else "dummy"
    measured = Verification(
        model=Subject(
            name=name, load_format=load_format, parameters=loaded.num_parameters()
        ),
        measured=EngineKind.DEMO,
        workload=workload,
        repeats=1,
        runs=tuple(rows),
        machine=machine_of([machine()]),
    )
    return Demonstration(requests=requests, runs=runs, measured=measured)


def _warm_up(model: Any, requests: Sequence[TokenRequest]) -> None:
    """Some models attend or count positions their own way: is it what they say by themselves?"""
    import torch

    run = generate(model, requests, settings_for(model, requests, chunk=32))
    for request, logits in zip(requests, run.first_logits, strict=True):
        with torch.inference_mode():
            ids = torch.tensor([request.prompt], device=model.device)
            expected = model(input_ids=ids, use_cache=False).logits[0, -1].float().cpu()
        rounding = (
            min(256 * torch.finfo(model.dtype).eps, MOST_APART) * expected.abs().max()
        )
        if (logits - expected).abs().max() > rounding:
            raise not_taken(
                model, "its answers change when another request runs with it"
            )


def demo_requests(model: Any, long: int, seed: int) -> Iterator[TokenRequest]:
    """Random tokens: what they say makes no difference to how they are read."""
    lengths = [*EARLY, long, long, *LATE]
    arrivals = [0.0] * len(EARLY) + [LATER_S] * (2 + len(LATE))
    vocabulary = range(model.get_input_embeddings().num_embeddings)
    chance = random.Random(seed)  # noqa: S311  (no secret)
    for length, arrival in zip(lengths, arrivals, strict=True):
        prompt = chance.choices(vocabulary, k=length)
        yield TokenRequest(
            prompt=prompt, output_tokens=OUTPUT_TOKENS, arrival_s=arrival
        )


def _chunk_size(word: str) -> int | None:
    if word == "none":
        return None
    if not word.isdecimal() or len(word) > 9 or int(word) < 1:
        hint = "write sizes of at least 1, or none: `--chunk 32,128,512,none`"
        raise UsageError(f"--chunk {word!r} is not a number of tokens", hint=hint)
    return int(word)


def check_lengths(model: Any, long: int) -> None:
    if long < 1:
        raise UsageError(f"--long must be at least 1, not {long}")
    most, context = max(long, *EARLY, *LATE), context_of(model)
    if context is not None and most + OUTPUT_TOKENS > context:
        raise InputError(
            f"a prompt of {most:,} tokens and an answer of {OUTPUT_TOKENS} do not fit the model's "
            f"context of {context:,}",
            hint=f"pass --long {max(1, context - OUTPUT_TOKENS)}, or less",
        )


def _run(
    name: str, run: ReferenceRun, workload: Workload, started: str, model: Any
) -> Run:
    by_length, settings = figures_of(run.answers, workload), run.run.settings
    figures = replace(run.run.figures, short=by_length.short, long=by_length.long)
    memory = WorkerMemory(
        rank=0,
        activation_peak_gib=(run.beyond_weights_bytes or 0) / GIB
        or None,  # keys and values included
        device_peak_gib=(run.peak_bytes or 0) / GIB or None,
        weights_gib=sum(p.nbytes for p in model.parameters()) / GIB,
    )
    return Run(
        setting=name,
        settings=replace(settings, **dict.fromkeys(NOT_TOLD)),
        status=Status.OK,
        started=started,
        took_s=figures.makespan_s,
        workers=(memory,),
        figures=figures,
        repeats=(figures,),
        distribution=distribution_of(run.answers),
    )
