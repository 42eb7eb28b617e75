"""What a checkpoint's safetensors files say in their headers: exact weights, by kind.

A header is 8 bytes with its length and then JSON: each tensor's name, type, shape and
place in the file. It says exactly what is stored, for every architecture and
quantization.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from chunkscope.models.quantization import LINEAR, Quantization
from chunkscope.models.shape import BYTES, Parameters

INDEX = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
LARGEST_HEADER = 100 << 20  # bytes, as safetensors itself has it

# Kinds in the order in which a name is compared with them: of vision is
# `visual.blocks.0.attn.qkv.weight`, of experts `layers.0.mlp.experts.7.up_proj.weight`.
PATTERNS = {
    "vision": re.compile(r"(^|[._])(vision|visual|audio|image|speech|mm|modal)[._]"),
    "by_layer": re.compile(r"embed_tokens_per_layer"),
    "experts": re.compile(r"(^|\.)experts[._]|block_sparse_moe\.(in|out)put_linear"),
    "embedding": re.compile(
        r"embed_tokens|wte|(word|tok)_embed|embed_in\.|\.embeddings\."
    ),
    "head": re.compile(r"lm_head|embed_out|(^|\.)output(_layer)?\.weight"),
    "other": re.compile(r"norm|ln_|router|gate\.|wpe|embed_positions|per_layer"),
    "mlp": re.compile(r"mlp|ffn|feed_forward|expert|fc\d|moe|(up|down|gate)_proj"),
    "attention": re.compile(r"."),
}
# Layers that predict further tokens, and parts that speak: vLLM does not load them.
NOT_LOADED = re.compile(r"(^|\.)(mtp\w*|talker|code2wav|token2wav)\.")
LAYER_NUMBER = re.compile(r"\.(?:layers|blocks|h)\.(\d+)\.")  # `model.layers.61.`
# Of quantization: `weight_scale_inv`, `qzeros`, `g_idx`, `weight.absmax`.
SCALES = re.compile(
    r"(weight|input|[kv])_scale(_inv|_2)?$|scales$|zeros$|zero_point$|g_idx$"
    r"|absmax|quant_|_shape$"
)
PACKED = ("I32", "U8")  # types that hold several weights in a value
EIGHT_BITS = ("F8_E4M3", "F8_E5M2", "I8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a checkpoint."""

    name: str
    dtype: str  # in the words of safetensors
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def kind(self) -> str:
        """Which field of `Parameters` counts it."""
        for kind, pattern in PATTERNS.items():
            if pattern.search(self.name):
                return kind
        return "other"

    @property
    def is_scale(self) -> bool:
        return SCALES.search(self.name) is not None

    @property
    def quantized(self) -> bool:
        return self.dtype in PACKED or self.dtype in EIGHT_BITS

    def weights(self, bits: float) -> int:
        """How many weights it holds, if packed ones have so many bits."""
        if self.is_scale:
            return 0
        if self.dtype in PACKED:
            return round(self.stored_bytes * 8 / bits)
        return math.prod(self.shape)

    @property
    def loaded_bytes(self) -> int:
        """vLLM casts 32-bit weights down to 16 bits."""
        if self.dtype == "F32" and not self.is_scale:
            return math.prod(self.shape) * BYTES
        return self.stored_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What vLLM loads."""

    parameters: Parameters
    weight_bytes: int
    expert_bytes: int
    quantized_kinds: tuple[str, ...]
    norms_queries: bool  # are queries and keys normed before they meet?


def sum_up(
    tensors: Iterable[Tensor], *, layers: int, tied: bool, quantization: Quantization
) -> Checkpoint:
    """What of these tensors vLLM loads for a model of so many layers."""
    names = [field.name for field in fields(Parameters)]
    counts = dict.fromkeys(names, 0)
    sizes = dict.fromkeys(names, 0)
    quantized = dict.fromkeys(names, 0)
    norms_queries = False
    for tensor in tensors:
        kind = tensor.kind
        if not is_loaded(tensor, layers) or (tied and kind == "head"):
            continue
        weights = tensor.weights(quantization.bits)
        counts[kind] += weights
        sizes[kind] += tensor.loaded_bytes
        if tensor.quantized:
            quantized[kind] += weights
        norms_queries |= "q_norm" in tensor.name
    mostly = [kind for kind in LINEAR if 2 * quantized[kind] > counts[kind]]
    return Checkpoint(
        parameters=Parameters(**counts),
        weight_bytes=sum(sizes.values()),
        expert_bytes=sizes["experts"],
        quantized_kinds=tuple(mostly),
        norms_queries=norms_queries,
    )


def is_loaded(tensor: Tensor, layers: int) -> bool:
    """DeepSeek-V3 has a further layer after its last, which predicts more tokens."""
    if NOT_LOADED.search(tensor.name):
        return False
    number = LAYER_NUMBER.search(tensor.name)
    return number is None or tensor.kind == "vision" or int(number[1]) < layers


def read_folder(folder: Path) -> list[Tensor] | None:
    """All tensors of a folder's safetensors files; None if one is missing or torn."""
    tensors: list[Tensor] = []
    try:
        for file in _files(folder):
            tensors.extend(_header(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return tensors or None


def _files(folder: Path) -> list[Path]:
    """Those that the index names: others hold the same weights in another layout."""
    index = folder / INDEX
    if index.is_file():
        weight_map = json.loads(index.read_bytes())["weight_map"]
        return [folder / name for name in sorted(set(weight_map.values()))]
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    return sorted(folder.glob("*.safetensors"))


def _header(file: Path) -> Iterator[Tensor]:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= LARGEST_HEADER:
            raise ValueError(f"{file} has no safetensors header")
        header = json.loads(stream.read(length))
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        yield _tensor(name, tensor["dtype"], tensor["shape"], tensor["data_offsets"])


def _tensor(
    name: str, dtype: str, shape: Sequence[int], offsets: Sequence[int]
) -> Tensor:
    start, end = offsets
    return Tensor(name=name, dtype=dtype, shape=tuple(shape), stored_bytes=end - start)


def read_hub(hub_id: str) -> list[Tensor] | None:
    """All tensors of a repository, by the headers of its files.

    None where it has no such files, or the hub does not answer.
    """
    from huggingface_hub import get_safetensors_metadata

    try:
        repository = get_safetensors_metadata(hub_id)
    except Exception:  # the hub's library raises its own, and httpx' errors
        return None
    tensors = []
    for file in repository.files_metadata.values():
        for name, tensor in file.tensors.items():
            found = _tensor(name, tensor.dtype, tensor.shape, tensor.data_offsets)
            tensors.append(found)
    return tensors or None
