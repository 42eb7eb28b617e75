"""What the simulator says for and against a setting: an argument has to earn its place.

A finalist must gain at least WORTH over vLLM's own setting on all requests, and still gain when
what is assumed turns out otherwise: the host, the draw, the lengths, outputs that nobody knows.
"""

from dataclasses import dataclass, replace

from chunkscope.planning.plan import TriedSetting
from chunkscope.planning.problem import NEAR, WORTH, WORTH_ROOM, Problem
from chunkscope.planning.search import Trials, limits_used, search, trials_of
from chunkscope.vllm.flags import Off
from chunkscope.vllm.settings import NAMES, Settings

OWN_NAME, POLICY_NAME, BEST_NAME = "vLLM's own", "length policy", "best found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`chosen` is vLLM's own setting unless another one earned its place.

    `gain` is what the best of the others gains over it (None: vLLM's own cannot run), `least` the
    least of all variations, and `doubt` the variation in which that was.
    """

    own: Settings
    chosen: Settings
    best: Settings
    gain: float | None
    least: float | None
    doubt: str
    rows: tuple[TriedSetting, ...]
    trials: Trials


def weigh(p: Problem, own: Settings, policy_threshold: int | None) -> Proof:
    """Search on a part of the requests, then judge the finalist on all of them."""
    whole = trials_of(p)
    best = _finalist(whole.part, own, policy_threshold)
    if whole.run(own) is None:
        gain, least, doubt, chosen = None, None, "", best
    else:
        gain = whole.cost(own) / whole.cost(best) - 1
        is_worth = _is_worth(whole, best, own)
        least, doubt = _least(whole.part, best, own, gain) if is_worth else (gain, "")
        chosen = best if is_worth and least > 0 else own
    rows = _rows(whole, own, best, chosen, policy_threshold)
    return Proof(
        own=own,
        chosen=chosen,
        best=best,
        gain=gain,
        least=least,
        doubt=doubt,
        rows=rows,
        trials=whole,
    )


def _is_worth(whole: Trials, best: Settings, own: Settings) -> bool:
    """3 % of the objective; where requests come by themselves, a tenth of a limit more room."""
    found, theirs = whole.run(best), whole.run(own)
    if found is None or theirs is None or not (found.slo and theirs.slo):
        return whole.cost(own) / whole.cost(best) - 1 >= WORTH
    if whole.problem.is_open:
        more = whole.cost(own) - whole.cost(best)
        return whole.cost(best) <= 1 and (more >= WORTH_ROOM or whole.cost(own) > 1)
    return found.slo.is_met and whole.cost(own) / whole.cost(best) - 1 >= WORTH


def _finalist(trials: Trials, own: Settings, policy_threshold: int | None) -> Settings:
    p, found = trials.problem, search(trials, own)
    others = [found, *_ideas(p, found, policy_threshold), *_ideas(p, own, policy_threshold)]
    return _pruned(trials, trials.best([one for one in others if one != own], own), own)


def _pruned(trials: Trials, best: Settings, own: Settings) -> Settings:
    """Each argument earns its place: what makes no difference is left to vLLM."""
    for name in NAMES:
        without = Settings.of({**best.given(), name: getattr(own, name)})
        if without != best and trials.against(without, best) <= 1 + NEAR:
            best = without
    return best


def _ideas(p: Problem, settings: Settings, threshold: int | None) -> list[Settings]:
    """The policy's threshold where it bites; off where vLLM supports it without a warning."""
    budget, ideas = settings.max_num_batched_tokens or 0, []
    if threshold and threshold < min(budget, p.longest):
        ideas.append(replace(settings, long_prefill_token_threshold=threshold))
    if p.deployment.release.off is Off.HONOURED and not settings.long_prefill_token_threshold:
        size = max(budget, p.context)
        ideas.append(replace(settings.at_budget(size), enable_chunked_prefill=False))
    return ideas


def _least(part: Trials, best: Settings, own: Settings, gain: float) -> tuple[float, str]:
    """The least gain of all variations, on either host; one in which there is none ends it.

    Where vLLM's own setting breaks a limit, one in which both keep all of them tells nothing.
    """
    p, least, doubt = part.problem, gain, ""
    mends = bool(p.slo) and not _keeps_limits(part, own)
    for how in p.requests.variations if p.requests else ():
        varied = part.varied(how)
        if mends and _keeps_limits(varied, own) and _keeps_limits(varied, best):
            continue
        found = varied.gain(best, own)
        if found < least:
            least, doubt = found, how.title
        if least <= 0:
            break
    return least, doubt


def _keeps_limits(trials: Trials, settings: Settings) -> bool:
    runs = [trials.run(settings, host) for host in trials.hosts]
    return all(run is not None and limits_used(run) <= 1 for run in runs)


# -- the table -----------------------------------------------------------------------------------


def _rows(
    trials: Trials, own: Settings, best: Settings, chosen: Settings, threshold: int | None
) -> tuple[TriedSetting, ...]:
    """vLLM's own, the policy's, the best and its neighbours; what cannot run is left out."""
    policy = _ideas(trials.problem, own, threshold)[:1] if threshold else []
    named = {
        OWN_NAME: own,
        **({POLICY_NAME: policy[0]} if policy else {}),
        BEST_NAME: best,
        **_neighbours(best),
    }
    rows, seen = [], set()
    for name, settings in named.items():
        if settings not in seen and (row := _row(trials, name, settings, settings == chosen)):
            rows.append(row)
            seen.add(settings)
    return tuple(rows)


def _neighbours(best: Settings) -> dict[str, Settings]:
    size = best.max_num_batched_tokens or 0
    return {f"{n:,} tokens a step": best.at_budget(n) for n in (size // 2, size * 2)}


def _row(trials: Trials, name: str, settings: Settings, chosen: bool) -> TriedSetting | None:
    run = trials.run(settings)
    if run is None:
        return None
    gaps = run.figures.itl_s
    return TriedSetting(
        name=name,
        max_num_batched_tokens=run.args.max_num_batched_tokens,
        max_num_seqs=run.args.most_running,
        long_prefill_token_threshold=run.args.long_prefill_token_threshold,
        enable_chunked_prefill=run.args.enable_chunked_prefill,
        makespan_s=run.figures.makespan_s,
        ttft_p95_s=run.figures.ttft_s.p95,
        gap_p50_s=gaps.p50 if gaps else None,
        gap_p99_s=gaps.p99 if gaps else None,
        longest_gap_s=gaps.max if gaps else None,
        preemptions=run.figures.preemptions or 0,
        kv_peak=run.kv_peak_tokens / run.args.kv_cache_tokens,
        chosen=chosen,
        slo=run.slo,
    )
