"""The memory model against what was measured.

One H200, vLLM 0.24.0, dummy bf16 weights, a Llama-3.1-8B shape with max_model_len 32768
and gpu_memory_utilization 0.9; a Qwen2.5-7B shape for the V1 runner.

Most constants were fitted to these very figures, so these tests keep the model from
drifting away from them; they are no evidence for another GPU or model. Not fitted:
Qwen2.5-7B's weights and plain activation peak.
"""

import gzip
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chunkscope.artefacts.note import Label
from chunkscope.errors import ChunkscopeError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.models import MODELS, find_model, shape_from_config
from chunkscope.models.layers import KvKind
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import OWN, Settings
from tests.hardware.kv_models import CONFIGS
from tests.hardware.test_step_time import FP8


def engine(model="llama-3.1-8b", version="0.24.0", logprobs=False):
    """One that finds in vLLM's cache what an earlier start has compiled."""
    return Engine(
        shape=find_model(model),
        gpu=find_gpu("h200"),
        release=release(version),
        logprobs=logprobs,
        compiled_before=True,
    )


def bill(found, budget, seqs, **settings):
    return found.memory(
        Settings(
            max_num_batched_tokens=budget,
            max_num_seqs=seqs,
            gpu_memory_utilization=0.9,
            **settings,
        )
    )


@pytest.mark.parametrize(
    ("budget", "tokens", "peak_gib"),
    [
        (512, 905_264, None),
        (2_048, 903_968, None),
        (8_192, 898_784, 0.84),
        (32_768, 878_048, 3.36),
    ],
)
def test_kv_tokens_and_large_activation_peaks_are_the_measured_ones(
    budget, tokens, peak_gib
):
    """Fitted: the overhead makes one of these right, the slope all four.

    The V2 runner of 0.24 does not take CUDA graphs off.
    """
    memory = bill(engine(), budget, 64)

    assert memory.kv_cache_tokens == pytest.approx(tokens, rel=0.001)
    if peak_gib is not None:
        assert memory.line("activation").gib == pytest.approx(peak_gib, rel=0.01)


@dataclass(frozen=True, kw_only=True)
class Starts:
    """The most GiB that vLLM's profile took of a first start, and of a later one."""

    model: str
    budget: int
    seqs: int
    first: float
    later: float | None


# One H200, 2026-11-15 to 18.
STARTS = [
    Starts(model="llama-3.1-8b", budget=2_048, seqs=1_024, first=1.010, later=0.791),
    Starts(model="llama-3.1-8b", budget=8_192, seqs=1_024, first=1.104, later=0.875),
    Starts(model="qwen3-8b", budget=512, seqs=1_024, first=1.168, later=0.475),
    Starts(model="qwen3-8b", budget=8_192, seqs=1_024, first=1.285, later=0.973),
    Starts(model="qwen3-14b", budget=512, seqs=1_024, first=1.460, later=None),
    Starts(model="qwen2.5-7b", budget=256, seqs=256, first=1.019, later=0.620),
]
# Here the sampler takes more than kernels that are tried.
SAMPLER = Starts(
    model="qwen2.5-1.5b", budget=8_192, seqs=1_024, first=2.167, later=2.167
)


def profiled_gib(found, starts):
    lines = bill(found, starts.budget, starts.seqs).lines
    names = ("activation", "sampler", "compiling")
    return sum(line.gib for line in lines if line.name in names)


def named(starts):
    return f"{starts.model}, {starts.budget}"


@pytest.mark.parametrize("starts", STARTS, ids=named)
def test_a_first_start_tries_kernels_on_a_copy_of_the_embedding(starts):
    first = replace(engine(starts.model), compiled_before=False)

    assert profiled_gib(first, starts) == pytest.approx(starts.first, abs=0.002)


@pytest.mark.parametrize("starts", [*STARTS, SAMPLER], ids=named)
def test_a_later_start_finds_what_was_compiled(starts):
    later = engine(starts.model)

    if starts.later is not None:
        assert profiled_gib(later, starts) == pytest.approx(starts.later, abs=0.15)


def test_of_a_model_with_towers_the_embedding_is_not_compiled():
    """Read in vLLM 0.24: its language model is called with `inputs_embeds`."""
    first = replace(engine("gemma-3-4b", "0.32.0"), compiled_before=False)

    assert "compiling" not in {line.name for line in bill(first, 2_048, 64).lines}


@dataclass(frozen=True, kw_only=True)
class Bill:
    """MiB of each line, and the blocks that are left for the KV cache."""

    model: str
    mib: dict[str, float]
    blocks: int
    version: str = "0.24.0"
    logprobs: bool = False
    settings: Settings = OWN


# With steps of 4,096 tokens, 2,048 of one prompt, and 512 requests of up to 32,768
# tokens.
BILLS = {
    "the first runner": Bill(
        model="qwen2.5-7b",
        logprobs=True,
        mib={
            "weights": 14_525.64,
            "activation": 528,
            "sampler": 511.5,
            "overhead": 307.2,
            "cuda_graphs": 456.8,
            "logprobs": 2_984,
        },
        blocks=128_583,
    ),
    "two GPUs": Bill(
        model="llama-3.1-8b",
        version="0.32.0",
        logprobs=True,
        settings=Settings(tensor_parallel_size=2),
        mib={
            "weights": 7_658.25,
            "activation": 264,
            "sampler": 111.75,
            "overhead": 1_024,
            "cuda_graphs": 492.8,
            "logprobs": 517,
        },
        blocks=119_288,
    ),
    "a latent, whole experts": Bill(
        model="deepseek-v2-lite",
        settings=Settings(
            tensor_parallel_size=2, data_parallel_size=2, enable_expert_parallel=True
        ),
        mib={
            "weights": 8_114.87,
            "activation": 312.5,
            "experts": 456,
            "sampler": 0,
            "overhead": 1_024,
            "cuda_graphs": 563.0,
        },
        blocks=250_589,
    ),
    "parts of experts": Bill(
        model="qwen3-30b-a3b",
        settings=Settings(data_parallel_size=4),
        mib={
            "weights": 16_763.4,
            "activation": 172,
            "experts": 1_024,
            "sampler": 866.62,
            "overhead": 1_024,
            "cuda_graphs": 636.8,
        },
        blocks=72_235,
    ),
    "4-bit experts, windows": Bill(
        model="gpt-oss-20b",
        mib={
            "weights": 13_760.16,
            "activation": 292.5,
            "experts": 270,
            "sampler": 1_082.12,
            "overhead": 307.2,
            "cuda_graphs": 420.8,
        },
        blocks=300_551,
    ),
    "an 8-bit KV cache": Bill(
        model="gemma-2-9b",
        settings=Settings(kv_cache_dtype="fp8"),
        mib={
            "weights": 17_627.16,
            "activation": 420,
            "sampler": 1_330,
            "overhead": 307.2,
            "cuda_graphs": 582.8,
        },
        blocks=82_721,
    ),
}


def billed(expected):
    found = engine(expected.model, expected.version, expected.logprobs)
    sizes = Settings(
        max_num_batched_tokens=4_096,
        max_num_seqs=512,
        long_prefill_token_threshold=2_048,
        max_model_len=32_768,
        gpu_memory_utilization=0.9,
    )
    return found.memory(expected.settings.over(sizes))


@pytest.mark.parametrize("expected", BILLS.values(), ids=BILLS)
def test_where_every_mib_goes(expected):
    memory = billed(expected)

    mib = {line.name: line.gib * 1_024 for line in memory.lines}
    assert mib == pytest.approx(expected.mib, abs=0.01)
    assert memory.kv_cache_blocks == expected.blocks


@pytest.mark.parametrize("expected", BILLS.values(), ids=BILLS)
def test_a_line_that_nobody_measured_is_labelled_assumed(expected):
    lines = billed(expected).lines

    assumed = {"sampler", "overhead", "cuda_graphs"}
    if expected.settings.parallel.gpus > 1 and "experts" in expected.mib:
        assumed.add("experts")
    assert {line.name for line in lines if line.label is Label.ASSUMED} == assumed


@pytest.mark.parametrize(
    ("gpu", "bytes_per_token"),
    [
        pytest.param("h100", 86_528, id="Hopper multiplies 8 bits"),
        pytest.param("a100", 98_304, id="Ampere multiplies 16 bits"),
        pytest.param("a800", 98_304, id="the A800 is an Ampere, too"),
    ],
)
def test_activations_of_fp8_weights_follow_the_products_of_the_gpu(
    gpu, bytes_per_token
):
    config = {**MODELS["qwen3-8b"].config, **FP8}
    shape = shape_from_config(config, name="fp8", source="test")
    found = Engine(shape=shape, gpu=find_gpu(gpu), release=release("0.24"))

    activation = bill(found, 8_192, 64).line("activation")

    assert activation.gib * 2**30 == 8_192 * bytes_per_token


@pytest.mark.parametrize(
    ("caching", "blocks"),
    [
        pytest.param(True, 2, id="one is cached"),
        pytest.param(False, 1, id="none is cached"),
        pytest.param(None, 2, id="vLLM's own choice"),
    ],
)
def test_states_are_kept_twice_where_prefixes_are_cached(caching, blocks):
    shape = shape_from_config(CONFIGS["qwen3-next"], name="hybrid", source="test")
    found = Engine(shape=shape, gpu=find_gpu("h200"), release=release("0.32"))

    layout = found.kv_layout(Settings(enable_prefix_caching=caching))

    states = [group for group in layout.groups if group.kind is KvKind.STATE]
    assert {group.state_blocks for group in states} == {blocks}


# -- what others measured --------------------------------------------------------------


def public_rows():
    """Rows of kv_cache.jsonl.gz, in the folder that CHUNKSCOPE_PUBLIC_RUNS names.

    Logs of vLLM on one GPU, 16-bit weights of a model without towers, all sizes stated.
    """
    folder = os.environ.get("CHUNKSCOPE_PUBLIC_RUNS")
    if not folder:
        return []
    rows = []
    with gzip.open(Path(folder) / "kv_cache.jsonl.gz", "rt") as file:
        for line in file:
            row = json.loads(line)
            if _is_plain(row) and _shape(row) is not None:
                rows.append(row)
    return rows


def _is_plain(row):
    return (
        row["gpu"] == "H100 SXM 80GB"
        and row["gpus"] == 1
        and row.get("dtype") in ("bfloat16", "float16")
        and not row.get("quantization")
        and "max_num_batched_tokens" in row["args"]
        and "kv_cache_gib" in row["measured"]
    )


def _shape(row):
    try:
        shape = find_model(row["model"])
    except ChunkscopeError:
        return None
    return None if shape.parameters.vision else shape


@pytest.mark.skipif(not public_rows(), reason="CHUNKSCOPE_PUBLIC_RUNS names no folder")
@pytest.mark.parametrize("row", public_rows(), ids=lambda row: row["model"])
def test_the_kv_cache_of_public_runs_is_predicted_within_1_percent(row):
    found = Engine(
        shape=_shape(row),
        gpu=find_gpu("h100"),
        release=release(row["vllm_version"]),
        cuda_graphs=not row["args"].get("enforce_eager", False),
    )

    memory = found.memory(Settings.of(row["args"]))

    measured_gib = row["measured"]["kv_cache_gib"]
    assert memory.kv_cache_gib == pytest.approx(measured_gib, rel=0.01)
