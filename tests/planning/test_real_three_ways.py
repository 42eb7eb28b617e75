"""A suite from rows, from lm-eval's tasks and from lm-eval's logs is the same suite.

GSM8K with 8 shots is generated, MMLU with 5 shots is scored, QMSum has long prompts.
"""

import csv
import gzip
import json
import subprocess
from pathlib import Path

import pytest

from tests.commands.helpers import analyze, chunkscope, write_jsonl
from tests.prompts.test_rendering import OWN_TASKS_ONLY

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl, train: {name}_shots.jsonl}}}}
test_split: test
fewshot_split: train
fewshot_config: {{sampler: first_n}}
num_fewshot: {shots}
"""
GENERATED = """output_type: generate_until
doc_to_text: "{text}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["</s>"], max_gen_toks: 64}}
"""
SCORED = (
    "output_type: multiple_choice\n"
    'doc_to_text: "{{question}}\\nA. {{choices[0]}}\\nB. {{choices[1]}}'
    '\\nC. {{choices[2]}}\\nD. {{choices[3]}}\\nAnswer:"\n'
    'doc_to_choice: ["A", "B", "C", "D"]\n'
    'doc_to_target: "{{answer}}"\n'
)
RUN_LM_EVAL = (
    f"{OWN_TASKS_ONLY}\nimport sys\n"
    "from lm_eval.__main__ import cli_evaluate\n"
    "sys.argv = 'lm_eval --model dummy --include_path tasks --log_samples "
    "--output_path logs"
    " --tasks gsm8k_8,mmlu_5,qmsum_0'.split()\n"
    "cli_evaluate()\n"
)
ASKED = [
    "--model",
    "qwen3-8b",
    "--gpu",
    "h200",
    "--vllm-version",
    "0.28",
    "--entry",
    "llm",
]
ASKED += ["--max-output", "64"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, shared, harness_python) -> Path:
    """Data, tasks and shots as texts; and what lm-eval wrote of them."""
    folder = tmp_path_factory.mktemp("suite")
    lines = (shared / "data/gsm8k/test.jsonl").read_text().splitlines()
    gsm8k = [json.loads(line) for line in lines]
    write_jsonl(folder / "gsm8k_8.jsonl", gsm8k[:300])
    write_jsonl(folder / "gsm8k_8_shots.jsonl", gsm8k[-8:])
    texts = [
        f"Question: {row['question']}\nAnswer: {row['answer']}\n\n"
        for row in gsm8k[-8:]
    ]
    (folder / "gsm8k_8.txt").write_text("".join(texts))
    questions = {}
    for split in ("dev", "test"):
        with (shared / f"data/mmlu/{split}/astronomy_{split}.csv").open(
            newline=""
        ) as file:
            questions[split] = [
                {
                    "question": row["question"].strip(),
                    "choices": [row[f"choice{n}"] for n in range(4)],
                    "answer": int(row["answer"]),
                }
                for row in csv.DictReader(file)
            ]
    write_jsonl(folder / "mmlu_5.jsonl", questions["test"])
    write_jsonl(folder / "mmlu_5_shots.jsonl", questions["dev"])
    texts = []
    for row in questions["dev"][:5]:
        lines = "".join(
            f"\n{a}. {b}" for a, b in zip("ABCD", row["choices"], strict=True)
        )
        texts.append(f"{row['question']}{lines}\nAnswer: {'ABCD'[row['answer']]}\n\n")
    (folder / "mmlu_5.txt").write_text("".join(texts))
    with gzip.open(shared / "data/qmsum/test_prompts.jsonl.gz", "rt") as file:
        qmsum = [json.loads(line) for line in file][:24]
    write_jsonl(folder / "qmsum_0.jsonl", qmsum)
    write_jsonl(folder / "qmsum_0_shots.jsonl", qmsum[:1])
    (folder / "tasks").mkdir()
    for name, shots, rest in (
        ("gsm8k_8", 8, GENERATED.format(text="Question: {{question}}\\nAnswer:")),
        ("mmlu_5", 5, SCORED),
        ("qmsum_0", 0, GENERATED.format(text="{{prompt}}")),
    ):
        task = TASK.format(name=name, shots=shots) + rest
        (folder / "tasks" / f"{name}.yaml").write_text(task)
    (folder / "chunkscope.toml").write_text('[analyze]\ninclude_path = "tasks"\n')
    program = [str(harness_python), "-c", RUN_LM_EVAL]
    subprocess.run(program, cwd=folder, check=True, capture_output=True)
    return folder


ROWS = {
    "gsm8k_8": [
        "--template",
        "Question: {{ question }}\nAnswer:",
        "--prefix-file",
        "gsm8k_8.txt",
    ],
    "mmlu_5": [
        "--field",
        "question",
        "--task",
        "loglikelihood",
        "--prefix-file",
        "mmlu_5.txt",
    ],
    "qmsum_0": ["--field", "prompt"],
}


def planned(place: Path, *profiles: str) -> dict:
    run = chunkscope(place, "recommend", *profiles, *ASKED, "--json")
    assert run.code == 0, run.err
    return json.loads(run.out)


@pytest.mark.real
def test_rows_tasks_and_logs_are_the_same_requests_tokens_and_time(place):
    for name, words in ROWS.items():
        done = analyze(place, f"{name}.jsonl", *words, "-o", f"{name}.json")
        assert done.code == 0, done.err
    assert (
        analyze(place, "lm-eval:gsm8k_8,mmlu_5,qmsum_0", "-o", "tasks.json").code == 0
    )
    assert analyze(place, "logs", "-o", "logs.json").code == 0
    rows = planned(place, *(f"{name}.json" for name in ROWS))
    tasks, logs = planned(place, "tasks.json"), planned(place, "logs.json")
    for way in (tasks, logs):
        for figure in ("requests", "input_tokens", "output_tokens"):
            assert way["cost"][figure] == rows["cost"][figure], figure
        assert way["cost"]["hours"] == pytest.approx(rows["cost"]["hours"], rel=0.02)
        origins = sorted(output["origin"] for output in way["outputs"])
        assert origins == ["asked", "asked", "scored"]
    assert rows["cost"]["requests"] == 300 + 4 * 152 + 24
    assert {one["code"] for one in rows["savings"]} >= {"score_contexts_once"}
