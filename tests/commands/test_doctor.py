"""`chunkscope doctor` as people type it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.test_recommend import chunkscope
from tests.conftest import REPOSITORY
from tests.diagnosis.test_doctor import LOGS
from tests.processes import started, wait_until

KV_BOUND = LOGS / "vllm-0.28-cpu-kv-bound.log"
COMMAND = [sys.executable, "-m", "chunkscope", "doctor"]


def doctor(*words: str | Path, cwd: Path, **how) -> subprocess.CompletedProcess[str]:
    done = [*COMMAND, *map(str, words)]
    return subprocess.run(done, cwd=cwd, capture_output=True, text=True, check=False, **how)


def test_the_answer_comes_first_and_the_artefact_is_kept(tmp_path: Path) -> None:
    done = doctor(KV_BOUND, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The KV cache was full while requests waited")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "wrote reports/doctor.json" in done.stderr.replace("\\", "/")
    kept = json.loads((tmp_path / "reports" / "doctor.json").read_text())
    assert kept["schema"] == "chunkscope/doctor/2"
    assert kept["engines"][0]["symptoms"][0]["rule"] == "kv-bound"


def test_a_log_from_a_pipe_as_json(tmp_path: Path) -> None:
    done = doctor("-", "--json", cwd=tmp_path, input=KV_BOUND.read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engines"][0]["facts"]["version"] == "0.28.0"


def test_markdown_annotations_and_what_is_not_understood(tmp_path: Path) -> None:
    markdown = doctor(KV_BOUND, "--format", "md", cwd=tmp_path).stdout
    assert markdown.startswith("## chunkscope doctor: The KV cache was full")
    assert "| held back by |" in markdown
    github = doctor(KV_BOUND, "--format", "github", cwd=tmp_path).stdout
    assert github.startswith("::warning title=chunkscope doctor%3A kv-bound::")
    assert "line of vLLM's sources" in doctor(KV_BOUND, "--unknown", cwd=tmp_path).stdout


def test_a_log_that_grows_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    log, lines = tmp_path / "vllm.log", KV_BOUND.read_text(encoding="utf-8").splitlines(True)
    log.write_text("".join(lines[:60]), encoding="utf-8")
    words = [*COMMAND, str(log), "--follow", "--json"]
    with started(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        with log.open("a", encoding="utf-8") as more:
            more.writelines(lines[60:])
        kept = tmp_path / "reports" / "doctor.json"
        wait_until(lambda: kept.exists() and json.loads(kept.read_text())["lines"] == len(lines))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["engines"][0]["symptoms"][0]["rule"] == "kv-bound"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere.log"], 3, "nowhere.log"),
        (["{folder}"], 3, "is a folder"),
        (["{log}", "--follow", "{log}"], 2, "--follow takes the path of one log"),
        (["{log}", "--for", "soon"], 2, "--for"),
        (["http://127.0.0.1:9"], 4, "127.0.0.1:9"),
        (["{log}", "--gpu", "no-such-gpu", "--model", "llama-3.1-8b"], 2, "no-such-gpu"),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    given = [word.format(folder=tmp_path, log=KV_BOUND) for word in words]
    done = doctor(*given, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_artefact_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file")
    done = doctor(KV_BOUND, cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert "Traceback" not in done.stderr
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_log_feeds_recommend_and_simulate(tmp_path: Path) -> None:
    logs, profile = LOGS, REPOSITORY / "reports/example/profile.json"
    words = ("--gpu", "h200", "--log", str(logs / "vllm-0.24-h200-eager.log"), "-o", "plan.json")
    planned = chunkscope(
        "recommend", str(profile), "--max-model-len", "32768", *words, cwd=tmp_path
    )
    assert planned.returncode == 0, planned.stderr
    assert "measured: as vllm-0.24-h200-eager.log says" in planned.stdout
    assert "a memory share of 0.92 is assumed" in planned.stderr
    replay = str(logs / "vllm-0.32-cpu-replay.log")
    run = chunkscope("simulate", "plan.json", "--log", replay, "-o", "sim.json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "12 requests came as vllm-0.32-cpu-replay.log says" in run.stderr
    silent = str(logs / "vllm-0.24-h200-eager.log")
    run = chunkscope("simulate", "plan.json", "--log", silent, cwd=tmp_path)
    assert run.returncode == 3
    assert "does not say when requests came" in run.stderr
