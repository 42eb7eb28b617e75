"""How long the run takes, how sure that is, and what would save most."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from chunkscope.artefacts.note import Values
from chunkscope.hardware.accuracy import nearest_measured
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.planning.plan import Cost, Saving, Work
from chunkscope.planning.request import client_of
from chunkscope.planning.search import WORTH, Search
from chunkscope.prefixes.reuse import Scoring
from chunkscope.vllm.rules import Version
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
MOST_DATASETS = 12  # that are simulated one by one
# Times as long as predicted: MMLU by likelihoods on an H200 (reports/h200).
SEEN_SCORED = 15.7 / 13.6
MOST_SAVINGS = 3  # that are named
AS_FAST = 1.02  # times as long as a run with more requests under way
MOST_SIMULATED = 4_000  # requests of a changed run: more take as long in proportion
# The first with /generative_scoring, and the first whose likelihood requests may read
# the prefix cache.
GENERATIVE_SCORING: Version = (0, 20, 0)
READS_CACHE: Version = (0, 31, 0)


# -- how long it takes -----------------------------------------------------------------


def cost_of(search: Search, settings: Settings) -> Cost | None:
    """What all prompts take with these settings; None if they cannot run."""
    case = search.case
    work = work_of(search, settings)
    if work is None:
        return None
    times = varied_times(search, settings)
    least_off, most_off = seen_errors(search)
    return Cost(
        **asdict(work),
        least_hours=work.hours * min(times) / max(1, 1 + most_off),
        most_hours=work.hours * max(times) * max(1, 1 / (1 + least_off)),
        varied=(*search.variations, "seen_on_gpus"),
        datasets=work_by_dataset(search, settings) if len(case.datasets) > 1 else {},
    )


def work_of(search: Search, settings: Settings) -> Work | None:
    """Requests, tokens and hours of all prompts; None if they cannot run.

    Prompts beyond those that are simulated take as long as these.
    """
    served = search.case.served
    if not served:
        return None
    run = search.whole.attempt(settings)
    if run is None:
        return None
    times = served / run.requests
    return Work(
        requests=served,
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=run.figures.makespan_s * times / HOUR_S,
    )


def varied_times(search: Search, settings: Settings) -> list[float]:
    """How many times as long it takes where what is assumed turns out otherwise."""
    times = [1.0]
    usual = search.part.attempt(settings)
    if usual is None:
        return times
    for simulator in search.variations.values():
        run = simulator.attempt(settings)
        if run is not None:
            times.append(run.figures.makespan_s / usual.figures.makespan_s)
    return times


def seen_errors(search: Search) -> tuple[float, float]:
    """How far off predicted times were on GPUs: 0.1 is 10 % too long."""
    case = search.case
    least_off = most_off = 0.0
    if case.engine.shape is not None:
        nearest = nearest_measured(case.engine.shape)
        least_off = nearest.least
        most_off = nearest.most
    if any(output.is_scored for output in case.outputs):
        least_off = min(least_off, 1 / SEEN_SCORED - 1)
    return least_off, most_off


def work_by_dataset(search: Search, settings: Settings) -> dict[str, Work]:
    """Of those with the most tokens, in their order: each sent alone."""
    case = search.case
    by_size = sorted(case.datasets, key=lambda dataset: -dataset.lengths.total)
    largest = {dataset.name for dataset in by_size[:MOST_DATASETS]}
    works = {}
    for dataset in case.datasets:
        if dataset.name not in largest:
            continue
        work = work_of(Search(case.only(dataset), search.tick), settings)
        if work is not None:
            works[dataset.name] = work
    return works


# -- how many requests at once ---------------------------------------------------------


def enough_in_flight(search: Search, settings: Settings) -> int | None:
    """The fewest requests under way with which the run is as fast as with more.

    So each of them waits no longer than it must. None where that is not known.
    """
    free = Search(search.case.at_once(search.case.lengths.count), search.tick)
    run = free.part.attempt(settings)
    if run is None:
        return None
    longest_s = AS_FAST * run.figures.makespan_s
    workload = free.part.workload
    too_few = 0
    enough = min(run.most_running, len(workload.sessions))
    while enough - too_few > max(1, enough // 16):
        tried = (too_few + enough) // 2
        at_once = free.simulator(replace(workload, concurrency=tried)).attempt(settings)
        if at_once is not None and at_once.figures.makespan_s <= longest_s:
            enough = tried
        else:
            too_few = tried
    return enough


# -- what would save time --------------------------------------------------------------


def savings(
    search: Search, settings: Settings, cost: Cost, enough: int | None
) -> tuple[Saving, ...]:
    """The largest first, by predicted time and then by tokens; none is over the run.

    `enough` is the number of requests under way that are as fast as more.
    """
    worth = []
    for saving in (
        *scored_by_one_token(search, settings),
        *scored_from_cache(search, settings),
        *early_differences(search, settings),
        *few_in_flight(search, settings, cost, enough),
    ):
        if saving.hours is None:
            worth.append(saving)
        elif saving.hours >= WORTH * cost.hours:
            worth.append(replace(saving, hours=min(saving.hours, cost.hours)))
    worth.sort(key=lambda saving: (-(saving.hours or 0.0), -(saving.tokens or 0)))
    return tuple(worth[:MOST_SAVINGS])


def scored_by_one_token(search: Search, settings: Settings) -> Iterator[Saving]:
    """Likelihood requests compute a context once for each choice.

    If choices are single tokens, one generated token scores all of them.
    """
    datasets = scored_datasets(search, single_token=True)
    if not datasets:
        return
    contexts = 0
    generating = []
    for dataset in datasets:
        contexts += round(dataset.rows / scoring_of(dataset).reads)
        generating.append(replace(dataset, scored=False))
    request = search.case.request
    request_once = replace(request, task=None, max_output=1, output=None, outputs={})
    case = replace(search.case, datasets=tuple(generating), request=request_once)
    simulator = Search(case, search.tick).some(min(contexts, MOST_SIMULATED))
    run = simulator.attempt(settings)
    scored = replace(
        search.case, datasets=datasets, request=replace(request, outputs={})
    )
    today = work_of(Search(scored, search.tick), settings)
    if run is None or today is None:
        return
    times = contexts / run.requests
    computed = round((run.input_tokens - run.cached_tokens) * times)
    how = "next_token"
    if search.case.engine.release.version >= GENERATIVE_SCORING:
        how = "generative_scoring"
    values: Values = {
        "dataset": datasets[0].name,
        "others": len(datasets) - 1,
        "how": how,
        "contexts": contexts,
        "reads": today.requests / contexts,
    }
    yield Saving(
        code="score_contexts_once",
        tokens=max(0, today.input_tokens - computed),
        hours=today.hours - run.figures.makespan_s * times / HOUR_S,
        simulated=True,
        values=values,
    )


def scored_from_cache(search: Search, settings: Settings) -> Iterator[Saving]:
    """Longer choices: newer versions can read their context from the prefix cache."""
    if search.case.engine.release.version < READS_CACHE:
        return
    datasets = scored_datasets(search, single_token=False)
    tokens = contexts = rows = 0
    for dataset in datasets:
        if dataset.prefixes is not None:
            tokens += dataset.prefixes.scaled(dataset.prefixes.unread_tokens)
        contexts += scoring_of(dataset).contexts
        rows += dataset.rows
    if not tokens:
        return
    values: Values = {
        "dataset": datasets[0].name,
        "others": len(datasets) - 1,
        "how": "read_cache",
        "contexts": contexts,
        "reads": rows / contexts,
    }
    yield Saving(
        code="score_contexts_once",
        tokens=tokens,
        hours=tokens * prefill_hours(search, settings),
        values=values,
    )


def scored_datasets(
    search: Search, *, single_token: bool
) -> tuple[DatasetProfile, ...]:
    """Those whose contexts are computed again for each choice, of one token or more."""
    datasets = []
    for dataset, output in search.case.pairs:
        scoring = dataset.prefixes.scoring if dataset.prefixes else None
        if not output.is_scored or scoring is None:
            continue
        repeats = scoring.contexts < scoring.requests
        if repeats and scoring.single_token is single_token:
            datasets.append(dataset)
    return tuple(datasets)


def scoring_of(dataset: DatasetProfile) -> Scoring:
    """How often the contexts of its likelihood requests were read."""
    if dataset.prefixes is None or dataset.prefixes.scoring is None:
        raise AssertionError(f"{dataset.name} has no likelihood requests")
    return dataset.prefixes.scoring


def early_differences(search: Search, settings: Settings) -> Iterator[Saving]:
    """Prompts that differ early and then agree, which the prefix cache cannot use."""
    token_hours = prefill_hours(search, settings)
    for dataset, output in search.case.pairs:
        if dataset.prefixes is None or output.is_scored:
            continue
        for miss in dataset.prefixes.near_misses:
            values: Values = {
                "dataset": dataset.name,
                "unit": dataset.unit,
                "prompts": miss.prompts,
                "text": miss.text,
                "other": miss.other_text,
                "position": miss.position,
                "other_position": miss.other_position,
            }
            yield Saving(
                code="early_difference",
                tokens=miss.lost_tokens,
                hours=miss.lost_tokens * token_hours,
                values=values,
            )


def few_in_flight(
    search: Search, settings: Settings, cost: Cost, enough: int | None
) -> Iterator[Saving]:
    """A client that lets the engine idle, as asked for or as a harness's log says."""
    case = search.case
    few = client_of(case.request, case.datasets).requests
    if few is None or enough is None or enough <= few or has_agents(case.datasets):
        return
    run = Search(case.at_once(enough), search.tick).whole.attempt(settings)
    if run is None or (run.slo is not None and not run.slo.is_met):
        return  # more at once would break the limits
    harness = None
    log = case.datasets[0].log
    if case.request.concurrency is None and log is not None:
        harness = log.harness
    values: Values = {"concurrency": few, "enough": enough, "harness": harness}
    hours = run.figures.makespan_s * case.served / run.requests / HOUR_S
    yield Saving(
        code="few_in_flight",
        tokens=None,
        hours=cost.hours - hours,
        simulated=True,
        values=values,
    )


def has_agents(datasets: Sequence[DatasetProfile]) -> bool:
    """Do requests wait for the answer to the one before?"""
    return any(dataset.log is not None and dataset.log.is_agent for dataset in datasets)


def prefill_hours(search: Search, settings: Settings) -> float:
    """Of one prompt token, in a step that is full of prompts like these."""
    case = search.case
    complete = case.engine.complete(settings)
    mean = max(1.0, case.lengths.mean or 1.0)
    tokens = complete.step_tokens
    seconds = search.whole.step_times(complete).gpu_s(
        tokens, tokens * mean / 2, 0.0, max(1, round(tokens / mean))
    )
    return seconds / tokens / complete.parallel.data / HOUR_S
