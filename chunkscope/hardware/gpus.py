"""GPUs: memory, bandwidth, FLOP/s. A small table of current cards, and the one in this machine.

gpus.csv. Memory: what torch reports as total (its out-of-memory messages quote it), a little under
the sticker. Bandwidth and dense 16-bit TFLOP/s: no sparsity, 32-bit accumulate. `source` names the
vendor's sheet; the sheets were not at hand: speeds were compared with public tables and memory with
quoted messages, except what is `unchecked`. `nvlink`: all GPUs of a machine have it, no bridge need
be bought. `aliases`: as nvidia-smi prints the name, or with the memory in it.
"""

import csv
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path

from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.numbers import SIZE
from chunkscope.errors import MissingError, UsageError

GIB = 2**30
# As in a budget file, but a bare number is GiB and capitals do not matter.
SIZES = replace(
    SIZE,
    scales={"": Fraction(1), "g": Fraction(1), **{n.lower(): s for n, s in SIZE.scales.items()}},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. `memory_gib` is what CUDA offers a process; unknown speed is None."""

    name: str
    title: str
    memory_gib: float
    bandwidth_gb_s: float | None = None
    dense_tflops: float | None = None
    nvlink: bool = False  # or AMD's Infinity Fabric: else several GPUs talk over PCIe
    source: str = ""
    memory_given: bool = False  # as a size instead of a name: `--gpu 80GiB`

    @property
    def memory_bytes(self) -> int:
        return round(self.memory_gib * GIB)

    @property
    def speed(self) -> tuple[float, float] | None:
        """Bandwidth and FLOP/s; None where one of them is not known."""
        bandwidth, flops = self.bandwidth_gb_s, self.dense_tflops
        return (bandwidth, flops) if bandwidth and flops else None


_TEXT = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8")
_ROWS = list(csv.DictReader(_TEXT.splitlines()))
CARDS = tuple(
    Gpu(
        name=row["name"],
        title=row["title"],
        memory_gib=float(row["memory_gib"]),
        bandwidth_gb_s=float(row["bandwidth_gb_s"]),
        dense_tflops=float(row["dense_tflops"]),
        nvlink=row["nvlink"] == "yes",
        source=row["source"],
    )
    for row in _ROWS
)
TABLE = {card.name: card for card in CARDS}
UNCHECKED = {row["name"]: row["unchecked"].split() for row in _ROWS}
ALIASES = {alias: row["name"] for row in _ROWS for alias in row["aliases"].split()}
LOCAL = "local"


def find_gpu(name: str | None) -> Gpu | None:
    """The GPU of that name; None without one. `local` asks this machine. A size will do: "80GiB".

    >>> find_gpu("RTX 4090").bandwidth_gb_s
    1008.0
    """
    if name is None:
        return None
    slug = _slug(name)
    if slug == LOCAL:
        return local_gpu()
    if gpu := TABLE.get(ALIASES.get(slug, slug)) or card_titled(name):
        return gpu
    if name[:1].isdecimal():
        try:
            size = SIZES.read(name.lower())
        except ValueError as error:
            raise UsageError(f"--gpu: {error}") from None
        if not size:
            raise UsageError("the memory of --gpu is 0", hint=f"write it like {SIZE.accepted}")
        title = f"a GPU with {size:g} GiB"
        return Gpu(name=f"{size:g}GiB", title=title, memory_gib=size, memory_given=True)
    near = [f"did you mean {one}? " for one in get_close_matches(slug, TABLE, n=1)]
    hint = f"{''.join(near)}known: {', '.join(TABLE)}; or its memory: --gpu 80GiB"
    raise UsageError(f"unknown GPU: {name}", hint=hint)


def doubts(gpu: Gpu) -> tuple[Note, ...]:
    """Which figures of a card nobody has compared with anything."""
    figures = UNCHECKED.get(gpu.name, ())
    return tuple(note("gpu_unchecked", figure=figure, gpu=gpu.title) for figure in figures)


def local_gpu() -> Gpu:
    """The first GPU of this machine, as nvidia-smi names it."""
    title, _, memory_mib = _nvidia_smi("name,memory.total").rpartition(", ")
    if not (title and memory_mib.isdecimal()):
        raise MissingError("nvidia-smi found no GPU", hint=_GPU_HINT)
    if known := card_titled(title):
        return replace(known, source=f"nvidia-smi: {title}; {known.source}")
    gib, source = int(memory_mib) / 1024, f"nvidia-smi: {title}; speed not known"
    return Gpu(name=_slug(title), title=title, memory_gib=gib, source=source)


def driver_version() -> str | None:
    """The driver of the first GPU; None where nvidia-smi does not say."""
    try:
        return _nvidia_smi("driver_version")
    except MissingError:
        return None


def _nvidia_smi(query: str) -> str:
    """What it answers of the first GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise MissingError("this machine has no nvidia-smi, so no GPU was found", hint=_GPU_HINT)
    words = [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
        return answer.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise MissingError(f"nvidia-smi found no GPU: {error}", hint=_GPU_HINT) from error


_GPU_HINT = "name the GPU of the run: `--gpu h200`, or its memory: `--gpu 80GiB`"


def card_titled(title: str) -> Gpu | None:
    slug = _slug(title)
    return next((card for card in CARDS if _slug(card.title) == slug), None)


def _slug(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` -> `rtx-4090`."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "-".join(w for w in words if w not in {"nvidia", "geforce", "amd", "instinct", "tesla"})
