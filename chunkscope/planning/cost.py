"""How long the run takes, how sure that is, and what would save most."""

from collections.abc import Iterator
from dataclasses import asdict, replace

from chunkscope.artefacts.note import Values
from chunkscope.hardware.accuracy import nearest_measured
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.planning.plan import ConcurrencyAnswer, Cost, Saving, Work
from chunkscope.planning.search import WORTH, Search
from chunkscope.prefixes.reuse import Scoring
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.rules import Version
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
# Times as long as predicted: MMLU by likelihoods on an H200 (reports/h200).
SEEN_SCORED = 15.7 / 13.6
MOST_SAVINGS = 3  # that are named
MOST_SIMULATED = 4_000  # requests of a changed run: more take as long in proportion
# The first with /generative_scoring, and the first whose likelihood requests may read
# the prefix cache.
GENERATIVE_SCORING: Version = (0, 20, 0)
READS_CACHE: Version = (0, 31, 0)


# -- how long it takes -----------------------------------------------------------------


def cost_of(search: Search, settings: Settings) -> Cost | None:
    """What all prompts take with these settings; None if they cannot run."""
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
        datasets=work_by_dataset(search, settings),
        hours_per_1000_output_tokens=longer_answers_hours(search, settings),
    )


def work_of(search: Search, settings: Settings) -> Work | None:
    """Requests, tokens and hours of all prompts; None if they cannot run.

    Prompts beyond those that are simulated take as long as these.
    """
    case = search.case
    if not case.served:
        return None
    run = search.whole.attempt(settings)
    if run is None:
        return None
    times = case.served / run.requests
    hours = run.figures.makespan_s * times / HOUR_S
    by_dataset = work_by_dataset(search, settings)
    if by_dataset:
        hours = sum(work.hours for work in by_dataset.values())
    workload = search.whole.workload
    return Work(
        requests=case.served,
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=hours,
        client=workload.samples_at_once or workload.concurrency,
    )


def work_by_dataset(search: Search, settings: Settings) -> dict[str, Work]:
    """Of datasets that are sent one after the other; they add up to the whole."""
    run = search.whole.attempt(settings)
    if run is None:
        return {}
    works = {}
    phases = search.whole.workload.phases
    for phase, part in zip(phases, run.phases, strict=True):
        served = search.case.served_of(phase.name)
        times = served / part.requests
        works[phase.name] = Work(
            requests=served,
            input_tokens=round(part.input_tokens * times),
            output_tokens=round(part.output_tokens * times),
            hours=part.seconds * times / HOUR_S,
            client=phase.samples_at_once or phase.concurrency,
        )
    return works


def longer_answers_hours(search: Search, settings: Settings) -> float | None:
    """What answers that are 1,000 tokens longer would add; None where they were
    counted.

    From the run with answers that are longer by half of their mean.
    """
    case = search.case
    if all(output.is_measured for output in case.outputs):
        return None
    usual = search.part.attempt(settings)
    if usual is None:
        return None
    added = max(1, round(usual.output_tokens / usual.requests / 2))
    longer = search.simulator(with_longer_answers(search, added)).attempt(settings)
    if longer is None or longer.output_tokens == usual.output_tokens:
        return None
    seconds = longer.figures.makespan_s - usual.figures.makespan_s
    tokens = (longer.output_tokens - usual.output_tokens) / usual.requests
    parts = case.served / usual.requests
    return max(0.0, seconds * parts * 1_000 / tokens / HOUR_S)


def with_longer_answers(search: Search, tokens: int) -> Workload:
    """The part of the requests, with answers that are so much longer where nobody
    counted them."""
    workload = search.part.workload
    scored = workload.likelihoods
    sessions = []
    place = 0
    for session in workload.sessions:
        turns = []
        for turn in session.turns:
            room = search.case.context - turn.prompt_tokens
            answer = turn.output_tokens
            if place not in scored:
                answer = max(answer, min(answer + tokens, room))
            turns.append(replace(turn, output_tokens=answer))
            place += 1
        sessions.append(replace(session, turns=tuple(turns)))
    return replace(workload, sessions=tuple(sessions))


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


# -- what would save time --------------------------------------------------------------


def savings(
    search: Search, settings: Settings, cost: Cost, answer: ConcurrencyAnswer | None
) -> tuple[Saving, ...]:
    """The largest first, by predicted time and then by tokens; none is over the run."""
    worth = []
    for saving in (
        *scored_by_one_token(search, settings),
        *scored_from_cache(search, settings),
        *early_differences(search, settings),
        *few_in_flight(search, settings, cost, answer),
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
    search: Search, settings: Settings, cost: Cost, answer: ConcurrencyAnswer | None
) -> Iterator[Saving]:
    """A client that lets the engine idle, or keeps so much under way that the KV cache
    forgets what the next turns need."""
    case = search.case
    if answer is None or answer.client in (None, answer.advised):
        return
    if answer.unit == "requests" and answer.client > answer.advised:
        return  # as fast, and each request waits longer
    run = None
    request = case.request
    if answer.unit == "requests":
        request = replace(request, concurrency=answer.advised, samples_at_once=None)
    else:
        request = replace(request, concurrency=None, samples_at_once=answer.advised)
    advised = Search(replace(case, request=request), search.tick)
    run = advised.whole.attempt(settings)
    work = work_of(advised, settings)
    if run is None or work is None or (run.slo is not None and not run.slo.is_met):
        return  # as many at once would break the limits
    harness = None
    log = case.datasets[0].log
    if case.request.concurrency is None and log is not None:
        harness = log.harness
    values: Values = {
        "concurrency": answer.client,
        "enough": answer.advised,
        "harness": harness,
        "unit": answer.unit,
    }
    yield Saving(
        code="few_in_flight",
        tokens=None,
        hours=cost.hours - work.hours,
        simulated=True,
        values=values,
    )


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
