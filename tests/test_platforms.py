"""What needs POSIX is kept to `verify`, which says so; all else does without, and without fork."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

# Windows lacks these, and macOS has them in another way. Libraries decide when they are loaded what
# there is: those that the commands use are first.
COMMANDS = """
import multiprocessing, os, signal, sys
from pathlib import Path
import datasets, pytest

gone = {
    os: "fork forkpty killpg getpgid setsid getpgrp geteuid sched_getaffinity mkfifo wait4 nice",
    signal: "SIGKILL SIGPROF SIGXCPU SIGHUP SIGALRM setitimer alarm",
}
multiprocessing.set_start_method("spawn", force=True)
for module, names in gone.items():
    for name in names.split():
        vars(module).pop(name, None)
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios")))
assert not [name for name in sys.modules if name.startswith("chunkscope.")]
from tests.commands.helpers import chunkscope
place = Path(sys.argv[1])
data = Path("sample_data/math_word_problems.jsonl").resolve()
for words in (
    ("analyze", data),
    ("prefixes",),
    ("recommend", "--model", "qwen3-8b", "--gpu", "h100", "--emit", "vllm-yaml"),
    ("simulate",),
    ("memory", "--model", "qwen3-8b", "--gpu", "h100"),
    ("report",),
):
    done = chunkscope(place, *words)
    assert done.code == 0, (words, done.err)
done = chunkscope(place, "verify", "--model", "qwen3-8b", "--load-format", "dummy")
print(done.code, done.err)
"""


def test_commands_run_without_posix_and_verify_says_what_it_needs(tmp_path: Path) -> None:
    words = [sys.executable, "-c", COMMANDS, str(tmp_path)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.startswith("4 ")
    assert "--endpoint" in done.stdout
