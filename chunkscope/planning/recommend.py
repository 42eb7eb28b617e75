"""A profile, a model, a GPU and a vLLM version -> the plan for the run."""

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from chunkscope._version import __version__
from chunkscope.artefacts.words import Name, one_of
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.gpus import Gpu, doubts, find_gpu
from chunkscope.hardware.memory import Memory
from chunkscope.hardware.model_kind import unlike_measured
from chunkscope.hardware.parallel import Parallel
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile, Profile, together
from chunkscope.models import ModelShape, find_model
from chunkscope.planning import emit  # noqa: F401  (so that the plan can be written down)
from chunkscope.planning.arguments import Settled, rule_settings, settle
from chunkscope.planning.cost import cost
from chunkscope.planning.engine_log import (
    engine_lives,
    logged_model,
    logged_version,
    measured_in,
    told,
)
from chunkscope.planning.latency import worst_step
from chunkscope.planning.plan import (
    ASKED,
    ASSUMED_OUTPUT,
    Capacity,
    DatasetDecision,
    Forecast,
    Inputs,
    Output,
    Plan,
    Reason,
    Refused,
    StepEstimate,
    assumed_output,
)
from chunkscope.planning.policy import DEFAULT_CUTS, Cuts, Decision, chunked, decide
from chunkscope.planning.problem import Problem
from chunkscope.planning.requests import RequestSource, shared_sentence
from chunkscope.planning.search import Trials
from chunkscope.planning.tokenizer_match import tokenizer_doubt
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import BATCH, arrival_rate
from chunkscope.vllm.choices import Basis, Entry, KvCacheType, Mode, Objective, SendOrder, Task
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings


def recommend(
    profile: Profile | Name,
    *,
    model: str | os.PathLike[str] | ModelShape | None = None,
    gpu: str | Gpu | None = None,
    gpu_memory: str | None = None,
    tp: int = 1,
    dp: int = 1,
    ep: bool = False,
    vllm_version: str | None = None,
    mode: Mode | str | None = None,
    cuts: Cuts = DEFAULT_CUTS,
    dataset: str | None = None,
    objective: Objective | str = Objective.THROUGHPUT,
    max_itl_ms: float | None = None,
    task: Task | str = Task.GENERATE,
    max_output: int | None = None,
    max_model_len: int | None = None,
    shared_prefix: int | None = None,
    order: SendOrder | str | None = None,
    entry: Entry | str = Entry.SERVE,
    policy: Basis | str = Basis.EVIDENCE,
    price_per_hour: float | None = None,
    slo: str | None = None,
    arrivals: str | None = None,
    concurrency: int | None = None,
    log: str | os.PathLike[str] | None = None,
    kv_cache_dtype: KvCacheType | str = KvCacheType.AUTO,
) -> Plan:
    """Choose mode and engine arguments for the prompts of a profile.

    Without a model there is no limit to cap at and no memory model; without a GPU neither, and
    vLLM's own choices are not known. The profile may be the file it was saved to. What the `log` of
    an engine there says of memory goes before what is predicted; it names version and model, too.

    >>> plan = recommend("reports/example/profile.json", mode="aggressive", task="loglikelihood")
    >>> plan
    <Plan aggressive, ... 2303>
    >>> plan.emit("json")
    '{\\n  "long_prefill_token_threshold": 2303\\n}'
    >>> recommend("reports/example/profile.json", objective="speed")
    Traceback (most recent call last):
    ...
    chunkscope.errors.UsageError: objective is 'speed', which is none of: throughput, latency
    """
    profile = Profile.given(profile)
    mode, objective = one_of(Mode, mode, "mode"), one_of(Objective, objective, "objective")
    task, order = one_of(Task, task, "task"), one_of(SendOrder, order, "order")
    entry, policy = one_of(Entry, entry, "entry"), one_of(Basis, policy, "policy")
    kept = one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype")
    _check_options(objective, max_itl_ms, max_output, price_per_hour)
    chosen = chosen_datasets(profile, dataset)
    lives = engine_lives(log) if log is not None else ()
    if lives:
        vllm_version, model = vllm_version or logged_version(lives), model or logged_model(lives)
    shape = model if isinstance(model, ModelShape) else find_model(model) if model else None
    card = gpu if isinstance(gpu, Gpu) else find_gpu(gpu, memory=gpu_memory)
    if shape is not None:
        shape.check_parallel(tp)
    elif tp < 1:
        raise UsageError(f"--tp must be at least 1, not {tp}")
    _check_replicas(Parallel(tensor=tp, data=dp, by_expert=ep), shape, entry)
    output = _output(chosen, task, max_output)
    lengths = together(chosen)
    limits = read_slo(slo)
    problem = Problem(
        slo=limits,
        concurrency=concurrency,
        lengths=lengths,
        output_tokens=output.tokens,
        deployment=Deployment(
            release=release(vllm_version),
            entry=entry,
            shape=shape,
            gpu=card,
            logprobs=task is Task.LOGLIKELIHOOD,
        ),
        base=Settings(
            max_model_len=max_model_len,
            tensor_parallel_size=tp,
            data_parallel_size=dp if dp > 1 else None,
            enable_expert_parallel=ep or None,
            kv_cache_dtype=None if kept is KvCacheType.AUTO else kept.value,
        ),
        asked_context=max_model_len is not None,
        task=task,
        objective=objective,
        max_itl_ms=max_itl_ms,
    )
    if lives and log is not None:
        fit = measured_in(lives, log, problem.deployment, problem.base)
        problem = replace(problem, deployment=replace(problem.deployment, measured=fit))
        shared_prefix = _found_again(problem, shared_prefix)
    _check_room(problem)
    _refused(problem)  # an error where no prompt is served: nothing could be tried
    if problem.step is not None:
        source = RequestSource(
            datasets=chosen,
            output=output,
            task=task,
            shared_prefix=shared_prefix,
            order=order,
            arrivals=arrivals or BATCH,
        )
        problem = replace(problem, requests=source)
    decision = decide(lengths, cuts, mode=mode)
    _check_limits(problem, arrivals, is_ruled=decision.forced or policy is Basis.LENGTHS)
    inputs = _inputs(profile, problem, output, dataset, cuts)
    settled = settle(problem, decision, policy if problem.requests else Basis.LENGTHS)
    rule = rule_settings(problem, decide(lengths, cuts))
    return replace(_plan(profile, settled, decision, inputs, price_per_hour), rule=rule)


def _plan(
    profile: Profile,
    settled: Settled,
    decision: Decision,
    inputs: Inputs,
    price_per_hour: float | None,
) -> Plan:
    p = settled.problem
    _check_result(p, settled)
    refused = _refused(p)
    trials = settled.trials
    return Plan(
        mode=settled.mode,
        threshold=settled.threshold,
        decision=decision,
        decisions=_decisions(profile, inputs.cuts),
        chunks=chunked(p.lengths, settled.chunk),
        arguments=settled.arguments,
        adjustments=_adjustments(settled),
        lost=settled.lost,
        warnings=_warnings(p, inputs.output, profile),
        refused=refused,
        inputs=inputs,
        release=p.deployment.release,
        model=p.deployment.shape,
        gpu=p.deployment.gpu,
        memory=settled.memory,
        measured=p.deployment.measured,
        capacity=_capacity(p, settled.memory),
        step=_step(p, settled.settings),
        forecast=_forecast(settled, trials) if trials and not p.is_open else None,
        cost=cost(trials, settled.settings, price_per_hour) if trials and not p.is_open else None,
        basis=settled.basis,
        advice=settled.advice,
        tried=settled.proof.rows if settled.proof else (),
        version=__version__,
    )


# -- the options -------------------------------------------------------------------------------


def _check_options(
    objective: Objective,
    max_itl_ms: float | None,
    max_output: int | None,
    price_per_hour: float | None,
) -> None:
    if price_per_hour is not None and not 0 < price_per_hour < math.inf:
        raise UsageError(f"--price-per-hour must be over 0, not {price_per_hour:g}")
    if max_itl_ms is not None and objective is not Objective.LATENCY:
        raise UsageError(
            "--max-itl-ms only means something with --objective latency",
            hint="add --objective latency, or leave --max-itl-ms out",
        )
    if max_output is not None and max_output < 1:
        raise UsageError(f"--max-output must be at least 1, not {max_output}")


def _check_replicas(parallel: Parallel, shape: ModelShape | None, entry: Entry) -> None:
    parallel.check(shape)
    if parallel.data > 1 and entry is Entry.LLM:
        raise UsageError(
            "--dp is for `vllm serve`: vLLM's LLM class starts one replica",
            hint="leave out --dp, or choose --entry serve",
        )


def _check_limits(p: Problem, arrivals: str | None, *, is_ruled: bool) -> None:
    """Latencies are weighed on the simulator, and for their own sake."""
    if arrivals is not None and arrival_rate(arrivals) is not None and not p.slo:
        raise UsageError(
            "--arrivals at a rate decide how long the run takes: there is nothing to gain",
            hint="say which latencies to keep: --slo ttft_p95=1s,itl_p99=50ms",
        )
    if not p.slo:
        return
    if p.requests is None:
        raise UsageError(
            "--slo needs to know the model and the GPU's speed",
            hint="pass --model and a GPU from the table: `--model llama-3.1-8b --gpu h200`",
        )
    if p.objective is Objective.LATENCY or is_ruled:
        other = "--objective latency" if p.objective is Objective.LATENCY else "the length rule"
        raise UsageError(
            f"--slo and {other} both decide",
            hint="leave one out; --max-itl-ms 50 is --slo itl_max=50ms",
        )


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
    answering = [d for d in datasets if not (d.log and d.log.only_scored)]
    if task is Task.LOGLIKELIHOOD or not answering:
        return Output(tokens=1, origin="a likelihood eval generates one token")
    longest, silent = 0, False
    for dataset in answering:
        if dataset.output_lengths and dataset.output_lengths.max:
            longest = max(longest, dataset.output_lengths.max)
        else:
            silent = True
    if longest >= DEFAULT_OUTPUT or (longest and not silent):
        return Output(tokens=longest, origin="the longest output in the data")
    return Output(tokens=DEFAULT_OUTPUT, origin=ASSUMED_OUTPUT)


def _inputs(
    profile: Profile, p: Problem, output: Output, dataset: str | None, cuts: Cuts
) -> Inputs:
    return Inputs(
        profile_digest=profile_digest(profile),
        profile_created=profile.created,
        tokenizer=profile.tokenizer.name,
        dataset=dataset,
        cuts=cuts,
        objective=p.objective,
        max_itl_ms=p.max_itl_ms,
        task=p.task,
        entry=p.deployment.entry,
        tp=p.tp,
        output=output,
        shared_prefix=p.requests.shared_prefix if p.requests else None,
        order=p.requests.sent_in if p.requests else None,
        slo=p.slo,
        arrivals=p.requests.arrivals if p.requests and p.is_open else None,
        concurrency=p.concurrency,
    )


def profile_digest(profile: Profile) -> str:
    return profile.digest()


def _found_again(p: Problem, asked: int | None) -> int | None:
    """As many tokens at the start of every prompt as the log's prefix cache found on average."""
    rate = p.deployment.measured.hit_rate if p.deployment.measured else None
    if asked is not None or rate is None or p.task is Task.LOGLIKELIHOOD:
        return asked
    return round(rate * (p.lengths.mean or 0))


# -- the result --------------------------------------------------------------------------------


def _check_room(p: Problem) -> None:
    """An output that leaves no room for any prompt, or a context over the model's own."""
    limit = p.deployment.shape.limit if p.deployment.shape else None
    context = p.base.max_model_len
    if limit and context and context > limit:
        raise UsageError(
            f"max_model_len {context:,} is over the model's limit of {limit:,}",
            hint="leave it out: vLLM takes the model's own",
        )
    room = context or limit
    if room and p.output_tokens >= room:
        raise UsageError(
            f"an output of {p.output_tokens:,} tokens leaves no room for a prompt: "
            f"the model takes {room:,}",
            hint="lower --max-output",
        )


def _refused(p: Problem) -> Refused:
    room = p.context - p.output_tokens
    refused = Refused(
        prompts=p.lengths.over(room),
        of=p.lengths.count,
        room_tokens=room,
        too_long=p.lengths.over(p.context - 1),
    )
    if refused.prompts == refused.of:
        raise InputError(
            f"every prompt is longer than the model takes: {p.context:,} tokens, "
            f"{p.output_tokens:,} of them for the output",
            hint="choose a model with a longer context, or lower --max-output",
        )
    return refused


def _check_result(p: Problem, settled: Settled) -> None:
    """Never hand out arguments that this vLLM would refuse or that the memory model rules out."""
    if settled.memory is not None and not settled.memory.holds(p.context):
        raise InputError(
            f"no setting fits: one request of {p.context:,} tokens needs more KV cache than the "
            f"{settled.memory.kv_cache_gib:,.1f} GiB left",
            hint="take a larger GPU, more of them with --tp, or a quantized checkpoint",
        )
    refusals = p.deployment.refusals(settled.settings)
    fit = p.deployment.measured
    if refusals and fit and fit.failed_as(p.deployment.effective(settled.settings)):
        raise InputError(
            f"no setting is left that did not fail before: {refusals[0]}",
            hint="take a larger GPU, more of them with --tp, or a quantized checkpoint",
        )
    if refusals:
        text = p.deployment.release.text
        raise AssertionError(f"vLLM {text} would refuse this plan: {refusals[0]}")


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


def _adjustments(settled: Settled) -> tuple[Reason, ...]:
    return (Reason(subject="mode", text=settled.overruled),) if settled.overruled else ()


def _warnings(p: Problem, output: Output, profile: Profile) -> tuple[str, ...]:
    release, shape, gpu = p.deployment.release, p.deployment.shape, p.deployment.gpu
    found = [release.note] if release.note else []
    if output.assumed and p.deployment.shape is not None:
        found.append(assumed_output(output.tokens))
    if output.origin.startswith("the longest output") and output.tokens < DEFAULT_OUTPUT:
        found.append(
            f"the outputs in the data have at most {output.tokens:,} tokens: a model that reasons "
            "writes more, see --max-output"
        )
    sampled = sum(1 for dataset in profile.datasets if dataset.sample)
    if sampled:
        found.append(f"{sampled:,} datasets were only sampled: the longest prompt may be longer")
    if p.requests:
        shared = shared_sentence(p.requests.datasets, p.requests.shared_prefix, p.task)
        found += [shared] if shared else []
        if p.requests.sent_in is SendOrder.LONGEST:
            why = "as asked" if p.requests.order else "as lm-eval sends its tasks together"
            found.append(f"assuming that requests are sent longest first, {why}")
    if shape and (doubt := tokenizer_doubt(profile.tokenizer, shape)):
        found.append(doubt)
    if shape and (unlike := unlike_measured(shape)):
        found.append(unlike)
    found += [told(p.deployment.measured)] if p.deployment.measured else []
    found += doubts(gpu) if gpu else ()
    found += p.deployment.unmeasured(p.base)
    found += p.deployment.uncovered(p.base) if p.requests else ()
    return (*found, *(shape.notes if shape else ()))


def _capacity(p: Problem, memory: Memory | None) -> Capacity | None:
    if memory is None:
        return None

    def at_once(length: float) -> int:
        tokens = min(round(length) + p.output_tokens, p.context)
        return p.deployment.requests_of(tokens, memory, p.base) * p.parallel.data

    return Capacity(
        p50=at_once(p.lengths.percentile(50) or 0),
        p95=at_once(p.lengths.percentile(95) or 0),
        longest=at_once(p.longest),
    )


def _step(p: Problem, settings: Settings) -> StepEstimate | None:
    budget, seqs = settings.max_num_batched_tokens, settings.max_num_seqs
    if p.step is None or budget is None or seqs is None:
        return None
    return StepEstimate(
        slowest_step_ms=worst_step(p, budget, seqs) * 1000,
        prefill_tokens_per_s=p.step.tokens_per_second(budget),
        origin=p.step.origin,
    )


def _forecast(settled: Settled, trials: Trials) -> Forecast | None:
    """The plan beside vLLM's own setting, both simulated on the same requests."""
    planned = trials.run(settled.settings)
    if planned is None:
        return None
    default = trials.run(settled.proof.own if settled.proof else settled.problem.own)
    return Forecast(
        requests=planned.requests,
        makespan_s=planned.figures.makespan_s,
        longest_gap_s=planned.figures.longest_gap_s,
        default_makespan_s=default.figures.makespan_s if default else None,
        default_longest_gap_s=default.figures.longest_gap_s if default else None,
        most_running=planned.most_running,
    )
