"""Measure on a real GPU what the memory model predicts: weights, activation peak, KV cache.

Example: python tests/benchmarks/measure_memory.py --models llama-3.1-8b,qwen2.5-7b \
             --budgets 2048,8192,32768 --output memory.jsonl

Needs vLLM and a GPU; weights are random (`load_format="dummy"`), so nothing is downloaded. Each
engine has a process of its own. A line of JSON per engine: measured beside predicted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GIB = 1 << 30
CONTEXT = 32768
UTILIZATION = 0.9


def main() -> None:
    options = _options()
    if options.one:
        print("result:" + json.dumps(_measure(*options.one)), flush=True)
        return
    for model in options.models.split(","):
        for budget in options.budgets.split(","):
            line = _in_a_process(model, budget, eager=not options.graphs)
            print(json.dumps(line), flush=True)
            with Path(options.output).open("a") as file:
                file.write(json.dumps(line) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="llama-3.1-8b")
    parser.add_argument("--budgets", default="2048,8192,32768")
    parser.add_argument("--output", default="memory.jsonl")
    parser.add_argument("--graphs", action="store_true", help="compile and capture CUDA graphs")
    parser.add_argument("--one", nargs=3, metavar=("FOLDER", "BUDGET", "EAGER"))
    return parser.parse_args()


def _in_a_process(model: str, budget: str, *, eager: bool) -> dict[str, Any]:
    from chunkscope.models import known_model

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(known_model(model).config))
        run = subprocess.run(
            [sys.executable, __file__, "--one", folder, budget, str(int(eager))],
            env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    found = [line for line in run.stdout.splitlines() if line.startswith("result:")]
    line: dict[str, Any] = {"model": model, "budget": int(budget), "eager": eager}
    line["seconds"] = round(time.monotonic() - started, 1)
    if not found:
        return {**line, "failed": run.stderr.strip().splitlines()[-3:]}
    return {**line, **json.loads(found[0].removeprefix("result:")), **_predicted(model, budget)}


def _measure(folder: str, budget: str, eager: str) -> dict[str, Any]:
    import torch
    import vllm

    llm = vllm.LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=eager == "1",
        max_model_len=CONTEXT,
        max_num_batched_tokens=int(budget),
        gpu_memory_utilization=UTILIZATION,
        enable_prefix_caching=False,
    )
    worker = llm.llm_engine.model_executor.driver_worker.worker
    cache = llm.llm_engine.vllm_config.cache_config
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    prompts = [
        {"prompt_token_ids": [7] * (CONTEXT - 64)},
        *([{"prompt_token_ids": [7] * 400}] * 32),
    ]
    sampling = vllm.SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False)
    llm.generate(prompts, sampling, use_tqdm=False)
    return {
        "vllm": vllm.__version__,
        "gpu": torch.cuda.get_device_name(),
        "total_gib": torch.cuda.get_device_properties(0).total_memory / GIB,
        "weights_gib": getattr(worker.model_runner, "model_memory_usage", 0) / GIB or None,
        "activation_gib": (torch.cuda.max_memory_allocated() - before) / GIB,
        "kv_tokens": cache.num_gpu_blocks * cache.block_size,
        "block_size": cache.block_size,
        "max_num_seqs": llm.llm_engine.vllm_config.scheduler_config.max_num_seqs,
    }


def _predicted(model: str, budget: str) -> dict[str, Any]:
    from chunkscope.hardware.gpus import find_gpu
    from chunkscope.models import find_model
    from chunkscope.vllm.deployment import Deployment
    from chunkscope.vllm.flags import release

    gpu = find_gpu("h200")
    assert gpu is not None
    there = Deployment(shape=find_model(model), gpu=gpu, release=release("0.24"), cuda_graphs=False)
    engine = there.memory_model()
    memory = engine.memory(budget=int(budget), seqs=1024, utilization=UTILIZATION)
    return {
        "predicted_weights_gib": memory.line("weights").gib,
        "predicted_activation_gib": memory.line("activation").gib,
        "predicted_kv_tokens": memory.kv_cache_tokens,
    }


if __name__ == "__main__":
    main()
