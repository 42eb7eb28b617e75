"""The folder in which the commands of tests/test_golden.py run."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from chunkscope.verification.result import Run, RunOutputs
from chunkscope.verification.verdict import judged
from tests import build
from tests.commands.helpers import write_jsonl
from tests.conftest import REPOSITORY

LOGS = REPOSITORY / "tests" / "diagnosis" / "logs"
# A budget that the sample data breaks in every table.
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
# A budget that the measurements on the H200 break.
MEASURED = """[gate.memory.measured]
activation_peak = "1MiB"
device_peak = "1GiB"
[gate.speed]
ttft_p95 = "1ms"
output_tokens_per_s = 1
[gate.outputs]
equal = "99%"
"""
SAME = "You are a careful judge of arithmetic. Show each step of your work. " * 8
TOOL = {"type": "function", "function": {"name": "area", "description": "Of a shape."}}


def make_place(folder: Path) -> None:
    """Data, logs, results and budgets."""
    example = REPOSITORY / "reports" / "example"
    shutil.copytree(REPOSITORY / "sample_data", folder / "sample_data")
    shutil.copytree(example / "lm_eval", folder / "lm_eval")
    shutil.copytree(REPOSITORY / "reports" / "h200", folder / "h200")
    for log in LOGS.glob("vllm-*.log"):
        shutil.copy(log, folder)
    make_runs(folder / "runs")
    make_zoo(folder / "zoo")
    make_many(folder / "many")
    (folder / "bad.jsonl").write_text(
        '{"prompt": "fine"}\n{"prompt": \n{"prompt": 7}\n'
    )
    (folder / "odd.jsonl").write_text('{"alpha": "some text", "beta": "other text"}\n')
    (folder / "strict.toml").write_text(STRICT)
    (folder / "measured.toml").write_text(MEASURED)
    (folder / "vllm.yaml").write_text("max-num-seqs: 2\nenforce-eager: true\n")


def make_runs(folder: Path) -> None:
    """Measured plans: alone, failed, kept, and slower than vLLM's default."""
    default = build.run("default", 12.0, 12.1, gap_s=0.005, settings=build.Settings())
    answers = RunOutputs(answers=((1, 2),) * 4, again=1.0)
    equal = replace(answers, reference="default", equal=0.75)
    save(folder / "alone", build.run("plan", 10.0, 10.2))
    save(folder / "failed", build.failed("plan"), default)
    save(
        folder / "kept",
        build.run("plan", 10.0, 10.2, outputs=equal),
        replace(default, outputs=answers),
    )
    save(
        folder / "slower",
        build.run("plan", 20.0, 20.1, kv_cache_tokens=None),
        default,
        build.failed("off"),
    )


def save(folder: Path, *runs: Run) -> None:
    judged(build.verification(*runs)).save(folder / "verify.json")


def make_zoo(folder: Path) -> None:
    """Prompts in many shapes."""
    folder.mkdir()
    files = {
        "choices.csv": "question;choices;answer\n"
        'Which?;["a", "b"];0\nWho?;["c", "d"];1\n',
        "columns.json": '{"question": ["One?", "Two?"], "answer": [1, 2]}',
        "empty.jsonl": "",
        "headless.tsv": "What is the sum of one and one?\tA\n"
        "And of two and two, then?\tB\n",
        "text.md": "One prompt\nof two lines.\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    alpaca = {"instruction": "Add them.", "output": "3"}
    write_jsonl(folder / "alpaca.jsonl", [{**alpaca, "input": n} for n in "12"])
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    chats = [
        {"messages": [user("Hello?")]},
        {"messages": [user([picture, "Look."])]},
        {"messages": [user("How large is it?")], "tools": [TOOL]},
        {"messages": [{"role": "wizard", "content": "no"}]},
    ]
    write_jsonl(folder / "chat.jsonl", chats)
    endings = ("Why?", "How so?")
    documents = [{"prompt": f"{SAME}\n\n{ending}"} for ending in endings]
    write_jsonl(folder / "documents.jsonl", documents)
    early = [{"prompt": f"Request {n * n}. {SAME}Question {n}?"} for n in range(12)]
    write_jsonl(folder / "early.jsonl", early)
    shots = [{"prompt": f"{SAME * 3}{'so ' * n}?", "turns": ["x"]} for n in range(30)]
    write_jsonl(folder / "shots.jsonl", shots)
    trace = []
    for n in range(4):
        lengths = {"input_length": 1_100 + n, "output_length": 9}
        trace.append({"timestamp": n, **lengths, "hash_ids": [0, 1, n + 2]})
    write_jsonl(folder / "trace.jsonl", trace)
    turns = {"turns": ["First of them.", "Second."], "category": "x"}
    write_jsonl(folder / "turns.jsonl", [turns])


def make_many(folder: Path) -> None:
    """Small sets in nested folders, and a long one."""
    for number in range(57):
        row = {"prompt": "Which of them is it? " * (number % 9 + 1)}
        write_jsonl(folder / "dev" / f"subject_{number}.jsonl", [row] * 5)
        write_jsonl(folder / "test" / f"subject_{number}.jsonl", [row] * 20)
    (folder / "long.jsonl").write_text(json.dumps({"prompt": SAME * 50}))


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}
