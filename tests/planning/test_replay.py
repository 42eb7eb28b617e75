"""Requests of an engine's log, simulated as they came."""

from itertools import pairwise
from pathlib import Path

import pytest
from chunkscope.planning.replay import logged_arrivals

from chunkscope.errors import InputError, UsageError
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.vllm.log.arrivals import ArrivalReader
from chunkscope.vllm.log.steps import LoggedStep
from tests.build import plan, profile
from tests.vllm.test_log_reader import stamped

LOGS = Path(__file__).parents[1] / "diagnosis" / "logs"
# Twelve requests, four at once every five seconds, 300 to 850 tokens and 12 out (make_logs.py).
SENT, BURST, LONGER, OUTPUT = 12, 4, 50, 12
REPLAYS = sorted(LOGS.glob("*-replay.log"))


def without(path: Path, folder: Path, sign: str) -> Path:
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if sign not in line]
    written = folder / "vllm.log"
    written.write_text("\n".join(kept), encoding="utf-8")
    return written


@pytest.mark.parametrize("log", REPLAYS, ids=lambda path: path.stem)
def test_what_was_sent_to_a_real_engine_is_found_again(log: Path) -> None:
    times, trace, _ = logged_arrivals(log)
    assert len(times) == SENT
    bursts = [times[place : place + BURST] for place in range(0, SENT, BURST)]
    assert all(burst[-1] - burst[0] <= 1 for burst in bursts)
    assert all(4 <= later[0] - one[0] <= 7 for one, later in pairwise(bursts))
    assert trace is not None
    prompts = [request.prompt_tokens for request in trace.requests]
    assert sum(prompts) == pytest.approx(sum(300 + LONGER * n for n in range(SENT)), abs=SENT)
    assert {request.output_tokens for request in trace.requests} == {OUTPUT}


def test_steps_alone_tell_it_too(tmp_path: Path) -> None:
    times, trace, _ = logged_arrivals(without(REPLAYS[0], tmp_path, "request cmpl"))
    assert (len(times), trace and len(trace.requests)) == (SENT, SENT)


def test_without_steps_lengths_are_the_profiles(tmp_path: Path) -> None:
    log = without(REPLAYS[0], tmp_path, "Iteration(")
    made = plan([400] * 40)
    found = predict(made, profile(data=[400] * 40), SimulateOptions(log=log))
    assert (found.workload.requests, found.workload.arrivals) == (SENT, "as in the log")
    assert found.runs[0].makespan_s > 9  # the last came ten seconds after the first
    assert "their lengths are the profile's" in found.warnings
    with pytest.raises(InputError, match="no profile to draw requests from"):
        predict(made, None, SimulateOptions(log=log))


def test_a_log_is_simulated_without_a_profile() -> None:
    found = predict(plan([2_000]), None, SimulateOptions(log=REPLAYS[0]))
    assert found.workload.requests == SENT
    assert found.runs[0].output_tokens == SENT * OUTPUT


def test_a_log_that_does_not_say_when_requests_came() -> None:
    with pytest.raises(InputError, match="does not say when requests came") as error:
        logged_arrivals(LOGS / "vllm-0.28-cpu-kv-bound.log")
    assert "--enable-log-requests" in (error.value.hint or "")


def test_a_trace_and_a_log_are_one_too_many(tmp_path: Path) -> None:
    options = SimulateOptions(log=REPLAYS[0], trace=tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="leave one out"):
        predict(plan([2_000]), None, options)


def test_nothing_of_a_prompt_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    secret = "Iteration(1): 9 context requests, my password"
    lines = [
        "Initializing a V1 LLM engine (v0.10.2) with config: model='m'",
        f"Received request cmpl-1: prompt: '{secret}', params: SamplingParams(max_tokens=7)",
        "Added request cmpl-1.",
    ]
    path.write_text("\n".join(map(stamped, lines)), encoding="utf-8")
    times, trace, notes = logged_arrivals(path)
    assert (times, trace) == ((0.0,), None)
    assert not any("password" in note for note in notes)


def steps(*counts: tuple[int, int, int], budget: int | None = None) -> list[tuple[int, int]]:
    """Prompts, their tokens and answers of each step -> tokens in and out of each request."""
    reader = ArrivalReader()
    for at, (prefills, tokens, decodes) in enumerate(counts):
        reader.step(LoggedStep(prefills, tokens, decodes, 1.0), float(at), "", budget)
    found = reader.found()
    return [(round(r.prompt_tokens), r.output_tokens) for r in found.requests] if found else []


def test_a_prompt_in_chunks_is_one_request() -> None:
    assert steps((1, 512, 0), (1, 512, 0), (1, 100, 0), (0, 0, 1), budget=512) == [(1_124, 2)]
    assert steps((1, 512, 0), (1, 512, 0), (1, 100, 0), (0, 0, 1)) == [(1_124, 2)]


def test_a_prompt_that_fills_a_step_exactly() -> None:
    assert steps((1, 512, 0), (1, 511, 1), (0, 0, 2), budget=512) == [(512, 3), (511, 2)]


def test_answers_from_before_the_log_are_nobodys() -> None:
    assert steps((0, 0, 5), (1, 64, 5), (0, 0, 6), (0, 0, 1)) == [(64, 3)]
