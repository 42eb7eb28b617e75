"""A profile, a model, a GPU and a vLLM version -> the plan for the run."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.note import Note, note, one_of
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.gpus import Gpu, doubts, find_gpu
from chunkscope.lengths.profile import Profile
from chunkscope.models import ModelShape, find_model
from chunkscope.models.find import known_model
from chunkscope.planning.choose import choose, reasons
from chunkscope.planning.cost import cost_of, enough_in_flight, savings
from chunkscope.planning.engine_log import engine_starts, local_model, measured_in
from chunkscope.planning.plan import Plan, PlanSource, Refused
from chunkscope.planning.problem import Problem
from chunkscope.planning.request import (
    PlanRequest,
    chosen_datasets,
    client_concurrency,
)
from chunkscope.planning.rule import chunked, decide
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.simulation.result import GAPS
from chunkscope.simulation.workload import OutputOrigin, usual_order
from chunkscope.tokenizers.resolve import (
    DEFAULT_FILE,
    TIKTOKEN_NAMES,
    cached_tokenizer,
    resolve,
)
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, SendOrder
from chunkscope.vllm.flags import release

ALIKE = {"r50k_base": "gpt2", "o200k_base": "o200k_harmony"}  # but for special tokens
LENGTHS = " (lengths)"  # after the field of answers that are numbers of tokens
WORTH_SAYING = 0.05  # of the prompts' tokens: that they share so much


def recommend(
    profile: Profile | Name,
    request: PlanRequest | None = None,
    *,
    model: str | os.PathLike[str] | ModelShape | None = None,
    gpu: str | Gpu | None = None,
    vllm_version: str | None = None,
    entry: Entry | str | None = None,
    log: str | os.PathLike[str] | None = None,
    tick: Callable[[], None] = lambda: None,
    **asked: Any,
) -> Plan:
    """Choose vLLM's settings for the prompts of a profile, which may be the file it was saved to.

    What is asked is a `PlanRequest`, or its fields as keywords (see `PlanRequest.of`). Without a
    model, that of the profile's tokenizer is taken; without a GPU nothing can be simulated, and the
    length rule answers. What the `log` of an engine there says of memory goes before what is
    predicted; it names version and model, too. `tick` is called for each simulated run.

    >>> plan = recommend("reports/example/profile.json", mode="aggressive", task="loglikelihood")
    >>> plan.settings.given()
    {'long_prefill_token_threshold': 2303}
    """
    profile = Profile.load(profile)
    request = request or PlanRequest.of(**asked)
    starts = engine_starts(log) if log is not None else ()
    if starts:
        facts = next(s.facts for s in reversed(starts) if s.facts.version)
        vllm_version, name = (
            vllm_version or facts.version,
            facts.model or "a model without a name",
        )
        model = model or local_model(name) or local_model(Path(name).name)
        if model is None:
            hint = (
                "say what it is: --model llama-3.1-8b, or a folder with its config.json"
            )
            raise UsageError(f"the model in the log is not known: {name}", hint=hint)
    if model is None:
        model = local_model(
            profile.tokenizer.name.partition("@")[0]
        )  # whose tokenizer counted
    outputs = request.outputs(chosen_datasets(profile, request.dataset))
    logs = [
        dataset.log for dataset in profile.datasets
    ]  # of harnesses that call vLLM itself?
    calls = all(
        log and (log.harness == "lighteval" or log.order == LONGEST_FIRST)
        for log in logs
    )
    deployment = Engine(
        release=release(vllm_version),
        entry=one_of(Entry, entry or (Entry.LLM if calls else Entry.SERVE), "entry"),
        shape=find_model(model) if isinstance(model, (str, os.PathLike)) else model,
        gpu=find_gpu(gpu) if isinstance(gpu, str) else gpu,
        logprobs=any(output.is_scored for output in outputs),
    )
    if starts and log is not None:
        fit = measured_in(starts, log, deployment, request.settings)
        deployment = replace(deployment, measured=fit)
    p = replace(Problem.of(profile, request, deployment), tick=tick)
    _check_limits(p)
    decision = decide(p.lengths, request.rule, mode=request.mode)
    p = p.fitted()
    advice, tried = choose(p, decision)
    settings = p.advised(advice)
    chunk = settings.enable_chunked_prefill is not False and settings.chunk_tokens
    cost = cost_of(p, settings) if p.can_simulate and not request.is_open else None
    return Plan(
        advice=advice,
        settings=p.deployment.shortest(settings),
        reasons=tuple(reasons(p, advice, decision)),
        notes=tuple(_notes(p, profile, has_time=cost is not None)),
        request=request,
        deployment=p.deployment,
        source=PlanSource(profile_digest=profile.digest()),
        outputs=p.outputs,
        refused=Refused(
            prompts=p.refused,
            of=p.lengths.count,
            room_tokens=p.context - p.output_tokens,
        ),
        chunks=chunked(p.lengths, chunk or None, p.longest),
        decision=decision,
        decisions={
            d.name: decide(d.lengths, request.rule) for d in profile.datasets if d.rows
        },
        memory=p.memory(settings),
        tried=tried,
        cost=cost,
        savings=savings(p, settings, cost) if cost else (),
        client_requests=client_concurrency(p.request, p.datasets),
        in_flight=enough_in_flight(p, settings) if cost else None,
        version=__version__,
    )


def _check_limits(p: Problem) -> None:
    """Latencies are weighed on the simulator, and at a rate nothing else can be."""
    if p.request.is_open and not p.request.slo:
        why = "at a rate (--arrivals) settings are judged by latency, and no limit is given"
        hint = "add the latencies to keep: --slo ttft_p95=1s,itl_p99=50ms"
        raise UsageError(why, hint=hint)
    if p.request.slo and p.request.mode is not None:
        hint = "leave one out: --mode forces the length rule"
        raise UsageError(
            f"--slo and --mode {p.request.mode} cannot be used together", hint=hint
        )
    if p.request.slo and not p.can_simulate:
        hint = (
            "pass --model and a GPU from the table: `--model llama-3.1-8b --gpu h200`"
        )
        raise UsageError("--slo needs to know the model and the GPU's speed", hint=hint)


# -- what is worth saying ------------------------------------------------------------------------


MEDIA = ("not_counted", "media_rows")  # notes of a dataset with images and the like


def _notes(p: Problem, profile: Profile, *, has_time: bool) -> Iterator[Note]:
    there = p.deployment
    yield from _first_notes(p)
    yield from _answer_notes(p)
    has_media = any(n.code in MEDIA for dataset in p.datasets for n in dataset.notes)
    if has_media and has_time:
        yield note("media_not_timed")
    if p.can_simulate and not p.request.is_open and not has_time:
        yield note("no_time")
    if there.release.note:
        yield there.release.note
    if there.shape is not None:
        yield from p.request.output_notes(p.datasets)
    yield from _sent_notes(p)
    if there.shape:
        yield from filter(None, [tokenizer_note(profile, there.shape)])
        yield from there.shape.notes
    if there.measured:
        yield note("measured_in_log", log=there.measured.log)
    if there.gpu:
        yield from doubts(there.gpu)
    yield from there.notes(p.base, simulated=p.can_simulate)
    if p.can_simulate and p.request.slo and p.output_tokens > 1:  # they may be of gaps
        yield note("rough_gaps", **GAPS[p.request.is_open])


def _first_notes(p: Problem) -> Iterator[Note]:
    """Prompts that are refused, and turns that wait for each other."""
    limited = p.deployment.shape or p.request.settings.max_model_len
    if p.refused and limited:
        room = p.context - p.output_tokens
        of = p.lengths.count
        yield note(
            "prompts_refused", count=p.refused, of=of, context=p.context, room=room
        )
    agents = [d.log for d in p.datasets if d.log is not None and d.log.is_agent]
    if agents and p.can_simulate:
        samples = sum(log.documents for log in agents)
        requests = sum(log.requests for log in agents)
        yield note("agent_turns", requests=requests, samples=samples)


def _answer_notes(p: Problem) -> Iterator[Note]:
    """How the field of the answers was read."""
    fields = []
    for dataset, output in p.pairs:
        if output.origin is OutputOrigin.DATA and dataset.output_field:
            fields.append(dataset.output_field)
    for field in dict.fromkeys(fields):
        name = field.removesuffix(LENGTHS)
        code = "answers_are_texts" if name == field else "answers_are_lengths"
        yield note(code, field=name)


def _sent_notes(p: Problem) -> Iterator[Note]:
    """What prompts share, which the length rule does not know, and the order they are sent in."""
    reuse = reuse_together(
        [dataset.prefixes for dataset in p.datasets if dataset.prefixes]
    )
    tokens = max(1, p.lengths.total)
    read, unread = reuse.cached_tokens / tokens, reuse.unread_tokens / tokens
    if (given := p.request.shared_prefix) is not None:
        read, unread = float(given > 0), 0.0
    if max(read, unread) >= WORTH_SAYING:
        unserved = unread > read or all(output.is_scored for output in p.outputs)
        code = "shared_but_not_read" if unserved else "shared_prefixes"
        values = {"share": max(read, unread), "prefix": given}
        if reuse.is_partial and given is None:
            values |= {"compared": reuse.prompts, "prompts": reuse.out_of_prompts}
        yield note(code, **values)
    if (p.request.order or usual_order(p.datasets)) is SendOrder.LONGEST:
        yield Note(code="longest_first", values={"asked": p.request.order is not None})


# -- was it counted with the model's tokenizer? --------------------------------------------------


def tokenizer_note(profile: Profile, model: ModelShape) -> Note | None:
    """A note if lengths were or may have been counted with another tokenizer than the model's.
    Compares names in the table of models, else digests of local files: no network."""
    counted = profile.tokenizer
    plain = counted.name.partition("@")[0].removeprefix("tiktoken:")
    if counted.kind == "none" or plain.casefold() == model.load_name.casefold():
        return None
    ours, theirs = (
        getattr(known_model(name), "tokenizer", None)
        for name in (plain, model.load_name)
    )
    ours = ALIKE.get(plain, plain) if plain in TIKTOKEN_NAMES else ours
    ours = "tekken" if DEFAULT_FILE in plain else ours
    are_named = ours is not None and theirs is not None
    if ours == theirs if are_named else _digest(model.load_name) == counted.digest:
        return None
    values = {
        "tokenizer": counted.name,
        "name": model.name,
        "command": [*profile.command],
    }
    return note("other_tokenizer", **values)


def _digest(model: str) -> str | None:
    """None where its tokenizer is not on this machine."""
    try:
        files = (
            resolve(model)
            if Path(model).expanduser().exists()
            else cached_tokenizer(model)
        )
        return files.digest() if files else None
    except (ChunkscopeError, OSError):
        return None
