"""What is said of a setting that was chosen for its latencies: which limits it keeps, how well."""

from chunkscope.artefacts.numbers import seconds, share
from chunkscope.artefacts.units import SECONDS
from chunkscope.planning.proof import Proof
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.settings import Settings


def limits_advice(proof: Proof, changed: str, alternative: str) -> str:
    """The headline. `changed` and `alternative` name what is set, and what the best would set."""
    own, best = _run(proof, proof.own), _run(proof, proof.best)
    when = _when(proof)
    if not _keeps(best):
        even = f", even with {alternative}" if alternative else ""
        said = f"No setting that was tried keeps the limits {when}: {_broken(best)}{even}"
        return f"{said}. `chunkscope simulate --find-rate --slo ...` finds the rate that does."
    if changed:
        kept = f"Set {changed}: every limit is kept {when}, {_room(best)}"
        return f"{kept}; with vLLM's own {_kept_or_broken(own)} (simulated){_worst(proof)}."
    if not _keeps(own):
        doubt = f"{alternative} keeps them, but not surely: with {proof.doubt} it is no better"
        return f"Change nothing: vLLM's own breaks the limits {when} ({_broken(own)}); {doubt}."
    other = (
        f"; {alternative} would leave {share(best.slo.room)}" if alternative and best.slo else ""
    )
    return f"Change nothing: vLLM's own keeps every limit {when}, {_room(own)} (simulated){other}."


def limits_reason(proof: Proof) -> str:
    """Of an argument that is set."""
    theirs, found = (_run(proof, one) for one in (proof.own, proof.chosen))
    return f"{_room(found)} (simulated); with vLLM's own setting {_kept_or_broken(theirs)}"


def _run(proof: Proof, settings: Settings) -> SimulatedRun:
    run = proof.trials.run(settings)
    if run is None or run.slo is None:
        raise AssertionError("a setting that is judged by limits was not tried against them")
    return run


def _when(proof: Proof) -> str:
    p = proof.trials.problem
    if p.requests is not None and p.is_open:
        return f"at {p.requests.arrivals}"
    return f"with {p.concurrency:,} under way" if p.concurrency else "with all at once"


def _keeps(run: SimulatedRun) -> bool:
    calm = run.backlog is None or not run.backlog.grows
    return calm and run.slo is not None and run.slo.is_met


def _room(run: SimulatedRun) -> str:
    return f"{share(run.slo.room)} room to {run.slo.tightest}" if run.slo else ""


def _broken(run: SimulatedRun) -> str:
    """The limit that breaks first."""
    if run.slo is None or run.slo.is_met:
        return "the queue grows"
    limit = run.slo.tightest
    found = f"{seconds(run.slo.found_of(limit))}, limit {SECONDS.write(limit.seconds)}"
    return f"{limit.name} breaks first, at {found}"


def _kept_or_broken(run: SimulatedRun) -> str:
    return f"it is {_room(run)}" if _keeps(run) else _broken(run)


def _worst(proof: Proof) -> str:
    """The variation with the least room, where it is notably less."""
    p, part = proof.trials.problem, proof.trials.part
    usual, rooms = part.run(proof.chosen), {}
    for how in p.requests.variations if p.requests else ():
        trials = part.varied(how)
        runs = (trials.run(proof.chosen, host) for host in trials.hosts)
        rooms[how.title] = min(run.slo.room for run in runs if run and run.slo)
    title = min(rooms, key=lambda title: rooms[title], default=None)
    if title is None or not usual or not usual.slo or rooms[title] >= usual.slo.room - 0.05:
        return ""
    return f"; {share(rooms[title])} with {title}" if rooms[title] >= 0 else f"; not with {title}"
