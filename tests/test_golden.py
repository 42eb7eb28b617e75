"""What people see, command by command.

tests/golden has it; `pytest tests/test_golden.py --update-golden` writes it anew, and
the diff is looked at.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests import build
from tests.commands.helpers import chunkscope
from tests.conftest import REPOSITORY
from tests.golden_place import make_place

GOLDEN = REPOSITORY / "tests" / "golden"
# All lines of a case run in one folder, which has no results at first. What those after
# a $ print is compared; the others lead to it.
CASES = {
    "help": """
        $ --help
        $ analyze --help
        $ prefixes --help
        $ recommend --help
        $ simulate --help
        $ verify --help
        $ report --help
        $ gate --help
        $ doctor --help
        $ memory --help
        $ demo --help
        """,
    "names": """
        $ models
        $ gpus
        """,
    "analyze": """
        $ analyze sample_data
        """,
    "analyze-details": """
        $ analyze sample_data --details
        """,
    "analyze-json": """
        $ analyze zoo lm_eval --json
        """,
    "analyze-zoo": """
        $ analyze zoo --details
        """,
    "analyze-many": """
        $ analyze many
        """,
    "analyze-lm-eval-log": """
        $ analyze lm_eval
        """,
    "analyze-mistakes": """
        $ analyze bad.jsonl
        $ analyze odd.jsonl
        $ analyze sample_dat
        $ analyze sample_data/knowledge_quiz.csv --field nothing
        """,
    "prefixes": """
        analyze sample_data
        $ prefixes
        """,
    "prefixes-zoo": """
        analyze zoo --skip-bad-rows
        $ prefixes
        """,
    "prefixes-lm-eval-log": """
        analyze lm_eval
        $ prefixes
        """,
    "recommend": """
        analyze sample_data
        $ recommend --model llama-3.1-8b --gpu h100
        """,
    "recommend-details": """
        analyze sample_data
        $ recommend --model llama-3.1-8b --gpu l4 --requests 150 --details
        """,
    "recommend-pays": """
        analyze sample_data
        $ recommend --model qwen2.5-1.5b --gpu l4
        """,
    "recommend-limits-kept": """
        analyze sample_data
        $ recommend --model qwen2.5-1.5b --gpu l4 --slo itl_max=1s --requests 150
        """,
    "recommend-limits-broken": """
        analyze sample_data
        $ recommend --model qwen2.5-1.5b --gpu l4 --arrivals 20/s --slo ttft_p95=1s,itl_p99=80ms --requests 200 --details
        """,
    "recommend-no-gpu": """
        analyze sample_data
        $ recommend --model llama-3.1-8b
        """,
    "recommend-mistakes": """
        analyze sample_data
        $ recommend --model llama-3.1-70b --gpu h100
        $ recommend --model llama3-8b --gpu h100
        """,
    "recommend-json": """
        analyze sample_data
        $ recommend --model qwen2.5-1.5b --gpu l4 --json
        """,
    "emit": """
        analyze sample_data
        $ recommend --model qwen2.5-1.5b --gpu l4 --emit vllm-args
        $ recommend --model qwen2.5-1.5b --gpu l4 --emit python
        $ recommend --model qwen2.5-1.5b --gpu l4 --emit lm-eval
        $ recommend --model qwen2.5-1.5b --gpu l4 --emit kubernetes
        $ recommend --model qwen2.5-1.5b --gpu l4 --emit docker-compose
        """,
    "emit-off": """
        analyze sample_data
        $ recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off --requests 150 --emit vllm-yaml
        $ recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off --requests 150 --emit env
        $ recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off --requests 150 --emit lm-eval
        $ recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off --requests 150 --emit inspect
        $ recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off --requests 150 --emit docker-compose
        $ recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off --requests 150 --emit kubernetes
        """,
    "emit-limits-broken": """
        analyze sample_data
        $ recommend --model qwen2.5-1.5b --gpu l4 --slo itl_max=5ms --requests 150 --emit kubernetes
        """,
    "simulate": """
        analyze sample_data
        recommend --model llama-3.1-8b --gpu h100
        $ simulate
        """,
    "simulate-pays": """
        analyze sample_data
        recommend --model qwen2.5-1.5b --gpu l4
        $ simulate
        """,
    "simulate-sweep": """
        analyze sample_data
        recommend --model qwen2.5-1.5b --gpu l4
        $ simulate --sweep --slo ttft_p95=9s
        $ simulate --sweep --slo itl_max=1s
        """,
    "simulate-steps": """
        analyze sample_data
        recommend --model qwen2.5-1.5b --gpu l4
        $ simulate --timeline 9 --concurrency 4 --details
        """,
    "simulate-json": """
        analyze sample_data
        recommend --model qwen2.5-1.5b --gpu l4 --tp 2 --max-output 32 --requests 150
        $ simulate --json
        """,
    "verify": """
        $ report h200/llama-3.1-8b-long --format text
        """,
    "verify-details": """
        $ report h200/llama-3.1-8b-long --format md --details
        """,
    "verify-verdicts": """
        $ report runs/alone --format text --details
        $ report runs/failed --format text --details
        $ report runs/kept --format text --details
        $ report runs/slower --format text --details
        """,
    "memory": """
        $ memory --model llama-3.1-8b --gpu h100
        """,
    "memory-json": """
        $ memory --model deepseek-v2-lite --gpu h100 --tp 2 --json
        """,
    "doctor": """
        $ doctor vllm-0.28-cpu-kv-bound.log
        """,
    "doctor-no-figures": """
        $ doctor vllm-0.24-h200-fits.log
        """,
    "doctor-loads": """
        $ doctor vllm-0.28-cpu-client-bound.log vllm-0.28-cpu-kv-bound.log vllm-0.28-cpu-loglikelihood.log vllm-0.28-cpu-max-num-seqs.log vllm-0.28-cpu-preemptions.log vllm-0.28-cpu-small-step.log vllm-0.28-cpu-steps.log --details
        """,
    "doctor-starts": """
        $ doctor vllm-0.28-cpu-bad-arguments.log vllm-0.28-cpu-blocks-override.log vllm-0.28-cpu-died.log vllm-0.28-cpu-does-not-fit.log vllm-0.28-cpu-killed.log vllm-0.28-cpu-refused.log vllm-0.28-cpu-unknown-argument.log --details
        """,
    "doctor-newer": """
        $ doctor vllm-0.32-cpu-client-bound.log vllm-0.32-cpu-does-not-fit.log vllm-0.32-cpu-kv-bound.log vllm-0.32-cpu-loglikelihood.log vllm-0.32-cpu-refused.log vllm-0.32-cpu-steps.log --details
        """,
    "doctor-h200": """
        $ doctor vllm-0.24-h200-eager.log vllm-0.24-h200-fits.log --gpu h200 --details
        """,
    "doctor-json": """
        $ doctor vllm-0.28-cpu-steps.log --json
        """,
    "gate": """
        analyze sample_data
        recommend --model llama-3.1-8b --gpu h100
        $ gate --init
        $ gate
        """,
    "gate-broken": """
        analyze sample_data
        recommend --model llama-3.1-8b --gpu h100
        doctor vllm-0.28-cpu-kv-bound.log
        $ gate --config strict.toml
        """,
    "gate-github": """
        $ gate h200/llama-3.1-8b-long --config measured.toml --format github
        """,
    "gate-junit": """
        analyze sample_data
        recommend --model llama-3.1-8b --gpu h100
        doctor vllm-0.28-cpu-kv-bound.log
        $ gate --config strict.toml --format junit
        """,
}
# These print no answer for a terminal: help, tables of names, something for programs.
NOT_FOR_80_COLUMNS = re.compile(
    r"--(help|emit|details|json|format (junit|github))|^\$ chunkscope (models|gpus)"
)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    make_place(folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_what_people_see(name, place, request, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("chunkscope.planning.recommend.recommend", build.planned)
    shutil.rmtree(place / "reports", ignore_errors=True)
    (place / "chunkscope.toml").unlink(missing_ok=True)

    seen = steady(printed(place, CASES[name]), place)

    golden = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(seen, encoding="utf-8")
    assert seen == golden.read_text(encoding="utf-8")


def printed(place: Path, case: str) -> str:
    """What the commands after a $ print, with their exit codes."""
    text = ""
    for line in case.strip().splitlines():
        words = shlex.split(line.strip().removeprefix("$ "))
        run = chunkscope(place, *words)
        if not line.strip().startswith("$ "):
            assert run.code == 0, run.err
            continue
        text += f"$ chunkscope {shlex.join(words)}\n{run.out}"
        if run.err:
            text += f"--- stderr\n{run.err}"
        text += f"--- exit {run.code}\n"
    return text


def steady(text: str, place: Path) -> str:
    """Without what differs from run to run: dates, folders, last digits, versions."""
    text = text.replace(str(place), "PLACE")
    text = re.sub(r"\d{4}-\d\d-\d\dT?[ \d:.]*(\+00:00|Z)?", "DATE", text)
    text = re.sub(r"(?<!\d-)\b\d+\.\d{6,}(e-\d+)?", six_digits, text)
    text = re.sub(
        r"(mistral-common|tiktoken|tokenizers) \d[\d.]*\d", r"\1 VERSION", text
    )
    return re.sub(r"[0-9a-f]{64}", "DIGEST", text)


def six_digits(number: re.Match[str]) -> str:
    return f"{float(number[0]):.6g}"


@pytest.mark.parametrize("name", CASES)
def test_no_line_of_an_answer_is_wider_than_80_columns(name):
    shown = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    for block in re.split(r"^(?=\$ chunkscope )", shown, flags=re.MULTILINE)[1:]:
        answer = re.split(r"^--- ", block, flags=re.MULTILINE)[0]
        command, *lines = answer.splitlines()
        if not NOT_FOR_80_COLUMNS.search(command):
            assert max(map(len, lines), default=0) <= 80, command


def test_every_golden_file_has_a_case():
    assert {path.stem for path in GOLDEN.iterdir()} == CASES.keys()
