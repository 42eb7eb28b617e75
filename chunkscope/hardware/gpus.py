"""GPUs: memory, bandwidth, FLOP/s. A small table of current cards, and the one in this machine.

gpus.csv. Memory: what torch reports as total (its out-of-memory messages quote it), a little under
the sticker. Bandwidth and dense 16-bit TFLOP/s: no sparsity, 32-bit accumulate. `source` names the
vendor's sheet; the sheets were not at hand: speeds were compared with public tables and memory with
quoted messages, except what is `unchecked`. `sms`: multiprocessors or compute units, from memory.
`nvlink`: all GPUs of a machine have it, no bridge need be bought. `aliases`: other names.
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
from chunkscope.models.quantization import BLOCK_ROWS, OF_BLOCKS
from chunkscope.models.shape import ModelShape

GIB = 2**30


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
    def speed(self) -> tuple[float, float] | None:
        """Bandwidth and FLOP/s; None where one of them is not known."""
        bandwidth, flops = self.bandwidth_gb_s, self.dense_tflops
        return (bandwidth, flops) if bandwidth and flops else None


ROWS = [
    *csv.DictReader(Path(__file__).with_suffix(".csv").read_text("utf-8").splitlines())
]
FIGURES = ("memory_gib", "bandwidth_gb_s", "dense_tflops")
TABLE = {
    row["name"]: Gpu(
        name=row["name"],
        title=row["title"],
        sms=int(row["sms"]),
        nvlink=row["nvlink"] == "yes",
        **{figure: float(row[figure]) for figure in FIGURES},
    )
    for row in ROWS
}
ALIASES = {alias: row["name"] for row in ROWS for alias in row["aliases"].split()}
LOCAL = "local"


def find_gpu(name: str) -> Gpu:
    """The GPU of that name. `local` asks this machine. A size will do: "80GiB".

    >>> find_gpu("RTX 4090").bandwidth_gb_s
    1008.0
    """
    if gpu := local_gpu() if _slug(name) == LOCAL else known_gpu(name):
        return gpu
    if several := re.fullmatch(r"(\d+) ?x ?(\D.*)", name):
        raise UsageError(
            f"--gpu names one GPU: write --gpu {several[2]} --tp {several[1]}"
        )
    if name[:1].isdecimal():
        try:
            size = SIZE.read(name)
        except ValueError as error:
            raise UsageError(f"--gpu: {error}") from None
        if not size:
            raise UsageError(
                "the memory of --gpu is 0", hint=f"write it like {SIZE.accepted}"
            )
        return Gpu(
            name=f"{size:g}GiB", title=f"a GPU with {size:.4g} GiB", memory_gib=size
        )
    near = [
        f"did you mean {one}? " for one in get_close_matches(_slug(name), TABLE, n=1)
    ]
    hint = f"{''.join(near)}known: {', '.join(TABLE)}; or its memory: --gpu 80GiB"
    raise UsageError(f"unknown GPU: {name}", hint=hint)


def known_gpu(name: str) -> Gpu | None:
    """By its name in the table, another one, or as nvidia-smi and torch print it."""
    slug, titled = _slug(name), {_slug(gpu.title): gpu for gpu in TABLE.values()}
    return TABLE.get(ALIASES.get(slug, slug)) or titled.get(slug)


def doubts(gpu: Gpu) -> tuple[Note, ...]:
    """Which figures of a card nobody has compared with anything."""
    figures = next(
        (row["unchecked"] for row in ROWS if row["name"] == gpu.name), ""
    ).split()
    return tuple(
        note("gpu_unchecked", figure=figure, gpu=gpu.title) for figure in figures
    )


def local_gpu() -> Gpu:
    """The first GPU of this machine, as nvidia-smi names it."""
    title, _, memory_mib = _nvidia_smi("name,memory.total").rpartition(", ")
    if not (title and memory_mib.isdecimal()):
        raise MissingError("nvidia-smi found no GPU", hint=_GPU_HINT)
    unknown = Gpu(name=_slug(title), title=title, memory_gib=int(memory_mib) / 1024)
    return known_gpu(title) or unknown


def driver_version() -> str | None:
    """The driver of the first GPU; None where nvidia-smi does not say."""
    try:
        return _nvidia_smi("driver_version")
    except MissingError:
        return None


def _nvidia_smi(query: str) -> str:
    """What it answers of the first GPU."""
    if (program := shutil.which("nvidia-smi")) is None:
        raise MissingError(
            "this machine has no nvidia-smi, so no GPU was found", hint=_GPU_HINT
        )
    words = [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(  # noqa: S603
            words, capture_output=True, text=True, check=True, timeout=30
        )
        return answer.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise MissingError(
            f"nvidia-smi found no GPU: {error}", hint=_GPU_HINT
        ) from error


_GPU_HINT = "name the GPU of the run: `--gpu h200`, or its memory: `--gpu 80GiB`"


def _slug(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` -> `rtx-4090`."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "-".join(
        w for w in words if w not in {"nvidia", "geforce", "amd", "instinct", "tesla"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """A model on several GPUs: `tensor` of them share every layer, `data` replicas the requests.

    The experts of all replicas are spread over all GPUs: whole ones (`by_expert`) or parts of each.
    Never measured: how vLLM splits weights is read in 0.24 and 0.32.
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
        if min(self.tensor, self.data) < 1:
            raise UsageError(
                f"--tp {self.tensor} and --dp {self.data} must be at least 1"
            )
        if shape and (why := self.obstacle(shape)):
            sizes = [
                n for n in range(1, 129) if not replace(self, tensor=n).obstacle(shape)
            ]
            hints = [f"--tp can be {', '.join(map(str, sizes))}"] if sizes else []
            if not replace(self, by_expert=not self.by_expert).obstacle(shape):
                hints.append("leave --ep out" if self.by_expert else "add --ep")
            raise UsageError(why, hint="; or ".join(hints) or "change --dp")

    def obstacle(self, shape: ModelShape) -> str | None:
        """Why vLLM would not load it so: it cuts no block of weights with one scale (`fp8.py`)."""
        a, e, q, tp = shape.attention, shape.experts, shape.quantization, self.tensor
        if not a.splits_over(tp):
            return f"{a.heads} attention heads ({a.kv_heads} KV) do not split over {tp} GPUs"
        if self.by_expert and (e.count if e else 0) < self.gpus:
            return f"{shape.name} has {e.count if e else 'no'} experts for its GPUs ({self.gpus})"
        wide = a.heads * (a.latent.v_dim if a.latent else a.head_dim)
        parts = (
            {"attention": wide / tp, "mlp": shape.intermediate / tp} if tp > 1 else {}
        )
        parts |= (
            {"experts": e.intermediate / self.gpus} if e and not self.by_expert else {}
        )
        for kind, rows in parts.items() if q.extra_bits == OF_BLOCKS else ():
            if kind in q.kinds and rows % BLOCK_ROWS:
                return f"{rows:,.0f} rows of {kind} weights per GPU are not in blocks of {BLOCK_ROWS}"
        return None


ALONE = Parallel()
