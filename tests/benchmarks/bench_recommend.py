"""CPU time of whole `recommend` commands, and how many plain simulations that is.

Example: python -m tests.benchmarks.bench_recommend
"""

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chunkscope import Profile, recommend
from chunkscope.planning.predict import SimulateOptions, predict
from tests.build import profile

SETTING = {"model": "qwen2.5-1.5b", "gpu": "l4"}
ROUNDS = 3


def main() -> None:
    chance = random.Random(0)
    short = [round(chance.lognormvariate(3.3, 0.9)) + 1 for _ in range(14_042)]
    many = {
        f"set{n}": [round(chance.lognormvariate(6, 1.2)) + 1 for _ in range(500)]
        for n in range(100)
    }
    cases = {
        "the sample data (target < 1 s)": Profile.load("reports/example/profile.json"),
        "14,042 prompts, as MMLU's (target < 3 s)": profile(data=short),
        "100 datasets of 500 prompts": profile(**many),
    }
    for title, data in cases.items():
        least = min(_command(data) for _ in range(ROUNDS))
        once = min(_simulation(data) for _ in range(ROUNDS))
        print(f"{title}: {least:.2f} s of CPU time, {least / once:.1f} x one simulation of all")


def _command(data: Profile) -> float:
    """User time of the process, whatever else the machine does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        data.save(path)
        words = ["-m", SETTING["model"], "--gpu", SETTING["gpu"], "-o", f"{folder}/plan.json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(
            [sys.executable, "-m", "chunkscope", "recommend", str(path), *words],
            check=True,
            capture_output=True,
        )
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def _simulation(data: Profile) -> float:
    plan = recommend(data, **SETTING)
    start = time.process_time()
    predict(plan, data, SimulateOptions())
    return time.process_time() - start


if __name__ == "__main__":
    main()
