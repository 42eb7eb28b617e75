"""quantization_config -> bits of a weight, and in which type it is multiplied."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.models.fields import Config, is_whole

LINEAR = ("attention", "mlp", "experts")
BLOCK_ROWS = 128  # and columns, where a block of weights has one scale: vLLM cuts none
OF_BLOCKS = 32 / BLOCK_ROWS**2  # bits per weight
UNQUANTIZED_BITS = 16.0


class Compute(StrEnum):
    """A type of 8 bits in which vLLM multiplies weights with activations."""

    FP8 = "fp8"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """`bits` per weight, and what scales and zero points add, of some `kinds`."""

    method: str = ""  # none
    bits: float = UNQUANTIZED_BITS
    compute: Compute | None = None  # None: in 16 bits, as weights are unpacked first
    extra_bits: float = 0.0
    kinds: tuple[str, ...] = LINEAR
    kv_cache: str | None = None  # vLLM's kv_cache_dtype, where the weights ask for one

    @property
    def eight_bit_products(self) -> bool:
        """Else weights are made 16-bit again before they are multiplied."""
        return self.compute is not None

    @property
    def known(self) -> bool:
        """Do we know how many bits the stated method takes?"""
        return not self.method or self.bits != UNQUANTIZED_BITS


def read_quantization(stated: object) -> Quantization:
    """The quantization that a config.json states; of an unknown method, 16 bits."""
    if not isinstance(stated, Mapping):
        return Quantization()
    method = str(stated.get("quant_algo") or stated.get("quant_method") or "").lower()
    quantization = Quantization(method=method)
    for prefix, read in READERS.items():
        if method.startswith(prefix):
            quantization = read(stated)
            break
    return replace(quantization, kv_cache=_kv_cache(stated))


def _kv_cache(stated: Config) -> str | None:
    """The type of KV cache that the weights were calibrated for."""
    scheme = stated.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8"
    if str(stated.get("kv_cache_quant_algo")).lower() == "fp8":
        return "fp8_e4m3" if stated.get("quant_algo") else "fp8"
    return None


def _mxfp4(_: Config) -> Quantization:
    """Of gpt-oss: experts alone, with an 8-bit scale for each 32 weights."""
    return Quantization(
        method="mxfp4", bits=4.0, extra_bits=8.0 / 32, kinds=("experts",)
    )


def _nvfp4(_: Config) -> Quantization:
    """With an 8-bit scale for each 16 weights."""
    return Quantization(method="nvfp4", bits=4.0, extra_bits=8.0 / 16)


def _fp8(stated: Config) -> Quantization:
    scales = OF_BLOCKS if stated.get("weight_block_size") else 0.0
    return Quantization(method="fp8", bits=8.0, compute=Compute.FP8, extra_bits=scales)


def _integers(stated: Config) -> Quantization:
    """Of AWQ, GPTQ and AutoRound: each group has a 16-bit scale and a zero point."""
    method = str(stated.get("quant_method")).lower().partition("_")[0]
    bits = _number(stated, "bits", 4, least=1)
    group = _number(stated, "group_size", 128)
    return Quantization(
        method=method, bits=float(bits), extra_bits=_of_group(16 + bits, group)
    )


def _bitsandbytes(stated: Config) -> Quantization:
    if stated.get("load_in_8bit"):
        return Quantization(method="bitsandbytes", bits=8.0)
    # Each 64 weights have a 32-bit scale.
    return Quantization(method="bitsandbytes", bits=4.0, extra_bits=32 / 64)


def _compressed_tensors(stated: Config) -> Quantization:
    """Of the first group of layers: published models quantize the others alike."""
    groups = stated.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = _part(first, "weights")
    if not weights:
        return Quantization(method="compressed-tensors")
    bits = _number(weights, "num_bits", 8, least=1)
    is_float = weights.get("type") == "float"
    compute = None
    if bits == 8 and _part(first, "input_activations").get("num_bits") == 8:
        compute = Compute.FP8 if is_float else Compute.INT8
    scale_bits = 8 if is_float else 16
    if not is_float and not weights.get("symmetric", True):
        scale_bits += bits  # a zero point
    extra_bits = _of_group(scale_bits, _number(weights, "group_size", 0))
    if weights.get("strategy") == "block":
        extra_bits = OF_BLOCKS
    return Quantization(
        method="compressed-tensors",
        bits=float(bits),
        compute=compute,
        extra_bits=extra_bits,
    )


# By how a method's name begins.
READERS = {
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "modelopt_fp4": _nvfp4,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp8": _fp8,
    "modelopt": _fp8,
    "awq": _integers,
    "gptq": _integers,
    "auto-round": _integers,
    "auto_round": _integers,
    "compressed-tensors": _compressed_tensors,
    "bitsandbytes": _bitsandbytes,
}


def _part(config: object, key: str) -> Config:
    part = config.get(key) if isinstance(config, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _of_group(bits: int, weights: int) -> float:
    """What a group's scale and zero point add to each weight; 0 without groups."""
    return bits / weights if weights > 0 else 0.0


def _number(stated: Config, name: str, default: int, *, least: int = -1) -> int:
    """A whole number. A group_size of -1 means the whole row."""
    value = stated.get(name)
    if is_whole(value) and value >= least:
        return value
    return default
