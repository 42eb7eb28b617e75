"""What people see, command by command: tests/golden has it, `pytest --update-golden` writes it.

A case is a name, the commands that lead to it, and last those whose output is compared, one a line.
All run in one folder, which has no results at first.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.verification.result import RunOutputs
from chunkscope.verification.verdict import judged
from tests import build
from tests.commands.helpers import chunkscope, write_jsonl
from tests.conftest import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden"
LOGS = REPOSITORY / "tests" / "diagnosis" / "logs"

ANALYZE = "analyze sample_data"
RECOMMEND = "recommend --model llama-3.1-8b --gpu h100"
PAYS = "recommend --model qwen2.5-1.5b --gpu l4"
DOCTOR = "doctor vllm-0.28-cpu-kv-bound.log"
OFF = "recommend --model qwen2.5-7b --gpu mi300x --tp 2 --mode off"
FAILS = f"{PAYS} --arrivals 20/s --slo ttft_p95=1s,itl_p99=80ms"
LOADS = "client-bound kv-bound loglikelihood max-num-seqs preemptions small-step steps"
STARTS = (
    "bad-arguments blocks-override died does-not-fit killed refused unknown-argument"
)
NEWER = "client-bound does-not-fit kv-bound loglikelihood refused steps"


def logs(version: str, names: str) -> str:
    return " ".join(f"vllm-{version}-{name}.log" for name in names.split())


ANSWERS = RunOutputs(answers=((1, 2),) * 4, again=1.0)
EQUAL = replace(ANSWERS, reference="default", equal=0.75)
USUAL = build.run("default", 12.0, 12.1, gap_s=0.005, settings=build.Settings())
RUNS = {  # of the plan and others
    "alone": (build.run("plan", 10.0, 10.2),),
    "failed": (build.failed("plan"), USUAL),
    "kept": (
        build.run("plan", 10.0, 10.2, outputs=EQUAL),
        replace(USUAL, outputs=ANSWERS),
    ),
    "slower": (
        build.run("plan", 20.0, 20.1, kv_cache_tokens=None),
        USUAL,
        build.failed("off"),
    ),
}

COMMANDS = "analyze prefixes recommend simulate verify report gate doctor memory demo"
MISTAKES = (
    "analyze bad.jsonl",
    "analyze odd.jsonl",
    "analyze sample_dat",
    "analyze sample_data/knowledge_quiz.csv --field nothing",
)
UNFIT = (
    "recommend --model llama-3.1-70b --gpu h100",
    "recommend --model llama3-8b --gpu h100",
)
FORMS = "vllm-args python lm-eval kubernetes docker-compose"
OFF_FORMS = "vllm-yaml env lm-eval inspect docker-compose kubernetes"
MEASURED_LONG = "h200/llama-3.1-8b-long"


def lines(form: str, words: str) -> str:
    """A command line for each word, all of them shown."""
    return "\n".join(form.format(word) for word in words.split())


CASES: dict[str, tuple[str, ...]] = {
    "help": (f"--help\n{lines('{} --help', COMMANDS)}",),
    "names": ("models\ngpus",),
    "analyze": (ANALYZE,),
    "analyze-details": (f"{ANALYZE} --details",),
    "analyze-json": ("analyze zoo lm_eval --json",),
    "analyze-zoo": ("analyze zoo --details",),
    "analyze-many": ("analyze many",),
    "analyze-lm-eval-log": ("analyze lm_eval",),
    "analyze-mistakes": ("\n".join(MISTAKES),),
    "prefixes": (ANALYZE, "prefixes"),
    "prefixes-zoo": ("analyze zoo --skip-bad-rows", "prefixes"),
    "prefixes-lm-eval-log": ("analyze lm_eval", "prefixes"),
    "recommend": (ANALYZE, RECOMMEND),
    "recommend-details": (ANALYZE, f"{RECOMMEND.replace('h100', 'l4')} --details"),
    "recommend-pays": (ANALYZE, PAYS),
    "recommend-limits-kept": (ANALYZE, f"{PAYS} --slo itl_max=1s"),
    "recommend-limits-broken": (ANALYZE, f"{FAILS} --details"),
    "recommend-no-gpu": (ANALYZE, "recommend --model llama-3.1-8b"),
    "recommend-mistakes": (ANALYZE, "\n".join(UNFIT)),
    "recommend-json": (ANALYZE, f"{PAYS} --json"),
    "emit": (ANALYZE, lines(f"{PAYS} --emit {{}}", FORMS)),
    "emit-off": (ANALYZE, lines(f"{OFF} --emit {{}}", OFF_FORMS)),
    "emit-limits-broken": (ANALYZE, f"{PAYS} --slo itl_max=5ms --emit kubernetes"),
    "simulate": (ANALYZE, RECOMMEND, "simulate"),
    "simulate-pays": (ANALYZE, PAYS, "simulate"),
    "simulate-sweep": (
        ANALYZE,
        PAYS,
        lines("simulate --sweep --slo {}", "ttft_p95=9s itl_max=1s"),
    ),
    "simulate-steps": (
        ANALYZE,
        PAYS,
        "simulate --timeline 9 --concurrency 4 --details",
    ),
    "simulate-json": (ANALYZE, f"{PAYS} --tp 2 --max-output 32", "simulate --json"),
    "verify": (f"report {MEASURED_LONG} --format text",),
    "verify-details": (f"report {MEASURED_LONG} --format md --details",),
    "verify-verdicts": (
        lines("report runs/{} --format text --details", " ".join(RUNS)),
    ),
    "report-changes": (f"report {MEASURED_LONG} h200/llama-3.1-8b-mixed --details",),
    "memory": ("memory --model llama-3.1-8b --gpu h100",),
    "memory-json": ("memory --model deepseek-v2-lite --gpu h100 --tp 2 --json",),
    "doctor": (DOCTOR,),
    "doctor-no-figures": ("doctor vllm-0.24-h200-fits.log",),
    "doctor-loads": (f"doctor {logs('0.28-cpu', LOADS)} --details",),
    "doctor-starts": (f"doctor {logs('0.28-cpu', STARTS)} --details",),
    "doctor-newer": (f"doctor {logs('0.32-cpu', NEWER)} --details",),
    "doctor-h200": (f"doctor {logs('0.24-h200', 'eager fits')} --gpu h200 --details",),
    "doctor-json": ("doctor vllm-0.28-cpu-steps.log --json",),
    "gate": (ANALYZE, RECOMMEND, "gate --init\ngate"),
    "gate-broken": (ANALYZE, RECOMMEND, DOCTOR, "gate --config strict.toml"),
    "gate-github": (f"gate {MEASURED_LONG} --config measured.toml --format github",),
    "gate-junit": (
        ANALYZE,
        RECOMMEND,
        DOCTOR,
        "gate --config strict.toml --format junit",
    ),
}
# Fewer requests than are simulated at a rate by default, which takes a while.
CONFIGS = {"recommend-limits-broken": "[recommend]\nrequests = 400\n"}
# Not an answer: help, details, something for another program.
MORE = re.compile(
    "--(?:help|emit|details|json|format (?:junit|github))|^(?:models|gpus)"
)


STRICT = """[gate.data]
longest_prompt = 8000
p95 = 2000
datasets = ["gone"]
max_model_len = 8000
[gate.data.of.knowledge_quiz]
prefix_hit_rate = "99%"
[gate.settings]
file = "vllm.yaml"
[gate.memory.predicted]
device_peak = "1GiB"
[gate.slo]
makespan = "1ms"
[gate.doctor]
findings = 0
[gate.freshness]
plan = true
"""
MEASURED = """[gate.memory.measured]
activation_peak = "1MiB"
device_peak = "1GiB"
[gate.speed]
ttft_p95 = "1ms"
output_tokens_per_s = 1
[gate.outputs]
equal = "99%"
"""


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


TOOL = {"type": "function", "function": {"name": "area", "description": "Of a shape."}}
SAME = "You are a careful judge of arithmetic. Show each step of your work. " * 8
# Prompts in many shapes: files of rows, or of bytes.
ZOO: dict[str, list[object] | bytes] = {
    "alpaca.jsonl": [
        {"instruction": "Add them.", "input": n or "", "output": "3"} for n in "12"
    ],
    "chat.jsonl": [
        {"messages": [user("Hello?")]},
        {
            "messages": [
                user([{"type": "image_url", "image_url": {"url": "x"}}, "Look."])
            ]
        },
        {"messages": [user("How large is it?")], "tools": [TOOL]},
        {"messages": [{"role": "wizard", "content": "no"}]},
    ],
    "choices.csv": b'question;choices;answer\nWhich?;["a", "b"];0\nWho?;["c", "d"];1\n',
    "columns.json": b'{"question": ["One?", "Two?"], "answer": [1, 2]}',
    "documents.jsonl": [
        {"prompt": f"{SAME}\n\nWhy?"},
        {"prompt": f"{SAME}\n\nHow so?"},
    ],
    "early.jsonl": [
        {"prompt": f"Request {n * n}. {SAME}Question {n}?"} for n in range(12)
    ],
    "empty.jsonl": b"",
    "headless.tsv": b"What is the sum of one and one?\tA\nAnd of two and two, then?\tB\n",
    "shots.jsonl": [
        {"prompt": f"{SAME * 3}{'so ' * n}?", "turns": ["x"]} for n in range(30)
    ],
    "text.md": b"One prompt\nof two lines.\n",
    "trace.jsonl": [
        {
            "timestamp": n,
            "input_length": 1_100 + n,
            "output_length": 9,
            "hash_ids": [0, 1, n + 2],
        }
        for n in range(4)
    ],
    "turns.jsonl": [{"turns": ["First of them.", "Second."], "category": "x"}],
}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    shutil.copytree(REPOSITORY / "sample_data", folder / "sample_data")
    shutil.copytree(REPOSITORY / "reports" / "example" / "lm_eval", folder / "lm_eval")
    shutil.copytree(REPOSITORY / "reports" / "h200", folder / "h200")
    for log in LOGS.glob("vllm-*.log"):
        shutil.copy(log, folder)
    for name, runs in RUNS.items():
        judged(build.verification(*runs)).save(folder / "runs" / name / "verify.json")
    (folder / "zoo").mkdir()
    for name, data in ZOO.items():
        lines = (
            data
            if isinstance(data, bytes)
            else "\n".join(map(json.dumps, data)).encode()
        )
        (folder / "zoo" / name).write_bytes(lines)
    for number in range(57):  # small sets in nested folders, and a long one
        row = {"prompt": "Which of them is it? " * (number % 9 + 1)}
        for part, count in (("dev", 5), ("test", 20)):
            write_jsonl(
                folder / "many" / part / f"subject_{number}.jsonl", [row] * count
            )
    (folder / "many" / "long.jsonl").write_text(json.dumps({"prompt": SAME * 50}))
    (folder / "bad.jsonl").write_text(
        '{"prompt": "fine"}\n{"prompt": \n{"prompt": 7}\n'
    )
    (folder / "odd.jsonl").write_text('{"alpha": "some text", "beta": "other text"}\n')
    (folder / "strict.toml").write_text(STRICT)
    (folder / "measured.toml").write_text(MEASURED)
    (folder / "vllm.yaml").write_text("max-num-seqs: 2\nenforce-eager: true\n")
    return folder


def steady(text: str, place: Path) -> str:
    """Without what differs from run to run or machine: dates, folders, last digits, versions."""
    text = text.replace(str(place), "PLACE")
    text = re.sub(r"\d{4}-\d\d-\d\dT?[ \d:.]*(\+00:00|Z)?", "DATE", text)
    text = re.sub(
        r"(?<!\d-)\b\d+\.\d{6,}(e-\d+)?", lambda number: f"{float(number[0]):.6g}", text
    )
    text = re.sub(
        r"(mistral-common|tiktoken|tokenizers) \d[\d.]*\d", r"\1 VERSION", text
    )
    return re.sub(r"[0-9a-f]{64}", "DIGEST", text)


@pytest.mark.parametrize("name", CASES)
def test_what_people_see(name, place, request, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("chunkscope.planning.recommend.recommend", build.planned)
    shutil.rmtree(place / "reports", ignore_errors=True)
    (place / "chunkscope.toml").unlink(missing_ok=True)
    if name in CONFIGS:
        (place / "chunkscope.toml").write_text(CONFIGS[name])
    *before, last = CASES[name]
    for line in before:
        assert chunkscope(place, *line.split()).code == 0, line
    text = ""
    for line in last.splitlines():
        done = chunkscope(place, *line.split())
        text += f"$ chunkscope {line}\n{done.out}"
        text += f"--- stderr\n{done.err}" if done.err else ""
        text += f"--- exit {done.code}\n"
    text = steady(text, place)
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_line_of_an_answer_is_wider_than_80_columns() -> None:
    shown = "".join(
        (GOLDEN / f"{name}.txt").read_text(encoding="utf-8") for name in CASES
    )
    for block in re.split(r"^\$ chunkscope ", shown, flags=re.MULTILINE)[1:]:
        command, *answer = re.split(r"^--- ", block, flags=re.MULTILINE)[0].splitlines()
        if not MORE.search(command):
            assert all(len(line) <= 80 for line in answer), command


def test_every_golden_file_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == CASES.keys()
