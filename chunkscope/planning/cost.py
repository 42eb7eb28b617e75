"""How long the run takes and how sure that is; what would save most, by what was counted."""

from collections.abc import Iterator
from dataclasses import asdict, replace

from chunkscope.artefacts.note import Values
from chunkscope.hardware.accuracy import nearest_measured
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.planning.choose import WORTH
from chunkscope.planning.plan import Cost, Saving, Work
from chunkscope.planning.problem import Problem
from chunkscope.planning.request import client_concurrency
from chunkscope.vllm.rules import Version
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
MOST_DATASETS = 12  # that are simulated one by one
SEEN_SCORED = (
    15.7 / 13.6
)  # MMLU by likelihoods on an H200: measured, of predicted (reports/h200)
MOST = 3  # savings that are named
AS_FAST = 1.02  # times as long as a run with more requests under way
SIMULATED = 4_000  # requests of a changed workload: more take as long in proportion
GENERATIVE_SCORING: Version = (0, 20, 0)  # the first with /generative_scoring
READS_CACHE: Version = (
    0,
    31,
    0,
)  # the first whose likelihood requests may read the prefix cache


def cost_of(p: Problem, settings: Settings) -> Cost | None:
    """Of all prompts with this setting; None if it cannot run. The range comes from varying what is
    assumed on a part of the requests."""
    if (whole := work_of(p, p.datasets, settings)) is None:
        return None
    runs = [p.part.attempt(settings)]
    for simulator in (*p.hosts.values(), *p.varied.values()):
        runs.append(simulator.attempt(settings))
    seconds = [run.figures.makespan_s for run in runs if run]
    ratios = [one / seconds[0] for one in seconds]
    scored, shape = any(output.is_scored for output in p.outputs), p.deployment.shape
    least, most = 0.0, 0.0
    if shape is not None:
        nearest = nearest_measured(shape)
        least, most = nearest.least, nearest.most
    slower = max(1, 1 / (1 + least), SEEN_SCORED if scored else 1)
    by_size = sorted(p.datasets, key=lambda dataset: -dataset.lengths.total)
    largest = by_size[:MOST_DATASETS] if len(p.datasets) > 1 else []
    alone = {d.name: work_of(p, (d,), settings) for d in p.datasets if d in largest}
    return Cost(
        **asdict(whole),
        least_hours=whole.hours * min(ratios) / max(1, 1 + most),
        most_hours=whole.hours * max(ratios) * slower,
        varied=(*p.hosts, *p.varied, "seen_on_gpus"),
        datasets={name: work for name, work in alone.items() if work},
    )


def work_of(
    p: Problem, datasets: tuple[DatasetProfile, ...], settings: Settings
) -> Work | None:
    """Requests, tokens and hours of these datasets; None if they cannot run. Prompts beyond those
    that are simulated take as long as these."""
    p = _only(p, datasets)
    served = p.lengths.count - p.refused
    if not served or (run := p.simulator().attempt(settings)) is None:
        return None
    times = served / run.requests
    return Work(
        requests=round(run.requests * times),
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=run.figures.makespan_s * times / HOUR_S,
    )


def _only(p: Problem, datasets: tuple[DatasetProfile, ...]) -> Problem:
    if datasets == p.datasets:
        return p
    names = {dataset.name for dataset in datasets}
    asked = {
        name: most for name, most in p.request.max_outputs.items() if name in names
    }
    return replace(p, datasets=datasets, request=replace(p.request, max_outputs=asked))


def savings(p: Problem, settings: Settings, cost: Cost) -> tuple[Saving, ...]:
    """The largest first, by predicted time and then by tokens."""
    every = [
        *_scored_contexts(p, settings),
        *_beginnings(p, settings, cost),
        *_repeated(p, settings, cost),
        *_few_in_flight(p, settings, cost),
    ]
    every = [_within(one, cost) for one in every]
    worth = [
        one for one in every if one.hours is None or one.hours >= WORTH * cost.hours
    ]
    return tuple(
        sorted(worth, key=lambda s: (-(s.hours or 0.0), -(s.tokens or 0)))[:MOST]
    )


def _within(saving: Saving, cost: Cost) -> Saving:
    """No saving is larger than the run."""
    if saving.hours is None:
        return saving
    return replace(saving, hours=min(saving.hours, cost.hours))


def _scored_contexts(p: Problem, settings: Settings) -> Iterator[Saving]:
    """Likelihood requests compute a context once for each choice. If choices are single tokens, one
    generated token scores all; else newer versions can read the context from the cache."""
    version, reads = p.deployment.release.version, {}
    scored = [d for d, output in p.pairs if output.is_scored]
    for dataset in scored:
        scoring = dataset.prefixes.scoring if dataset.prefixes else None
        if scoring is not None and scoring.contexts < scoring.requests:
            reads[dataset.name] = scoring
    single = tuple(d for d in scored if d.name in reads and reads[d.name].single_token)
    others = [d for d in scored if d.name in reads and d not in single]
    today = work_of(p, single, settings) if single else None
    contexts = round(sum(d.rows / reads[d.name].reads for d in single))
    once = _generated(p, single, settings, contexts) if today else None
    if today is not None and once is not None:
        computed, hours = once
        how = "generative_scoring" if version >= GENERATIVE_SCORING else "next_token"
        values: Values = {
            "dataset": single[0].name,
            "others": len(single) - 1,
            "how": how,
        }
        yield Saving(
            code="score_contexts_once", tokens=max(0, today.input_tokens - computed),
            hours=today.hours - hours, simulated=True,
            values={**values, "contexts": contexts, "reads": today.requests / contexts},
        )  # fmt: skip
    tokens = sum(
        d.prefixes.scaled(d.prefixes.unread_tokens) for d in others if d.prefixes
    )
    if version >= READS_CACHE and tokens:
        contexts = sum(reads[d.name].contexts for d in others)
        values = {
            "dataset": others[0].name,
            "others": len(others) - 1,
            "contexts": contexts,
        }
        values |= {"reads": sum(d.rows for d in others) / contexts, "how": "read_cache"}
        hours = tokens * _prefill_hours(p, settings)
        yield Saving(
            code="score_contexts_once", tokens=tokens, hours=hours, values=values
        )


def _generated(
    p: Problem, datasets: tuple[DatasetProfile, ...], settings: Settings, requests: int
) -> tuple[int, float] | None:
    """Tokens computed and hours, if so many requests generated one token each."""
    request = replace(p.request, task=None, max_output=1, max_outputs={})
    generating = tuple(replace(dataset, scored=False) for dataset in datasets)
    changed = replace(p, datasets=generating, request=request)
    run = changed.simulator(min(requests, SIMULATED)).attempt(settings)
    if run is None:
        return None
    times = requests / run.requests
    computed = round((run.input_tokens - run.cached_tokens) * times)
    return computed, run.figures.makespan_s * times / HOUR_S


def _prefill_hours(p: Problem, settings: Settings) -> float:
    """Of one prompt token, in a step that is full of prompts like these."""
    simulator, mean = p.simulator(), max(1.0, p.lengths.mean or 1.0)
    full = simulator.deployment.effective(settings)
    tokens, step = full.step_tokens, simulator.step_model(full)
    seconds = step.gpu_s(tokens, tokens * mean / 2, 0.0, max(1, round(tokens / mean)))
    return seconds / tokens / full.parallel.data / HOUR_S


def _beginnings(p: Problem, settings: Settings, cost: Cost) -> Iterator[Saving]:
    """Prompts that differ early and then agree, and an order that the prefix cache likes better."""
    hours = _prefill_hours(p, settings)
    for dataset, output in p.pairs:
        if (reuse := dataset.prefixes) is None or output.is_scored:
            continue
        for miss in reuse.near_misses:
            values: Values = {
                "prompts": miss.prompts,
                "text": miss.text,
                "other": miss.other_text,
            }
            values |= {"position": miss.position, "other_position": miss.other_position}
            yield Saving(
                code="early_difference", tokens=miss.lost_tokens, hours=miss.lost_tokens * hours,
                values={"dataset": dataset.name, "unit": dataset.unit, **values},
            )  # fmt: skip
        # In the best order a cache with room for two prompts finds all that there is.
        best = reuse.scaled(reuse.cached_tokens)
        if dataset.kind == "lengths" or best * hours < WORTH * cost.hours:
            continue  # a trace's requests come when they come; little is not named
        tokens = best - _served(_only(p, (dataset,)), settings)
        if tokens > 0:
            values = {"dataset": dataset.name}
            yield Saving(
                code="better_order", tokens=tokens, hours=tokens * hours, values=values
            )


def _served(alone: Problem, settings: Settings) -> int:
    """Prompt tokens of a dataset, sent alone, that the prefix cache serves anyway."""
    run = alone.simulator().attempt(settings)
    return (
        round(run.cached_tokens / run.input_tokens * alone.lengths.total) if run else 0
    )


def _repeated(p: Problem, settings: Settings, cost: Cost) -> Iterator[Saving]:
    """Rows that occur more than once: lengths alone are none, and a harness repeats on purpose."""
    each_hours = _prefill_hours(p, settings)
    for dataset in p.datasets:
        content, total = dataset.content, dataset.lengths.total
        if (
            content is None
            or not content.hashes
            or dataset.log
            or dataset.kind == "lengths"
        ):
            continue
        share = 1 - len({*content.hashes}) / content.rows
        whole = cost.hours * total / max(1, p.lengths.total)
        if not share or share * whole < WORTH * cost.hours:
            continue
        alone = _only(p, (dataset,))
        served, kept = _served(alone, settings), (1 - share) * dataset.rows
        tokens = max(0, round(share * total) - served)
        answers = max(0.0, whole - (total - served) * each_hours)
        # What is left takes its time: a few requests as long as one.
        run = alone.simulator(min(max(1, round(kept)), SIMULATED)).attempt(settings)
        left = run.figures.makespan_s * kept / run.requests / HOUR_S if run else 0.0
        yield Saving(
            code="repeated_rows", tokens=tokens,
            hours=min(share * answers + tokens * each_hours, max(0.0, cost.hours - left)),
            values={"dataset": dataset.name, "rows": round(share * content.rows)},
        )  # fmt: skip


def _few_in_flight(p: Problem, settings: Settings, cost: Cost) -> Iterator[Saving]:
    """A client that lets the engine idle: as asked for, or as the log of a harness says."""
    few = client_concurrency(p.request, p.datasets)
    turns_wait = any(d.log is not None and d.log.is_agent for d in p.datasets)
    if few is None or turns_wait:
        return
    enough = enough_in_flight(p, settings)
    if enough is None or enough <= few:
        return
    freely = all_at_once(p, enough)
    served = p.lengths.count - p.refused
    run = freely.simulator().attempt(settings)
    if run is None or (run.slo is not None and not run.slo.is_met):
        return  # more at once would break the limits
    hours = cost.hours - run.figures.makespan_s * served / run.requests / HOUR_S
    harness = None
    if p.request.concurrency is None and p.datasets[0].log is not None:
        harness = p.datasets[0].log.harness
    values: Values = {"concurrency": few, "enough": enough, "harness": harness}
    yield Saving(
        code="few_in_flight", tokens=None, hours=hours, simulated=True, values=values
    )


def all_at_once(p: Problem, most: int) -> Problem:
    """The same, from a client that keeps so many under way."""
    return replace(p, request=replace(p.request, concurrency=most))


def enough_in_flight(p: Problem, settings: Settings) -> int | None:
    """The fewest requests under way with which the run is as fast as with more, so that
    each of them waits no longer than it must. None where that is not known."""
    every = all_at_once(p, p.lengths.count)
    run = every.part.attempt(settings)
    if run is None:
        return None
    longest_s = AS_FAST * run.figures.makespan_s
    requests = len(every.part.workload.requests)
    too_few, enough = 0, min(run.most_running, requests)
    while enough - too_few > max(1, enough // 16):
        tried = (too_few + enough) // 2
        at_once = all_at_once(p, tried).simulator(requests).attempt(settings)
        if at_once is not None and at_once.figures.makespan_s <= longest_s:
            enough = tried
        else:
            too_few = tried
    return enough
