"""Checkpoints of which only the headers are there, as nothing else is read."""

import json
import math
from pathlib import Path

VALUE_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I8": 1, "I32": 4, "U8": 1}

# A tensor's type and shape.
Stored = dict[str, tuple[str, tuple[int, ...]]]


def write_header(file: Path, tensors: Stored) -> None:
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + VALUE_BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    content = json.dumps(header).encode()
    file.write_bytes(len(content).to_bytes(8, "little") + content)


def write_index(folder: Path, files: dict[str, Stored]) -> None:
    """Several files, and the index that lists them."""
    weight_map = {}
    for file, tensors in files.items():
        write_header(folder / file, tensors)
        weight_map.update(dict.fromkeys(tensors, file))
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
