"""Mistakes on the command line: each gets a sentence, a hint, and its exit code."""

import shlex
import sys
from pathlib import Path

import pytest

from tests import build
from tests.commands.helpers import chunkscope, write_jsonl

LONG = "n" * 300


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    profile = build.profile(short=build.SHORT, mixed=build.MIXED)
    profile.save(folder / "reports" / "profile.json")
    write_jsonl(folder / "data.jsonl", [{"prompt": "one two three"}])
    (folder / "latin.txt").write_bytes(b"\xe9t\xe9")
    run = chunkscope(folder, "recommend", "--model", "qwen2.5-1.5b", "--gpu", "l4")
    assert run.code == 0, run.err
    return folder


USAGE = [
    ("analyze", "PATH"),
    ("analyze hf:", "hf:"),
    ("analyze hf:/etc/passwd", "hf:"),
    ("analyze hf:a/b/c", "hf:"),
    ("analyze hf:o/n:", "hf:"),
    ("analyze s4://evals/few.csv", "s4://evals/few.csv"),
    ("analyze data.jsonl --tokenizer ''", "leave it out"),
    ("analyze data.jsonl --model a --tokenizer b", "leave one out"),
    ("analyze data.jsonl --limit 5", "--sample"),
    ("analyze data.jsonl --sample 0", "--sample"),
    ("analyze data.jsonl --json --format md", "--format"),
    ("analyze data.jsonl --export-trace data.jsonl", "data.jsonl"),
    ("analyze data.jsonl --ray --export-trace x.jsonl", "--ray"),
    ("analyze lm-eval:", "lm-eval:"),
    ("analyze lm-eval:a --apply-chat-template", "--apply-chat-template"),
    ("analyze lm-eval:a --limit 0", "limit"),
    ("analyze inspect:a.py --shots 3", "--shots"),
    ("recommend --model qwen3-8b --gpu nothing", "nothing"),
    ("recommend --model qwen3-8b --gpu 2xa100", "--gpu a100 --tp 2"),
    ("recommend --slo itl=5", "--slo"),
    ("recommend --emit python --entry serve", "--entry"),
    ("recommend --concurrency 99999999999999999999", "--concurrency"),
    ("recommend --max-output gsm8k=3", "--max-output"),
    ("recommend --output many", "--output"),
    ("recommend --output 9 --max-output 9", "leave one out"),
    ("recommend --price-per-hour -1", "--price-per-hour"),
    ("simulate --requests 99999999", "--requests"),
    ("memory --model qwen3-8b --gpu h100 --gpu-memory-utilization nan", "nan"),
    ("memory --gpu h100", "--model"),
    ("memory --model qwen3-8b --gpu h20O", "h200"),
    ("verify --repeats 0", "--repeats"),
    ("verify --engine-arg dtype", "dtype"),
    ("verify --against of", "default, off, length-rule"),
    ("verify --also max-num-seqs=few", "max_num_seqs has no such value"),
    ("verify --also max-num-seqs=0", "at least 1"),
    ("verify --also max-num-seqs=8 --endpoint http://127.0.0.1:9", "--also"),
    ("verify --endpoint http://127.0.0.1:9 --check-outputs", "--check-outputs"),
    ("gate --force", "--init"),
    ("gate --init --json", "--init"),
    ("gate --init --format md", "--init"),
    ("report --json --format md", "--format"),
    ("report --format text -o x", "-o"),
    ("doctor http://127.0.0.1:9 --seconds 0", "--seconds"),
    ("doctor", "LOG"),
    ("demo --chunk=0", "--chunk"),
    ("demo --chunk=-5", "--chunk"),
    ("demo --chunk=32,,none", "--chunk"),
    ("demo --chunk=1.5", "--chunk"),
]
BAD_INPUT = [
    ("analyze nowhere.jsonl", "nowhere.jsonl"),
    ("analyze '*.none'", "*.none"),
    ("analyze data.jsonl --output-field nothing", "nothing"),
    ("analyze data.jsonl --prefix-file gone.txt", "gone.txt"),
    ("analyze data.jsonl --prefix-file latin.txt", "latin.txt"),
    ("analyze data.jsonl -o data.jsonl/x.json", "Not a directory"),
    ("analyze data.jsonl -o .", "Is a directory"),
    (f"analyze data.jsonl -o {LONG}", "File name too long"),
    (f"analyze data.jsonl -t {LONG}", "File name too long"),
    (f"memory --gpu h100 --model {LONG}", "File name too long"),
    (f"doctor {LONG}", "File name too long"),
    (f"report {LONG}", "File name too long"),
    ("recommend nowhere.json", "nowhere.json"),
    ("recommend --model llama-3.1-70b --gpu l4", "--tp"),
    ("recommend --output-from nowhere.eval", "nowhere.eval"),
    ("simulate --trace nowhere.jsonl", "nowhere.jsonl"),
    ("simulate --calibration nowhere.json", "nowhere.json"),
    ("prefixes nowhere.json", "nowhere.json"),
    ("gate", "gate --init"),
    ("gate --config nowhere.toml", "nowhere.toml"),
    ("gate nowhere --init", "nowhere"),
    ("report nowhere", "nowhere"),
    ("doctor nowhere.log", "nowhere.log"),
    ("doctor reports/plan.json", "plan.json"),
    ("doctor reports", "reports"),
]
MISSING = [
    ("analyze hf:org/nowhere@test", "hf:org/nowhere"),
    ("analyze data.jsonl --tokenizer nowhere/at/all", "nowhere/at/all"),
    ("memory --gpu h100 --model acme/rocket-8b", "config.json"),
    ("memory --gpu h100 --model llama-3.1-9b", "llama-3.1-8b"),
    ("verify", "vLLM"),
]


def refused(place: Path, line: str, code: int, told: str) -> None:
    """The command has this exit code, says so on stderr, and changes no result."""
    before = (place / "reports" / "profile.json").read_bytes()

    run = chunkscope(place, *shlex.split(line))

    assert run.code == code, run.err
    assert told in run.err
    assert "Traceback" not in run.err
    assert run.out == ""
    assert run.written == before


@pytest.mark.parametrize(("line", "told"), USAGE)
def test_a_wrong_command_line_exits_2(place, line, told):
    refused(place, line, 2, told)


@pytest.mark.parametrize(("line", "told"), BAD_INPUT)
def test_bad_input_exits_3(place, line, told):
    refused(place, line, 3, told)


@pytest.fixture(autouse=True)
def _no_vllm_and_no_hub(monkeypatch):
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", sys.executable)  # which has no vLLM
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.parametrize(("line", "told"), MISSING)
def test_what_is_missing_exits_4(place, line, told):
    refused(place, line, 4, told)


@pytest.mark.parametrize("line", [line for line, _ in (*BAD_INPUT, *MISSING)])
def test_a_hint_says_what_to_do(place, line):
    assert "\nhint: " in chunkscope(place, *shlex.split(line)).err
