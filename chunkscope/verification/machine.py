"""Where an engine runs. One artefact names one machine, so all its rows must be of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from chunkscope.errors import InputError
from chunkscope.hardware.gpus import GIB, driver_version, local_gpu_names
from chunkscope.verification.result import Machine
from chunkscope.vllm.flags import Release, release

# What changes a measurement, and how it is called. The number of GPUs is the setting's own.
COMPARED = {
    "device": "a {} build of vLLM",
    "gpu": "{}",
    "driver": "driver {}",
    "vllm": "vLLM {}",
    "torch": "torch {}",
}


def machine_of(workers: Sequence[Mapping[str, Any]], versions: Mapping[str, Any]) -> Machine | None:
    """None until an engine has started: only then is it known where it runs."""
    if not workers:
        return None
    device, total = workers[0]["device"], workers[0].get("total_bytes")
    return Machine(
        device=device,
        gpu=workers[0].get("gpu"),
        gpus=len(workers) if device != "cpu" else 0,
        gpu_memory_gib=total / GIB if total else None,
        driver=driver_version() if device == "cuda" else None,
        vllm=versions.get("vllm"),
        torch=versions.get("torch"),
    )


def refuse_another_machine(kept: Machine, here: Machine) -> None:
    """What is not known of one of them does not count as a difference."""
    seen = {name: (getattr(kept, name), getattr(here, name)) for name in COMPARED}
    differs = {name: pair for name, pair in seen.items() if None not in pair and len({*pair}) > 1}
    if differs:
        then, now = (
            ", ".join(COMPARED[name].format(pair[i]) for name, pair in differs.items())
            for i in (0, 1)
        )
        raise _refusal(then, f"this is {now}")


def refuse_what_shows_before(kept: Machine, installed: Release) -> None:
    """The same, as far as it shows before an engine was started: loading takes minutes."""
    if kept.vllm and release(kept.vllm).version != installed.version:
        raise _refusal(f"vLLM {kept.vllm}", f"this is vLLM {installed.text}")
    names = local_gpu_names()
    # torch adds to the name when it is given a part of a GPU.
    if kept.gpu and names and not any(kept.gpu.startswith(name) for name in names):
        raise _refusal(kept.gpu, f"this machine has {', '.join(dict.fromkeys(names))}")


def _refusal(then: str, now: str) -> InputError:
    return InputError(
        f"cannot resume: the rows of the earlier run were measured with {then}, {now}",
        hint="go on where they were measured, or name another file with --output: "
        "rows of two machines do not stand in one",
    )
