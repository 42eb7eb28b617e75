"""How long whole `chunkscope analyze` commands take, against what people run today.

All cases, about ten minutes: python tests/benchmarks/bench_analyze.py --peers PYTHON

Every figure is a fresh process, from its start to its percentiles, on a file that it has never
seen: a copy is made for each round. Rounds are interleaved (chunkscope, then each peer, again), and
the least wall and CPU time of each is taken: on a shared machine the ratio of CPU times holds
though the seconds do not. A missed target is printed, never raised: it is a measurement. Counts
that differ do stop the run: a fast wrong answer has no speed.

`--peers PYTHON` is an environment with gigatoken and orjson in it; without one, the cases that need
it run without that peer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

if __name__ == "__main__" and not __package__:
    # Run as a script: let the relative import below find its package (PEP 366).
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "benchmarks"

from . import corpora

ROOT = Path(__file__).resolve().parents[2]
BASELINES = Path(__file__).resolve().with_name("baselines.py")
OF_THEIR_OWN = ("gigatoken",)  # peers that need another environment
LLAMA, QWEN = "llama3.1", "qwen3"
SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The most it may take: as a share of the best peer's time, in seconds, and in memory.

    `beyond` are seconds more than the same command takes once the tokenizer is prepared.
    """

    ratio: float | None = None
    seconds: float | None = None
    beyond: float | None = None
    peak_gb: float | None = None

    def __str__(self) -> str:
        parts = (
            (self.ratio, "x"), (self.seconds, " s"), (self.beyond, " s more"), (self.peak_gb, " GB")
        )  # fmt: skip
        return ", ".join(f"<= {value:.3g}{unit}" for value, unit in parts if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    tokenizers: tuple[str, ...]
    peers: tuple[str, ...]
    target: Target
    is_first_run: bool = False  # with a tokenizer that was never used
    corpus: str = ""  # by default that of its name
    flags: tuple[str, ...] = ("special_tokens = false",)


CASES = (
    Case(
        name="first-run", tokenizers=(LLAMA, QWEN), peers=("naive",), target=Target(ratio=1.2),
        is_first_run=True,
    ),
    Case(
        name="prepare", corpus="unique-15", tokenizers=(LLAMA,), peers=(),
        target=Target(beyond=2), is_first_run=True,
    ),
    Case(name="small-files", tokenizers=(LLAMA,), peers=("fast",), target=Target(ratio=1.5)),
    Case(name="few-shot", tokenizers=(LLAMA,), peers=("map",), target=Target(ratio=1 / 15)),
    Case(name="unique-15", tokenizers=(LLAMA,), peers=("gigatoken",), target=Target(ratio=1.2)),
    Case(
        name="unique-107", tokenizers=(LLAMA, QWEN), peers=("gigatoken", "fastokens"),
        target=Target(ratio=1.4),
    ),
    Case(name="unique-400", tokenizers=(LLAMA,), peers=("gigatoken",), target=Target(ratio=1.3)),
    Case(
        name="chats-60", tokenizers=(QWEN, LLAMA), peers=(), target=Target(seconds=4), flags=()
    ),
    Case(name="sample-data", tokenizers=("",), peers=(), target=Target(seconds=1.2), flags=()),
    Case(name="unique-1000", tokenizers=(LLAMA,), peers=(), target=Target(seconds=20, peak_gb=0.6)),
)  # fmt: skip


# --- running commands -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished process tree; `peak_gb` is None where it was not sampled."""

    wall_s: float
    cpu_s: float
    peak_gb: float | None
    stdout: str


def run(command: Sequence[str], env: Mapping[str, str], *, sample: bool = False) -> Run:
    """Run one command to its end; stop the benchmark if it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started, before = time.perf_counter(), _cpu_s()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=dict(env), cwd=ROOT)
        peak = PeakMemory(process.pid) if sample and sys.platform == "linux" else None
        # A wait without a time limit sleeps in the kernel: polling would round the wall time up.
        status = process.wait()
        wall_s, cpu_s = time.perf_counter() - started, _cpu_s() - before
        peak_gb = peak.stop() if peak else None
        if status != 0:
            err.seek(0)
            said = err.read().decode(errors="replace")[-3000:]
            raise SystemExit(f"exit status {status}: {' '.join(command)}\n\n{said}")
        out.seek(0)
        return Run(wall_s=wall_s, cpu_s=cpu_s, peak_gb=peak_gb, stdout=out.read().decode())


def _cpu_s() -> float:
    """Of all processes that have ended."""
    used = os.times()
    return used.children_user + used.children_system


class PeakMemory:
    """Samples the resident memory of a process and its descendants, on a thread of its own.

    A sum of RSS counts a page twice that two processes share: it errs against the command.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> float | None:
        self._done.set()
        self._thread.join()
        return self._peak_bytes / 1e9 if self._peak_bytes else None

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            total = sum(map(_resident_bytes, _tree(self._pid)))
            self._peak_bytes = max(self._peak_bytes, total)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:
            # The thread ended between being listed and being read.
            continue
        for child in pids:
            yield from _tree(int(child))


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def environment(**more: str) -> dict[str, str]:
    # Offline, so that no command waits for a network that may not be there.
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    # An installed package has its bytecode; a checkout must be allowed to keep it too.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **offline, **more}


# --- the commands ---------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Commands:
    """chunkscope and its peers on one corpus with one tokenizer, and a cache folder of its own."""

    corpus: corpora.Corpus
    tokenizer: Path | None  # None: chunkscope's own
    work: Path
    peers_python: Path | None = None
    flags: tuple[str, ...] = ("special_tokens = false",)
    agreed: tuple[int, int, int] | None = field(default=None, init=False)  # rows, tokens, longest

    def __post_init__(self) -> None:
        self.forget()

    @property
    def _cache(self) -> Path:
        return self.work / "cache"

    def forget(self) -> None:
        """As on the day chunkscope was installed."""
        shutil.rmtree(self._cache, ignore_errors=True)

    def chunkscope(self, path: Path | None = None, *more: str) -> Run:
        command = [sys.executable, "-m", "chunkscope", "analyze", str(path or self.corpus.path)]
        command += ["--field", self.corpus.field] if self.corpus.field else []
        command += ["--tokenizer", str(self.tokenizer)] if self.tokenizer else []
        command += ["--json", "--output", str(self.work / "profile.json"), "--no-cache"]
        config = self.work / "chunkscope.toml"
        config.write_text("[analyze]\n" + "".join(f"{line}\n" for line in self.flags))
        env = environment(CHUNKSCOPE_CACHE_DIR=str(self._cache), CHUNKSCOPE_CONFIG=str(config))
        done = run([*command, *more], env, sample=True)
        tokens = json.loads(done.stdout)["figures"]["overall"]["tokens"]
        self._agree("chunkscope", (tokens["count"], tokens["total"], tokens["max"]))
        return done

    def peer(self, name: str, path: Path) -> Run:
        python = self.peers_python if name in OF_THEIR_OWN else sys.executable
        command = [str(python), str(BASELINES), name, str(path), self.corpus.field]
        done = run([*command, str(self.tokenizer)], environment(PYTHONPATH=""))
        tokens = json.loads(done.stdout)
        self._agree(name, (tokens["count"], tokens["sum"], tokens["max"]))
        return done

    def _agree(self, who: str, counts: tuple[int, int, int]) -> None:
        self.agreed = self.agreed or counts
        if counts != self.agreed:
            raise SystemExit(
                f"COUNTS DIFFER on {self.corpus.path} with {self.tokenizer}: {who} has {counts} "
                f"(rows, tokens, longest), before there were {self.agreed}"
            )


# --- measuring ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case with one tokenizer: least times, and the most memory of any round."""

    case: Case
    tokenizer: str
    text_mb: float
    ours: Run
    peers: dict[str, Run]

    @property
    def best(self) -> str:
        """The peer that used the least CPU time, which other people's load changes least."""
        return min(self.peers, key=lambda name: self.peers[name].cpu_s, default="")

    @property
    def missed(self) -> list[str]:
        """The targets that it did not reach."""
        target, ours = self.case.target, self.ours
        missed = []
        if target.ratio and self.best and ours.wall_s > target.ratio * self._wall_s:
            missed.append("wall")
        if target.ratio and self.best and ours.cpu_s > target.ratio * self.peers[self.best].cpu_s:
            missed.append("CPU")
        if target.beyond and ours.wall_s > target.beyond + self._wall_s:
            missed.append("preparing")
        if target.seconds and ours.wall_s > target.seconds:
            missed.append("seconds")
        if target.peak_gb and (ours.peak_gb is None or ours.peak_gb > target.peak_gb):
            missed.append("memory")
        return missed

    @property
    def _wall_s(self) -> float:
        return min(peer.wall_s for peer in self.peers.values())

    def cells(self) -> tuple[str, ...]:
        ours, best = self.ours, self.peers.get(self.best)
        ratios = ("", "")
        if best:
            ratios = f"{ours.wall_s / self._wall_s:.2f}x", f"{ours.cpu_s / best.cpu_s:.2f}x"
        return (
            self.case.name,
            self.tokenizer or "default",
            f"{self.text_mb:.1f}",
            f"{ours.wall_s:.2f}",
            f"{ours.cpu_s:.2f}",
            "not measured" if ours.peak_gb is None else f"{ours.peak_gb:.2f}",
            ", ".join(f"{n} {r.wall_s:.2f} / {r.cpu_s:.2f}" for n, r in self.peers.items()) or "-",
            *ratios,
            str(self.case.target),
            f"missed: {', '.join(self.missed)}" if self.missed else "met",
        )


def measure(case: Case, tokenizer: str, options: argparse.Namespace) -> Measured:
    corpus = corpora.corpus_of(case.corpus or case.name, options.shared, options.work)
    known = options.shared / "tokenizers" / tokenizer if tokenizer else None
    commands = Commands(
        corpus=corpus, tokenizer=known, work=options.work, peers_python=options.peers,
        flags=case.flags,
    )  # fmt: skip
    peers = [name for name in case.peers if options.peers or name not in OF_THEIR_OWN]
    if not case.is_first_run:
        commands.chunkscope()  # the tokenizer is prepared
    ours: list[Run] = []
    theirs: dict[str, list[Run]] = {name: [] for name in peers}
    if case.target.beyond:
        theirs["prepared"] = []
    for number in range(options.rounds):
        if case.is_first_run:
            commands.forget()
        with unseen(corpus.path, options.work) as path:
            ours.append(commands.chunkscope(path))
            for name in peers:
                theirs[name].append(commands.peer(name, path))
            if case.target.beyond:
                theirs["prepared"].append(commands.chunkscope(path))
        said = ", ".join(f"{n} {r[-1].wall_s:.2f} / {r[-1].cpu_s:.2f}" for n, r in theirs.items())
        _say(f"  round {number + 1}: {ours[-1].wall_s:.2f} / {ours[-1].cpu_s:.2f} s; {said}")
    return Measured(
        case=case,
        tokenizer=tokenizer,
        text_mb=corpus.mb,
        ours=least(ours),
        peers={name: least(runs) for name, runs in theirs.items()},
    )


def least(runs: Sequence[Run]) -> Run:
    peaks = [done.peak_gb for done in runs if done.peak_gb is not None]
    return replace(
        runs[0],
        wall_s=min(done.wall_s for done in runs),
        cpu_s=min(done.cpu_s for done in runs),
        peak_gb=max(peaks, default=None),
    )


class unseen:  # noqa: N801  (a context manager, used like a function)
    """A copy of a file or folder that no command has met."""

    def __init__(self, path: Path, work: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="unseen-", dir=work)
        self._copy = Path(self._folder.name) / path.name
        copy: Any = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, self._copy)

    def __enter__(self) -> Path:
        return self._copy

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


# --- showing --------------------------------------------------------------------------------


HEADER = (
    "case", "tokenizer", "MB", "wall s", "CPU s", "peak GB", "peers, wall / CPU s", "wall ratio",
    "CPU ratio", "target", "targets",
)  # fmt: skip


def table(measured: Sequence[Measured]) -> str:
    rows = [HEADER, *(one.cells() for one in measured)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def notes(rounds: int) -> str:
    names = ("tokenizers", "transformers", "datasets", "fastokens", "orjson")
    packages = ", ".join(f"{name} {_version(name)}" for name in names)
    load = f", load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    lines = (
        f"Least of {rounds} interleaved rounds, whole commands in fresh processes, each round on "
        "files that none of them has met. Rows, tokens and the longest row agreed exactly.",
        "Ratios are to the best peer: the least wall time, and the least CPU time, of any.",
        f"{os.cpu_count()} cores{load}, Python {platform.python_version()}, {packages}.",
    )
    return "\n".join(f"- {line}" for line in lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    names = ",".join(dict.fromkeys(case.name for case in CASES))
    parser = argparse.ArgumentParser(description="Time whole chunkscope commands, as ratios.")
    parser.add_argument("--cases", default=names, help=f"default {names}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", type=Path, help="the Python of an environment with other peers")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "chunkscope-bench"
    )
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    options = parser.parse_args()
    options.shared, options.work = options.shared.resolve(), options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = _options()
    wanted = options.cases.split(",")
    if unknown := set(wanted) - {case.name for case in CASES}:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    measured: list[Measured] = []
    for case in (case for case in CASES if case.name in wanted):
        for tokenizer in case.tokenizers:
            _say(f"{case.name}, {tokenizer or 'default'}")
            measured.append(measure(case, tokenizer, options))
    text = f"{table(measured)}\n\n{notes(options.rounds)}\n"
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
