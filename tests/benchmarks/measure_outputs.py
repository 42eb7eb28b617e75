"""Measure on a real GPU whether answers stay the same when prompts are read in chunks.

Example: python -m tests.benchmarks.measure_outputs llama-3.2-1b outputs --profile profile.json

Needs vLLM, a GPU and some GB of disk. The weights are random, and scaled so that one token clearly
wins: what vLLM makes for `--load-format dummy` leaves all tokens all but equally likely. Prints a
table in Markdown: greedy answers of each budget beside those with chunking off.
"""

import argparse
from pathlib import Path

import numpy as np

import chunkscope
from chunkscope.models.find import MODELS
from chunkscope.verification.verify import Report, VerifyOptions, verify
from tests.verification.weights import save_model

BUDGETS = (8_192, 2_048, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("shape", help="a model of `chunkscope models`, of Llama's kind")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args()
    model = options.folder / options.shape
    if not (model / "model.safetensors").exists():
        config = {**MODELS[options.shape].config, "tie_word_embeddings": False}
        save_model(model, config, dtype=np.float16)
    plan = chunkscope.recommend(options.profile, model=str(model), gpu="h200", max_output=32)
    asked = VerifyOptions(
        against="off",
        also=[f"max-num-batched-tokens={budget}" for budget in BUDGETS],
        requests=options.requests,
        repeats=1,
        check_outputs=True,
        engine_args={"enforce_eager": options.eager},
    )
    report = Report(output=options.folder / "verify.json")
    made = verify(plan, options.profile, model=str(model), options=asked, report=report)
    print("| setting | equal to chunking off | equal when sent again | compared |")
    print("|---|---:|---:|---:|")
    for run in made.runs:
        name = " = ".join((run.setting, *run.same_as))
        if run.outputs is None:
            print(f"| {name} | not measured | | |")
            continue
        equal = "" if run.outputs.equal is None else f"{run.outputs.equal:.1%}"
        again, count = f"{run.outputs.again:.1%}", len(run.outputs.answers)
        beside = f"{run.outputs.reference or 'itself'}"
        print(f"| {name} | {equal} (beside {beside}) | {again} | {count} |", flush=True)


if __name__ == "__main__":
    main()
