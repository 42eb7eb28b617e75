"""What becomes of an engine, played by a script. test_real_verify.py has real ones."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chunkscope.console import Progress
from chunkscope.errors import InputError, UsageError
from chunkscope.verification.engine_run import (
    LOG_TAIL,
    EngineJob,
    EngineRecord,
    end_of,
    measure,
)
from chunkscope.verification.result import Machine, Run
from chunkscope.verification.settings import SettingRow
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import workload

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
ANSWER = {
    "session": 0,
    "turn": 0,
    "prompt_tokens": 10,
    "sent": 0.0,
    "times": [0.01, 0.02],
    "counts": [1, 1],
    "cached": 0,
}
WORKER = {"rank": 0, "device": "cpu", "vllm": "0.28.0", "torch": "2.11.0"}
BEGUN = [
    {"event": "accepted", "engine": {}},
    {"event": "ready", "start_s": 1.0, "engine": {}, "workers": [WORKER]},
]
REPEAT = {
    "event": "repeat",
    "answers": [ANSWER],
    "steps": STEPS,
    "memory": [{"rank": 0, "device_peak_bytes": 5 << 30}],
    "held": True,
    "emptied": True,
}
MEASURED = {"event": "measured"}
BURST = {"event": "burst", "steps": STEPS}
ROW = SettingRow(name="plan", settings=Settings())
JOB = EngineJob(
    python="",
    engine={},
    entry="llm",
    workload=workload(10, output=2),
    warm_up=[],
    repeats=1,
    timeout_s=300,
)


@dataclass
class Place:
    """A folder where engines are played."""

    folder: Path

    def measure(
        self,
        *events: dict,
        code: int = 0,
        before: str = "",
        listener: Progress | None = None,
        job: EngineJob = JOB,
    ) -> tuple[Run, EngineRecord]:
        """An engine that runs `before`, tells these events and ends with that code."""
        script = self.folder / "python"
        lines = [json.dumps(event) + "\n" for event in events]
        script.write_text(
            f"#!{sys.executable}\nimport os, sys\n{before}"
            "events = int(os.environ['CHUNKSCOPE_EVENTS_FD'])\n"
            f"os.write(events, {''.join(lines)!r}.encode())\nsys.exit({code})\n"
        )
        script.chmod(0o755)
        log = self.folder / "verify-plan.log"
        job = replace(job, python=str(script))
        return measure(ROW, job, log, listener or Progress())

    def run(self, *events: dict, **how: object) -> Run:
        return self.measure(*events, **how)[0]


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def codes(run: Run) -> list[str]:
    return [note.code for note in run.notes]


def test_an_engine_that_told_all_is_a_row_though_it_dies_while_calibrating(place):
    run, record = place.measure(*BEGUN, REPEAT, MEASURED, BURST, code=1)
    assert run.ok
    assert run.notes == ()
    assert run.figures.makespan_s == pytest.approx(0.02)
    assert run.device_peak_gib == 5
    assert len(record.bursts) == 1


def test_what_an_engine_does_before_it_is_ready_is_told(place):
    """It says so in its log alone, and waits till that is seen."""
    lines = {
        "loading weights": "Starting to load model m...",
        "compiling": "Dynamo bytecode transform time: 6.52 s",
    }
    before = "import time\nfrom pathlib import Path\n"
    for phase, line in lines.items():
        seen = str(place.folder / phase)
        before += f"print({line!r}, flush=True)\n"
        before += f"while not Path({seen!r}).exists(): time.sleep(0.01)\n"
    phases = []

    class Watching(Progress):
        """Lets the engine go on to the next thing when it is seen to do this one."""

        def phase(self, phase: str, *_: str) -> None:
            phases.append(phase)
            (place.folder / phase).touch()

    told = [*BEGUN, REPEAT, MEASURED]
    assert place.run(*told, before=before, listener=Watching()).ok
    assert phases == list(lines)


def test_of_a_long_log_only_the_end_is_read(tmp_path):
    """A log that grew to gigabytes was read again four times a second."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, which takes no room on the disk
        file.seek(0, 2)
        file.write(b"Starting to load model m...\n")
    end = end_of(log)
    assert len(end) == LOG_TAIL
    assert end.endswith("Starting to load model m...\n")


@pytest.mark.parametrize("text", ["", "a line\n"])
def test_of_a_short_log_all_is_read(tmp_path, text):
    log = tmp_path / "log"
    log.write_text(text)
    assert end_of(log) == text


def test_one_whose_log_stands_still_is_ended(place):
    """Lines keep it alive for longer than its time; then it says nothing more."""
    before = (
        "import time\n"
        "for _ in range(9):\n"
        "    print('Starting to load model m...', flush=True)\n"
        "    time.sleep(0.4)\n"
        "time.sleep(600)\n"
    )
    run = place.run(before=before, job=replace(JOB, timeout_s=2.5))
    assert (run.status, run.failure.code) == (Status.TIMEOUT, "engine_silent")
    assert run.failure.values == {"seconds": 2.5, "phase": "loading weights"}
    assert run.took_s > 5.0


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param(3, 3, id="a code"),
        pytest.param(137, "SIGKILL", id="a signal"),
        pytest.param(168, 168, id="no signal's name"),
    ],
)
def test_whatever_an_engine_ends_with_is_a_row(place, code, told):
    run = place.run(*BEGUN, code=code)
    assert run.status is Status.DIED
    assert told in run.failure.values.values()


def test_a_task_reaches_its_engine_and_no_file_of_it_outlives_chunkscope(tmp_path):
    engine = tmp_path / "python"
    engine.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.stdin.read())\n")
    engine.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = (
        "import os\nfrom pathlib import Path\n"
        "from chunkscope.verification.process import engine_process\n"
        f"engine = engine_process({str(engine)!r}, {{'seed': 7}}, Path('log'))\n"
        "with engine as process:\n"
        "    list(process.events())\n    os.kill(os.getpid(), 9)\n"
    )
    words = [sys.executable, "-c", program]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run(words, cwd=tmp_path, env=environment, check=False)
    assert json.loads((tmp_path / "log").read_text()) == {"seed": 7}
    assert list(temporary.iterdir()) == []


def test_a_prefix_cache_that_was_not_emptied_is_noted_once(place):
    again = {**REPEAT, "emptied": False}
    run = place.run(*BEGUN, REPEAT, again, again, MEASURED)
    assert codes(run) == ["prefix_cache_not_emptied"]


def test_requests_that_trickled_in_are_noted(place):
    loose = {**REPEAT, "held": False}
    assert codes(place.run(*BEGUN, loose, MEASURED)) == ["requests_trickled_in"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(workload(10, 10, output=2, apart_s=0.5), id="at a rate"),
        pytest.param(workload(10, 10, output=2, concurrency=1), id="some under way"),
    ],
)
def test_requests_that_are_not_sent_at_once_cannot_trickle_in(place, sent):
    loose = {**REPEAT, "held": False, "answers": [ANSWER] * 2}
    job = replace(JOB, workload=sent)
    assert codes(place.run(*BEGUN, loose, MEASURED, job=job)) == []


def test_rows_of_another_machine_do_not_stand_in_one_file(place):
    earlier = replace(JOB, machine=Machine(device="cpu", vllm="0.24.0"))
    with pytest.raises(InputError, match=r"0\.24\.0.*0\.28\.0"):
        place.run(*BEGUN, REPEAT, MEASURED, job=earlier)


def test_what_an_earlier_row_did_not_know_of_its_machine_is_no_difference(place):
    earlier = replace(JOB, machine=Machine(device="cpu", gpu="NVIDIA H200"))
    assert place.run(*BEGUN, REPEAT, MEASURED, job=earlier).ok


def test_every_request_that_ended_is_kept(place):
    again = {**ANSWER, "turn": 1, "prompt_tokens": 40, "cached": 8}
    run = place.run(*BEGUN, {**REPEAT, "answers": [ANSWER, again]}, MEASURED)
    assert list(run.requests[0].turn) == [0, 1]
    assert list(run.requests[0].cached_tokens) == [0, 8]


def test_a_time_limit_in_which_nothing_ended_is_too_short(place):
    job = replace(JOB, time_limit_s=1.0)
    with pytest.raises(UsageError, match="no request ended within 1 s"):
        place.run(*BEGUN, {**REPEAT, "answers": []}, MEASURED, job=job)


def test_answers_are_compared_with_those_sent_again(place):
    first = {"event": "outputs", "answers": [[7, 8], [9]]}
    again = {"event": "outputs", "answers": [[7, 8], [1]]}
    run = place.run(*BEGUN, REPEAT, first, again, MEASURED)
    assert (run.outputs.answers, run.outputs.again) == (((7, 8), (9,)), 0.5)
    assert place.run(*BEGUN, REPEAT, first, MEASURED).outputs is None
