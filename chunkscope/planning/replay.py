"""The requests of an engine's log, to be simulated: when they came, and how long they were."""

from pathlib import Path

from chunkscope.errors import InputError
from chunkscope.planning.log_files import read_log
from chunkscope.simulation.traces import Trace
from chunkscope.simulation.workload import Request
from chunkscope.vllm.log.arrivals import LoggedArrivals
from chunkscope.vllm.log.reader import EngineLife, LogReader

_HINT = (
    "start vLLM with --enable-log-requests or --enable-logging-iteration-details (0.14 and later), "
    "or give a rate: --arrivals 5/s"
)


def logged_arrivals(path: Path) -> tuple[tuple[float, ...], Trace | None, tuple[str, ...]]:
    """When requests came, since the first; as a trace where their lengths are known, too."""
    reader = LogReader(replay=True)
    read_log(str(path), reader)
    lives = [life for life in reader.reading().lives if life.arrivals]
    if not lives:
        raise InputError(f"{path} does not say when requests came", hint=_HINT)
    life, found = lives[-1], lives[-1].arrivals
    assert found is not None  # noqa: S101  (those without were left out)
    first = found.times[0]
    times = tuple(time - first for time in found.times)
    notes = [f"{len(times):,} requests came as {path.name} says, to a second"]
    if len(lives) > 1:
        notes.append(f"of {len(lives):,} engines in the log the last is replayed")
    if found.left_out:
        notes.append(f"{found.left_out:,} later requests of the log are left out")
    if not found.requests:
        return times, None, tuple(notes)
    return times, _trace(found, times), (*notes, *_doubts(life))


def _trace(found: LoggedArrivals, times: tuple[float, ...]) -> Trace:
    return Trace(
        requests=tuple(
            Request(
                prompt_tokens=max(1, round(request.prompt_tokens)),
                output_tokens=request.output_tokens,
                arrival_s=time,
            )
            for request, time in zip(found.requests, times, strict=True)
        )
    )


def _doubts(life: EngineLife) -> list[str]:
    said = ["prompts that were read in one step are taken to be equally long, as steps are logged"]
    if life.arguments.get("long_prefill_token_threshold"):
        said.append("its threshold splits several prompts at once: some may be counted twice")
    if life.facts.enable_prefix_caching:
        said.append("prompts are as long as what was read of them: what its cache found is missing")
    return said
