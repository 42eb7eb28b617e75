"""A profile, a model, a GPU and a vLLM version -> the plan for the run."""

import os
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from chunkscope._version import __version__
from chunkscope.costs.gpus import Gpu, doubts, find_gpu
from chunkscope.costs.memory import Memory
from chunkscope.costs.models import ModelShape, find_model
from chunkscope.costs.step_time import pair_flops, read_bytes
from chunkscope.engine.choices import Entry, Mode, Objective, Task
from chunkscope.engine.flags import Effective, broken_rules, release
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.profile import DatasetProfile, Profile, together
from chunkscope.planning.arguments import Settled, settle
from chunkscope.planning.latency import worst_step
from chunkscope.planning.plan import (
    Argument,
    Capacity,
    DatasetDecision,
    Forecast,
    Inputs,
    ModelInfo,
    Output,
    Plan,
    Reason,
    Refused,
    StepEstimate,
)
from chunkscope.planning.policy import DEFAULT_CUTS, Cuts, Decision, chunked, decide
from chunkscope.planning.problem import Situation
from chunkscope.planning.trial import Setting, can_be_tried, own_setting
from chunkscope.simulation.workload import Drawing, Request, draw_workload

DEFAULT_OUTPUT = 256
ASKED = "--max-output"
# A trial takes as many requests as show what a setting does, and no more than a moment.
TRIAL_REQUESTS = 2_048  # twice as many as the most that vLLM runs at once by itself
TRIAL_TOKENS = 1_000_000


def recommend(
    profile: Profile,
    *,
    model: str | os.PathLike[str] | ModelShape | None = None,
    gpu: str | Gpu | None = None,
    gpu_memory: str | None = None,
    tp: int = 1,
    vllm_version: str | None = None,
    mode: Mode | None = None,
    cuts: Cuts = DEFAULT_CUTS,
    dataset: str | None = None,
    objective: Objective = Objective.THROUGHPUT,
    max_itl_ms: float | None = None,
    task: Task = Task.GENERATE,
    max_output: int | None = None,
    entry: Entry = Entry.SERVE,
) -> Plan:
    """Choose mode and engine arguments for the prompts of a profile.

    Without a model there is no limit to cap at and no memory model; without a GPU neither, and
    vLLM's own choices are not known.
    """
    _check_options(objective, max_itl_ms, max_output)
    chosen = chosen_datasets(profile, dataset)
    shape = model if isinstance(model, ModelShape) else find_model(model) if model else None
    card = gpu if isinstance(gpu, Gpu) else find_gpu(gpu, memory=gpu_memory)
    if shape is not None:
        shape.check_parallel(tp)
    elif tp < 1:
        raise UsageError(f"--tp must be at least 1, not {tp}")
    output = _output(chosen, task, max_output)
    situation = Situation(
        lengths=together(chosen),
        output_tokens=output.tokens,
        release=release(vllm_version),
        entry=entry,
        task=task,
        objective=objective,
        max_itl_ms=max_itl_ms,
        shape=shape,
        gpu=card,
        tp=tp,
    )
    decision = decide(situation.lengths, cuts, mode=mode)
    inputs = _inputs(profile, situation, output, dataset, cuts)
    return _plan(profile, situation, decision, inputs, chosen)


def _plan(
    profile: Profile,
    s: Situation,
    decision: Decision,
    inputs: Inputs,
    chosen: tuple[DatasetProfile, ...],
) -> Plan:
    refused = _refused(s)
    s = replace(s, requests=_requests_to_try(s, chosen, inputs.output))
    settled = settle(s, decision, inputs.cuts)
    _check_result(s, settled)
    return Plan(
        mode=settled.mode,
        threshold=settled.threshold,
        decision=decision,
        decisions=_decisions(profile, inputs.cuts),
        chunks=chunked(s.lengths, settled.chunk),
        arguments=_arguments(settled),
        adjustments=_adjustments(settled),
        lost=settled.lost,
        warnings=_warnings(s, refused, inputs.output, profile),
        refused=refused,
        inputs=inputs,
        release=s.release,
        model=_model_info(s.shape, s.tp) if s.shape else None,
        gpu=s.gpu,
        memory=settled.memory,
        capacity=_capacity(s, settled.memory),
        step=_step(s, settled),
        forecast=_forecast(s, settled),
        version=__version__,
    )


# -- the options -------------------------------------------------------------------------------


def _check_options(objective: Objective, max_itl_ms: float | None, max_output: int | None) -> None:
    if max_itl_ms is not None and objective is not Objective.LATENCY:
        raise UsageError(
            "--max-itl-ms only means something with --objective latency",
            hint="add --objective latency, or leave --max-itl-ms out",
        )
    if max_output is not None and max_output < 1:
        raise UsageError(f"--max-output must be at least 1, not {max_output}")


def chosen_datasets(profile: Profile, name: str | None) -> tuple[DatasetProfile, ...]:
    filled = tuple(d for d in profile.datasets if d.rows)
    if not filled:
        raise InputError(
            "the profile has no prompts", hint="analyze a dataset with rows: `chunkscope analyze`"
        )
    if name is None:
        return filled
    found = tuple(d for d in filled if d.name == name)
    if not found:
        names = [d.name for d in filled]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the profile has: {', '.join(names[:10])}"
        raise UsageError(f"no such dataset in the profile: {name}", hint=hint)
    return found


def _output(datasets: Iterable[DatasetProfile], task: Task, asked: int | None) -> Output:
    """Room for the answer: as asked, else the longest the data shows, else 256."""
    if asked is not None:
        return Output(tokens=asked, origin=ASKED)
    if task is Task.LOGLIKELIHOOD:
        return Output(tokens=1, origin="a likelihood eval generates one token")
    longest, silent = 0, False
    for dataset in datasets:
        if dataset.output_lengths and dataset.output_lengths.max:
            longest = max(longest, dataset.output_lengths.max)
        else:
            silent = True
    if longest >= DEFAULT_OUTPUT or (longest and not silent):
        return Output(tokens=longest, origin="the longest output in the data")
    return Output(tokens=DEFAULT_OUTPUT, origin="the default, as the data does not say")


def _requests_to_try(
    s: Situation, datasets: tuple[DatasetProfile, ...], output: Output
) -> tuple[Request, ...]:
    """A sample of the prompts to simulate settings on; none where nobody knows the speed."""
    if s.step is None or s.engine is None:
        return ()
    how = Drawing(
        count=min(s.lengths.count, TRIAL_REQUESTS, max(256, TRIAL_TOKENS // _mean_tokens(s))),
        room=s.context,
        output=output.tokens if output.origin == ASKED else None,
        output_if_unknown=output.tokens,
        task=s.task,
    )
    return draw_workload(datasets, how).requests


def _mean_tokens(s: Situation) -> int:
    return max(1, round(s.lengths.mean or 0) + s.output_tokens)


def _inputs(
    profile: Profile, s: Situation, output: Output, dataset: str | None, cuts: Cuts
) -> Inputs:
    return Inputs(
        profile_digest=profile_digest(profile),
        profile_created=profile.created,
        tokenizer=profile.tokenizer.name,
        dataset=dataset,
        cuts=cuts,
        objective=s.objective,
        max_itl_ms=s.max_itl_ms,
        task=s.task,
        entry=s.entry,
        tp=s.tp,
        output=output,
    )


def profile_digest(profile: Profile) -> str:
    return profile.digest()


# -- the result --------------------------------------------------------------------------------


def _refused(s: Situation) -> Refused:
    room = s.context - s.output_tokens
    refused = Refused(prompts=s.lengths.over(room), of=s.lengths.count, room_tokens=room)
    if refused.prompts == refused.of:
        raise InputError(
            f"every prompt is longer than the model takes: {s.context:,} tokens, "
            f"{s.output_tokens:,} of them for the output",
            hint="choose a model with a longer context, or lower --max-output",
        )
    return refused


def _check_result(s: Situation, settled: Settled) -> None:
    """Never hand out arguments that this vLLM would refuse or that the memory model rules out."""
    if settled.memory is not None and not settled.memory.holds(s.context):
        raise InputError(
            f"no setting fits: one request of {s.context:,} tokens needs more KV cache than the "
            f"{settled.memory.kv_cache_gib:,.1f} GiB left",
            hint="take a larger GPU, more of them with --tp, or a quantized checkpoint",
        )
    values = {name: choice.value for name, choice in settled.choices.items()}
    budget = values["max_num_batched_tokens"]
    size = int(budget) if budget is not None else s.context
    seqs = values["max_num_seqs"]
    effective = Effective(
        max_model_len=s.context,
        max_num_batched_tokens=size,
        max_num_seqs=int(seqs) if seqs is not None else min(size, 1),
        long_prefill_token_threshold=int(values["long_prefill_token_threshold"] or 0),
        enable_chunked_prefill=bool(values["enable_chunked_prefill"]),
        gpu_memory_utilization=float(values["gpu_memory_utilization"] or 0),
        model_limit=s.shape.limit if s.shape else None,
    )
    broken = broken_rules(effective, s.release.version)
    if broken:
        raise AssertionError(f"vLLM {s.release.text} would refuse this plan: {broken[0]}")


def _decisions(profile: Profile, cuts: Cuts) -> tuple[DatasetDecision, ...]:
    filled = [dataset for dataset in profile.datasets if dataset.rows]
    prompts = sum(dataset.rows for dataset in filled)
    tokens = sum(dataset.lengths.total for dataset in filled)
    return tuple(
        DatasetDecision(
            name=dataset.name,
            decision=decide(dataset.lengths, cuts),
            share_of_prompts=dataset.rows / prompts,
            share_of_tokens=dataset.lengths.total / tokens if tokens else 0.0,
        )
        for dataset in filled
    )


def _arguments(settled: Settled) -> tuple[Argument, ...]:
    return tuple(
        Argument(
            name=name,
            value=choice.value,
            default=choice.default,
            set=choice.is_set,
            reason=choice.reason,
            label=choice.label,
        )
        for name, choice in settled.choices.items()
    )


def _adjustments(settled: Settled) -> tuple[Reason, ...]:
    return (Reason(subject="mode", text=settled.overruled),) if settled.overruled else ()


def _warnings(s: Situation, refused: Refused, output: Output, profile: Profile) -> tuple[str, ...]:
    found = [s.release.note] if s.release.note else []
    if refused.prompts:
        found.append(
            f"{refused.prompts:,} of {refused.of:,} prompts would be refused: longer than "
            f"{refused.room_tokens:,} tokens, the model's limit less the output"
        )
    if output.origin.startswith("the longest output") and output.tokens < DEFAULT_OUTPUT:
        found.append(
            f"the outputs in the data have at most {output.tokens:,} tokens: a model that reasons "
            "writes more, see --max-output"
        )
    sampled = sum(1 for dataset in profile.datasets if dataset.sample)
    if sampled:
        found.append(f"{sampled:,} datasets were only sampled: the longest prompt may be longer")
    found += doubts(s.gpu) if s.gpu else ()
    return (*found, *(s.shape.notes if s.shape else ()))


def _model_info(shape: ModelShape, tp: int) -> ModelInfo:
    return ModelInfo(
        name=shape.name,
        source=shape.source,
        hub_id=shape.hub_id,
        parameters=shape.parameters.total,
        weight_bytes=shape.weight_bytes,
        limit=shape.limit,
        quantization=shape.quantization.method if shape.quantization else None,
        kv_bytes_per_token=shape.kv_bytes_per_token(tp),
        activation_bytes_per_token=shape.activation_bytes_per_token(tp),
        notes=shape.notes,
        read_bytes=read_bytes(shape),
        active_parameters=shape.active_parameters,
        pair_flops=pair_flops(shape),
    )


def _capacity(s: Situation, memory: Memory | None) -> Capacity | None:
    if memory is None or s.shape is None:
        return None
    shape = s.shape

    def at_once(length: float) -> int:
        tokens = min(round(length) + s.output_tokens, s.context)
        return max(0, memory.kv_cache_bytes) // max(1, shape.kv_bytes_of(tokens, s.tp))

    return Capacity(
        p50=at_once(s.lengths.percentile(50) or 0),
        p95=at_once(s.lengths.percentile(95) or 0),
        longest=at_once(s.longest),
    )


def _step(s: Situation, settled: Settled) -> StepEstimate | None:
    budget, seqs = (settled.choices[n].value for n in ("max_num_batched_tokens", "max_num_seqs"))
    if s.step is None or budget is None or seqs is None:
        return None
    return StepEstimate(
        slowest_step_ms=worst_step(s, int(budget), int(seqs)) * 1000,
        prefill_tokens_per_s=s.step.tokens_per_second(int(budget)),
        origin=s.step.origin,
    )


def _forecast(s: Situation, settled: Settled) -> Forecast | None:
    """The plan beside vLLM's own setting, both simulated."""
    if settled.trials is None or not can_be_tried(s):
        return None
    values = {name: choice.value for name, choice in settled.choices.items()}
    planned = settled.trials.run(
        Setting(
            budget=int(values["max_num_batched_tokens"] or 1),
            seqs=int(values["max_num_seqs"] or 1),
            threshold=int(values["long_prefill_token_threshold"] or 0),
            chunking=bool(values["enable_chunked_prefill"]),
        )
    )
    if planned is None:
        return None
    default = settled.trials.run(own_setting(s))
    return Forecast(
        requests=planned.requests,
        makespan_s=planned.makespan_s,
        longest_gap_s=planned.itl_s.max if planned.itl_s else None,
        default_makespan_s=default.makespan_s if default else None,
        default_longest_gap_s=default.itl_s.max if default and default.itl_s else None,
    )
