"""A profile, a model, a GPU and a vLLM version -> the plan for the run."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.note import Note, Values, note, one_of
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.gpus import Gpu, doubts, find_gpu
from chunkscope.lengths.profile import Profile
from chunkscope.models import ModelShape, find_model
from chunkscope.models.find import known_model
from chunkscope.planning.case import Case
from chunkscope.planning.choose import choose
from chunkscope.planning.concurrency import concurrency_of
from chunkscope.planning.cost import cost_of, savings
from chunkscope.planning.engine_log import engine_starts, local_model, measured_in
from chunkscope.planning.fit import fit
from chunkscope.planning.plan import (
    Cost,
    Plan,
    PlanSource,
    Refused,
    advised_settings,
)
from chunkscope.planning.reasons import reasons
from chunkscope.planning.request import (
    PlanRequest,
    chosen_datasets,
)
from chunkscope.planning.rule import Chunks, Decision, chunked, decide
from chunkscope.planning.search import Search
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.simulation.draw import usual_order
from chunkscope.simulation.outputs import OutputOrigin
from chunkscope.simulation.result import GAPS
from chunkscope.tokenizers.resolve import (
    DEFAULT_FILE,
    TIKTOKEN_NAMES,
    cached_tokenizer,
    resolve,
)
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, SendOrder
from chunkscope.vllm.flags import release
from chunkscope.vllm.log.start import EngineStart
from chunkscope.vllm.settings import Settings

ALIKE = {"r50k_base": "gpt2", "o200k_base": "o200k_harmony"}  # but for special tokens
LENGTHS = " (lengths)"  # after the field of answers that are numbers of tokens
WORTH_SAYING = 0.05  # of the prompts' tokens: that they share so much
MEDIA = ("not_counted", "media_rows")  # notes of a dataset with images and the like


def recommend(  # noqa: PLR0913  (all by name)
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
    """Choose vLLM's settings for the prompts of a profile, which may be a saved file.

    What is asked is a `PlanRequest`, or its fields as keywords (see `PlanRequest.of`).
    Without a model, that of the profile's tokenizer is taken; without a GPU nothing can
    be simulated, and the length rule answers. What the `log` of an engine there says of
    memory goes before what is predicted; it names version and model, too. `tick` is
    called for each simulated run.

    >>> profile = "reports/example/profile.json"
    >>> plan = recommend(profile, mode="aggressive", task="loglikelihood")
    >>> plan.settings.given()
    {'long_prefill_token_threshold': 2303}
    """
    profile = Profile.load(profile)
    if request is None:
        request = PlanRequest.of(**asked)
    starts: Sequence[EngineStart] = ()
    if log is not None:
        starts = engine_starts(log)
        vllm_version = vllm_version or logged_version(starts)
        model = model or logged_model(starts)
    if model is None:
        model = model_of_tokenizer(profile)
    engine = engine_for(
        profile, request, model=model, gpu=gpu, vllm_version=vllm_version, entry=entry
    )
    if log is not None:
        measured = measured_in(starts, log, engine, request.settings)
        engine = replace(engine, measured=measured)
    case = Case.of(profile, request, engine)
    check_limits(case)
    return plan_for(fit(case), profile, tick)


def plan_for(case: Case, profile: Profile, tick: Callable[[], None]) -> Plan:
    """The plan of a case that fits its GPU."""
    answer = None
    if case.has_sessions:
        # How many are under way decides what settings do.
        answer = concurrency_of(Search(case, tick), case.default)
        if answer is not None:
            case = replace(case, advised_samples=answer.advised)
    search = Search(case, tick)
    decision = decide(case.lengths, case.request.rule, mode=case.request.mode)
    advice, tried = choose(search, decision)
    settings = advised_settings(advice, case.request, case.engine)
    cost = predicted_cost(search, settings)
    if answer is None or settings != case.default:
        answer = concurrency_of(search, settings)
    return Plan(
        advice=advice,
        settings=case.engine.shortest(settings),
        reasons=tuple(reasons(case, advice, decision)),
        notes=tuple(notes_of(case, profile, has_time=cost is not None)),
        request=case.request,
        deployment=case.engine,
        source=PlanSource(profile_digest=profile.digest()),
        outputs=case.outputs,
        refused=Refused(
            prompts=case.refused,
            of=case.lengths.count,
            room_tokens=case.context - case.output_tokens,
        ),
        chunks=chunks_of(case, settings),
        decision=decision,
        decisions=decisions_of(profile, case.request),
        memory=case.memory(settings),
        tried=tried,
        cost=cost,
        savings=savings(search, settings, cost, answer) if cost else (),
        concurrency=answer,
        version=__version__,
    )


def predicted_cost(search: Search, settings: Settings) -> Cost | None:
    """None where nobody knows it; at a rate the arrivals decide how long it takes."""
    if not search.case.can_simulate or search.case.request.is_open:
        return None
    return cost_of(search, settings)


def chunks_of(case: Case, settings: Settings) -> Chunks:
    """What the settings do to the prompts that are served."""
    size = None
    if settings.enable_chunked_prefill is not False:
        size = settings.chunk_tokens or None
    return chunked(case.lengths, size, case.longest)


def decisions_of(profile: Profile, request: PlanRequest) -> dict[str, Decision]:
    """The length rule's for each dataset."""
    decisions = {}
    for dataset in profile.datasets:
        if dataset.rows:
            decisions[dataset.name] = decide(dataset.lengths, request.rule)
    return decisions


# -- where it runs ---------------------------------------------------------------------


def engine_for(  # noqa: PLR0913  (all by name)
    profile: Profile,
    request: PlanRequest,
    *,
    model: str | os.PathLike[str] | ModelShape | None,
    gpu: str | Gpu | None,
    vllm_version: str | None,
    entry: Entry | str | None,
) -> Engine:
    """The engine of that model, GPU and version; its entry may follow from the data."""
    if entry is None:
        entry = Entry.LLM if calls_vllm_itself(profile) else Entry.SERVE
    shape = model
    if isinstance(shape, (str, os.PathLike)):
        shape = find_model(shape)
    outputs = request.outputs_of(chosen_datasets(profile, request.dataset))
    return Engine(
        release=release(vllm_version),
        entry=one_of(Entry, entry, "entry"),
        shape=shape,
        gpu=find_gpu(gpu) if isinstance(gpu, str) else gpu,
        logprobs=any(output.is_scored for output in outputs),
    )


def calls_vllm_itself(profile: Profile) -> bool:
    """Is all of it from harnesses that use the `LLM` class?"""
    for dataset in profile.datasets:
        log = dataset.log
        if log is None:
            return False
        if log.harness != "lighteval" and log.order != LONGEST_FIRST:
            return False
    return True


def logged_version(starts: Sequence[EngineStart]) -> str | None:
    """The version in an engine's log: that of its last start."""
    versions = [start.facts.version for start in starts if start.facts.version]
    return versions[-1] if versions else None


def logged_model(starts: Sequence[EngineStart]) -> ModelShape:
    """The model in an engine's log; UsageError where it is not known here."""
    named = [start.facts.model for start in starts if start.facts.version]
    name = named[-1] or "a model without a name"
    model = local_model(name) or local_model(Path(name).name)
    if model is None:
        raise UsageError(
            f"the model in the log is not known: {name}",
            hint="say what it is: --model llama-3.1-8b, or a folder with its "
            "config.json",
        )
    return model


def model_of_tokenizer(profile: Profile) -> ModelShape | None:
    """The model whose tokenizer counted the prompts, where it is known here."""
    return local_model(profile.tokenizer.name.partition("@")[0])


def check_limits(case: Case) -> None:
    """UsageError where latencies cannot be weighed: only the simulator knows them."""
    request = case.request
    if request.is_open and not request.slo:
        raise UsageError(
            "at a rate (--arrivals) settings are judged by latency, and no limit is "
            "given",
            hint="add the latencies to keep: --slo ttft_p95=1s,itl_p99=50ms",
        )
    if request.slo and request.mode is not None:
        raise UsageError(
            f"--slo and --mode {request.mode} cannot be used together",
            hint="leave one out: --mode forces the length rule",
        )
    if request.slo and not case.can_simulate:
        raise UsageError(
            "--slo needs to know the model and the GPU's speed",
            hint="pass --model and a GPU from the table: `--model llama-3.1-8b --gpu "
            "h200`",
        )


# -- what is worth saying --------------------------------------------------------------


def notes_of(case: Case, profile: Profile, *, has_time: bool) -> Iterator[Note]:
    """In the order in which they matter."""
    yield from refusal_notes(case)
    yield from answer_notes(case)
    yield from time_notes(case, has_time=has_time)
    if case.engine.release.note:
        yield case.engine.release.note
    if case.engine.shape is not None:
        yield from case.request.output_notes(case.datasets)
    yield from sharing_notes(case)
    order = case.request.order or usual_order(case.datasets)
    if order is SendOrder.LONGEST:
        yield note("longest_first", asked=case.request.order is not None)
    yield from machine_notes(case, profile)


def refusal_notes(case: Case) -> Iterator[Note]:
    """Prompts that vLLM will refuse."""
    limited = case.engine.shape or case.request.settings.max_model_len
    if case.refused and limited:
        yield note(
            "prompts_refused",
            count=case.refused,
            of=case.lengths.count,
            context=case.context,
            room=case.context - case.output_tokens,
        )


def answer_notes(case: Case) -> Iterator[Note]:
    """How the fields of the answers were read."""
    fields: dict[str, None] = {}  # in order
    for dataset, output in case.pairs:
        if output.origin is OutputOrigin.DATA and dataset.output_field:
            fields[dataset.output_field] = None
    for field in fields:
        name = field.removesuffix(LENGTHS)
        code = "answers_are_texts" if name == field else "answers_are_lengths"
        yield note(code, field=name)


def time_notes(case: Case, *, has_time: bool) -> Iterator[Note]:
    """What the predicted time leaves out, or that there is none."""
    codes = []
    for dataset in case.datasets:
        codes += [note.code for note in dataset.notes]
    if has_time and any(code in MEDIA for code in codes):
        yield note("media_not_timed")
    if case.can_simulate and not case.request.is_open and not has_time:
        yield note("no_time")


def sharing_notes(case: Case) -> Iterator[Note]:
    """What prompts share, which the length rule does not know."""
    measured = [dataset.prefixes for dataset in case.datasets if dataset.prefixes]
    reuse = reuse_together(measured)
    tokens = max(1, case.lengths.total)
    read = reuse.cached_tokens / tokens
    unread = reuse.unread_tokens / tokens
    asked = case.request.shared_prefix
    if asked is not None:
        read = 1.0 if asked > 0 else 0.0
        unread = 0.0
    share = max(read, unread)
    if share < WORTH_SAYING:
        return
    all_scored = all(output.is_scored for output in case.outputs)
    code = "shared_prefixes"
    if unread > read or all_scored:
        code = "shared_but_not_read"
    values: Values = {"share": share, "prefix": asked}
    if asked is None:
        values |= compared_values(reuse)
    yield note(code, **values)


def compared_values(reuse: PrefixReuse) -> Values:
    """How many prompts were compared, where not all were."""
    if not reuse.is_partial:
        return {}
    return {"compared": reuse.prompts, "prompts": reuse.out_of_prompts}


def machine_notes(case: Case, profile: Profile) -> Iterator[Note]:
    """Doubts about the tokenizer, the model, the GPU and its predictions."""
    engine = case.engine
    if engine.shape is not None:
        other = tokenizer_note(profile, engine.shape)
        if other is not None:
            yield other
        yield from engine.shape.notes
    if engine.measured is not None:
        yield note("measured_in_log", log=engine.measured.log)
    if engine.gpu is not None:
        yield from doubts(engine.gpu)
    yield from engine.notes(case.base, simulated=case.can_simulate)
    has_gaps = case.output_tokens > 1
    if case.can_simulate and case.request.slo and has_gaps:
        yield note("rough_gaps", **GAPS[case.request.is_open])


# -- was it counted with the model's tokenizer? ----------------------------------------


def tokenizer_note(profile: Profile, model: ModelShape) -> Note | None:
    """A note if lengths were or may have been counted with another tokenizer.

    Names are compared in the table of models, else digests of local files: no network.
    """
    counted = profile.tokenizer
    name = counted.name.partition("@")[0].removeprefix("tiktoken:")
    if counted.kind == "none" or name.casefold() == model.load_name.casefold():
        return None
    ours = counted_tokenizer(name)
    theirs = table_tokenizer(model.load_name)
    if ours is not None and theirs is not None:
        is_same = ours == theirs
    else:
        is_same = tokenizer_digest(model.load_name) == counted.digest
    if is_same:
        return None
    return note(
        "other_tokenizer",
        tokenizer=counted.name,
        name=model.name,
        command=[*profile.command],
    )


def counted_tokenizer(name: str) -> str | None:
    """The table's name of the tokenizer that counted; None if it has none."""
    if DEFAULT_FILE in name:
        return "tekken"
    if name in TIKTOKEN_NAMES:
        return ALIKE.get(name, name)
    return table_tokenizer(name)


def table_tokenizer(model: str) -> str | None:
    known = known_model(model)
    return known.tokenizer if known is not None else None


def tokenizer_digest(model: str) -> str | None:
    """None where its tokenizer is not on this machine."""
    try:
        if Path(model).expanduser().exists():
            return resolve(model).digest()
        files = cached_tokenizer(model)
        return files.digest() if files else None
    except (ChunkscopeError, OSError):
        return None
