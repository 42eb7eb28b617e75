"""What measuring prefix reuse costs: `analyze` with and without it, in turn, in the same run.

Example: python tests/benchmarks/bench_prefixes.py --rounds 7

The prompts are the 14,042 of MMLU with five shots each, in the file's order and shuffled. Of each
command the least wall and CPU time is taken, so that the ratio holds on a shared machine. A missed
target is printed, never raised: it is a measurement.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __name__ == "__main__" and not __package__:
    # Run as a script: let the relative imports below find their package (PEP 366).
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "benchmarks"

from . import corpora
from .bench_analyze import Commands, Run, least

MEMORY_TARGET_GB = 0.5
PREFIXES_TARGET = 1.5  # times what counting alone takes


def report(corpus: corpora.Corpus, with_them: Run, alone: Run) -> str:
    wall, cpu = with_them.wall_s / alone.wall_s, with_them.cpu_s / alone.cpu_s
    missed = [] if wall <= PREFIXES_TARGET else ["time"]
    peak_gb = with_them.peak_gb or 0.0
    missed += [] if peak_gb < MEMORY_TARGET_GB else ["memory"]
    return (
        f"{corpus.name}: {corpus.rows:,} prompts, {corpus.text_mb:.0f} MB: "
        f"{with_them.wall_s:.2f} s against {alone.wall_s:.2f} s counting alone, {wall:.2f} times "
        f"(CPU {with_them.cpu_s:.2f} against {alone.cpu_s:.2f} s, {cpu:.2f} times); "
        f"{peak_gb:.2f} GB; " + (f"missed: {', '.join(missed)}" if missed else "within the targets")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--work", type=Path, default=Path("/tmp/chunkscope-bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokenizer", default="llama3.1")
    given = parser.parse_args()
    for shuffled in (False, True):
        corpus = corpora.mmlu(given.shared, given.work, shuffled=shuffled)
        tokenizer = (given.shared / "tokenizers" / given.tokenizer).resolve()
        commands = Commands(corpus=corpus, tokenizer=tokenizer, work=given.work)
        commands.chunkscope()  # prepares the tokenizer
        rounds = [
            (commands.chunkscope(), commands.chunkscope(None, "--no-prefixes"))
            for _ in range(given.rounds)
        ]
        with_them, alone = (least(costs) for costs in zip(*rounds, strict=True))
        print(report(corpus, with_them, alone), flush=True)


if __name__ == "__main__":
    main()
