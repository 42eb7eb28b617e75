"""What becomes of an engine, played by a script. test_real_verify.py has real ones."""

import json
import sys
from pathlib import Path

import pytest

from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.report.words import sentence
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.engine_run import EngineJob, MeasuredRun, measure
from chunkscope.verification.result import Machine
from chunkscope.verification.settings import SettingRow
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

STEPS = {
    "prefill_tokens": [10, 0],
    "prefill_pairs": [55, 0],
    "prefill_requests": [1, 0],
    "decode_requests": [0, 1],
    "decode_context_tokens": [0, 11],
    "duration_s": [0.01, None],
    "chunks": {"0.0": 1},
    "preemptions": 0,
}
ANSWER = {"sent": 0.0, "times": [0.01, 0.02], "counts": [1, 1], "cached": 0}
BEGUN = [
    {"event": "versions", "vllm": "0.28.0", "torch": "2.11.0"},
    {"event": "accepted", "engine": {}},
    {"event": "ready", "start_s": 1.0, "engine": {}, "workers": [{"rank": 0, "device": "cpu"}]},
]
REPEAT = {"event": "repeat", "repeat": 0, "answers": [ANSWER], "steps": STEPS}
REPEAT |= {"memory": [{"rank": 0, "device_peak_bytes": 5}], "held": True, "emptied": True}
MEASURED = {"event": "measured"}
BURST = {"event": "burst", "steps": STEPS}
NOBODY = Progress()


def measured(
    folder: Path,
    *events: dict,
    code: int = 0,
    arrival_s: float = 0.0,
    listener: Progress = NOBODY,
    machine: Machine | None = None,
    before: str = "",
    timeout_s: float = 300,
) -> MeasuredRun:
    """An engine that runs `before`, tells these events and ends with that code."""
    script = folder / "python"
    lines = json.dumps("".join(json.dumps(event) + "\n" for event in events))
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n{before}"
        f"os.write(int(os.environ['CHUNKSCOPE_EVENTS_FD']), {lines}.encode())\nsys.exit({code})\n"
    )
    script.chmod(0o755)
    request = Request(prompt_tokens=10, output_tokens=2, arrival_s=arrival_s)
    job = EngineJob(
        python=str(script),
        engine={},
        entry="llm",
        workload=Workload(
            requests=(request,), seed=0, arrivals="batch", task=Task.GENERATE, long_over=100
        ),
        warm_up=[],
        repeats=1,
        timeout_s=timeout_s,
        machine=machine,
    )
    setting = SettingRow(name="plan", settings=Settings())
    return measure(setting, job, folder / "verify-plan.log", listener)


class Watching(Progress):
    """Lets the engine go on to the next thing when it is seen to do this one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self.seen = folder, []

    def phase(self, phase: str, detail: str = "") -> None:
        super().phase(phase, detail)
        self.seen.append(phase)
        (self._folder / phase).touch()


def test_what_an_engine_does_before_it_is_ready_is_told(tmp_path) -> None:
    """It says so in its log alone, and waits till that is seen."""
    said = {
        "loading weights": "Starting to load model m...",
        "compiling": "Dynamo bytecode transform time: 6.52 s",
        "autotuning kernels": "Autotuning process starts",
        "capturing CUDA graphs": "Capturing CUDA graphs (decode, FULL):  10%",
    }
    before = "import time\nfrom pathlib import Path\n" + "".join(
        f"print({line!r}, flush=True)\n"
        f"while not Path({str(tmp_path / phase)!r}).exists(): time.sleep(0.01)\n"
        for phase, line in said.items()
    )
    watching = Watching(tmp_path)
    found = measured(tmp_path, *BEGUN, REPEAT, MEASURED, before=before, listener=watching)
    assert found.run.ok
    assert watching.seen == list(said)


def test_one_that_shows_no_sign_of_life_is_ended(tmp_path) -> None:
    before = "import time\nprint('Starting to load model m...', flush=True)\ntime.sleep(600)\n"
    found = measured(tmp_path, before=before, timeout_s=1.0)
    assert found.run.status is Status.TIMEOUT
    assert found.run.failure.code == "engine_silent"
    assert found.run.failure.values == {"seconds": 1.0, "phase": "loading weights"}


def test_a_prefix_cache_that_was_not_emptied_is_noted_once(tmp_path) -> None:
    again = {**REPEAT, "emptied": False}
    found = measured(tmp_path, *BEGUN, REPEAT, again, again, MEASURED, {"event": "done"})
    assert [note.code for note in found.run.notes] == ["prefix_cache_not_emptied"]


def test_an_engine_that_tells_everything_is_a_row(tmp_path) -> None:
    found = measured(tmp_path, *BEGUN, REPEAT, MEASURED, BURST, {"event": "done"})
    assert found.run.ok
    assert found.run.notes == ()
    assert found.run.figures.makespan_s == pytest.approx(0.02)
    assert len(found.record.bursts) == 1


def test_one_on_another_machine_than_the_rows_that_are_kept_ends_before_it_measures(
    tmp_path,
) -> None:
    before = Machine(device="cpu", vllm="0.24.0")
    with pytest.raises(InputError, match=r"0\.24\.0.*0\.28\.0"):
        measured(tmp_path, *BEGUN, REPEAT, MEASURED, machine=before)


def test_one_that_dies_while_calibrating_has_been_measured(tmp_path) -> None:
    found = measured(tmp_path, *BEGUN, REPEAT, MEASURED, BURST, code=1)
    assert found.run.ok
    assert len(found.record.bursts) == 1


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        pytest.param(3, 3, id="a code"),
        pytest.param(137, "SIGKILL", id="killed"),
        pytest.param(255, 255, id="no signal is 127"),
        pytest.param(168, 168, id="a real-time signal has no name"),
    ],
)
def test_whatever_an_engine_ends_with_is_a_row(tmp_path, code, ended) -> None:
    found = measured(tmp_path, *BEGUN, code=code)
    assert found.run.status is Status.DIED
    assert ended in found.run.failure.values.values()
    assert sentence(found.run.failure)


def test_requests_that_could_not_be_held_are_told(tmp_path) -> None:
    loose = {**REPEAT, "held": False}
    (note,) = measured(tmp_path, *BEGUN, loose, MEASURED).run.notes
    assert note.code == "requests_trickled_in"
    spread = measured(tmp_path, *BEGUN, loose, MEASURED, arrival_s=0.5)
    assert spread.run.notes == ()
