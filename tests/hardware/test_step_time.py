"""How long a step takes by the roofline: near what an H200 measured."""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import ALONE, Parallel, find_gpu
from chunkscope.hardware.step_time import (
    READ_AGAIN,
    WINDOW_SLOWNESS,
    AttentionWindow,
    Runner,
    StepModel,
    step_model,
)
from chunkscope.models import MODELS, ModelShape, find_model, shape_from_config
from tests.h200 import FOLDER
from tests.hardware.kv_models import CONFIGS


def on(gpu: str, model: str) -> StepModel:
    step = step_model(find_model(model), find_gpu(gpu))
    assert step is not None
    return step


# -- the host --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "prompts", "launch_s"),
    [
        pytest.param(512, 0, 0.0, id="decodes run as one CUDA graph"),
        pytest.param(512, 1, 28 * 0.15e-3, id="prompts as one for each layer"),
    ],
)
def test_a_step_of_the_graphs_size_is_launched_as_graphs(tokens, prompts, launch_s):
    _, launch, _ = on("h200", "qwen2.5-1.5b").host_parts(tokens, 1, prompts)

    assert launch == pytest.approx(launch_s)


def test_a_step_over_the_graphs_size_is_launched_kernel_by_kernel():
    step = on("h200", "qwen2.5-1.5b")

    _, launch, _ = step.host_parts(513, 1, 1)

    assert launch == step.host.ungraphed_s


@pytest.mark.parametrize(
    ("model", "launch_ms"),
    [
        pytest.param("llama-3.2-1b", 18.5 * 16 / 28, id="16 layers, measured"),
        pytest.param("qwen2.5-1.5b", 18.5, id="28 layers, measured"),
        pytest.param("qwen3-8b", 18.5, id="36 layers, measured"),
        pytest.param("llama-3.1-70b", 18.5 * 80 / 36, id="80 layers take longer"),
        pytest.param("qwen3-30b-a3b", 87, id="48 layers with experts, measured"),
        pytest.param("deepseek-v2-lite", 80, id="experts and a latent, measured"),
        pytest.param("gpt-oss-20b", 56, id="4-bit experts, measured"),
    ],
)
def test_the_launch_of_a_large_step_grows_with_the_layers(model, launch_ms):
    launch_s = on("h200", model).host.ungraphed_s

    assert launch_s * 1e3 == pytest.approx(launch_ms, rel=0.08)


@pytest.mark.parametrize(
    ("runner", "requests", "host_ms"),
    [
        pytest.param(Runner.V2, 128, 3.0, id="the second, measured with 128"),
        pytest.param(Runner.V2, 1_024, 15.0, id="the second, measured with 1,024"),
        pytest.param(Runner.V2, 1_319, 20.0, id="the second, measured with 1,319"),
    ],
)
def test_a_request_costs_the_host_what_the_model_runner_takes(
    runner, requests, host_ms
):
    """Of a step in CUDA graphs: Llama-3.2-1B, reports/h200/many-at-once."""
    step = step_model(find_model("llama-3.2-1b"), find_gpu("h200"), runner=runner)

    host_s = sum(replace(step, graphed_tokens=2_048).host_parts(requests, requests, 0))

    assert host_s * 1e3 == pytest.approx(host_ms, rel=0.06)


# -- each kind of model ----------------------------------------------------------------

FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


@dataclass(frozen=True, kw_only=True)
class Times:
    """A model as published, or a small one of kv_models.json, and its step times."""

    model: str
    gpu: str
    weights_ms: float  # to read all but the experts
    token_us: float
    pair_ns: float
    context_ns: float
    request_us: float
    experts_ms: float = 0.0  # to read all experts
    expert_share: float = 0.0  # that one token chooses
    mixed: float = 1.6  # times as long that context takes beside prompts
    free_tokens: int  # that hide behind reading the weights
    graphed_tokens: int = 512
    parallel: Parallel = ALONE
    changed: dict[str, object] | None = None  # in the config.json

    @property
    def shape(self) -> ModelShape:
        if self.model in MODELS and not self.changed:
            return find_model(self.model)
        config = dict(
            MODELS[self.model].config if self.model in MODELS else CONFIGS[self.model]
        )
        config.update(self.changed or {})
        return shape_from_config(config, name=self.model, source="test")

    @property
    def step(self) -> StepModel:
        step = step_model(self.shape, find_gpu(self.gpu), self.parallel)
        assert step is not None
        return step


TIMES = {
    "dense, replicas do not talk": Times(
        model="llama-3.1-8b",
        gpu="h200",
        parallel=Parallel(data=2),
        weights_ms=4.9145,
        token_us=22.054,
        pair_ns=0.88353,
        context_ns=32.508,
        request_us=1.6599,
        free_tokens=142,
    ),
    "narrow heads": Times(
        model="llama-3.2-1b",
        gpu="h200",
        weights_ms=1.2921,
        token_us=3.0749,
        pair_ns=0.26948,
        context_ns=9.9149,
        request_us=0.82997,
        free_tokens=167,
    ),
    "few heads, over PCIe": Times(
        model="qwen2.5-1.5b",
        gpu="l40s",
        parallel=Parallel(tensor=2),
        weights_ms=4.6452,
        token_us=14.257,
        pair_ns=0.4277,
        context_ns=19.753,
        request_us=1.0073,
        free_tokens=316,
    ),
    "windows and wide heads": Times(
        model="gemma-2-9b",
        gpu="h100-pcie",
        parallel=Parallel(tensor=4),
        weights_ms=6.5571,
        token_us=53.761,
        pair_ns=0.37926,
        context_ns=56.32,
        request_us=0.94815,
        mixed=1.4414,
        free_tokens=269,
    ),
    "experts of all replicas": Times(
        model="qwen3-30b-a3b",
        gpu="h20",
        parallel=Parallel(tensor=2, data=2),
        weights_ms=5.3336,
        token_us=34.72,
        pair_ns=4.4281,
        context_ns=14.629,
        request_us=3.2851,
        experts_ms=4.4194,
        expert_share=0.12109,
        free_tokens=25,
    ),
    "8-bit experts and a latent": Times(
        model="deepseek-v3",
        gpu="h200",
        parallel=Parallel(tensor=8),
        weights_ms=8.6155,
        token_us=21.131,
        pair_ns=1.2632,
        context_ns=22.134,
        request_us=15.616,
        experts_ms=20.772,
        expert_share=0.03125,
        free_tokens=95,
    ),
    "4-bit experts": Times(
        model="gpt-oss-20b",
        gpu="h100",
        weights_ms=2.9444,
        token_us=11.428,
        pair_ns=0.66265,
        context_ns=17.467,
        request_us=1.8299,
        experts_ms=6.1013,
        expert_share=0.125,
        mixed=1.4414,
        free_tokens=124,
        graphed_tokens=1_024,
    ),
    "6 of 12 layers borrow": Times(
        model="gemma-4",
        gpu="h200",
        changed={"num_kv_shared_layers": 6},
        weights_ms=0.5437,
        token_us=0.023627,
        pair_ns=0.031832,
        context_ns=2.1689,
        request_us=0.0016566,
        mixed=1.3521,
        free_tokens=141,
    ),
    "states": Times(
        model="qwen3-next",
        gpu="h200",
        parallel=Parallel(tensor=2),
        weights_ms=0.67258,
        token_us=0.036617,
        pair_ns=0.0022737,
        context_ns=0.15492,
        request_us=0.10038,
        experts_ms=0.00079922,
        expert_share=0.25,
        free_tokens=76,
    ),
    "4 bits, multiplied in 16": Times(
        model="qwen3-8b",
        gpu="h200",
        changed=AWQ,
        weights_ms=2.7436,
        token_us=21.948,
        pair_ns=0.99397,
        context_ns=36.571,
        request_us=1.9664,
        free_tokens=46,
    ),
    "8 bits, multiplied in 16": Times(
        model="qwen3-8b",
        gpu="a100",
        changed=FP8,
        weights_ms=6.0845,
        token_us=69.572,
        pair_ns=3.1508,
        context_ns=86.093,
        request_us=6.2333,
        free_tokens=58,
    ),
    "8 bits": Times(
        model="qwen3-8b",
        gpu="h200",
        changed=FP8,
        weights_ms=4.5245,
        token_us=13.346,
        pair_ns=0.99397,
        context_ns=36.571,
        request_us=1.9664,
        free_tokens=128,
    ),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_the_times_of_each_kind_of_model(times):
    step = times.step

    near = {"rel": 2e-4}
    assert step.fixed_s * 1e3 == pytest.approx(times.weights_ms, **near)
    assert step.per_token_s * 1e6 == pytest.approx(times.token_us, **near)
    assert step.per_prefill_pair_s * 1e9 == pytest.approx(times.pair_ns, **near)
    assert step.per_decode_context_s * 1e9 == pytest.approx(times.context_ns, **near)
    assert step.per_request_s * 1e6 == pytest.approx(times.request_us, **near)
    assert step.experts_s * 1e3 == pytest.approx(times.experts_ms, **near)
    assert step.expert_share == pytest.approx(times.expert_share, **near)
    assert step.mixed == pytest.approx(times.mixed, **near)
    assert step.free_tokens == times.free_tokens
    assert step.graphed_tokens == times.graphed_tokens


def test_an_a800_computes_as_an_a100_does():
    """It is an Ampere as well: it multiplies no 8-bit floats."""
    a100 = TIMES["8 bits, multiplied in 16"]

    a800 = replace(a100, gpu="a800")

    assert a800.step.per_token_s == a100.step.per_token_s


@pytest.mark.parametrize(
    ("gpu", "multiplies_fp8"),
    [
        ("v100", False),
        ("t4", False),
        ("a10g", False),
        ("rtx-3090", False),
        ("l40s", True),
        ("h20", True),
        ("b200", True),
        ("mi300x", True),
        ("80GiB", True),  # its architecture is not known
    ],
)
def test_which_gpus_multiply_8_bit_floats(gpu, multiplies_fp8):
    config = {**MODELS["qwen3-8b"].config, **FP8}
    shape = shape_from_config(config, name="fp8", source="test")

    computed = find_gpu(gpu).computed(shape)

    assert computed.quantization.eight_bit_products is multiplies_fp8


# -- small steps -----------------------------------------------------------------------


@dataclass(frozen=True)
class SmallStep:
    """A step of few tokens on an H200, and by what share it is predicted too long."""

    model: str
    budget: int
    seconds: float
    error: float


def small_steps(model: str) -> list[SmallStep]:
    steps = []
    for line in (FOLDER / "small-steps.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["model"] != model:
            continue
        step = on("h200", model)
        prompts, decodes = row["prefill_requests"], row["decode_requests"]
        requests, chunk = prompts + decodes, row["prefill_tokens"] / prompts
        before = row["prefill_pairs"] / row["prefill_tokens"] - chunk / 2
        pairs = prompts * step.window.pairs(chunk, before)
        tokens = prompts * chunk + decodes
        gpu_s = step.gpu_s(tokens, pairs, row["decode_context_tokens"], requests)
        host_s = sum(step.host_parts(tokens, requests, prompts))
        error = max(gpu_s, host_s) / row["seconds"] - 1
        steps.append(SmallStep(model, row["budget"], row["seconds"], error))
    return steps


@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "mistral-nemo-12b", "qwen2.5-14b", "qwen2.5-7b"]
)
def test_small_chunks_took_what_the_model_says(model):
    """All within 10 %, but for 448 tokens, which take as long as 600 in some."""
    errors = []
    for step in small_steps(model):
        if 192 <= step.budget <= 512 and step.budget != 448:
            errors.append(step.error)

    assert len(errors) == 12
    assert max(map(abs, errors)) < 0.1
    assert abs(sum(errors) / len(errors)) < 0.04


def test_a_small_model_waits_for_the_host_to_launch_small_steps():
    """On the slowest host that was seen no step took as little as the GPU."""
    step = on("h200", "llama-3.2-3b")

    took = [row.seconds for row in small_steps("llama-3.2-3b") if row.budget <= 256]

    assert step.fixed_s < step.host.pieces_s < min(took) < 1.5 * step.host.pieces_s


# -- shared beginnings, windows, experts -----------------------------------------------


@dataclass(frozen=True)
class DecodeStep:
    """What 128 decode steps of Qwen3-8B took on the H200, one by one."""

    requests: int
    prefix: int
    own: int
    groups: int
    neighbours_share: bool
    seconds: float

    @property
    def context(self) -> int:
        """Half way through."""
        return self.requests * (self.prefix + self.own + 64)

    @property
    def share(self) -> float:
        """Of the context, what neighbours have in common."""
        if not self.neighbours_share:
            return 0.0
        return (self.requests - self.groups) * self.prefix / self.context


def decode_steps() -> list[DecodeStep]:
    steps = []
    for line in (FOLDER / "shared-decode.jsonl").read_text().splitlines():
        case = json.loads(line)
        seconds = (min(case["tokens_129_s"]) - min(case["one_token_s"])) / 128
        step = DecodeStep(
            case["requests"],
            case["prefix_tokens"],
            case["own_tokens"],
            case["groups"],
            case["neighbours_share"],
            seconds,
        )
        steps.append(step)
    return steps


def decoding_s(step: StepModel, requests: int, context: int) -> float:
    gpu_s = step.gpu_s(requests, 0, context, requests)
    return max(gpu_s, sum(step.host_parts(requests, requests, 0)))


@pytest.mark.parametrize("case", decode_steps(), ids=str)
def test_decode_steps_took_what_the_model_says_with_and_without_shared_beginnings(case):
    """If neighbours read the same blocks as they were sent."""
    step = on("h200", "qwen3-8b").sharing(case.share)

    predicted_s = decoding_s(step, case.requests, case.context)

    assert predicted_s == pytest.approx(case.seconds, rel=0.12)


def test_what_a_neighbour_has_just_read_is_read_faster():
    """Of two batches that differ in that alone, by what the beginnings took."""
    steps = [step for step in decode_steps() if step.own == 32]
    shares = []
    for shared in steps:
        for alone in steps:
            same = alone.requests == shared.requests and alone.prefix == shared.prefix
            if same and shared.groups == 1 and alone.groups == alone.requests:
                step = on("h200", "qwen3-8b")
                rest = decoding_s(step, shared.requests, shared.requests * 96)
                shares.append((shared.seconds - rest) / (alone.seconds - rest))

    assert len(shares) == 5
    assert sum(shares) / len(shares) == pytest.approx(READ_AGAIN, abs=0.02)


@given(
    tokens=st.integers(1, 60),
    computed=st.integers(0, 60),
    size=st.integers(1, 80),
    share=st.floats(0, 1),
)
def test_a_window_bounds_what_each_token_looks_back_on(tokens, computed, size, share):
    seen = [computed + place for place in range(1, tokens + 1)]
    pairs = sum((1 - share) * n + share * min(n, size) for n in seen)
    last = (1 - share) * seen[-1] + WINDOW_SLOWNESS * share * min(seen[-1], size)

    window = AttentionWindow(tokens=size, share=share, mla_expand_pairs=2.0)

    assert window.pairs(tokens, computed) == pytest.approx(pairs + 2 * computed)
    assert window.context(seen[-1]) == pytest.approx(last)


@pytest.mark.parametrize(
    ("tokens", "share"),
    [
        pytest.param(1, 0.0625, id="one token reads 8 of 128"),
        pytest.param(8, 0.403, id="eight read two fifths"),
        pytest.param(64, 0.984, id="64 read nearly all"),
    ],
)
def test_a_step_of_few_tokens_reads_the_experts_that_they_choose(tokens, share):
    step = replace(on("h200", "qwen3-30b-a3b"), per_token_s=0.0)

    read_s = step.gpu_s(tokens, 0, 0, 0) - step.fixed_s

    assert read_s / step.experts_s == pytest.approx(share, abs=0.001)


# -- several GPUs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "parallel", "hint"),
    [
        ("qwen3-8b", Parallel(by_expert=True), "leave --ep out"),
        ("qwen3-30b-a3b", Parallel(data=256, by_expert=True), "leave --ep out"),
        ("llama-3.1-8b", Parallel(tensor=3), "--tp can be 1, 2, 4, 8, 16, 32"),
        pytest.param(
            "phi-4", Parallel(tensor=4), "--tp can be 1, 2, 5, 10, 20, 40", id="10 KV"
        ),
    ],
)
def test_what_cannot_be_spread_is_a_usage_error_with_a_way_out(model, parallel, hint):
    with pytest.raises(UsageError) as error:
        parallel.check(find_model(model))

    assert hint in error.value.hint


def in_blocks(model, method):
    """With 8-bit weights in blocks of 128 rows."""
    weights = {"num_bits": 8, "type": "float", "strategy": "block"}
    stated = {
        "quant_method": method,
        "weight_block_size": [128, 128],
        "config_groups": {"group_0": {"weights": weights}},
    }
    config = {**MODELS[model].config, "quantization_config": stated}
    return shape_from_config(config, name=model, source="test")


@pytest.mark.parametrize("method", ["fp8", "compressed-tensors"])
@pytest.mark.parametrize(
    "parallel",
    [
        Parallel(tensor=4),
        Parallel(tensor=2, data=2),
        pytest.param(Parallel(tensor=8, by_expert=True), id="whole experts"),
    ],
)
def test_blocks_of_8_bit_weights_that_stay_whole_are_loaded(method, parallel):
    parallel.check(in_blocks("qwen3-235b-a22b", method))


@pytest.mark.parametrize("method", ["fp8", "compressed-tensors"])
@pytest.mark.parametrize(
    ("model", "parallel", "hint"),
    [
        pytest.param(
            "qwen3-235b-a22b",
            Parallel(tensor=8),
            "--tp can be 1, 2, 4; or add --ep",
            id="experts of 12 blocks",
        ),
        pytest.param(
            "qwen3-235b-a22b", Parallel(data=8), "add --ep", id="over replicas"
        ),
        pytest.param(
            "qwen3-4b",
            Parallel(tensor=8),
            "--tp can be 1, 2, 4",
            id="a down_proj of 76 blocks",
        ),
    ],
)
def test_blocks_of_8_bit_weights_are_not_cut(method, model, parallel, hint):
    """vLLM's `Fp8MoEMethod.create_weights` and `validate_fp8_block_shape`."""
    with pytest.raises(UsageError, match="blocks of 128") as error:
        parallel.check(in_blocks(model, method))

    assert error.value.hint == hint
