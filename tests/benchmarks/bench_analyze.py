"""How long whole `chunkscope analyze` commands take, against what people run today.

All cases, about ten minutes: python -m tests.benchmarks.bench_analyze --peers PYTHON

Every figure is a fresh process, from its start to its percentiles, on a file that it
has never seen: a copy is made for each round. Rounds are interleaved (chunkscope, then
each peer, again), and the least wall and CPU time of each is taken: on a shared machine
the ratio of CPU times holds though the seconds do not. Counts that differ stop the run:
a fast wrong answer has no speed.

`--peers PYTHON` is an environment with gigatoken and orjson in it; without one, the
cases that need it run without that peer.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import corpora

ROOT = Path(__file__).resolve().parents[2]
BASELINES = Path(__file__).resolve().with_name("baselines.py")
OF_THEIR_OWN = ("gigatoken",)  # peers that need another environment
LLAMA, QWEN = "llama3.1", "qwen3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    target: str  # in the table beside what was measured
    tokenizers: tuple[str, ...] = (LLAMA,)
    peers: tuple[str, ...] = ()
    is_first_run: bool = False  # with a tokenizer that was never used
    corpus: str = ""  # if it is another case's
    flags: tuple[str, ...] = ("special_tokens = false",)


CASES = (
    Case(
        name="first-run", target="1.2x", tokenizers=(LLAMA, QWEN), peers=("naive",),
        is_first_run=True,
    ),
    Case(
        name="prepare", target="+2 s", tokenizers=(LLAMA, QWEN),
        peers=("the next run",), is_first_run=True, corpus="unique-15",
    ),
    Case(name="small-files", target="1.5x", peers=("fast",)),
    Case(name="few-shot", target="1/15", peers=("map",)),
    Case(name="unique-15", target="1.2x", peers=("gigatoken",)),
    Case(
        name="unique-107", target="1.4x", tokenizers=(LLAMA, QWEN),
        peers=("gigatoken",),
    ),
    Case(name="unique-400", target="1.3x", peers=("gigatoken",)),
    Case(
        name="chats-60", target="4 s", tokenizers=(QWEN, LLAMA), peers=("chats",),
        flags=(),
    ),
    Case(name="sample-data", target="1.2 s", tokenizers=("",), flags=()),
    Case(name="unique-1000", target="20 s, 0.6 GB"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished process with its children; the peak is that of the largest of
    them."""

    wall_s: float
    cpu_s: float
    peak_gb: float
    stdout: str


def run(command: Sequence[str], **variables: str) -> Run:
    """Run one command, offline, to its end; stop the benchmark if it fails."""
    offline = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }
    # An installed package has its bytecode; a checkout must be allowed to keep it too.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=err,
            env={**inherited, **offline, **variables},
            cwd=ROOT,
        )
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        if status:
            err.seek(0)
            raise SystemExit(
                f"failed: {' '.join(command)}\n\n{err.read().decode()[-3000:]}"
            )
        out.seek(0)
        return Run(
            wall_s=wall_s,
            cpu_s=used.ru_utime + used.ru_stime,
            peak_gb=used.ru_maxrss * 1024 / 1e9,
            stdout=out.read().decode(),
        )


@dataclass(slots=True, kw_only=True)
class Commands:
    """chunkscope and its peers on one corpus with one tokenizer, and a cache folder of
    its own."""

    case: Case
    corpus: corpora.Corpus
    tokenizer: Path | None  # None: chunkscope's own
    work: Path
    peers_python: Path | None
    agreed: tuple[int, ...] | None = None  # rows, tokens, longest

    def forget(self) -> None:
        """As on the day chunkscope was installed."""
        shutil.rmtree(self.work / "cache", ignore_errors=True)

    def chunkscope(self, path: Path) -> Run:
        command = [sys.executable, "-m", "chunkscope", "analyze", str(path)]
        command += ["--field", self.corpus.field] if self.corpus.field else []
        command += ["--tokenizer", str(self.tokenizer)] if self.tokenizer else []
        command += ["--json", "-o", str(self.work / "profile.json")]
        config = self.work / "chunkscope.toml"
        config.write_text(
            "[analyze]\n" + "".join(f"{line}\n" for line in self.case.flags)
        )
        cache = str(self.work / "cache")
        done = run(command, CHUNKSCOPE_CACHE_DIR=cache, CHUNKSCOPE_CONFIG=str(config))
        tokens = json.loads(done.stdout)["figures"]["overall"]["tokens"]
        self._agree("chunkscope", tokens["count"], tokens["total"], tokens["max"])
        return done

    def peer(self, name: str, path: Path) -> Run:
        if name == "the next run":
            return self.chunkscope(path)
        python = self.peers_python if name in OF_THEIR_OWN else sys.executable
        words = (python, BASELINES, name, path, self.corpus.field, self.tokenizer)
        done = run([*map(str, words)], PYTHONPATH="")
        tokens = json.loads(done.stdout)
        self._agree(name, tokens["count"], tokens["sum"], tokens["max"])
        return done

    def _agree(self, who: str, *counts: int) -> None:
        self.agreed = self.agreed or counts
        if counts != self.agreed:
            raise SystemExit(
                f"COUNTS DIFFER on {self.corpus.path} with {self.tokenizer}: "
                f"{who} has {counts} (rows, tokens, longest), "
                f"before there were {self.agreed}"
            )


def measure(case: Case, tokenizer: str, options: argparse.Namespace) -> str:
    """A row of the table."""
    wanted = (case.corpus or case.name, options.shared, options.work)
    with ProcessPoolExecutor(
        1
    ) as apart:  # for a command begins with the peak of this process
        corpus = apart.submit(corpora.corpus_of, *wanted).result()
    known = options.shared / "tokenizers" / tokenizer if tokenizer else None
    commands = Commands(
        case=case,
        corpus=corpus,
        tokenizer=known,
        work=options.work,
        peers_python=options.peers,
    )
    peers = [name for name in case.peers if options.peers or name not in OF_THEIR_OWN]
    commands.forget()
    if not case.is_first_run:
        commands.chunkscope(corpus.path)  # the tokenizer is prepared
    runs: dict[str, list[Run]] = {name: [] for name in ("chunkscope", *peers)}
    for _ in range(options.rounds):
        if case.is_first_run:
            commands.forget()
        with unseen(corpus.path, options.work) as path:
            runs["chunkscope"].append(commands.chunkscope(path))
            for name in peers:
                runs[name].append(commands.peer(name, path))
    wall = {name: min(done.wall_s for done in some) for name, some in runs.items()}
    cpu = {name: min(done.cpu_s for done in some) for name, some in runs.items()}
    least = min((wall[name] for name in peers), default=None)
    ratio = f"{wall['chunkscope'] / least:.2f}x" if least else ""
    if least and case.target[0] == "+":
        ratio = f"+{wall['chunkscope'] - least:.2f} s"
    cells = (
        case.name,
        tokenizer or "default",
        f"{corpus.mb:.1f}",
        f"{wall['chunkscope']:.2f} / {cpu['chunkscope']:.2f}",
        f"{max(done.peak_gb for done in runs['chunkscope']):.2f}",
        ", ".join(f"{name} {wall[name]:.2f} / {cpu[name]:.2f}" for name in peers),
        ratio,
        case.target,
    )
    return f"| {' | '.join(cells)} |"


@contextmanager
def unseen(path: Path, work: Path) -> Iterator[Path]:
    """A copy of a file or folder that no command has met."""
    with tempfile.TemporaryDirectory(prefix="unseen-", dir=work) as folder:
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        yield Path(copy(path, Path(folder) / path.name))


def main() -> None:
    names = ",".join(case.name for case in CASES)
    parser = argparse.ArgumentParser(
        description="Time whole chunkscope commands, as ratios."
    )
    parser.add_argument("--cases", default=names, help=f"default {names}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--peers", type=Path, help="the Python of an environment with other peers"
    )
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "chunkscope-bench"
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print(
        "| case | tokenizer | MB | wall / CPU s | peak GB | peers | wall ratio | "
        "target |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in (case for case in CASES if case.name in options.cases.split(",")):
        for tokenizer in case.tokenizers:
            print(measure(case, tokenizer, options), flush=True)
    print(f"\nLeast of {options.rounds} rounds, {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
