"""What comes from outside: Ctrl-C, full disks, closed pipes, a silent hub."""

import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from chunkscope import network
from tests.commands import helpers
from tests.commands.helpers import (
    analyze,
    analyze_apart,
    chunkscope,
    command,
    prompts,
    write_jsonl,
)
from tests.conftest import REPOSITORY
from tests.processes import (
    PATIENCE_S,
    ended_by_ctrl_c,
    started,
    wait_until,
    wait_until_idle,
)
from tests.remote_servers import web_server

PIPE = subprocess.PIPE
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")


def is_drained(pipe: int) -> bool:
    """Whether all that was written to it has been read."""
    return fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4)


PRESSED_WHILE_LOADING = """
import os, runpy, signal, sys

# What runs in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
module, sys.argv = sys.argv[1], ["chunkscope", "--help"]

class Press:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
runpy.run_module("chunkscope", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "module", ["chunkscope.cli", "typer", "chunkscope.commands.gate"]
)
def test_ctrl_c_while_the_commands_are_loaded_is_no_traceback(module: str) -> None:
    line = [sys.executable, "-c", PRESSED_WHILE_LOADING, module]
    done = subprocess.run(line, capture_output=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (130, b"interrupted\n")


@on_linux
def test_ctrl_c_ends_a_long_scan_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """A pipe that nobody closes makes a scan as long as can be."""
    write_jsonl(tmp_path / "done.jsonl", prompts(50))
    os.mkfifo(tmp_path / "endless.jsonl")
    analyze(
        tmp_path, "done.jsonl", "--field", "prompt", "-o", "first.json"
    )  # has the tokenizer
    cache = Path(os.environ["CHUNKSCOPE_CACHE_DIR"])
    before = set(cache.rglob("*"))
    pipes = {"stdout": PIPE, "stderr": PIPE, "env": helpers.environment()}
    # Opened both ways, it waits for no reader and does not end when there is none.
    with (
        started(command("done.jsonl", "endless.jsonl"), cwd=tmp_path, **pipes) as scan,
        open(tmp_path / "endless.jsonl", "rb+", buffering=0) as pipe,
    ):
        pipe.write(b'{"prompt": "and on"}\n' * 1000)
        wait_until(lambda: is_drained(pipe.fileno()))
        wait_until_idle(scan)
        ended_by_ctrl_c(scan)
    assert not (tmp_path / "reports").exists()
    assert set(cache.rglob("*")) == before


def answered(place: Path, stdout: object, *words: str) -> tuple[int, bytes]:
    """The exit code and stderr while stdout goes elsewhere; never a traceback."""
    write_jsonl(place / "a.jsonl", prompts())
    line = [sys.executable, "-m", "chunkscope", *words]
    done = subprocess.run(line, cwd=place, stdout=stdout, stderr=PIPE, check=False)
    assert not any(word in done.stderr for word in (b"Traceback", b"Exception"))
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("file", "code"), [("a.jsonl", 0), ("bad.jsonl", 3)], ids=["good data", "a bad row"]
)
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["table", "json"])
def test_a_reader_that_goes_away_changes_no_exit_code(tmp_path, words, file, code):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "What is it?"}\n{"prompt":')
    reading, writing = os.pipe()
    os.close(reading)

    with open(writing, "wb") as nobody:
        assert answered(tmp_path, nobody, "analyze", file, *words)[0] == code


@on_linux
@pytest.mark.parametrize("words", [["analyze", "a.jsonl"], ["--help"]])
def test_stdout_on_a_full_disk_is_a_sentence(tmp_path: Path, words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        code, said = answered(tmp_path, full, *words)
    assert (code, b"No space left on device" in said) == (3, True)


@on_linux
def test_stderr_on_a_full_disk_changes_no_exit_code(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    with open("/dev/full", "wb") as full:
        line = [sys.executable, "-m", "chunkscope", "analyze", "a.jsonl", "--json"]
        done = subprocess.run(line, cwd=tmp_path, stdout=PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout[:1]) == (0, b"{")


@pytest.mark.parametrize(
    "closed", [1, 2], ids=["no standard output", "no standard error"]
)
def test_a_closed_stream_is_no_error(tmp_path: Path, closed: int) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())

    run = analyze_apart(tmp_path, "a.jsonl", preexec_fn=lambda: os.close(closed))

    assert run.code == 0
    assert "Traceback" not in run.err


def test_stdout_stays_clean_without_standard_error(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())

    run = analyze_apart(tmp_path, "a.jsonl", "--json", preexec_fn=lambda: os.close(2))

    assert json.loads(run.out)["schema"].startswith("chunkscope/profile/")


def no_file_over_a_kilobyte() -> None:
    """A disk that is full after 1,000 bytes: writing more fails as with ENOSPC."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_full_disk_leaves_the_old_profile_and_no_litter(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    assert analyze(tmp_path, "a.jsonl").code == 0
    old = (tmp_path / "reports" / "profile.json").read_bytes()
    write_jsonl(tmp_path / "a.jsonl", prompts(9))
    run = analyze_apart(tmp_path, "a.jsonl", preexec_fn=no_file_over_a_kilobyte)
    assert run.code == 3
    assert "profile.json" in run.err
    assert "Traceback" not in run.err
    assert (tmp_path / "reports" / "profile.json").read_bytes() == old
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["profile.json"]


def test_a_full_device_is_a_sentence(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())

    run = analyze(tmp_path, "a.jsonl", "-o", "/dev/full")

    assert run.code == 3
    assert "No space left on device" in run.err
    assert Path("/dev/full").is_char_device()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    reading, writing = os.pipe()

    assert analyze(tmp_path, "a.jsonl", "-o", f"/dev/fd/{writing}").code == 0
    assert os.read(reading, 9).startswith(b"{")


def test_a_link_is_followed_and_not_replaced(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", prompts())
    (tmp_path / "link.json").symlink_to("elsewhere.json")

    assert analyze(tmp_path, "a.jsonl", "-o", "link.json").code == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "elsewhere.json").read_bytes())["schema"]


# Windows lacks these, and macOS has them in another way. Libraries decide when they are
# loaded what there is: those that the commands use are first.
COMMANDS = """
import multiprocessing, os, signal, sys
from pathlib import Path
import datasets, pytest

gone = {
    os: "fork forkpty killpg getpgid setsid getpgrp geteuid sched_getaffinity mkfifo "
    "wait4 nice",
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
data = place / "a.jsonl"
data.write_text('{"prompt": "What is it?"}\\n' * 9)
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


def test_commands_run_without_posix_and_verify_says_what_it_needs(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", COMMANDS, str(tmp_path)]
    done = subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.startswith("4 ")
    assert "--endpoint" in done.stdout


PROFILE = REPOSITORY / "reports" / "example" / "profile.json"


def test_a_refusal_of_the_hub_is_an_answer() -> None:
    with web_server({}) as address:  # 404, whatever is asked
        assert network.hub_problem(address) is None


def test_a_hub_that_says_nothing_is_a_problem(monkeypatch) -> None:
    monkeypatch.setattr(network, "PATIENCE_S", 0.05)
    with socket.socket() as silent:  # takes connections
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        assert network.hub_problem(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "a.jsonl", "--tokenizer", "nobody/nothing"),
        ("recommend", PROFILE, "--model", "nobody/nothing", "--gpu", "h100"),
    ],
    ids=["a tokenizer", "a model"],
)
def test_a_hub_that_cannot_be_reached_is_named_once(
    tmp_path, monkeypatch, words
) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "one"}\n')
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    run = chunkscope(tmp_path, *words)
    assert run.code == 4
    assert run.err.splitlines()[0].count("127.0.0.1:9")
    assert "Retry" not in run.err
