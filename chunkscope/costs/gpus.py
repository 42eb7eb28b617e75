"""GPUs: memory, bandwidth, FLOP/s. A small table of current cards, and the one in this machine."""

import csv
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from difflib import get_close_matches

from chunkscope.errors import MissingError, UsageError

GIB = 2**30
UNITS = {
    "": GIB, "g": GIB, "gi": GIB, "gib": GIB, "gb": 10**9,
    "m": 2**20, "mi": 2**20, "mib": 2**20, "mb": 10**6,
    "t": 2**40, "ti": 2**40, "tib": 2**40, "tb": 10**12,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. `memory_gib` is what CUDA offers a process; unknown speed is None."""

    name: str
    title: str
    memory_gib: float
    bandwidth_gb_s: float | None = None
    dense_tflops: float | None = None
    source: str = ""

    @property
    def memory_bytes(self) -> int:
        return round(self.memory_gib * GIB)


def _card(
    name: str, title: str, memory_gib: float, bandwidth_gb_s: float, dense_tflops: float, sheet: str
) -> Gpu:
    return Gpu(
        name=name,
        title=title,
        memory_gib=memory_gib,
        bandwidth_gb_s=float(bandwidth_gb_s),  # a plan read back must give the same bytes
        dense_tflops=float(dense_tflops),
        source=sheet,
    )


# Memory: what torch reports as total (its out-of-memory messages quote it), a little under the
# sticker. Bandwidth and dense 16-bit TFLOP/s: no sparsity, 32-bit accumulate. The source names the
# vendor's sheet to look in; the sheets themselves were not at hand when this was written. Speeds
# were compared with public tables and memory with quoted messages, except in UNCHECKED.
CARDS = (
    _card("b300", "NVIDIA B300", 267.6, 8000, 2250, "NVIDIA HGX B300 data sheet"),
    _card("b200", "NVIDIA B200", 178.35, 8000, 2250, "NVIDIA HGX B200 data sheet"),
    _card("h200", "NVIDIA H200", 139.80, 4800, 989, "NVIDIA H200 data sheet (SXM)"),
    _card("h200-nvl", "NVIDIA H200 NVL", 139.80, 4800, 835, "NVIDIA H200 data sheet (NVL)"),
    _card("gh200", "NVIDIA GH200 480GB", 94.50, 4000, 989, "NVIDIA GH200 data sheet (96 GB HBM3)"),
    _card("h100", "NVIDIA H100 80GB HBM3", 79.11, 3350, 989, "NVIDIA H100 data sheet (SXM)"),
    _card("h100-pcie", "NVIDIA H100 PCIe", 79.11, 2000, 756, "NVIDIA H100 PCIe product brief"),
    _card("h100-nvl", "NVIDIA H100 NVL", 93.11, 3900, 835, "NVIDIA H100 data sheet (NVL)"),
    _card("h20", "NVIDIA H20", 95.08, 4000, 148, "NVIDIA H20 as resold"),
    _card("a100", "NVIDIA A100-SXM4-80GB", 79.15, 2039, 312, "NVIDIA A100 data sheet (SXM 80 GB)"),
    _card("a100-pcie", "NVIDIA A100 80GB PCIe", 79.15, 1935, 312, "NVIDIA A100 data sheet (PCIe)"),
    _card("a100-40gb", "NVIDIA A100-SXM4-40GB", 39.39, 1555, 312, "NVIDIA A100 data sheet (40 GB)"),
    _card("a40", "NVIDIA A40", 44.35, 696, 149.7, "NVIDIA A40 data sheet"),
    _card("a30", "NVIDIA A30", 23.50, 933, 165, "NVIDIA A30 data sheet"),
    _card("a10", "NVIDIA A10", 22.06, 600, 125, "NVIDIA A10 data sheet"),
    _card("a10g", "NVIDIA A10G", 22.06, 600, 70, "AWS g5 instances: NVIDIA A10G"),
    _card("l40s", "NVIDIA L40S", 44.39, 864, 362, "NVIDIA L40S data sheet"),
    _card("l40", "NVIDIA L40", 44.39, 864, 181, "NVIDIA L40 data sheet"),
    _card("l4", "NVIDIA L4", 22.03, 300, 121, "NVIDIA L4 data sheet"),
    _card("t4", "Tesla T4", 14.56, 320, 65, "NVIDIA T4 data sheet (fp16 only)"),
    _card("v100", "Tesla V100-SXM2-32GB", 31.73, 900, 125, "NVIDIA V100 data sheet (fp16 only)"),
    _card(
        "rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 94.97, 1792, 503.8,
        "NVIDIA RTX Blackwell PRO architecture paper",
    ),
    _card(
        "rtx-6000-ada", "NVIDIA RTX 6000 Ada Generation", 47.38, 960, 364.2,
        "NVIDIA Ada professional architecture paper",
    ),
    _card("rtx-a6000", "NVIDIA RTX A6000", 47.40, 768, 154.8, "NVIDIA RTX A6000 data sheet"),
    _card("rtx-5090", "NVIDIA GeForce RTX 5090", 31.37, 1792, 209.5, "NVIDIA RTX Blackwell paper"),
    _card("rtx-4090", "NVIDIA GeForce RTX 4090", 23.52, 1008, 165.2, "NVIDIA Ada paper"),
    _card("rtx-4080", "NVIDIA GeForce RTX 4080", 15.60, 717, 97.5, "NVIDIA Ada paper"),
    _card("rtx-3090", "NVIDIA GeForce RTX 3090", 23.57, 936, 71.2, "NVIDIA Ampere GA102 paper"),
    _card("mi300x", "AMD Instinct MI300X", 191.98, 5300, 1307, "AMD Instinct MI300X data sheet"),
    _card("mi325x", "AMD Instinct MI325X", 255.98, 6000, 1307, "AMD Instinct MI325X data sheet"),
    _card("mi355x", "AMD Instinct MI355X", 287.98, 8000, 2516, "AMD Instinct MI355X data sheet"),
)  # fmt: skip
TABLE = {card.name: card for card in CARDS}
# Figures written from memory and found nowhere to compare with.
UNCHECKED = {
    "memory": frozenset({
        "b300", "h200-nvl", "h100-nvl", "h20", "a100-40gb", "a30", "t4", "v100", "rtx-6000-ada",
        "rtx-a6000", "rtx-4090", "rtx-4080", "rtx-3090", "mi300x", "mi325x", "mi355x",
    }),
    "speed": frozenset({
        "b300", "h200-nvl", "a40", "a10g", "t4", "rtx-pro-6000", "rtx-6000-ada", "rtx-a6000",
        "rtx-5090", "rtx-3090", "mi325x", "mi355x",
    }),
}  # fmt: skip
# Other ways to say the same: as nvidia-smi prints it, or with the memory in the name.
ALIASES = {
    "h100-sxm": "h100", "h100-80gb": "h100", "h200-sxm": "h200", "h200-141gb": "h200",
    "a100-80gb": "a100", "a100-sxm": "a100", "a100-80gb-pcie": "a100-pcie",
    "a100-pcie-80gb": "a100-pcie", "a100-pcie-40gb": "a100-40gb", "4090": "rtx-4090",
    "4080": "rtx-4080", "5090": "rtx-5090", "3090": "rtx-3090", "a6000": "rtx-a6000",
    "6000-ada": "rtx-6000-ada", "rtx-6000-pro": "rtx-pro-6000", "v100-32gb": "v100",
    "h200nvl": "h200-nvl", "gh200-96gb": "gh200",
}  # fmt: skip
LOCAL = "local"


def find_gpu(name: str | None, *, memory: str | None = None) -> Gpu | None:
    """The GPU of that name and memory; None when neither is given. `local` asks this machine.

    >>> find_gpu("RTX 4090").bandwidth_gb_s
    1008.0
    """
    size = parse_memory(memory) / GIB if memory is not None else None
    if name is None:
        return None if size is None else _nameless(size)
    gpu = local_gpu() if _slug(name) == LOCAL else _by_name(name)
    if size is None:
        return gpu
    return replace(gpu, memory_gib=size, source=f"--gpu-memory; speed: {gpu.source}")


def doubts(gpu: Gpu) -> tuple[str, ...]:
    """Which figures of a card nobody has compared with anything."""
    if gpu.name not in TABLE:
        return ()
    given = gpu.source.startswith("--gpu-memory")
    kinds = [k for k, names in UNCHECKED.items() if gpu.name in names]
    return tuple(
        f"the {kind} of {gpu.title} is assumed: not compared with a source"
        for kind in kinds
        if not (given and kind == "memory")
    )


def parse_memory(text: str) -> int:
    """A size in bytes; a bare number is GiB.

    >>> parse_memory("24GiB") == 24 * 2**30
    True
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = UNITS.get(found[2].lower()) if found else None
    if not found or unit is None or float(found[1]) <= 0:
        raise UsageError(
            f"{text!r} is no amount of GPU memory", hint="write it like 80GiB, 24GB or 24576MiB"
        )
    return round(float(found[1]) * unit)


def local_gpu() -> Gpu:
    """The first GPU of this machine, as nvidia-smi names it."""
    reported = _nvidia_smi()
    title, memory_mib = reported[0]
    known = _match_title(title)
    if known is not None:
        return replace(known, source=f"nvidia-smi: {title}; {known.source}")
    return Gpu(
        name=_slug(title),
        title=title,
        memory_gib=memory_mib / 1024,
        source=f"nvidia-smi: {title}; speed not known",
    )


def local_gpu_names() -> list[str]:
    """All GPUs of this machine by nvidia-smi's names; none where it does not say."""
    try:
        return [name for name, _ in _nvidia_smi()]
    except MissingError:
        return []


def driver_version() -> str | None:
    """The driver of the first GPU; None where nvidia-smi does not say."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else None


def _nvidia_smi() -> list[tuple[str, float]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise MissingError("this machine has no nvidia-smi, so no GPU was found", hint=_GPU_HINT)
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
        rows = [(row[0].strip(), float(row[1])) for row in csv.reader(answer.stdout.splitlines())]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise MissingError(f"nvidia-smi found no GPU: {error}", hint=_GPU_HINT) from error
    if not rows:
        raise MissingError("nvidia-smi lists no GPU", hint=_GPU_HINT)
    return rows


_GPU_HINT = "name the GPU of the run: `--gpu h200`, or its memory: `--gpu-memory 80GiB`"


def _by_name(name: str) -> Gpu:
    slug = _slug(name)
    gpu = TABLE.get(ALIASES.get(slug, slug)) or _match_title(name)
    if gpu is None:
        near = get_close_matches(slug, TABLE, n=1)
        better = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"unknown GPU: {name}",
            hint=f"{better}known: {', '.join(TABLE)}; or give --gpu-memory 80GiB",
        )
    return gpu


def _match_title(title: str) -> Gpu | None:
    slug = _slug(title)
    return next((card for card in CARDS if _slug(card.title) == slug), None)


def _slug(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` -> `rtx-4090`."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "-".join(w for w in words if w not in {"nvidia", "geforce", "amd", "instinct", "tesla"})


def _nameless(memory_gib: float) -> Gpu:
    return Gpu(
        name=f"{memory_gib:g}GiB",
        title=f"a GPU with {memory_gib:g} GiB",
        memory_gib=memory_gib,
        source="--gpu-memory; speed not known",
    )
