"""GPUs: memory, bandwidth, FLOP/s. A table of cards, and the one in this machine.

The columns of gpus.csv:
memory_gib      what torch reports as total, a little under the sticker
bandwidth_gb_s  of the memory
dense_tflops    16-bit products without sparsity, added up in 32 bits
sms             multiprocessors or compute units, from memory
nvlink          whether all GPUs of a machine have it without a bridge that is bought
unchecked       what was not compared with public tables or quoted error messages
source          the vendor's sheet, which was not at hand
"""

import csv
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.numbers import SIZE
from chunkscope.errors import MissingError, UsageError
from chunkscope.models.quantization import BLOCK_ROWS, OF_BLOCKS, Compute
from chunkscope.models.shape import ModelShape

GIB = 2**30
# These multiply no 8-bit floats: vLLM makes 16-bit weights of them first.
ARCHITECTURES_WITHOUT_FP8 = ("volta", "turing", "ampere")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. `memory_gib` is what CUDA offers a process; unknown speed is None."""

    name: str
    title: str
    memory_gib: float
    bandwidth_gb_s: float | None = None
    dense_tflops: float | None = None
    sms: int = 132  # its multiprocessors; as an H200's where that is not known
    nvlink: bool = False  # or AMD's Infinity Fabric: else several GPUs talk over PCIe

    @property
    def architecture(self) -> str:
        """As the table has it; empty where the GPU is not in it."""
        return ARCHITECTURES.get(self.name, "")

    @property
    def speed(self) -> tuple[float, float] | None:
        """Bandwidth and FLOP/s; None where one of them is not known."""
        if self.bandwidth_gb_s and self.dense_tflops:
            return self.bandwidth_gb_s, self.dense_tflops
        return None

    def computed(self, shape: ModelShape) -> ModelShape:
        """The model with the products that this GPU computes for it."""
        if shape.quantization.compute is not Compute.FP8:
            return shape
        if self.architecture not in ARCHITECTURES_WITHOUT_FP8:
            return shape
        sixteen_bit = replace(shape.quantization, compute=None)
        return replace(shape, quantization=sixteen_bit)


FIGURES = ("memory_gib", "bandwidth_gb_s", "dense_tflops")
LOCAL = "local"
_GPU_HINT = "name the GPU of the run: `--gpu h200`, or its memory: `--gpu 80GiB`"
_MAKERS = {"nvidia", "geforce", "amd", "instinct", "tesla"}


def _read_rows() -> list[dict[str, str]]:
    text = Path(__file__).with_name("gpus.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _gpu_of(row: dict[str, str]) -> Gpu:
    return Gpu(
        name=row["name"],
        title=row["title"],
        memory_gib=float(row["memory_gib"]),
        bandwidth_gb_s=float(row["bandwidth_gb_s"]),
        dense_tflops=float(row["dense_tflops"]),
        sms=int(row["sms"]),
        nvlink=row["nvlink"] == "yes",
    )


ROWS = _read_rows()
TABLE = {row["name"]: _gpu_of(row) for row in ROWS}
ARCHITECTURES = {row["name"]: row["architecture"] for row in ROWS}
ALIASES = {alias: row["name"] for row in ROWS for alias in row["aliases"].split()}


def find_gpu(name: str) -> Gpu:
    """The GPU of that name. `local` asks this machine. A size will do: "80GiB".

    >>> find_gpu("RTX 4090").bandwidth_gb_s
    1008.0
    """
    if _slug(name) == LOCAL:
        return local_gpu()
    gpu = known_gpu(name)
    if gpu is not None:
        return gpu
    several = re.fullmatch(r"(\d+) ?x ?(\D.*)", name)  # 2x h100
    if several:
        count, model = several.groups()
        raise UsageError(f"--gpu names one GPU: write --gpu {model} --tp {count}")
    if name[:1].isdecimal():
        return _gpu_of_size(name)
    hint = f"known: {', '.join(TABLE)}; or its memory: --gpu 80GiB"
    near = get_close_matches(_slug(name), TABLE, n=1)
    if near:
        hint = f"did you mean {near[0]}? {hint}"
    raise UsageError(f"unknown GPU: {name}", hint=hint)


def _gpu_of_size(text: str) -> Gpu:
    """A GPU of which only the memory is known."""
    try:
        size = SIZE.read(text)
    except ValueError as error:
        raise UsageError(f"--gpu: {error}") from None
    if not size:
        hint = f"write it like {SIZE.accepted}"
        raise UsageError("the memory of --gpu is 0", hint=hint)
    title = f"a GPU with {size:.4g} GiB"
    return Gpu(name=f"{size:g}GiB", title=title, memory_gib=size)


def known_gpu(name: str) -> Gpu | None:
    """By its name in the table, another one, or as nvidia-smi and torch print it."""
    slug = _slug(name)
    slug = ALIASES.get(slug, slug)
    if slug in TABLE:
        return TABLE[slug]
    for gpu in TABLE.values():
        if _slug(gpu.title) == slug:
            return gpu
    return None


def doubts(gpu: Gpu) -> tuple[Note, ...]:
    """Which figures of a card nobody has compared with anything."""
    notes = []
    for row in ROWS:
        if row["name"] == gpu.name:
            for figure in row["unchecked"].split():
                notes.append(note("gpu_unchecked", figure=figure, gpu=gpu.title))
    return tuple(notes)


def local_gpu() -> Gpu:
    """The first GPU of this machine, as nvidia-smi names it."""
    title, _, memory_mib = _nvidia_smi("name,memory.total").rpartition(", ")
    if not title or not memory_mib.isdecimal():
        raise MissingError("nvidia-smi found no GPU", hint=_GPU_HINT)
    gpu = known_gpu(title)
    if gpu is not None:
        return gpu
    return Gpu(name=_slug(title), title=title, memory_gib=int(memory_mib) / 1024)


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
        what = "this machine has no nvidia-smi, so no GPU was found"
        raise MissingError(what, hint=_GPU_HINT)
    words = [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(  # noqa: S603
            words, capture_output=True, text=True, check=True, timeout=30
        )
        return answer.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        what = f"nvidia-smi found no GPU: {error}"
        raise MissingError(what, hint=_GPU_HINT) from error


def _slug(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` -> `rtx-4090`."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "-".join(word for word in words if word not in _MAKERS)


# -- several GPUs ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """A model on several GPUs: `tensor` of them share every layer.

    `data` replicas share the requests; the experts of all replicas are spread over all
    GPUs, whole ones (`by_expert`) or parts of each. Never measured: how vLLM splits
    weights is read in 0.24 and 0.32.
    """

    tensor: int = 1
    data: int = 1
    by_expert: bool = False

    @property
    def gpus(self) -> int:
        return self.tensor * self.data

    def weight_bytes(self, shape: ModelShape) -> float:
        """On one GPU."""
        experts = shape.bytes_of("experts") if shape.experts else 0
        return (shape.weight_bytes - experts) / self.tensor + experts / self.gpus

    def check(self, shape: ModelShape | None) -> None:
        """UsageError where vLLM would not load the model so."""
        if min(self.tensor, self.data) < 1:
            what = f"--tp {self.tensor} and --dp {self.data} must be at least 1"
            raise UsageError(what)
        if shape is None:
            return
        obstacle = self.obstacle(shape)
        if obstacle is not None:
            raise UsageError(obstacle, hint=self._ways_out(shape))

    def obstacle(self, shape: ModelShape) -> str | None:
        """Why vLLM would not load the model so; None where it would."""
        attention = shape.attention
        if not attention.splits_over(self.tensor):
            heads = f"{attention.heads} attention heads ({attention.kv_heads} KV)"
            return f"{heads} do not split over {self.tensor} GPUs"
        experts = shape.experts.count if shape.experts else 0
        if self.by_expert and experts < self.gpus:
            count = experts or "no"
            return f"{shape.name} has {count} experts for its GPUs ({self.gpus})"
        return self._cut_block(shape)

    def _cut_block(self, shape: ModelShape) -> str | None:
        """vLLM cuts no block of weights that has one scale (its `fp8.py`)."""
        quantization = shape.quantization
        if quantization.extra_bits != OF_BLOCKS:
            return None
        for kind, rows in self._rows(shape).items():
            if kind in quantization.kinds and rows % BLOCK_ROWS:
                what = f"{rows:,.0f} rows of {kind} weights per GPU"
                return f"{what} are not in blocks of {BLOCK_ROWS}"
        return None

    def _rows(self, shape: ModelShape) -> dict[str, float]:
        """Rows on one GPU of those kinds of weights that are cut."""
        rows = {}
        attention = shape.attention
        if self.tensor > 1:
            latent = attention.latent
            head_width = latent.v_dim if latent else attention.head_dim
            rows["attention"] = attention.heads * head_width / self.tensor
            rows["mlp"] = shape.intermediate / self.tensor
        if shape.experts and not self.by_expert:
            rows["experts"] = shape.experts.intermediate / self.gpus
        return rows

    def _ways_out(self, shape: ModelShape) -> str:
        sizes = []
        for tensor in range(1, 129):
            if replace(self, tensor=tensor).obstacle(shape) is None:
                sizes.append(str(tensor))
        hints = []
        if sizes:
            hints.append(f"--tp can be {', '.join(sizes)}")
        if replace(self, by_expert=not self.by_expert).obstacle(shape) is None:
            hints.append("leave --ep out" if self.by_expert else "add --ep")
        return "; or ".join(hints) or "change --dp"


ALONE = Parallel()
