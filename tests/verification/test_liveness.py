"""What counts as a sign of life, with a clock that only moves when it is told to."""

import subprocess
import sys

import pytest

from chunkscope.verification.process import LONGEST_BUSY_S, Liveness, group_cpu_seconds
from tests.processes import started, wait_until


class Engine:
    """A log, some CPU time and a clock."""

    def __init__(self, folder) -> None:
        self.now, self.cpu_s, self.log = 0.0, 0.0, folder / "log"
        self.log.write_text("")
        self.liveness = Liveness(self.log, lambda: self.cpu_s, clock=lambda: self.now)

    def passes(self, seconds: float, *, line: str = "", cpu_s: float = 0.0) -> float:
        """So long with that much to show for it; for how long it was silent then."""
        self.now += seconds
        self.cpu_s += cpu_s
        with self.log.open("a") as file:
            file.write(f"{line}\n" if line else "")
        self.liveness.look()
        return self.liveness.silent_s


@pytest.fixture
def engine(tmp_path) -> Engine:
    engine = Engine(tmp_path)
    engine.passes(10.0)  # an empty log is something new once
    return engine


def test_a_line_in_the_log_is_a_sign_of_life_and_tells_the_phase(engine) -> None:
    assert engine.passes(60.0) == 60.0
    assert engine.passes(60.0, line="Dynamo bytecode transform time: 6.52 s") == 0.0
    assert engine.liveness.phase == "compiling"


def test_so_is_computing_without_a_word_but_not_for_ever(engine) -> None:
    assert engine.passes(60.0, cpu_s=30.0) == 0.0
    assert engine.passes(60.0, cpu_s=1.0) == 60.0  # a process that waits takes a little
    assert engine.passes(LONGEST_BUSY_S, cpu_s=LONGEST_BUSY_S) > LONGEST_BUSY_S


def test_so_is_what_its_program_reports(engine) -> None:
    engine.now += 500.0
    engine.liveness.hear()
    assert engine.liveness.silent_s == 0.0


def test_cpu_time_is_of_the_group_without_the_one_that_leads_it() -> None:
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'while True: pass'])"
    program = f"{child}\nimport time; time.sleep(600)"
    with started([sys.executable, "-c", program], stdin=subprocess.PIPE) as leader:
        wait_until(lambda: group_cpu_seconds(leader.pid) > 0.2)
