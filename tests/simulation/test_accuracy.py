"""The simulator against what an H200 did: its steps exactly, its times as its README
says."""

import re
from collections.abc import Iterator

import pytest

from chunkscope.verification.result import Run
from tests.benchmarks.simulate_accuracy import Case, cases, simulated, tables
from tests.h200 import FOLDER
from tests.simulation.common import STEP

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


# -- what is exact -------------------------------------------------------------

# Measured with all requests in the engine's queue when the clock started.
HELD = ("llama-3.1-8b-mixed", "llama-3.1-8b-short", "qwen2.5-1.5b-mixed")
STEPS = 10_000


def held() -> Iterator[object]:
    for group in cases(FOLDER).values():
        for case in group:
            if case.folder.name in HELD:
                for run in case.runs:
                    yield pytest.param(
                        case, run, id=f"{case.folder.name}: {run.setting}"
                    )


@pytest.mark.parametrize(("case", "run"), [*held()])
def test_an_h200_made_the_same_steps_of_the_same_tokens(case: Case, run: Run) -> None:
    """Whatever they take, as nobody arrives later. The calibration lacks a repeat's
    last step."""
    answer = simulated(case, run.setting, STEP, watch=STEPS)
    for repeat in run.repeats:
        for name in ("steps", "chunked_prompts", "chunks_max", "preemptions"):
            assert getattr(repeat, name) == getattr(answer.figures, name), name
    made = [
        (
            sum(c.end - c.start for c in step.chunks),
            len(step.chunks),
            step.decode_requests,
        )
        for step in answer.timeline
    ]
    steps = case.calibration.steps
    columns = (steps.prefill_tokens, steps.prefill_requests, steps.decode_requests)
    rows = zip(steps.setting, *columns, strict=True)
    measured = [tuple(rest) for setting, *rest in rows if setting == run.setting]
    assert measured == made[:-1] * len(run.repeats)
