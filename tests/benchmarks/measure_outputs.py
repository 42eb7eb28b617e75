"""Measure on a real GPU whether answers stay the same when prompts are read in chunks.

Example: python -m tests.benchmarks.measure_outputs llama-3.2-1b outputs --data sample_data

Needs vLLM, a GPU and some GB of disk. The weights are random, and scaled so that one token clearly
wins: what vLLM makes for `--load-format dummy` leaves all tokens all but equally likely. Chunking
off is what budgets of 8,192, 2,048 and 512 tokens are compared with, for greedy answers and then
for the likelihoods of endings. Prints the two tables in Markdown; artefacts go to the folder.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import chunkscope
from chunkscope.artefacts.figures import Group, in_group
from chunkscope.verification.outcomes import shown, value
from chunkscope.verification.result import Verification
from chunkscope.verification.rows import Report
from chunkscope.verification.verify import VerifyOptions, verify
from chunkscope.vllm.check import config_of
from chunkscope.vllm.enums import Task
from tests.verification.weights import save_model

BUDGETS = (8_192, 2_048, 512)


def main(shape: str, folder: Path, data: list[str], requests: int) -> None:
    model = folder / shape
    if not (model / "model.safetensors").exists():
        config = {**config_of(shape), "tie_word_embeddings": False}
        save_model(model, config, dtype=np.float16)
    profile = chunkscope.analyze(data)
    for task in Task:
        plan = chunkscope.recommend(profile, model=str(model), task=task, max_output=32)
        options = VerifyOptions(
            against="off",
            also=[f"max-num-batched-tokens={budget}" for budget in BUDGETS],
            task=task,
            requests=requests,
            repeats=1,
            check_outputs=True,
            command=tuple(sys.argv),
        )
        report = Report(output=folder / task.value / "verify.json")
        made = verify(plan, profile, model=str(model), options=options, report=report)
        print(f"\n{task.value}:\n", *table(made), sep="\n", flush=True)


def table(v: Verification) -> Iterator[str]:
    """A row per setting that ran, a column per figure that one of them has."""
    runs = [run for run in v.runs if run.ok]
    figures = [
        figure
        for figure in in_group(Group.OUTPUTS)
        if any(value(run, figure) is not None for run in runs)
    ]
    yield f"| setting | {' | '.join(figure.title for figure in figures)} |"
    yield f"|---{'|---:' * len(figures)}|"
    for run in runs:
        cells = (shown(figure, run) for figure in figures)
        yield f"| {' = '.join((run.setting, *run.same_as))} | {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("shape", help="a model of `chunkscope models`, of Llama's kind")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--requests", type=int, default=64)
    asked = parser.parse_args()
    main(asked.shape, asked.folder, asked.data, asked.requests)
