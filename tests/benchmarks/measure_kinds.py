"""Measure on a real GPU what the memory and step-time models say of models that are not dense.

Example: python tests/benchmarks/measure_kinds.py gemma-3-12b-text:8192 gemma-3-12b-text:2048 \
--output kinds --limit 540

Needs vLLM and a GPU; weights are random (`load_format="dummy"`). Each MODEL:BUDGET is an engine of
its own, started as `verify` does it: KV cache, weights and activation peak, then the same 120
requests of 60 to 27,000 tokens, sent at once, twice. Kernels that are compiled when a shape is seen
first are compiled in the first round; the second one counts. A line of JSON per row in rows.jsonl,
as it goes; steps, answers and logs beside it in raw/, for fitting.
"""

import argparse
import gzip
import json
import os
import random
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chunkscope.models.find import MODELS
from chunkscope.verification import process
from chunkscope.vllm.check import PROGRAM

CONTEXT, UTILIZATION = 32_768, 0.9
REQUESTS, SHORTEST, LONGEST = 120, 60, 27_000
OUTPUTS = (32, 128)
# Requests, prompt and output: batches that only decode, and prompts alone.
BURSTS = (
    *((count, 64, 24) for count in (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    (4, 8_000, 24),
    (16, 8_000, 24),
    *((1, prompt, 3) for prompt in (128, 384, 500, 1_000, 2_000, 4_000, 7_900)),
)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
GEMMA_3 = {"architectures": ["Gemma3ForCausalLM"]}
MOE = {
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "hidden_size": 2_048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
}
DEEPSEEK_V3 = {
    **MOE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1_408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.446,
    "rope_theta": 50000.0,
    "rope_scaling": None,
}
GRANITE = {
    **MOE,
    "architectures": ["GraniteMoeForCausalLM"],
    "model_type": "granitemoe",
    "vocab_size": 49_155,
    "intermediate_size": 512,
    "num_key_value_heads": 8,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": True,
    "attention_multiplier": 0.015625,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 6.0,
    "rope_theta": 10000000.0,
}
# Shapes of published models that the built-in table does not have; from memory, as that is.
CONFIGS: dict[str, dict[str, Any]] = {
    "tiny": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 4_096,
        "max_position_embeddings": 1_024,
        "torch_dtype": "float32",
    },
    "qwen3-8b-fp8": {**MODELS["qwen3-8b"].config, "quantization_config": FP8},
    "qwen3-4b-fp8": {**MODELS["qwen3-4b"].config, "quantization_config": FP8},
    "llama-3.1-8b-fp8": {
        **MODELS["llama-3.1-8b"].config,
        "max_position_embeddings": 32_768,
        "quantization_config": FP8,
    },
    "mistral-7b-v0.1": {
        **MODELS["mistral-7b-v0.3"].config,
        "sliding_window": 4_096,
        "vocab_size": 32_000,
    },
    "deepseek-v2-lite": {**MODELS["deepseek-v2-lite"].config, "n_group": 1, "topk_group": 1},
    "gemma-3-4b-text": {**MODELS["gemma-3-4b"].config["text_config"], **GEMMA_3},
    "gemma-3-12b-text": {**MODELS["gemma-3-12b"].config["text_config"], **GEMMA_3},
    "qwen3-15b-a2b": {**MODELS["qwen3-30b-a3b"].config, "num_hidden_layers": 24},
    "olmoe-1b-7b": {
        **MOE,
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "vocab_size": 50_304,
        "intermediate_size": 1_024,
        "num_hidden_layers": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
    },
    "qwen1.5-moe-a2.7b": {
        **MOE,
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "vocab_size": 151_936,
        "intermediate_size": 5_632,
        "num_hidden_layers": 24,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1_408,
        "shared_expert_intermediate_size": 5_632,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
        "rope_theta": 1000000.0,
    },
    "moonlight-16b-a3b": {
        **DEEPSEEK_V3,
        "vocab_size": 163_840,
        "intermediate_size": 11_264,
        "num_hidden_layers": 27,
        "q_lora_rank": None,
        "first_k_dense_replace": 1,
    },
    # Built as DeepSeek-V3, in the size of a small model.
    "deepseek-v3-small": {
        **DEEPSEEK_V3,
        "vocab_size": 129_280,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 8_192,
        "num_hidden_layers": 20,
        "q_lora_rank": 1_536,
        "first_k_dense_replace": 3,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1_024,
    },
    "ernie-4.5-21b-a3b": {
        **MOE,
        "architectures": ["Ernie4_5_MoeForCausalLM"],
        "model_type": "ernie4_5_moe",
        "vocab_size": 103_424,
        "hidden_size": 2_560,
        "intermediate_size": 12_288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "tie_word_embeddings": True,
        "use_bias": False,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1_536,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": 27,
        "moe_layer_interval": 1,
        "rope_theta": 500000.0,
    },
    # Latent attention alone: no layer has experts.
    "youtu-llm-2b": {
        **DEEPSEEK_V3,
        "vocab_size": 128_256,
        "intermediate_size": 6_144,
        "num_hidden_layers": 32,
        "q_lora_rank": 1_536,
        "first_k_dense_replace": 32,
    },
    "granite-3.1-3b-a800m": {
        **GRANITE,
        "hidden_size": 1_536,
        "num_hidden_layers": 32,
        "num_attention_heads": 24,
        "num_local_experts": 40,
    },
    "granite-3.1-1b-a400m": {
        **GRANITE,
        "hidden_size": 1_024,
        "num_hidden_layers": 24,
        "num_local_experts": 32,
    },
}


def main() -> None:
    options = _options()
    folder = Path(options.output)
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    preload()
    print(f"vLLM was imported in {time.monotonic() - started:.1f} s", flush=True)
    for number, row in enumerate(options.rows):
        left = options.limit - (time.monotonic() - started)
        if left < 40:
            print(f"{len(options.rows) - number} rows are left out: the time is over", flush=True)
            break
        model, _, budget = row.partition(":")
        line = {"model": model, "budget": int(budget), "eager": options.eager}
        line |= measured(line, folder / "raw" / f"{model}-{budget}", left, bursts=options.bursts)
        with (folder / "rows.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+", metavar="MODEL:BUDGET")
    parser.add_argument("--output", default="kinds")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for all rows")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--bursts", action="store_true", help="steps of known make-up, for fitting")
    return parser.parse_args()


def config_of(model: str) -> dict[str, Any]:
    return dict(CONFIGS.get(model) or MODELS[model].config)


def context_of(model: str) -> int:
    return min(CONTEXT, int(config_of(model).get("max_position_embeddings", CONTEXT)))


def requests_of(context: int) -> list[tuple[int, int, float]]:
    """The same for all models with so long a context: prompts, outputs, all sent at once."""
    rng = random.Random(16)
    longest = min(LONGEST, context - OUTPUTS[1] - 64)
    ratio = longest / SHORTEST
    return [
        (int(SHORTEST * ratio ** rng.random()), rng.randint(*OUTPUTS), 0.0) for _ in range(REQUESTS)
    ]


def measured(
    row: Mapping[str, Any], raw: Path, timeout_s: float, *, bursts: bool
) -> dict[str, Any]:
    config, context = config_of(row["model"]), context_of(row["model"])
    requests = requests_of(context)
    begun, line = time.monotonic(), dict[str, Any]()
    rounds: dict[str, Any] = {"row": dict(row), "repeats": [], "bursts": []}
    log = Path(f"{raw}.log")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        task = Path(folder) / "task.json"
        engine = {
            "model": folder,
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "enforce_eager": row["eager"],
            "max_model_len": context,
            "max_num_batched_tokens": row["budget"],
            "gpu_memory_utilization": UTILIZATION,
            "enable_prefix_caching": False,
            "dtype": config["torch_dtype"],
        }
        task.write_text(
            json.dumps(
                {
                    "engine": engine,
                    "entry": "serve",
                    "scored": [],
                    "seed": 0,
                    "stretches": [],
                    "ends": [-1] * (len(requests) + 1),
                    "repeats": 2,
                    "warm_up": [(64, 8, 0.0)] * 2,
                    "requests": requests,
                    "prompts": None,
                    "bursts": [b for b in BURSTS if b[1] + b[2] < context] if bursts else [],
                    "outputs": {"places": [], "tokens": 1},
                }
            )
        )
        with Forked(task, log) as forked, suppress(TimeoutError):
            for event in forked.events(timeout_s):
                _record(event, line, rounds)
    text = log.read_text(errors="replace")
    line |= {"took_s": round(time.monotonic() - begun, 1), **_logged(text)}
    if len(line.get("repeats", [])) < 2:
        line["last_lines"] = [x[:200] for x in text.splitlines() if x.strip()][-8:]
    with gzip.open(f"{raw}.json.gz", "wt") as file:
        json.dump(rounds, file)
    return line


def _record(event: Mapping[str, Any], line: dict[str, Any], rounds: dict[str, Any]) -> None:
    kind = event["event"]
    if kind == "ready":
        line |= {"start_s": round(event["start_s"], 1), "engine": event["engine"]}
        line["worker"] = event["workers"][0]
    elif kind == "repeat":
        rounds["repeats"].append({k: event[k] for k in ("answers", "steps", "memory")})
        line.setdefault("repeats", []).append(_figures(event["answers"]))
        line["memory"] = event["memory"][0]
    elif kind == "burst":
        rounds["bursts"].append(event["steps"])
    elif kind == "failed":
        line["failed"] = f"{event['kind']}: {event['message']}"[:300]


def preload() -> None:
    """Once for all rows: it takes half a minute. No GPU is touched before a row has forked."""
    sys.path[:0] = [str(process.INSIDE), str(PROGRAM.parent)]
    # Compiling DeepGEMM's 1,167 kernels before the first request takes ten minutes.
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_DEEP_GEMM_WARMUP": "skip"}
    import chunkscope_engine  # noqa: F401
    import vllm.engine.arg_utils
    import vllm.v1.engine.async_llm  # noqa: F401
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda look: look()


class Forked:
    """A child with an engine, as `verify` starts one in a process of its own."""

    def __init__(self, task: Path, log: Path) -> None:
        self._task, self._log = task, log
        self._events = self._pid = -1

    def __enter__(self) -> "Forked":
        self._events, write = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            self._run(write)
        os.close(write)
        return self

    def _run(self, write: int) -> None:
        code = 1
        try:
            os.setsid()
            out = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.environ["CHUNKSCOPE_EVENTS_FD"] = str(write)
            import chunkscope_engine

            sys.argv = ["chunkscope_engine.py", str(self._task)]
            chunkscope_engine.main()
            code = 0
        finally:
            os._exit(code)

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._events)
        time.sleep(1.0)  # for the GPU's memory to be free again

    def events(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Until the engine is done, or fails; TimeoutError after so many seconds."""
        deadline, pending = time.monotonic() + timeout_s, b""
        while time.monotonic() < deadline:
            if not select.select([self._events], [], [], 0.25)[0]:
                continue
            read = os.read(self._events, 1 << 20)
            *lines, pending = (pending + read).split(b"\n")
            yield from map(json.loads, lines)
            if not read or any(b'"done"' in line[:20] for line in lines):
                return
        raise TimeoutError


LOGGED = {
    "kv_tokens": r"KV cache size: ([\d,]+) tokens",
    "kv_gib": r"Available KV cache memory: ([\d.]+) GiB",
    "graphs_gib": r"Graph capturing finished in \d+ secs, took ([\d.-]+) GiB",
    "graphs_estimate_gib": r"Estimated CUDA graph memory: ([\d.-]+) GiB",
    "weights_gib": r"Model loading took ([\d.]+) GiB",
}


def _logged(text: str) -> dict[str, float]:
    found = {name: re.findall(pattern, text) for name, pattern in LOGGED.items()}
    return {name: float(all_[-1].replace(",", "")) for name, all_ in found.items() if all_}


def _figures(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """As `verify` counts them: seconds from when a request was sent, and between its tokens."""
    first = sorted(a["times"][0] - a["sent"] for a in answers)
    gaps = sorted(gap for a in answers for gap in _gaps(a))
    figures = {"makespan_s": max(a["times"][-1] for a in answers)}
    for name, values in (("ttft", first), ("itl", gaps)):
        figures |= {f"{name}_p{p}_s": values[int(p / 100 * (len(values) - 1))] for p in (50, 95)}
    return {name: round(value, 5) for name, value in figures.items()}


def _gaps(answer: Mapping[str, Any]) -> Iterator[float]:
    times, counts = answer["times"], answer["counts"]
    for earlier, later, n in zip(times, times[1:], counts[1:], strict=False):
        yield from [(later - earlier) / n] * n


if __name__ == "__main__":
    main()
