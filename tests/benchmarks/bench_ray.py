"""How `analyze --ray` grows with its workers, on a cluster on this machine.

Example: python tests/benchmarks/bench_ray.py --mb 256 --workers 1 2 4

Text that no two prompts share, as JSON Lines in one file, counted in pieces. Each cluster counts it
twice: the first time its workers load the tokenizer. Beside the wall time there is the CPU time of
the workers' tasks and of the driver, which hold on a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__" and not __package__:
    # Run as a script: let the relative imports below find their package (PEP 366).
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "benchmarks"

from chunkscope import AnalyzeOptions
from chunkscope.lengths import on_ray

from . import corpora

_LOG = "CHUNKSCOPE_BENCH_LOG"
_count_pieces = on_ray.count_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    tasks: int
    wall_s: float
    worker_cpu_s: float
    driver_cpu_s: float


def timed(log: str, name: str, job: list[Any], places: list[int], *, by_reference: bool) -> Any:
    """The task, which also writes down its CPU time."""
    began = time.process_time()
    part = _count_pieces(name, job, places, by_reference=by_reference)
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()} {time.process_time() - began}\n")
    return part


def cost(path: Path, options: AnalyzeOptions, log: Path) -> Cost:
    log.write_text("")
    wall, cpu = time.perf_counter(), time.process_time()
    on_ray.analyze_on_ray(path, options=options)
    wall_s, driver_s = time.perf_counter() - wall, time.process_time() - cpu
    tasks = [float(line.split()[1]) for line in log.read_text().splitlines()]
    return Cost(tasks=len(tasks), wall_s=wall_s, worker_cpu_s=sum(tasks), driver_cpu_s=driver_s)


def measure(path: Path, options: AnalyzeOptions, workers: int, log: Path) -> tuple[Cost, Cost]:
    """On a new cluster of so many workers: the first run, and the next."""
    import ray

    ray.init(
        num_cpus=workers,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        return cost(path, options, log), cost(path, options, log)
    finally:
        ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--piece-mib", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--tokenizer")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-ray-") as folder:
        corpus = corpora.unique(asked.mb, Path(folder))
        log = Path(folder) / "tasks.log"

        def logged(*words: Any, **more: Any) -> Any:
            return timed(str(log), *words, **more)

        on_ray.count_pieces = logged
        options = AnalyzeOptions(tokenizer=asked.tokenizer, piece_bytes=asked.piece_mib << 20)
        megabytes = corpus.path.stat().st_size / 1e6
        print(f"{megabytes:.0f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print("| workers | tasks | wall | CPU of workers | MB per CPU-second | CPU of driver |")
        print("|---|---|---|---|---|---|")
        for workers in asked.workers:
            for title, run in zip(
                ("first", "next"), measure(corpus.path, options, workers, log), strict=True
            ):
                print(
                    f"| {workers}, {title} run | {run.tasks} | {run.wall_s:.1f} s | "
                    f"{run.worker_cpu_s:.1f} s | {megabytes / run.worker_cpu_s:.1f} | "
                    f"{run.driver_cpu_s:.2f} s |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
