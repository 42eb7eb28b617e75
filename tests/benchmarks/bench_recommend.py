"""CPU time of whole `recommend` commands, and how many plain simulations that is.

Example: python tests/benchmarks/bench_recommend.py
"""

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from chunkscope import DatasetProfile, LengthHistogram, Profile, recommend
from chunkscope.lengths.profile import TokenizerInfo
from chunkscope.planning.plan import Plan
from chunkscope.planning.predict import SimulateOptions, predict

REPOSITORY = Path(__file__).parents[2]
SETTING = {"model": "qwen2.5-1.5b", "gpu": "l4"}
ROUNDS = 3
TOKENIZER = TokenizerInfo(
    name="benchmark", digest="0", kind="hf", engine="none", reference="none", special_tokens_added=0
)


def main() -> None:
    chance = random.Random(0)
    short = (round(chance.lognormvariate(3.3, 0.9)) + 1 for _ in range(14_042))
    many = ((round(chance.lognormvariate(6, 1.2)) + 1 for _ in range(500)) for _ in range(100))
    sample = Profile.load(REPOSITORY / "reports" / "example" / "profile.json")
    cases = {
        "the sample data (target < 1 s)": sample,
        "14,042 prompts, as MMLU's (target < 3 s)": profile([short]),
        "100 datasets of 500 prompts": profile(many),
    }
    for title, data in cases.items():
        least = min(_command(data) for _ in range(ROUNDS))
        once = min(_simulation(data) for _ in range(ROUNDS))
        print(f"{title}: {least:.2f} s of CPU time, {least / once:.1f} x one simulation of all")


def profile(datasets: Iterable[Iterable[int]]) -> Profile:
    made = tuple(
        DatasetProfile(
            name=f"set-{number}",
            path=f"data/set-{number}.jsonl",
            format="jsonl",
            field="prompt",
            lengths=LengthHistogram.of(lengths),
        )
        for number, lengths in enumerate(datasets)
    )
    return Profile(tokenizer=TOKENIZER, datasets=made)


def _command(data: Profile) -> float:
    """User time of the process, whatever else the machine does."""
    with tempfile.TemporaryDirectory() as folder:
        data.save(Path(folder) / "profile.json")
        words = ["-m", SETTING["model"], "--gpu", SETTING["gpu"], "-o", "plan.json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(
            [sys.executable, "-m", "chunkscope", "recommend", "profile.json", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            check=True,
            capture_output=True,
        )
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def _simulation(data: Profile) -> float:
    plan: Plan = recommend(data, **SETTING)
    start = time.process_time()
    predict(plan, data, SimulateOptions())
    return time.process_time() - start


if __name__ == "__main__":
    main()
