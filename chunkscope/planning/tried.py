"""Budget, requests at once and threshold by trial: what the simulator finds, and why."""

from dataclasses import dataclass, replace

from chunkscope.artefacts.labels import Label
from chunkscope.engine.choices import Task
from chunkscope.planning.budget import LADDER
from chunkscope.planning.latency import itl_limit, latency_budget, latency_seqs
from chunkscope.planning.problem import Choice
from chunkscope.planning.seqs import choose_seqs
from chunkscope.planning.trial import WORTH, Setting, Trials, budgets_around, own_setting, search


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """`dropped` says why the policy's threshold is not set after all."""

    budget: Choice
    seqs: Choice
    dropped: str | None = None


def try_chunking(trials: Trials) -> Tried | None:
    """For throughput; None where no setting can be simulated."""
    s, own = trials.s, own_setting(trials.s)
    start = trials.at(replace(own, seqs=min(s.seqs or own.seqs, own.budget)), budget=own.budget)
    budgets = budgets_around(own.budget)
    if trials.run(start) is None:
        budgets += LADDER
    found = search(trials, start, budgets)
    if trials.run(found) is None:
        return None
    return Tried(
        budget=_budget(trials, start, found),
        seqs=_seqs(trials, start, found),
        dropped=_dropped(trials, found),
    )


def try_off(trials: Trials, *, honoured: bool) -> Tried | None:
    """Off: no budget below max_model_len."""
    s, own = trials.s, own_setting(trials.s)
    start = Setting(
        budget=max(own.budget, s.context),
        seqs=min(s.seqs or own.seqs, max(own.budget, s.context)),
        chunking=not honoured,
    )
    budgets = [s.context, *(size for size in budgets_around(own.budget) if size >= s.context)]
    found = search(trials, start, budgets)
    if trials.run(found) is None:
        return None
    return Tried(budget=_budget(trials, start, found), seqs=_seqs(trials, start, found))


def try_latency(trials: Trials) -> Tried:
    """Every step stays under the limit by itself; preempted requests wait longer, so fewer run.

    The most requests at once whose longest simulated gap stays under the limit; or half as many,
    should that be faster.
    """
    s = trials.s
    most = latency_seqs(s)
    counts = list(dict.fromkeys(max(1, int(most.value or 1) >> n) for n in range(10)))
    offers = {count: latency_budget(s, chunk=trials.cap, seqs=count) for count in counts}
    settings = [_offered(trials, count, offers[count]) for count in counts]
    smooth = next((n for n, one in enumerate(settings) if _is_smooth(trials, one)), 0)
    first, *others = settings[smooth : smooth + (1 if smooth else 2)]
    found = trials.best((one for one in others if _is_smooth(trials, one)), first)
    budget = offers[found.seqs]
    if found.seqs == counts[0]:
        return Tried(budget=budget, seqs=most)
    if found == first:
        gap = _longest_gap(trials, settings[smooth - 1]) or 0.0
        reason = f"with {2 * found.seqs:,}, preempted requests would wait {gap:,.1f} s (simulated)"
    else:
        gain = trials.seconds(first) / trials.seconds(found) - 1
        reason = f"{gain:+.0%} throughput over {first.seqs:,} requests at once (simulated)"
    seqs = Choice(value=found.seqs, default=s.default_seqs, reason=reason, label=Label.PREDICTED)
    return Tried(budget=budget, seqs=seqs)


def _offered(trials: Trials, seqs: int, budget: Choice) -> Setting:
    size = int(budget.value or seqs)
    return trials.at(Setting(budget=size, seqs=seqs), budget=size)


def _is_smooth(trials: Trials, setting: Setting) -> bool:
    gap = _longest_gap(trials, setting)
    return gap is not None and gap <= itl_limit(trials.s)


def _longest_gap(trials: Trials, setting: Setting) -> float | None:
    """None where it cannot be simulated."""
    run = trials.run(setting)
    return run.longest_gap_s if run is not None else None


def _budget(trials: Trials, start: Setting, found: Setting) -> Choice:
    s = trials.s
    default, version = start.budget, s.release.text
    if found.budget == default:
        reason = (
            f"vLLM {version} takes {default:,} by itself on this GPU, and no other gains "
            f"{WORTH:.0%} in the simulation"
        )
        return Choice(value=default, default=default, reason=reason)
    if trials.run(start) is None:
        reason = f"vLLM's own {default:,} does not fit beside the KV cache; {found.budget:,} does"
    else:
        reason = f"{_gain(trials, start, found)} over vLLM's own {default:,}"
    return Choice(value=found.budget, default=default, reason=reason, label=Label.PREDICTED)


def _seqs(trials: Trials, start: Setting, found: Setting) -> Choice:
    s = trials.s
    if found.seqs == min(start.seqs, found.budget):
        return choose_seqs(s, found.budget, chunk=found.threshold or None)
    reason = f"{_gain(trials, start, found)} over vLLM's own {start.seqs:,}"
    return Choice(value=found.seqs, default=s.default_seqs, reason=reason, label=Label.PREDICTED)


def _gain(trials: Trials, start: Setting, found: Setting) -> str:
    gain = trials.seconds(start) / trials.seconds(found) - 1
    together = " together with the budget" if start.budget != found.budget else ""
    together = together if start.seqs != found.seqs else ""
    return f"{gain:+.0%} throughput{together} (simulated, not measured)"


def _dropped(trials: Trials, found: Setting) -> str | None:
    """The policy's threshold gives way where it costs more than is worth it."""
    if not found.threshold or trials.s.task is Task.LOGLIKELIHOOD:
        return None
    without = trials.seconds(replace(found, threshold=0))
    cost = trials.seconds(found) / without - 1
    if cost < WORTH:
        return None
    return f"a threshold of {found.threshold:,} would cost {cost:.0%} throughput (simulated)"
