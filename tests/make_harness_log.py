"""Makes reports/example/lm_eval: what lm-eval logs of two tasks over the sample data.

CHUNKSCOPE_HARNESS_PYTHON tests/make_harness_log.py     (a Python that has lm-eval 0.4.13)

No model is asked: the reference answers are its answers. Of the results only what tells how the
run was set up is kept, and nothing of the machine.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
LOG = REPOSITORY / "reports" / "example" / "lm_eval"
DATE = "2026-11-15T18-00-00.000000"
MATH = """task: math_word_problems
dataset_path: json
dataset_kwargs: {data_files: {test: sample_data/math_word_problems.jsonl}}
test_split: test
fewshot_split: test
fewshot_config: {sampler: first_n}
num_fewshot: 5
output_type: generate_until
doc_to_text: "Question: {{messages[1].content}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["Question:"], max_gen_toks: 256}
metric_list: [{metric: exact_match}]
"""
QUIZ = """task: knowledge_quiz
dataset_path: csv
dataset_kwargs: {data_files: {test: sample_data/knowledge_quiz.csv}}
test_split: test
fewshot_split: test
fewshot_config: {sampler: first_n}
num_fewshot: 5
output_type: multiple_choice
doc_to_text: "{{question}}\\n\
A. {{choice_a}}\\nB. {{choice_b}}\\nC. {{choice_c}}\\nD. {{choice_d}}\\nAnswer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: "{{['A', 'B', 'C', 'D'].index(answer)}}"
"""
KEPT = ("results", "configs", "versions", "n-shot", "config", "max_length", "lm_eval_version")


def main() -> None:
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.dummy import DummyLM
    from lm_eval.tasks import TaskManager

    class Reference(DummyLM):
        def generate_until(self, requests, **_):
            return [str(request.doc["answer"]) for request in requests]

    os.chdir(REPOSITORY)
    with tempfile.TemporaryDirectory() as folder:
        for task in (MATH, QUIZ):
            (Path(folder) / f"{task.split()[1]}.yaml").write_text(task)
        tracker = EvaluationTracker(output_path=f"{folder}/out")
        results = lm_eval.simple_evaluate(
            Reference(),
            tasks=["math_word_problems", "knowledge_quiz"],
            task_manager=TaskManager(include_path=folder),
            limit=30,
            evaluation_tracker=tracker,
        )
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        for task, rows in samples.items():
            tracker.save_results_samples(task_name=task, samples=rows)
        keep(Path(folder) / "out")


def keep(made: Path) -> None:
    shutil.rmtree(LOG, ignore_errors=True)
    LOG.mkdir(parents=True)
    for file in made.rglob("samples_*.jsonl"):
        task = file.name.removeprefix("samples_").partition("_2")[0]
        shutil.copy(file, LOG / f"samples_{task}_{DATE}.jsonl")
    (results,) = made.rglob("results_*.json")
    found = json.loads(results.read_text())
    kept = {name: found.get(name) for name in KEPT} | {
        "config": {"model": "vllm", "model_args": {"pretrained": "the reference answers"}},
        "configs": {task: {} for task in found["configs"]},
    }
    (LOG / f"results_{DATE}.json").write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
