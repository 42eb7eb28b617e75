"""Runs made by hand, for what is done with runs."""

from dataclasses import replace

from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.result import (
    Distribution,
    Figures,
    Latency,
    Machine,
    Quantiles,
    Run,
    Subject,
    Verification,
    WorkerMemory,
)
from chunkscope.vllm.choices import Task
from chunkscope.vllm.log.fate import Status

WORKLOAD = Workload(
    requests=(
        Request(prompt_tokens=100, output_tokens=8),
        Request(prompt_tokens=5_000, output_tokens=8, arrival_s=0.5),
    ),
    seed=0,
    arrivals="batch",
    task=Task.GENERATE,
    long_over=2_048,
)


def latency(p50: float) -> Latency:
    everything = Quantiles(p50=p50, p95=2 * p50, p99=3 * p50, max=4 * p50)
    return Latency(all=everything, short=everything, long=None)


def figures(makespan_s: float, gap_s: float = 0.01) -> Figures:
    return Figures(
        makespan_s=makespan_s,
        ttft_s=latency(makespan_s / 10),
        itl_s=latency(gap_s),
        e2e_s=latency(makespan_s / 2),
        input_tokens_per_s=5_100 / makespan_s,
        output_tokens_per_s=16 / makespan_s,
        steps=10,
        tokens_per_step=512.5,
        chunked_prompts=1,
        chunks_max=3,
        preemptions=0,
        prefix_hit_rate=0.0,
    )


def run(setting: str, *makespans: float, gap_s: float = 0.01, **more) -> Run:
    """The first makespan is the median's; all of them are repeats."""
    repeats = tuple(figures(makespan, gap_s) for makespan in makespans)
    return Run(
        setting=setting,
        args={"max_num_batched_tokens": 2_048},
        status=Status.OK,
        started="2026-01-01T00:00:00+00:00",
        took_s=60.0,
        repeats=repeats,
        figures=repeats[0],
        distribution=Distribution(ttft_s=(0.5,) * 101, itl_s=None),
        workers=(WorkerMemory(rank=0, activation_peak_gib=0.5, device_peak_gib=120.0),),
        **more,
    )


def failed(setting: str, status: Status = Status.OUT_OF_MEMORY) -> Run:
    made = run(setting, 1.0)
    return replace(
        made, status=status, message="it failed", phase="loading", repeats=(), figures=None
    )


def verification(*runs: Run, **more) -> Verification:
    return Verification(
        **{
            "model": Subject(name="tiny", load_format="dummy", parameters=1_000),
            "workload": WORKLOAD,
            "source": "random token ids",
            "repeats": 2,
            "runs": runs,
            "machine": Machine(device="cuda", gpu="NVIDIA H200", gpus=1, vllm="0.24.0"),
            "created": "2026-01-01T00:00:00+00:00",
            "version": "0.1.0",
            **more,
        }
    )
