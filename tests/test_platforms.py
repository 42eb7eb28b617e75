"""What needs POSIX is kept to `verify`, which says so; all else does without, and without fork."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

COMMANDS = """
import os, sys
import tests.without_posix
assert not hasattr(os, "fork")
from tests.commands.helpers import chunkscope
from pathlib import Path
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
