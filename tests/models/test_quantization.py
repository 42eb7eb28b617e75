"""quantization_config -> bits of a weight and the type of products."""

import pytest

from chunkscope.models.quantization import OF_BLOCKS, Compute, read_quantization


def compressed(weights, activations=None):
    group = {"weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"g": group}}


def of_group(bits, group_size):
    return {"num_bits": bits, "group_size": group_size}


@pytest.mark.parametrize(
    ("stated", "bits"),
    [
        pytest.param({"quant_method": "fp8"}, 8, id="fp8"),
        pytest.param(
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            8 + OF_BLOCKS,
            id="fp8 in blocks",
        ),
        pytest.param(
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            4 + 20 / 128,
            id="awq",
        ),
        pytest.param(
            {"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, id="whole rows"
        ),
        pytest.param(
            {"quant_method": "auto-round", "bits": 2, "group_size": 64},
            2 + 18 / 64,
            id="auto-round",
        ),
        pytest.param(
            {"quant_method": "gptq", "bits": -8, "group_size": 32},
            4 + 20 / 32,
            id="bits that cannot be",
        ),
        pytest.param(
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            4 + 32 / 64,
            id="bitsandbytes",
        ),
        pytest.param(
            {"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, id="8-bit bnb"
        ),
        pytest.param(
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            4 + 8 / 16,
            id="nvfp4",
        ),
        pytest.param({"quant_method": "mxfp4"}, 4 + 8 / 32, id="mxfp4"),
        pytest.param(compressed(of_group(4, 128)), 4 + 16 / 128, id="packed"),
        pytest.param(
            compressed({**of_group(4, 32), "symmetric": False}),
            4 + 20 / 32,
            id="with zero points",
        ),
        pytest.param(
            compressed({"num_bits": 8, "type": "float"}), 8, id="8-bit floats"
        ),
        pytest.param(
            compressed({"num_bits": 8, "type": "float", "strategy": "block"}),
            8 + OF_BLOCKS,
            id="8-bit floats in blocks",
        ),
        pytest.param(None, 16, id="none"),
        pytest.param("fp8", 16, id="no object"),
    ],
)
def test_bits_of_a_weight_with_its_share_of_a_scale(stated, bits):
    quantization = read_quantization(stated)
    assert quantization.bits + quantization.extra_bits == pytest.approx(bits)
    assert quantization.known


@pytest.mark.parametrize(
    ("stated", "compute"),
    [
        pytest.param({"quant_method": "fp8"}, Compute.FP8, id="fp8"),
        pytest.param({"quant_method": "awq", "bits": 8}, None, id="weights"),
        pytest.param(
            compressed({"num_bits": 8, "type": "float"}, {"num_bits": 8}),
            Compute.FP8,
            id="floats",
        ),
        pytest.param(
            compressed({"num_bits": 8, "type": "int"}, {"num_bits": 8}),
            Compute.INT8,
            id="integers",
        ),
        pytest.param(
            compressed({"num_bits": 8, "type": "int"}), None, id="weights alone"
        ),
        pytest.param(
            compressed({"num_bits": 4, "type": "int"}, {"num_bits": 8}),
            None,
            id="weights of 4 bits",
        ),
    ],
)
def test_products_have_8_bits_where_weights_and_activations_do(stated, compute):
    quantization = read_quantization(stated)
    assert quantization.compute is compute
    assert quantization.eight_bit_products == (compute is not None)


@pytest.mark.parametrize(
    ("stated", "kv_cache"),
    [
        ({"quant_method": "fp8"}, None),
        ({**compressed({"num_bits": 8}), "kv_cache_scheme": {"num_bits": 8}}, "fp8"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
    ],
)
def test_weights_may_ask_for_an_8_bit_kv_cache(stated, kv_cache):
    assert read_quantization(stated).kv_cache == kv_cache


@pytest.mark.parametrize(
    "stated",
    [
        pytest.param({"quant_method": "modelopt", "quant_algo": "vodoo"}, id="new"),
        pytest.param({"quant_method": "compressed-tensors"}, id="without groups"),
    ],
)
def test_a_method_that_is_not_known_has_16_bits(stated):
    quantization = read_quantization(stated)
    assert (quantization.bits, quantization.known) == (16, False)
