"""What measuring prefix reuse costs: `analyze` with and without it, in turn, in the same run.

Example: python tests/benchmarks/bench_prefixes.py --rounds 7

The prompts are the 14,042 of MMLU with five shots each, in the file's order and shuffled. Of each
command the least wall and CPU time is taken, so that the ratio holds on a shared machine. A missed
target is printed, never raised: it is a measurement.
"""

from __future__ import annotations

import argparse
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__" and not __package__:
    # Run as a script: let the relative imports below find their package (PEP 366).
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "benchmarks"

from . import corpora
from .bench_analyze import PREFIXES_TARGET, UNIQUE_LARGE, Bench, Case, Commands

MEMORY_TARGET_GB = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The least of some rounds; the most memory of any."""

    wall_s: float
    cpu_s: float
    peak_gb: float


def cost(commands: Commands, *, prefixes: bool) -> Cost:
    before = _cpu_s()
    done = commands.chunkscope(prefixes=prefixes)
    return Cost(wall_s=done.wall_s, cpu_s=_cpu_s() - before, peak_gb=done.peak_gb or 0.0)


def _cpu_s() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def least(costs: list[Cost]) -> Cost:
    return Cost(
        wall_s=min(cost.wall_s for cost in costs),
        cpu_s=min(cost.cpu_s for cost in costs),
        peak_gb=max(cost.peak_gb for cost in costs),
    )


def report(corpus: corpora.Corpus, with_them: Cost, alone: Cost) -> str:
    wall, cpu = with_them.wall_s / alone.wall_s, with_them.cpu_s / alone.cpu_s
    missed = [] if wall <= PREFIXES_TARGET else ["time"]
    missed += [] if with_them.peak_gb < MEMORY_TARGET_GB else ["memory"]
    return (
        f"{corpus.name}: {corpus.rows:,} prompts, {corpus.text_mb:.0f} MB: "
        f"{with_them.wall_s:.2f} s against {alone.wall_s:.2f} s counting alone, {wall:.2f} times "
        f"(CPU {with_them.cpu_s:.2f} against {alone.cpu_s:.2f} s, {cpu:.2f} times); "
        f"{with_them.peak_gb:.2f} GB; "
        + (f"missed: {', '.join(missed)}" if missed else "within the targets")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--work", type=Path, default=Path("/tmp/chunkscope-bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokenizer", default="llama3.1")
    given = parser.parse_args()
    bench = Bench(shared=given.shared, work=given.work, rounds=given.rounds, baseline_rounds=0)
    for shuffled in (False, True):
        corpus = corpora.mmlu(given.shared, given.work, shuffled=shuffled)
        commands = Commands(
            bench, Case(name=corpus.name, corpus=corpus, targets=UNIQUE_LARGE), given.tokenizer
        )
        commands.chunkscope()  # compiles the tokenizer
        rounds = [
            (cost(commands, prefixes=True), cost(commands, prefixes=False))
            for _ in range(given.rounds)
        ]
        with_them, alone = (least([*costs]) for costs in zip(*rounds, strict=True))
        print(report(corpus, with_them, alone), flush=True)


if __name__ == "__main__":
    main()
