"""quantization_config -> how many bytes a weight takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from chunkscope.models.fields import Config

LINEAR = ("attention", "mlp", "experts")
BLOCK_ROWS = 128  # and columns, where a block of weights has one scale: vLLM cuts none
OF_BLOCKS = 32 / BLOCK_ROWS**2  # bits per weight
LEFT_OUT = ("ignore", "modules_to_not_convert", "exclude_modules", "exclude")
# By which names a kind is left out: experts that all tokens pass stand for MLPs.
NAMES = {
    "attention": "self_attn",
    "mlp": "(?:mlp[.])?shared_experts?",
    "experts": "mlp[.]experts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """`bits` per weight and what scales and zero points add; only `kinds` are quantized."""

    method: str = ""  # none
    bits: float = 16.0
    extra_bits: float = 0.0
    kinds: tuple[str, ...] = LINEAR
    kv_cache: str | None = None  # vLLM's kv_cache_dtype, where the weights ask for one

    @property
    def eight_bit_products(self) -> bool:
        """Else weights are made 16-bit again before they are multiplied."""
        return self.method.startswith(("fp8", "int8 "))


def read_quantization(config: Config) -> Quantization:
    """The quantization a config.json states: not of a kind that it leaves out in most layers."""
    stated = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(stated, Mapping):
        return Quantization()
    read, left = _read(stated), str([stated.get(name) for name in LEFT_OUT])
    kinds = tuple(kind for kind in read.kinds if not _is_left_out(kind, left))
    keys = stated.get("kv_cache_scheme") or stated.get("kv_cache_quant_algo")
    kv_cache = "fp8_e4m3" if stated.get("quant_algo") else "fp8"
    eight = (
        keys.get("num_bits") == 8
        if isinstance(keys, Mapping)
        else str(keys).lower() == "fp8"
    )
    return replace(read, kinds=kinds, kv_cache=kv_cache if eight else None)


def _is_left_out(kind: str, names: str) -> bool:
    """Are names of it there without a layer's number, or with those of more than two?"""
    layers = set(
        re.findall(rf"(\d*)[.*]*{NAMES[kind]}(?:[.](?:o|down)_proj)?[.*$]*'", names)
    )
    return "" in layers or len(layers) > 2


def _read(stated: Config) -> Quantization:
    """Of one that is not known, 16 bits."""
    method = str(stated.get("quant_algo") or stated.get("quant_method") or "").lower()
    if method.startswith("mxfp4"):
        return Quantization(
            method="mxfp4", bits=4.0, extra_bits=8.0 / 32, kinds=("experts",)
        )
    if "fp4" in method:
        return Quantization(method="nvfp4", bits=4.0, extra_bits=8.0 / 16)
    if method.startswith(("fp8", "fbgemm_fp8", "mxfp8", "modelopt")):
        scales = OF_BLOCKS if stated.get("weight_block_size") else 0.0
        return Quantization(method="fp8", bits=8.0, extra_bits=scales)
    if method.startswith(("awq", "gptq", "auto-round")):
        bits = _number(stated, "bits", "w_bit", default=4, least=1)
        group = _number(stated, "group_size", "q_group_size", default=128)
        extra = (
            (16 + bits) / group if group > 0 else 0.0
        )  # a 16-bit scale and a zero point
        return Quantization(
            method=method.partition("_")[0], bits=float(bits), extra_bits=extra
        )
    if method.startswith("compressed-tensors"):
        return _compressed(stated)
    if method.startswith("bitsandbytes"):
        if stated.get("load_in_8bit") or stated.get("_load_in_8bit"):
            return Quantization(method="bitsandbytes", bits=8.0)
        scale = (
            8 if stated.get("bnb_4bit_use_double_quant") else 32
        )  # bits, per 64 weights
        return Quantization(method="bitsandbytes", bits=4.0, extra_bits=scale / 64)
    # Quark and torchao name the type of a weight last: fp8_e4m3, Int4WeightOnlyConfig.
    types = str([stated.get("global_quant_config"), stated.get("quant_type")]).lower()
    bits = int((re.findall(r"(?:fp|int|float)([48])(?!\d)", types) or ["16"])[-1])
    return Quantization(
        method=method, bits=float(bits), extra_bits=0.25 if bits == 4 else 0.0
    )


def _compressed(stated: Config) -> Quantization:
    try:
        first = next(iter(stated["config_groups"].values()))
        weights, inputs = first["weights"], first.get("input_activations") or {}
        bits = _number(weights, "num_bits", default=8, least=1)
        group = _number(weights, "group_size", default=0)
        scale = 8 if (is_float := weights.get("type") == "float") else 16
        zero = 0 if is_float or weights.get("symmetric", True) else bits
        extra = (scale + zero) / group if group > 0 else 0.0
        eight = ("fp8 " if is_float else "int8 ") * (
            bits == 8 == inputs.get("num_bits")
        )
        extra = OF_BLOCKS if weights.get("strategy") == "block" else extra
    except (KeyError, TypeError, AttributeError, StopIteration):
        return Quantization(method="compressed-tensors")
    return Quantization(
        method=f"{eight}compressed-tensors", bits=float(bits), extra_bits=extra
    )


def _number(stated: Config, *names: str, default: int, least: int = -1) -> int:
    value = next(
        (stated[name] for name in names if stated.get(name) is not None), default
    )
    return value if type(value) is int and value >= least else default
