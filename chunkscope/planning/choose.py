"""From a problem to advice: what the simulator proves, or what the lengths say; and why.

An argument has to earn its place: a finalist must gain at least WORTH over vLLM's default on all
requests, and still gain when what is assumed turns out otherwise: the host, the draw, the lengths,
outputs that nobody knows.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import ceil

from chunkscope.artefacts.figures import ITL_MAX, TTFT_P95
from chunkscope.artefacts.note import Values
from chunkscope.planning.plan import (
    BEST,
    DEFAULT,
    RULE,
    Advice,
    AdviceKind,
    Basis,
    Reason,
)
from chunkscope.planning.problem import FEWEST_SEARCHED, FEWEST_SEQS, LADDER, Problem
from chunkscope.planning.rule import Decision
from chunkscope.planning.simulator import NEAR, Simulator
from chunkscope.simulation.rate import UNIT_RATE
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.flags import flags_of
from chunkscope.vllm.settings import NAMES, OWN, Settings

WORTH = 0.03  # an argument that gains less of the aim is not set
WORTH_ROOM = 0.1  # of a limit: settings with less between them keep it about as well
ENOUGH_USED = 0.7  # of the tightest limit: gaps at a rate were up to a fifth longer than predicted
BUDGET_STEPS = (0.25, 0.5, 1, 2, 4, 8)  # as multiples of vLLM's own
LEAST_BUDGET = 64  # with less, steps are so many that nothing is gained
MOST_ROUNDS = 3  # of looking near the best of the grid, and at its rate
THRESHOLDS = (512, 2_048)  # tried against gaps, where requests come while others decode
MOST_CHECKED = (
    4  # settings that keep the limits with a part of the requests, tried with all
)
MOST_FINALISTS = 4  # settings whose gain is tried on all requests, and when things vary
GRAPH_STEP = 16  # tokens between the larger CUDA graphs that vLLM captures
PAYING_BUDGET = 8_192  # past this none paid on the H200: for "off" on an unknown GPU
THRESHOLD = "long_prefill_token_threshold"
SIZES = ("max_num_batched_tokens", "max_num_seqs", THRESHOLD)


def choose(p: Problem, decision: Decision) -> tuple[Advice, tuple[SimulatedRun, ...]]:
    """The advice, and the runs with all requests that it rests on. Without a model or a known GPU,
    or with a forced mode, the length rule answers."""
    if p.can_simulate and not decision.forced:
        advice, best = by_simulation(p)
    else:
        advice = by_lengths(p, decision)
        best = p.advised(advice)
    if refusals := p.deployment.refusals(p.advised(advice)):
        raise AssertionError(f"vLLM {p.deployment.release.text} refuses {refusals[0]}")
    names = (DEFAULT, RULE if decision.forced else BEST)
    rows = dict(zip(dict.fromkeys((p.default, best)), names, strict=False))
    tried = [
        (name, p.simulator().attempt(one))
        for one, name in rows.items()
        if p.can_simulate
    ]
    return advice, tuple(replace(run, setting=name) for name, run in tried if run)


# -- by simulation -------------------------------------------------------------------------------


def by_simulation(p: Problem) -> tuple[Advice, Settings]:
    """The advice, and the best setting beside vLLM's default: found with a part of the requests,
    judged with all. At a rate, a default that keeps the limits in all variations is good enough."""
    every, default = p.simulator(), p.default
    hopeless = p.request.slo and every.alone(default).breaks is not None
    is_enough = (
        p.request.is_open
        and every.keeps_limits(default)
        and not _breaks_with(p, default)
    )
    best = default if hopeless or is_enough or _floods(p) else _finalist(p)
    if every.attempt(best) is None and not p.request.slo:
        every.run(best)  # InputError: the longest request is never let in
    kept, rate, gpus = any(map(every.keeps_limits, (default, best))), None, None
    if p.request.slo and not hopeless and not kept:
        best, rate = _fastest_instead(p)
    gain, least, doubt, chosen = None, None, None, best
    if p.request.slo and not every.keeps_limits(
        default
    ):  # what keeps them is better, surely
        chosen = best if every.keeps_limits(best) else default
        doubt = _breaks_with(p, best) if every.keeps_limits(best) else None
    else:
        theirs, ours = every.cost(default), every.cost(best)
        gain = theirs / ours - 1 if ours else 0.0
        is_worth = every.keeps_limits(best) and gain >= WORTH
        if p.request.is_open:
            is_worth = ours <= 1 and theirs - ours >= WORTH_ROOM
        least, doubt = _least(p, best, gain) if is_worth else (gain, None)
        chosen = best if is_worth and least > 0 else default
    kind = AdviceKind.SET if chosen != default else AdviceKind.KEEP
    kind = (
        kind
        if every.keeps_limits(chosen) or not p.request.slo
        else AdviceKind.NO_SETTING
    )
    if rate and p.request.rate:  # replicas share the requests
        gpus = ceil(p.request.rate / rate) * p.base.parallel.gpus
    advice = Advice(
        kind=kind,
        basis=Basis.SIMULATED,
        settings=chosen.changed_from(default),
        needed=p.needed,
        gain=gain,
        least_gain=least,
        doubt=doubt,
        alternative=best.changed_from(default) if best != chosen else None,
        rate=rate,
        gpus=gpus,
    )
    return advice, best


def search(simulator: Simulator, start: Settings) -> Settings:
    """The best setting, or `start` if none is better. Tries a coarse grid of budgets and numbers of
    requests, then neighbours of its best; with limits, also caps on the tokens of one prompt."""
    slo, budget, seqs = (
        simulator.request.slo,
        start.step_tokens,
        start.max_num_seqs or 1,
    )
    around = {max(LADDER[0], int(budget * step)) for step in BUDGET_STEPS}
    sizes = {*LADDER[::2], budget} if slo else around
    run = simulator.attempt(start)
    fewer = [max(FEWEST_SEQS, seqs >> n) for n in (2, 4)] if slo else []
    levels = [seqs, *(n for n in fewer if run is None or n < run.most_running)]
    grid = [
        replace(start, max_num_seqs=n).at_budget(s)
        for n in levels
        for s in sorted(sizes)
    ]
    chosen = simulator.best(grid, start)
    for _ in range(MOST_ROUNDS):
        near = simulator.best(_near(chosen, simulator), chosen)
        if near == chosen:
            break
        chosen = near
    caps = chain(_capped(chosen, simulator), _capped(start, simulator)) if slo else ()
    return simulator.best(caps, chosen)


def _near(settings: Settings, simulator: Simulator) -> Iterator[Settings]:
    """Half and twice the budget; the requests, if another number of them then runs; and CUDA
    graphs for all requests that run, where vLLM's own are smaller."""
    run = simulator.attempt(settings)
    budget, seqs = settings.step_tokens or 1, settings.max_num_seqs or 1
    running = run.most_running if run else seqs
    for count in (seqs // 2, seqs * 2):
        if min(seqs, count + 1) <= running:
            other = replace(settings, max_num_seqs=max(FEWEST_SEQS, count))
            yield other
            yield from _graphed(other, simulator)
    yield from _graphed(settings, simulator)
    for size in (budget // 2, budget * 2):
        yield settings.at_budget(max(LEAST_BUDGET, size))


def _graphed(settings: Settings, simulator: Simulator) -> Iterator[Settings]:
    """With CUDA graphs for all requests that may run, where this version can be told to."""
    running = min(settings.max_num_seqs or 1, len(simulator.workload.requests))
    step = simulator.deployment.step_model(settings)
    known = "max_cudagraph_capture_size" in flags_of(
        simulator.deployment.release.version
    )
    if step is None or not known or running <= step.graphed_tokens:
        return
    tokens = ceil(running / GRAPH_STEP) * GRAPH_STEP
    if tokens <= settings.step_tokens:
        yield replace(settings, max_cudagraph_capture_size=tokens)


def _capped(settings: Settings, simulator: Simulator) -> Iterator[Settings]:
    """With each threshold; and with the adaptive one, where this version has it."""
    adapts = f"{THRESHOLD}_adaptive" in flags_of(simulator.deployment.release.version)
    for threshold in THRESHOLDS:
        if threshold < min(settings.step_tokens, simulator.workload.longest):
            fixed = replace(settings, long_prefill_token_threshold=threshold)
            yield fixed
            if adapts:
                yield replace(fixed, long_prefill_token_threshold_adaptive=True)


def _finalist(p: Problem) -> Settings:
    """The best setting other than vLLM's default. With limits: the first that keeps them with all
    requests; where the default breaks them, first those that keep them in all variations. At a
    rate, of settings with room enough, the one whose answers begin soonest."""
    part, every, default = p.part, p.simulator(), p.default
    best, is_open = search(part, default), p.request.is_open
    enough = min(ENOUGH_USED, part.used(default) - WORTH_ROOM) if is_open else 0.0
    late = TTFT_P95 if is_open else ITL_MAX
    times = {one: late.value(run.figures) or 0.0 for one, run in part.running().items()}
    as_good = [
        one for one in times if part.against(one, best) <= 1 or part.used(one) < enough
    ]
    best = min(as_good, key=lambda one: (times[one], part.cost(one)), default=best)
    for name in (
        NAMES
    ):  # each argument earns its place: what makes no difference is left to vLLM
        without = Settings.of({**best.given(), name: getattr(default, name)})
        if without != best and part.against(without, best) <= 1 + NEAR:
            best = without
    by_cost = sorted(part.running(), key=lambda one: part.against(one, default))
    candidates = [one for one in dict.fromkeys((best, *by_cost)) if one != default]
    if not p.request.slo:
        return next(iter(candidates), default)
    keeping, doubtful = (
        [one for one in candidates if part.keeps_limits(one)],
        list[Settings](),
    )
    for _ in range(2 * MOST_CHECKED):
        if not keeping:
            break
        settings = keeping.pop(0)
        is_new = settings not in doubtful and len(doubtful) < MOST_CHECKED
        if is_new and not part.keeps_limits(default) and _breaks_with(p, settings):
            doubtful.append(settings)  # only where no other does
            keeping = (
                [*keeping, settings] if len(doubtful) < MOST_CHECKED else [*doubtful]
            )
        elif every.keeps_limits(settings):
            return settings
        else:  # all have a longer tail than a part: the next has to have more room
            keeping = [one for one in keeping if part.used(one) < part.used(settings)]
    return default


def _floods(p: Problem) -> bool:
    """Do requests come faster than the GPU serves them, even if reading weights took no time?"""
    every, rate, replicas = (
        p.simulator(),
        p.request.rate or 0.0,
        p.default.parallel.data,
    )
    run, step = (
        every.attempt(p.default) if rate else None,
        every.step_model(p.default),
    )
    if run is None or not run.queue_grows:
        return False
    weights_s = (run.figures.steps or 0) / replicas * (step.fixed_s + step.experts_s)
    return rate * (run.gpu_s - weights_s) > run.requests  # which are read in each step


def _breaks_with(p: Problem, settings: Settings) -> str | None:
    """The code of a variation in which the setting breaks a limit; None if it breaks none."""
    return next(
        (code for code, one in p.varied.items() if not one.keeps_limits(settings)), None
    )


def _least(p: Problem, best: Settings, gain: float) -> tuple[float, str | None]:
    """The least gain over all variations, and the code of that one; the first loss ends it."""
    least, doubt = gain, None
    for code, varied in {**p.hosts, **p.varied}.items():
        times = varied.against(best, p.default)
        gained = 1 / times - 1 if times else float("inf")
        if gained < least:
            least, doubt = gained, code
        if least <= 0:
            break
    return least, doubt


# -- the highest rate ------------------------------------------------------------------------------


def fastest(p: Problem) -> tuple[Settings, float]:
    """The setting that keeps the limits at the highest rate, and about that rate, with a part of
    the requests. Each round seeks the best setting at a rate that the one before cannot keep."""
    part, settings, rate = _at(p, UNIT_RATE).simulator(FEWEST_SEARCHED), p.default, 0.0
    best, keeping = settings, list[Settings]()
    for _ in range(MOST_ROUNDS):
        run = part.highest_rate(settings)
        found = run.rate.rate_per_s if run.rate else None
        sustains = found or run.requests / run.figures.makespan_s
        if sustains <= rate:
            break
        best, rate = settings, sustains * (1 + WORTH)
        faster = _at(p, f"{rate!r}/s").simulator(FEWEST_SEARCHED)
        settings = faster.best(keeping, best) if keeping else search(faster, p.default)
        keeping = [one for one in faster.running() if faster.keeps_limits(one)]
        if settings == best or settings not in keeping:
            break
    return best, rate


def _fastest_instead(p: Problem) -> tuple[Settings, float | None]:
    """For limits that are not kept: the fastest setting, and if it does not keep them after all the
    highest rate at which it would."""
    fast, _ = fastest(p)
    if p.simulator().keeps_limits(fast):
        return fast, None
    run = _at(p, UNIT_RATE).simulator().highest_rate(fast)
    return fast, run.rate.rate_per_s if run.rate else None


def _at(p: Problem, arrivals: str) -> Problem:
    return replace(p, request=replace(p.request, arrivals=arrivals, concurrency=None))


# -- by lengths ----------------------------------------------------------------------------------


def by_lengths(p: Problem, decision: Decision) -> Advice:
    """The length rule's advice. `off` counts only if forced: vLLM never splits short prompts."""
    budget = p.default.max_num_batched_tokens
    if decision.forced and decision.mode is Mode.OFF:
        whole = Settings(max_num_batched_tokens=max(budget or PAYING_BUDGET, p.context))
        settings = replace(
            whole if p.fits(whole) else Settings(max_num_batched_tokens=p.context),
            long_prefill_token_threshold=0,
            enable_chunked_prefill=False,
        )
    else:
        caps = filter(None, (decision.threshold, p.needed.long_prefill_token_threshold))
        cap = min(caps, default=0)
        ends_none = cap >= min(p.longest, budget or p.longest)
        settings = Settings(long_prefill_token_threshold=0 if ends_none else cap)
    changed = p.deployment.effective(settings.over(p.base)).changed_from(p.default)
    return Advice(
        kind=AdviceKind.SET if changed != OWN else AdviceKind.KEEP,
        basis=Basis.MODE if decision.forced else Basis.LENGTHS,
        settings=changed,
        needed=p.needed,
    )


# -- why -------------------------------------------------------------------------------------------


def reasons(p: Problem, advice: Advice, decision: Decision) -> Iterator[Reason]:
    """Of what is set, and of what was weighed and is left to vLLM."""
    own, simulated = p.deployment.effective(), advice.basis is Basis.SIMULATED
    settings = p.advised(advice)
    alternative = (
        advice.alternative if advice.gain is not None and not p.request.slo else None
    )
    for name in NAMES:
        value, best = getattr(settings, name), getattr(alternative, name, None)
        if getattr(advice.settings, name) is not None:
            code = (
                "keeps_limits"
                if p.request.slo
                else "gains"
                if simulated
                else "length_rule"
            )
        elif getattr(advice.needed, name) is not None:
            is_unchunked = (
                name == "max_model_len" and decision.forced and not decision.threshold
            )
            code = "length_rule" if is_unchunked else f"needed_{name}"
        elif getattr(p.request.settings, name) is not None and value != getattr(
            own, name
        ):
            code = "asked_kv_cache" if name == "kv_cache_dtype" else "asked"
        elif best is not None:
            code = "gain_in_doubt" if advice.doubt else "too_little_gain"
        elif simulated and value and name in SIZES:
            code = "default_is_best"
        elif name == THRESHOLD and decision.threshold and not simulated:
            code = "threshold_ends_nothing"
        else:
            continue
        values: Values = {
            "own": getattr(own, name),
            "value": value,
            "best": best,
            "gain": advice.gain,
            "least": advice.least_gain,
            "doubt": advice.doubt,
            "threshold": decision.threshold,
        }
        yield Reason(argument=name, code=f"why_{code}", values=values)
