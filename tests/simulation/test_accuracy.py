"""The simulator against what an H200 did: its steps exactly, its times as its README says."""

import re
from collections.abc import Iterator

import pytest

from chunkscope.verification.result import Run
from tests.benchmarks.simulate_accuracy import (
    Case,
    cases,
    fitted,
    simulated,
    tables,
)
from tests.h200 import FOLDER

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?= %)")
ROUNDING = 0.3  # points: another machine's linear algebra may round a fit otherwise


def test_the_readme_shows_how_near_the_simulator_comes() -> None:
    computed = tables(FOLDER)
    shown = (FOLDER / "README.md").read_text()
    shown = shown[shown.index(computed.splitlines()[0]) :]
    shown = shown[: shown.index(computed.splitlines()[-1][:40])] + "end"
    computed = computed[: computed.index(computed.splitlines()[-1][:40])] + "end"
    assert NUMBER.sub("N", shown) == NUMBER.sub("N", computed)
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(computed), strict=True)
    far = [(a, b) for a, b in pairs if abs(float(a) - float(b)) > ROUNDING]
    assert not far


# -- what is exact -----------------------------------------------------------------------------

# Measured with all requests in the engine's queue when the clock started.
HELD = ("llama-3.1-8b-mixed", "llama-3.1-8b-short", "qwen2.5-1.5b-mixed")
STEPS = 10_000


def held() -> Iterator[object]:
    for group in cases(FOLDER).values():
        for case in group:
            if case.folder.name in HELD:
                for run in case.runs:
                    yield pytest.param(case, run, id=f"{case.folder.name}: {run.setting}")


@pytest.mark.parametrize(("case", "run"), [*held()])
def test_an_h200_made_the_same_steps(case: Case, run: Run) -> None:
    predicted = simulated(case, run, fitted([case], [case.workload])).figures
    for repeat in run.repeats:
        assert repeat.steps == predicted.steps
        assert repeat.chunked_prompts == predicted.chunked_prompts
        assert repeat.chunks_max == predicted.chunks_max
        assert repeat.preemptions == predicted.preemptions


@pytest.mark.parametrize(("case", "run"), [*held()])
def test_each_of_them_held_the_same_tokens(case: Case, run: Run) -> None:
    """Of the last step of a repeat no time is known, so the calibration lacks it."""
    found = simulated(case, run, fitted([case], [case.workload]), watch=STEPS)
    made = [
        (sum(c.end - c.start for c in step.chunks), len(step.chunks), step.decode_requests)
        for step in found.timeline
    ]
    steps = case.calibration.steps
    names = ("prefill_tokens", "prefill_requests", "decode_requests")
    rows = zip(steps.setting, *(getattr(steps, name) for name in names), strict=True)
    measured = [tuple(rest) for setting, *rest in rows if setting == run.setting]
    assert measured == made[:-1] * len(run.repeats)
