"""Measure on a real GPU what the memory and step-time models say of models that are not dense.

Example: python tests/benchmarks/measure_kinds.py fit --output kinds --limit 540

Needs vLLM and a GPU; weights are random (`load_format="dummy"`), so experts are chosen nearly
evenly. Each row is an engine of its own, started as `verify` does it: KV cache, groups, weights and
activation peak, what it was doing when while it started, then the same 120 requests of 60 to 27,000
tokens, sent at once. A line of JSON per row in rows.jsonl, as it goes; steps, answers and logs
beside it in raw/, for fitting.
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
from dataclasses import dataclass, field
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
    "gemma-3-4b-text": {
        **MODELS["gemma-3-4b"].config["text_config"],
        "architectures": ["Gemma3ForCausalLM"],
    },
    "olmoe-1b-7b": {
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "torch_dtype": "bfloat16",
        "vocab_size": 50_304,
        "hidden_size": 2_048,
        "intermediate_size": 1_024,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 32_768,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "tie_word_embeddings": False,
    },
    "qwen1.5-moe-a2.7b": {
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "torch_dtype": "bfloat16",
        "vocab_size": 151_936,
        "hidden_size": 2_048,
        "intermediate_size": 5_632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 32_768,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1_408,
        "shared_expert_intermediate_size": 5_632,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
        "tie_word_embeddings": False,
        "rope_theta": 1000000.0,
    },
    "moonlight-16b-a3b": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "torch_dtype": "bfloat16",
        "vocab_size": 163_840,
        "hidden_size": 2_048,
        "intermediate_size": 11_264,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 32_768,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1_408,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.446,
        "tie_word_embeddings": False,
        "rope_theta": 50000.0,
        "rope_scaling": None,
    },
    "granite-3.1-3b-a800m": {
        "architectures": ["GraniteMoeForCausalLM"],
        "model_type": "granitemoe",
        "torch_dtype": "bfloat16",
        "vocab_size": 49_155,
        "hidden_size": 1_536,
        "intermediate_size": 512,
        "num_hidden_layers": 32,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32_768,
        "num_local_experts": 40,
        "num_experts_per_tok": 8,
        "tie_word_embeddings": True,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "logits_scaling": 6.0,
        "rope_theta": 10000000.0,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`watched`: where all threads are is written to its log now and then."""

    model: str
    budget: int = 8_192
    eager: bool = False
    repeats: int = 2
    bursts: bool = False
    timeout_s: int = 150
    engine: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    watched: bool = False


NO_WARM_UP = {"VLLM_DEEP_GEMM_WARMUP": "skip"}
FIT = (
    Row(model="qwen3-30b-a3b", bursts=True),
    Row(model="deepseek-v2-lite", bursts=True),
    Row(model="gemma-2-9b", bursts=True),
    Row(model="qwen3-30b-a3b", budget=2_048, eager=True, repeats=1, timeout_s=60),
    Row(model="qwen3-8b-fp8", bursts=True, repeats=1, timeout_s=110, watched=True),
    Row(model="gpt-oss-20b", bursts=True, repeats=1, timeout_s=110, watched=True),
)
# What failed the first time: with n_group, and without compiling 1,167 kernels before the first
# request.
FIT_2 = (
    Row(model="deepseek-v2-lite", bursts=True, repeats=1),
    Row(model="qwen3-8b-fp8", eager=True, bursts=True, repeats=1, env=NO_WARM_UP, timeout_s=110),
)
HELD_OUT = tuple(
    Row(model=model, budget=budget, repeats=1, timeout_s=120)
    for model in (
        "qwen1.5-moe-a2.7b",
        "gemma-3-4b-text",
        "mistral-7b-v0.1",
        "olmoe-1b-7b",
        "moonlight-16b-a3b",
        "gpt-oss-20b",
    )
    for budget in (8_192, 2_048)
)
# Predicted and committed before they were measured: reports/h200/kinds/predicted.jsonl.
HELD_OUT_2 = (
    Row(model="granite-3.1-3b-a800m", budget=2_048, timeout_s=130),
    Row(model="gemma-2-2b", budget=2_048, timeout_s=110),
    Row(model="mixtral-8x7b", repeats=1, timeout_s=240),
    Row(model="gpt-oss-120b", timeout_s=260),
    Row(model="llama-3.1-8b-fp8", budget=2_048, timeout_s=330, env=NO_WARM_UP),
)
TRY = (
    Row(
        model="tiny", eager=True, repeats=1, timeout_s=300, bursts=True, engine={"dtype": "float32"}
    ),
)
LISTS = {"fit": FIT, "fit-2": FIT_2, "held-out": HELD_OUT, "held-out-2": HELD_OUT_2, "try": TRY}


def main() -> None:
    options = _options()
    folder = Path(options.output)
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    preload()
    print(f"vLLM was imported in {time.monotonic() - started:.1f} s", flush=True)
    rows = [row for row in LISTS[options.rows] if options.only in row.model]
    for number, row in enumerate(rows[options.skip :], options.skip):
        left = options.limit - (time.monotonic() - started)
        if left < 40:
            print(f"{len(rows) - number} rows are left out: the time is over", flush=True)
            break
        line = measured(row, folder / "raw" / f"{number:02}-{row.model}", min(left, row.timeout_s))
        with (folder / "rows.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = {key: value for key, value in line.items() if key not in ("phases", "last_lines")}
        print(json.dumps(shown), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", choices=LISTS)
    parser.add_argument("--output", default="kinds")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for all rows")
    parser.add_argument("--skip", type=int, default=0, help="rows")
    parser.add_argument("--only", default="", help="models with this in their name")
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


def measured(row: Row, raw: Path, timeout_s: float) -> dict[str, Any]:
    context = context_of(row.model)
    requests = requests_of(context)
    warm_up = [(prompt, 8, 0.0) for prompt, _, _ in requests[::3]]
    bursts = [b for b in BURSTS if b[1] + b[2] < context] if row.bursts else []
    line: dict[str, Any] = {"model": row.model, "budget": row.budget, "eager": row.eager}
    line |= {"env": dict(row.env)} if row.env else {}
    begun = time.monotonic()
    kept: dict[str, Any] = {"row": line, "repeats": [], "bursts": []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_of(row.model)))
        task = {
            "engine": {
                "model": folder,
                "load_format": "dummy",
                "skip_tokenizer_init": True,
                "enforce_eager": row.eager,
                "max_model_len": context,
                "max_num_batched_tokens": row.budget,
                "gpu_memory_utilization": UTILIZATION,
                "enable_prefix_caching": False,
                **row.engine,
            },
            "entry": "serve",
            "scored": [],
            "seed": 0,
            "stretches": [],
            "ends": [-1] * len(requests) + [-1],
            "repeats": row.repeats,
            "warm_up": [warm_up[0], *warm_up],
            "requests": requests,
            "prompts": None,
            "bursts": bursts,
            "outputs": {"places": [], "tokens": 1},
        }
        log = Path(f"{raw}.log")
        with Forked(row, task, Path(folder), log) as forked:
            _follow(forked, timeout_s, begun, line, kept)
    line["took_s"] = round(time.monotonic() - begun, 1)
    text = log.read_text(errors="replace")
    line |= _logged(text)
    if "makespan_s" not in line:
        line["last_lines"] = [x[:200] for x in text.splitlines() if x.strip()][-8:]
    with gzip.open(f"{raw}.json.gz", "wt") as file:
        json.dump(kept, file)
    return line


def preload() -> None:
    """Once for all rows: it takes half a minute. No GPU is touched before a row has forked."""
    sys.path[:0] = [str(process.INSIDE), str(PROGRAM.parent)]
    os.environ.update(VLLM_NO_USAGE_STATS="1", PYTHONUNBUFFERED="1")
    import chunkscope_engine  # noqa: F401
    import vllm.engine.arg_utils
    import vllm.v1.engine.async_llm  # noqa: F401
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda look: look()


class Forked:
    """A child with an engine, as `verify` starts one in a process of its own."""

    def __init__(self, row: Row, task: Mapping[str, Any], folder: Path, log: Path) -> None:
        self._row, self.log = row, log
        self._task = folder / "task.json"
        self._task.write_text(json.dumps(task))
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
            out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.environ.update(self._row.env, CHUNKSCOPE_EVENTS_FD=str(write))
            if self._row.watched:
                import faulthandler

                faulthandler.dump_traceback_later(20, repeat=True)
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

    def events(self, *, timeout_s: float) -> Iterator[dict[str, Any] | None]:
        deadline, pending = time.monotonic() + timeout_s, b""
        while True:
            if time.monotonic() > deadline:
                raise TimeoutError
            if not select.select([self._events], [], [], 0.25)[0]:
                yield None
                continue
            read = os.read(self._events, 1 << 20)
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            yield from (json.loads(line) for line in lines)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def _follow(
    forked: Forked,
    timeout_s: float,
    begun: float,
    line: dict[str, Any],
    kept: dict[str, Any],
) -> None:
    phases: list[tuple[float, str]] = []
    line["phases"] = phases
    lines = 0
    try:
        for event in forked.events(timeout_s=timeout_s):
            now = round(time.monotonic() - begun, 1)
            if "engine" not in line:
                new = forked.log_text().splitlines()
                phases += [(now, said) for text in new[lines:] if (said := _phase(text))]
                lines = len(new)
            if event is None:
                continue
            kind = event["event"]
            if kind == "ready":
                line |= {"start_s": round(event["start_s"], 1), "engine": event["engine"]}
                line["worker"] = event["workers"][0]
            elif kind == "repeat":
                kept["repeats"].append({k: event[k] for k in ("answers", "steps", "memory")})
                line.setdefault("repeats", []).append(_figures(event["answers"]))
                line["makespan_s"] = min(r["makespan_s"] for r in line["repeats"])
                line["memory"] = event["memory"][0]
            elif kind == "burst":
                kept["bursts"].append(event["steps"])
            elif kind == "failed":
                line["failed"] = f"{event['kind']}: {event['message']}"[:300]
            elif kind in ("phase", "accepted"):
                phases.append((now, event.get("phase", kind)))
            elif kind == "done":
                break
    except TimeoutError:
        line["timeout_s"] = timeout_s


def _phase(text: str) -> str | None:
    """What a line of vLLM's log tells of the start; None for others."""
    found = re.search(r"(?:INFO|WARNING|DEBUG) .{14,16}\[([\w.]+\.py):\d+\] (.*)", text)
    return f"{found[1]}: {found[2][:110]}" if found else None


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
    whole = sorted(a["times"][-1] - a["sent"] for a in answers)
    gaps = sorted(gap for a in answers for gap in _gaps(a))
    found = {"makespan_s": max(a["times"][-1] for a in answers)}
    for name, values in (("ttft", first), ("e2e", whole), ("itl", gaps)):
        found |= {f"{name}_p{p}_s": values[int(p / 100 * (len(values) - 1))] for p in (50, 95)}
    return {name: round(value, 5) for name, value in found.items()}


def _gaps(answer: Mapping[str, Any]) -> Iterator[float]:
    times, counts = answer["times"], answer["counts"]
    for earlier, later, n in zip(times, times[1:], counts[1:], strict=False):
        yield from [(later - earlier) / n] * n


if __name__ == "__main__":
    main()
