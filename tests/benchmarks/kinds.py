"""Models that are not dense, and the workload: measured on an H200
(reports/h200/kinds).

The workload is 120 requests of 60 to 27,000 tokens, sent at once, twice
(measure_kinds.py). Kernels that are compiled when a shape is seen first are compiled in
the first round; the second one counts.
"""

import json
import random
from pathlib import Path
from typing import Any

from chunkscope.models import ModelShape, shape_from_config
from chunkscope.models.find import MODELS
from chunkscope.simulation.workload import Session, single
from chunkscope.vllm.settings import Settings

CONTEXT, UTILIZATION = 32_768, 0.9
REQUESTS, SHORTEST, LONGEST = 120, 60, 27_000
OUTPUTS = (32, 128)


def _configs() -> dict[str, dict[str, Any]]:
    """The built-in table's, and kinds.json's: shapes of published models, from memory
    as those are (deepseek-v3-small and -medium: built as DeepSeek-V3, smaller). They
    say what they are like."""
    configs = {name: dict(model.config) for name, model in MODELS.items()}
    for name, own in json.loads(
        Path(__file__).with_suffix(".json").read_bytes()
    ).items():
        base = configs.get(own.pop("like", ""), {})
        configs[name] = {**base.get("text_config", base), **own}
    return configs


CONFIGS = _configs()


def config_of(model: str) -> dict[str, Any]:
    return dict(CONFIGS[model])


def shape_of(model: str) -> ModelShape:
    return shape_from_config(config_of(model), name=model, source="kinds.py")


def is_even(model: str) -> bool:
    """Can vLLM be told to choose its experts by lot? Kernels of 4-bit ones choose
    themselves."""
    shape = shape_of(model)
    return shape.experts is not None and shape.quantization.bits > 4


def context_of(model: str) -> int:
    return min(CONTEXT, int(config_of(model).get("max_position_embeddings", CONTEXT)))


def settings_of(model: str, budget: int) -> Settings:
    return Settings(
        max_model_len=context_of(model),
        max_num_batched_tokens=budget,
        gpu_memory_utilization=UTILIZATION,
        enable_prefix_caching=False,
    )


def sessions_of(context: int) -> tuple[Session, ...]:
    """The same for all models with so long a context, all sent at once."""
    rng, made = random.Random(16), []
    ratio = min(LONGEST, context - OUTPUTS[1] - 64) / SHORTEST
    for _ in range(REQUESTS):
        prompt, output = int(SHORTEST * ratio ** rng.random()), rng.randint(*OUTPUTS)
        made.append(single(prompt, output))
    return tuple(made)
