"""What reading a log costs: CPU seconds and peak memory of `chunkscope doctor` on a gigabyte.

Example: python tests/benchmarks/bench_doctor.py --mb 1000

A busy server's log: lines of clients, and every ten seconds one of the engine. `steps` is a log of
every step (`--enable-logging-iteration-details`), `requests` one with every request's parameters.
A missed target is printed, never raised: it is a measurement.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

LOGS = Path(__file__).parents[1] / "diagnosis" / "logs"
TARGET_S_PER_GB = 10.0
ACCESS = '(APIServer pid=3320) INFO:     127.0.0.1:{port} - "POST /v1/completions HTTP/1.1" 200 OK'
PER_WINDOW = 100  # requests in ten seconds


def lines_of(case: str) -> tuple[bytes, bytes]:
    """What a log of this kind begins with, and what it goes on with."""
    name = "vllm-0.28-cpu-kv-bound.log" if case == "server" else "vllm-0.28-cpu-replay.log"
    found = (LOGS / name).read_text(encoding="utf-8").splitlines()
    sign = {"server": "Avg prompt", "steps": "Iteration(", "requests": "request cmpl"}[case]
    first = next(place for place, line in enumerate(found) if sign in line)
    said = [line for line in found if sign in line]
    if case == "server":
        clients = "\n".join(ACCESS.format(port=40_000 + n) for n in range(PER_WINDOW))
        said = [f"{line}\n{clients}" for line in said]
    return "\n".join([*found[:first], ""]).encode(), "\n".join([*said, ""]).encode()


def written(case: str, size: int, folder: Path) -> Path:
    path = folder / f"{case}.log"
    head, body = lines_of(case)
    with path.open("wb") as file:
        file.write(head)
        while file.tell() < size:
            file.write(body)
    return path


def measured(path: Path) -> tuple[float, float]:
    """CPU seconds, and the most memory in MB."""
    script = (
        "import resource, sys; from chunkscope import doctor; doctor(sys.argv[1]);"
        "r = resource.getrusage(resource.RUSAGE_SELF); print(r.ru_utime + r.ru_stime, r.ru_maxrss)"
    )
    words = [sys.executable, "-c", script, str(path)]
    seconds, peak = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(peak) / 1024


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--mb", type=int, default=1_000)
    asked.add_argument("cases", nargs="*", default=["server", "requests", "steps"])
    given = asked.parse_args()
    for case in given.cases:
        with tempfile.TemporaryDirectory() as folder:
            path = written(case, given.mb * 1_000_000, Path(folder))
            seconds, peak = measured(path)
        each = seconds * 1_000 / given.mb
        fate = "within the target" if each <= TARGET_S_PER_GB else "missed"
        print(f"{case}: {given.mb:,} MB in {seconds:.1f} s of CPU, {each:.1f} s/GB ({fate}); "
              f"{peak:.0f} MB of memory")  # fmt: skip


if __name__ == "__main__":
    main()
