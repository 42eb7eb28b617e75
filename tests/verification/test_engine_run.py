"""What becomes of an engine, played by a script. test_real_verify.py has real ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.models import find_model
from chunkscope.verification import calibrate
from chunkscope.verification.calibrate import COLUMNS
from chunkscope.verification.engine_run import EngineJob, EngineRecord, measure
from chunkscope.verification.result import Machine, Run
from chunkscope.verification.settings import SettingRow
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import failed, run, workload

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
WORKER = {"rank": 0, "device": "cpu", "vllm": "0.28.0", "torch": "2.11.0"}
BEGUN = [
    {"event": "accepted", "engine": {}},
    {"event": "ready", "start_s": 1.0, "engine": {}, "workers": [WORKER]},
]
REPEAT = {"event": "repeat", "repeat": 0, "answers": [ANSWER], "steps": STEPS}
REPEAT |= {
    "memory": [{"rank": 0, "device_peak_bytes": 5}],
    "held": True,
    "emptied": True,
}
MEASURED = {"event": "measured"}
BURST = {"event": "burst", "steps": STEPS}
NOBODY = Progress()


def measured(
    folder: Path,
    *events: dict,
    code: int = 0,
    at_once: bool = True,
    listener: Progress = NOBODY,
    machine: Machine | None = None,
    before: str = "",
    timeout_s: float = 300,
) -> tuple[Run, EngineRecord]:
    """An engine that runs `before`, tells these events and ends with that code."""
    script = folder / "python"
    lines = json.dumps("".join(json.dumps(event) + "\n" for event in events))
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n{before}"
        f"os.write(int(os.environ['CHUNKSCOPE_EVENTS_FD']), {lines}.encode())\nsys.exit({code})\n"
    )
    script.chmod(0o755)
    job = EngineJob(
        python=str(script),
        engine={},
        entry="llm",
        workload=workload(10, output=2)
        if at_once
        else workload(10, 10, output=2, apart_s=0.5),
        warm_up=[],
        repeats=1,
        timeout_s=timeout_s,
        machine=machine,
    )
    setting = SettingRow(name="plan", settings=Settings())
    return measure(setting, job, folder / "verify-plan.log", listener)


def notes(*told: object, **how: object) -> list[str]:
    return [note.code for note in measured(*told, **how)[0].notes]


def test_an_engine_that_told_all_is_a_row_though_it_dies_while_calibrating(
    tmp_path,
) -> None:
    run, record = measured(tmp_path, *BEGUN, REPEAT, MEASURED, BURST, code=1)
    assert run.ok
    assert run.notes == ()
    assert run.figures.makespan_s == pytest.approx(0.02)
    assert len(record.bursts) == 1


def test_what_an_engine_does_before_it_is_ready_is_told(tmp_path) -> None:
    """It says so in its log alone, and waits till that is seen."""
    lines = {
        "loading weights": "Starting to load model m...",
        "compiling": "Dynamo bytecode transform time: 6.52 s",
    }
    before = "import time\nfrom pathlib import Path\n" + "".join(
        f"print({line!r}, flush=True)\n"
        f"while not Path({str(tmp_path / phase)!r}).exists(): time.sleep(0.01)\n"
        for phase, line in lines.items()
    )
    seen = []

    class Watching(Progress):
        """Lets the engine go on to the next thing when it is seen to do this one."""

        def phase(self, phase: str, *_: str) -> None:
            seen.append(phase)
            (tmp_path / phase).touch()

    run, _ = measured(
        tmp_path, *BEGUN, REPEAT, MEASURED, before=before, listener=Watching()
    )
    assert run.ok
    assert seen == list(lines)


def test_one_whose_log_stands_still_is_ended(tmp_path) -> None:
    """Lines keep it alive for longer than its time; then it says nothing more."""
    before = (
        "import time\n"
        "for _ in range(9): print('Starting to load model m...', flush=True); time.sleep(0.4)\n"
        "time.sleep(600)\n"
    )
    run, _ = measured(tmp_path, before=before, timeout_s=2.5)
    assert (run.status, run.failure.code) == (Status.TIMEOUT, "engine_silent")
    assert run.failure.values == {"seconds": 2.5, "phase": "loading weights"}
    assert run.took_s > 5.0


@pytest.mark.parametrize(
    ("code", "ended"),
    [(3, 3), (137, "SIGKILL"), pytest.param(168, 168, id="no signal's name")],
)
def test_whatever_an_engine_ends_with_is_a_row(tmp_path, code, ended) -> None:
    run, _ = measured(tmp_path, *BEGUN, code=code)
    assert run.status is Status.DIED
    assert ended in run.failure.values.values()


def test_a_task_reaches_its_engine_and_no_file_of_it_outlives_chunkscope(
    tmp_path,
) -> None:
    engine, temporary = tmp_path / "python", tmp_path / "temporary"
    engine.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.stdin.read())\n")
    engine.chmod(0o755)
    temporary.mkdir()
    program = (
        "import os\nfrom pathlib import Path\n"
        "from chunkscope.verification.process import engine_process\n"
        f"with engine_process({str(engine)!r}, {{'seed': 7}}, Path('log')) as process:\n"
        "    list(process.events())\n    os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=False
    )
    assert json.loads((tmp_path / "log").read_text()) == {"seed": 7}
    assert list(temporary.iterdir()) == []


def test_what_was_not_as_it_should_be_is_noted_once(tmp_path) -> None:
    again, loose = {**REPEAT, "emptied": False}, {**REPEAT, "held": False}
    assert notes(tmp_path, *BEGUN, REPEAT, again, again, MEASURED) == [
        "prefix_cache_not_emptied"
    ]
    assert notes(tmp_path, *BEGUN, loose, MEASURED) == ["requests_trickled_in"]
    later = {**loose, "answers": [ANSWER] * 2}
    assert notes(tmp_path, *BEGUN, later, MEASURED, at_once=False) == []


def test_rows_of_another_machine_do_not_stand_in_one_file(tmp_path) -> None:
    earlier = Machine(device="cpu", vllm="0.24.0")
    with pytest.raises(InputError, match=r"0\.24\.0.*0\.28\.0"):
        measured(tmp_path, *BEGUN, REPEAT, MEASURED, machine=earlier)


TIMED = {name: [1, 2, 3, 4] for name in COLUMNS} | {
    "decode_context_tokens": [1_000, 2_000, 3_000, 4_000],
    "duration_s": [0.01, 0.123456789, None, 0.0],
}


def recorded(**engine: bool) -> EngineRecord:
    return EngineRecord(
        machine=Machine(device="cuda", gpu="NVIDIA H200", vllm="0.24.0"),
        engine={"async_scheduling": True, **engine},
        steps=[TIMED],
        bursts=[TIMED],
    )


@pytest.mark.parametrize(
    ("count", "left"), [(1_500, 3_000), (1_501, 1_501), (5_000, 2_500)]
)
def test_very_many_steps_are_thinned(count, left):
    many = {name: list(range(1, count + 1)) for name in COLUMNS}
    rows = [row[0] for row in calibrate.timed_steps([many, many])]
    assert (len(rows), rows[0]) == (left, 1)
    assert rows[-1] > count - 10


def test_bursts_fit_into_any_context():
    assert calibrate.bursts_for(2) == [(n, 1, 1) for n in (1_024, 512, 256, 64, 8, 1)]
    assert calibrate.bursts_for(100)[1:3] == [(512, 32, 16), (256, 64, 16)]
    assert calibrate.bursts_for(100)[3:] == [(64, 83, 16), (8, 83, 16), (1, 83, 16)]
    assert calibrate.bursts_for(131_072)[3:] == [
        (64, 512, 16),
        (8, 4_096, 16),
        (1, 32_768, 16),
    ]


@pytest.mark.parametrize(
    ("task", "caching", "context"),
    [
        (Task.GENERATE, {}, 995),
        (Task.GENERATE, {"enable_prefix_caching": False}, 1_000),
        (Task.LOGLIKELIHOOD, {}, 1_000),
    ],
)
def test_context_that_neighbours_share_counts_as_much_as_it_takes(
    task, caching, context
):
    sent = workload(100, 5_000, apart_s=0.5, shared=64, task=task)
    good = (run("plan", 1.0), recorded(**caching))
    made = calibrate.calibration_of(
        [good, (failed("off"), recorded())], find_model("llama-3.1-8b"), sent
    )
    assert made.steps.setting == ("plan", "plan", "bursts", "bursts")
    assert made.steps.decode_context_tokens == (context, 2 * context, 1_000, 2_000)
    assert made.steps.duration_s == (0.01, 0.1234568) * 2
    assert (made.gpu, made.tp, made.vllm) == ("NVIDIA H200", 1, "0.24.0")
    assert (made.eager, made.async_scheduling) == (False, True)
    name = "calibration-nvidia-h200-llama-3.1-8b.json"
    assert calibrate.calibration_path(Path("x"), made) == Path("x") / name
    assert (
        calibrate.calibration_of([(failed("off"), recorded())], made.model, sent)
        is None
    )
