"""What needs POSIX is kept to `verify`, which says so; all else does without, and without fork."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "chunkscope"
NEEDS_POSIX = re.compile(
    r"\bos\.(?:fork|killpg|getpgid|setsid|getuid|geteuid|sched_getaffinity|mkfifo|wait4)\b"
    r"|preexec_fn|pass_fds|^\s*import (?:fcntl|resource|pwd|grp|termios)|\"fork\"",
    re.MULTILINE,
)
# Each with what it does where there is none of it.
GUARDED = {
    "artefacts/folders.py": 'not hasattr(os, "geteuid")',
    "lengths/on_ray.py": "except ImportError",
    "prompts/harness/inside/chunkscope_tasks.py": 'hasattr(os, "killpg")',
    "prompts/harness/rendering.py": 'hasattr(os, "killpg")',
    "tokenizers/confined.py": "except ImportError",
}
# Reading, counting, planning, predicting, showing and gating.
CORE = (
    "tests/sources/test_selection.py",
    "tests/sources/test_tables.py",
    "tests/lengths/test_histogram.py",
    "tests/lengths/test_profile.py",
    "tests/sources/test_public_sets.py::test_a_template_that_ignores_tools_is_said",
    "tests/test_python.py",
)


def test_what_only_posix_has_is_kept_to_verify() -> None:
    found = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if NEEDS_POSIX.search(file.read_text(encoding="utf-8"))
    }
    others = {name for name in found if not name.startswith("verification/")}
    assert others == set(GUARDED)
    for name, guard in GUARDED.items():
        assert guard in (PACKAGE / name).read_text(encoding="utf-8")


def test_text_is_read_and_written_as_utf8_wherever_it_is() -> None:
    """Windows would take another encoding by itself."""
    plain = re.compile(
        r"(?<!codec)\.(?:read_text|write_text)\((?![^()]*(?:\([^()]*\)[^()]*)*encoding)"
    )
    for file in PACKAGE.rglob("*.py"):
        if "verification" not in file.parts:
            lines = file.read_text(encoding="utf-8").splitlines()
            assert not [line for line in lines if plain.search(line) and ">>>" not in line], file


def without_posix(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_the_core_of_the_suite_passes_without_posix_and_with_spawn() -> None:
    words = ("-p", "no:cacheprovider", "-p", "tests.without_posix", "-q", *CORE)
    done = without_posix("-m", "pytest", *words)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]


COMMANDS = """
import os, sys
import tests.without_posix
from tests.commands.helpers import chunkscope
from pathlib import Path
place = Path(sys.argv[1])
data = Path("sample_data/math_word_problems.jsonl").resolve()
for words in (
    ("analyze", data),
    ("prefixes",),
    ("recommend", "--model", "qwen3-8b", "--gpu", "h100", "--emit", "vllm-yaml"),
    ("simulate", "--sweep"),
    ("memory", "--model", "qwen3-8b", "--gpu", "h100"),
    ("report",),
):
    done = chunkscope(place, *words)
    assert done.code == 0, (words, done.err)
done = chunkscope(place, "verify", "--model", "qwen3-8b", "--load-format", "dummy")
print(done.code, done.err)
"""


def test_commands_run_without_posix_and_verify_says_what_it_needs(tmp_path: Path) -> None:
    done = without_posix("-c", COMMANDS, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.startswith("4 ")
    assert "process groups, which this system does not have" in done.stdout
    assert "--endpoint URL" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is so anyway")
def test_the_plugin_takes_away_what_it_says() -> None:
    code = "import tests.without_posix, os, multiprocessing as m; print(hasattr(os, 'fork'), "
    done = without_posix("-c", code + "m.get_start_method())")
    assert done.stdout.split() == ["False", "spawn"]
