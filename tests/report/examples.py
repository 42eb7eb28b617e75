"""Artefacts of every kind for the tests of `report`: plausible, varied, and with failures."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from chunkscope.artefacts.figures import Figures, Latencies
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.percentiles import Percentiles
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.diagnosis.doctor import doctor
from chunkscope.findings import Findings, load_findings
from chunkscope.hardware.cost_model import CostModel, CostSource
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.problem import round_up
from chunkscope.planning.recommend import recommend
from chunkscope.prefixes.comparison import TextComparison
from chunkscope.prefixes.reuse import HowSent
from chunkscope.simulation.result import (
    PromptChunk,
    RatePoint,
    SimulatedRun,
    Simulation,
    SustainedRate,
    TimelineStep,
    WorkloadInfo,
)
from chunkscope.simulation.slo import SloFound, read_slo
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.result import (
    Conclusion,
    Distribution,
    Machine,
    MeasuredVerdict,
    Predicted,
    PromptSource,
    Run,
    RunOutputs,
    Subject,
    Verification,
    WorkerMemory,
)
from chunkscope.vllm.enums import Basis, ChunkPolicy, Task
from chunkscope.vllm.log.fate import Status
from chunkscope.vllm.settings import EngineArgs, Settings
from tests.build import TOKENIZER

LOGS = Path(__file__).parents[1] / "diagnosis" / "logs"
CREATED = "2026-11-15T04:00:00+00:00"
ANSWERS = ((5, 6),) * 6
EVIL = '<script>window.hacked = 1</script><img src=x onerror="window.hacked=1">'
EVIL_NAMES = (EVIL, "</script><script>window.hacked=1</script>", "a\u2028b & \"c\" 'd' {{ 7 * 7 }}")


# -- profile and plan ----------------------------------------------------------------------------


def lengths(median: int, count: int, spread: float, seed: int) -> LengthHistogram:
    chance = random.Random(seed)
    return LengthHistogram.of(
        max(1, round(chance.lognormvariate(0, spread) * median)) for _ in range(count)
    )


def dataset(name: str, found: LengthHistogram, **more: Any) -> DatasetProfile:
    about = {"path": f"data/{name}.jsonl", "format": "jsonl", "field": "prompt", **more}
    return DatasetProfile(name=name, lengths=found, sha256="ab" * 32, bytes=1_000, **about)


def shared(prompts: int, shared_tokens: int, tokens: int) -> dict[str, Any]:
    """Prompts of four subjects in turn, measured; a small cache forgets each."""
    hashes, chance = TextComparison(), random.Random(prompts)
    ids = [
        np.array([n % 4 + 1] * shared_tokens + [9 + n] * (tokens - shared_tokens), "<u4")
        for n in range(prompts)
    ]
    chance.shuffle(ids)
    hashes.add(range(1, prompts + 1), [one.tobytes() for one in ids])
    measured = hashes.measured(HowSent(output_tokens=200))
    assert measured is not None
    reuse, sharing = measured
    return {"prefixes": reuse, "sharing": sharing}


@cache
def _usual() -> tuple[DatasetProfile, ...]:
    return (
        dataset("gsm8k", lengths(100, 1_319, 0.3, 1), field="question", **shared(400, 64, 100)),
        dataset(
            "arena_hard", lengths(300, 500, 1.2, 2), field="turns[0]", **shared(300, 4_000, 4_200)
        ),
        dataset("qmsum", lengths(9_000, 200, 0.5, 3), skipped=3),
    )


def profile(*datasets: DatasetProfile) -> Profile:
    made = datasets or _usual()
    return Profile(tokenizer=TOKENIZER, datasets=made, created=CREATED, version="0.1.0")


def hundred() -> Profile:
    """As many datasets as a large eval suite has."""
    sizes = random.Random(7)
    return profile(
        *(
            dataset(
                f"suite/task_{n:03}",
                lengths(sizes.choice((60, 300, 1_500, 6_000)), 400, sizes.uniform(0.2, 1.1), n),
            )
            for n in range(100)
        )
    )


# -- verify --------------------------------------------------------------------------------------


def quantiles(p50: float, tail: float = 4.0) -> Percentiles:
    return Percentiles(p50=p50, p95=p50 * tail * 0.6, p99=p50 * tail * 0.8, max=p50 * tail)


def latencies(ttft: float, gap: float, scale: float) -> dict[str, Percentiles]:
    return {
        "ttft_s": quantiles(ttft * scale),
        "itl_s": quantiles(gap, 20),
        "e2e_s": quantiles(12.0 * scale, 2.6),
    }


def figures(*, scale: float = 1.0, gap: float = 0.02, steps: int | None = 900) -> Figures:
    return Figures(
        makespan_s=41.0 * scale,
        **latencies(6.0, gap, scale),
        short=Latencies(**latencies(4.0, gap, scale)),
        long=Latencies(**latencies(11.0, gap, scale)),
        input_tokens_per_s=52_000 / scale,
        output_tokens_per_s=3_100 / scale,
        steps=steps,
        tokens_per_step=2_350.5,
        chunked_prompts=41,
        chunks_max=9,
        preemptions=0,
        prefix_hit_rate=0.04,
        goodput_per_s=3.2,
        slo_use=0.84,
    )


def repeated(*, scale: float, gap: float, wobble: float = 0.01) -> dict[str, Any]:
    each = tuple(
        figures(scale=scale * (1 + by), gap=gap * (1 + by)) for by in (-wobble, 0.0, wobble)
    )
    return {"repeats": each, "figures": each[1]}


def distribution(*, scale: float = 1.0, gap: float = 0.02) -> Distribution:
    """Percentiles 0 to 100: answers start one after the other, and few gaps are long."""
    return Distribution(
        ttft_s=tuple(0.3 * scale * 1.04**percent for percent in range(101)),
        itl_s=tuple(gap * (1 if percent < 95 else percent - 93) for percent in range(101)),
    )


def worker(*, activation: float, kv: float = 111.0, rank: int = 0) -> WorkerMemory:
    return WorkerMemory(
        rank=rank,
        activation_peak_gib=activation,
        device_peak_gib=129.4,
        weights_gib=14.99,
        profiled_activation_gib=activation,
        non_torch_gib=0.31,
        cuda_graphs_gib=0.44,
        kv_cache_gib=kv,
    )


def run(setting: str, status: Status = Status.OK, **more: Any) -> Run:
    about: dict[str, Any] = {"settings": Settings(), "started": CREATED, "took_s": 120.0, **more}
    return Run(setting=setting, status=status, **about)


def runs() -> tuple[Run, ...]:
    """Two that ran, one that was not told much, and three that failed in different ways.

    One is as an older version wrote it: no distribution, and less predicted.
    """
    old = Predicted(weights_gib=14.96, activation_gib=0.84, kv_cache_tokens=917_952)
    said = replace(old, overhead_gib=0.3, cuda_graphs_gib=0.46, kv_cache_gib=112.05)
    return (
        run(
            "plan",
            settings=Settings.of({"max_model_len": 23_552, "long_prefill_token_threshold": 2_303}),
            workers=(worker(activation=0.86),),
            kv_cache_tokens=911_104,
            kv_concurrency=38.7,
            predicted=said,
            predicted_prefix_hit_rate=0.25,
            distribution=distribution(),
            outputs=RunOutputs(answers=ANSWERS, again=5 / 6, reference="default", equal=4 / 6),
            **repeated(scale=1.0, gap=0.02),
        ),
        run(
            "default",
            settings=Settings.of({"max_model_len": 23_552}),
            workers=(worker(activation=0.87),),
            kv_cache_tokens=910_960,
            kv_concurrency=38.7,
            predicted=said,
            distribution=distribution(scale=1.004, gap=0.031),
            outputs=RunOutputs(answers=ANSWERS, again=1.0),
            **repeated(scale=1.004, gap=0.031),
        ),
        run("endpoint-like", figures=figures(steps=None), repeats=(figures(steps=None),)),
        run(
            "off",
            Status.OUT_OF_MEMORY,
            settings=Settings.of({"enable_chunked_prefill": False}),
            failure=Note(
                code="engine_out_of_memory",
                values={"phase": "profiling", "detail": "no", "max_num_batched_tokens": 32_768},
            ),
            predicted=replace(old, activation_gib=3.4, kv_cache_tokens=896_000),
        ),
        run(
            "max-num-batched-tokens=256",
            Status.TIMEOUT,
            settings=Settings.of({"max_num_batched_tokens": 256}),
            failure=Note(code="engine_silent", values={"phase": "measuring", "seconds": 900}),
        ),
        run(
            "refused",
            Status.REFUSED,
            failure=Note(code="engine_died", values={"phase": "loading", "detail": EVIL}),
        ),
    )


def verification(**more: Any) -> Verification:
    requests = tuple(
        Request(prompt_tokens=n, output_tokens=128) for n in (90, 120, 400, 900, 5_000, 12_000)
    )
    about: dict[str, Any] = {
        "model": Subject(name="llama-3.1-8b", load_format="dummy", parameters=8_030_261_248),
        "workload": Workload(
            requests=requests, seed=0, arrivals="batch", task=Task.GENERATE, long_over=2_048
        ),
        "source": PromptSource(),
        "repeats": 3,
        "runs": runs(),
        "machine": Machine(
            device="cuda",
            gpu="NVIDIA H200",
            gpus=1,
            gpu_memory_gib=139.8,
            driver="580.1",
            vllm="0.24.0",
            torch="2.11.0",
        ),
        "verdict": MeasuredVerdict(conclusion=Conclusion.KEEP_PLAN, goal="makespan_s", use="plan"),
        "command": ("chunkscope", "verify", "--model", "llama-3.1-8b"),
        "created": CREATED,
        "version": "0.1.0",
    }
    return Verification(**{**about, **more})


# -- a folder ------------------------------------------------------------------------------------


def write(
    folder: Path,
    *,
    found: Profile | None = None,
    planned: bool = True,
    verified: Verification | None = None,
    simulated: Simulation | None = None,
    diagnosed: Diagnosis | None = None,
    **plan_options: Any,
) -> Path:
    """Artefacts that belong together, as the commands would leave them."""
    folder.mkdir(parents=True, exist_ok=True)
    if found is not None:
        found.save(folder / "profile.json")
        if planned:
            options = {"model": "llama-3.1-8b", "gpu": "h200", "vllm_version": "0.24.0"}
            # By the length rule, with a context for these lengths: pages with something to set.
            options |= {"policy": Basis.LENGTHS, "max_model_len": _context(found)}
            wanted = tuple({**options, **plan_options}.items())
            plan = _plan((folder / "profile.json").read_bytes(), wanted)
            plan.save(folder / "plan.json")
    if verified is not None:
        plan_digest = artefact_digest(folder / "plan.json") if planned and found else None
        replace(verified, plan_digest=plan_digest).save(folder / "verify.json")
    if simulated is not None:
        simulated.save(folder / "simulation.json")
    if diagnosed is not None:
        diagnosed.save(folder / "doctor.json")
    return folder


def _context(found: Profile) -> int:
    return min(round_up((found.overall.max or 1) + 256), 131_072)


@cache
def _plan(found: bytes, options: tuple[tuple[str, Any], ...]) -> Plan:
    """`recommend` searches, and the tests ask for the same plan again and again."""
    plan = recommend(Profile.from_json(orjson.loads(found)), **dict(options))
    digest = hashlib.sha256(found).hexdigest()
    return replace(plan, inputs=replace(plan.inputs, profile_digest=digest), created=CREATED)


def artefact_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def simulated(
    budget: int,
    makespan_s: float = 45.0,
    gap_s: float = 0.1,
    *,
    seqs: int = 256,
    threshold: int = 0,
    **more: Any,
) -> SimulatedRun:
    args = EngineArgs(
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        kv_cache_tokens=900_000,
        long_prefill_token_threshold=threshold,
    )
    about = {
        "policy": ChunkPolicy.VLLM,
        "requests": 500,
        "input_tokens": 1_000_000,
        "output_tokens": 64_000,
        "cached_tokens": 0,
        "kv_peak_tokens": 400_000,
    }
    figures = simulated_figures(makespan_s, Percentiles(p50=0.02, p95=0.05, p99=0.1, max=gap_s))
    return SimulatedRun(args=args, **{"figures": figures} | about | more)


def simulated_figures(makespan_s: float, gaps: Percentiles | None, **more: Any) -> Figures:
    return Figures(
        makespan_s=makespan_s,
        ttft_s=Percentiles(p50=3.0, p95=9.0, p99=11.0, max=12.0),
        itl_s=gaps,
        e2e_s=Percentiles(p50=5.0, p95=12.0, p99=14.0, max=15.0),
        input_tokens_per_s=1_000_000 / makespan_s,
        output_tokens_per_s=64_000 / makespan_s,
        **{"steps": 900, "chunked_prompts": 41, "chunks_max": 8, "preemptions": 0} | more,
    )


def simulation(**more: Any) -> Simulation:
    """As `simulate --sweep` leaves it, with the first steps of one setting kept."""
    step = StepModel(
        fixed_s=0.01,
        per_token_s=4e-5,
        per_prefill_pair_s=1e-9,
        per_decode_context_s=1e-8,
        origin="an H200's data sheet",
    )
    cost = CostModel(source=CostSource.ROOFLINE, step=step, gpu="H200", model="m", vllm=None)
    about = {
        "version": "0.1.0",
        "vllm": "0.24.0",
        "workload": WorkloadInfo(
            source="profile.json", requests=500, seed=0, arrivals="batch", task="generate"
        ),
        "runs": (
            simulated(512, 60.0, 0.04),
            simulated(2_048, 45.0, 0.09, timeline=tuple(timeline(2_048))),
            simulated(8_192, 41.0, 0.35),
            simulated(16_384, 40.5, 0.7),
            simulated(4_096, 50.0, 0.4, policy=ChunkPolicy.ADAPTIVE),
        ),
        "pareto": (0, 1, 2, 3),
        "knee": 1,
    }
    return Simulation(cost_model=cost, **about | more)


def rated() -> Simulation:
    """As `simulate --find-rate` leaves it."""
    limits = read_slo("ttft_p95=1s,itl_p99=50ms")
    kept = SloFound(limits=limits, found_s=(0.9, 0.03), good_requests=450)
    points = tuple(
        RatePoint(
            rate_per_s=rate,
            figures=simulated(512, 45.0).figures,
            grows=rate > 12,
        )
        for rate in (3.0, 6.0, 9.0, 12.0, 15.0)
    )
    runs = tuple(
        simulated(
            budget,
            setting=name,
            slo=kept,
            rate=SustainedRate(
                rate_per_s=sustained,
                breaks="ttft_p95",
                saturation_per_s=15.0,
                points=points,
            ),
        )
        for name, budget, sustained in (("plan", 2_048, 9.0), ("default", 8_192, None))
    )
    return simulation(runs=runs, pareto=(), knee=None)


def timeline(budget: int) -> Iterator[TimelineStep]:
    """Two long prompts and some short ones, a chunk of one of them in each step."""
    now, done = 0.0, {0: 0, 5: 0}
    for number in range(24):
        reading = 0 if done[0] < 14_000 else 5
        start = done[reading]
        end = min(start + budget - 4 * number, 14_000)
        done[reading] = end
        chunks = [PromptChunk(request=reading, start=start, end=end, prompt_tokens=14_000)]
        if number % 5 == 0:
            chunks.append(PromptChunk(request=100 + number, start=0, end=180, prompt_tokens=180))
        took = 0.01 + 0.00004 * (end - start)
        yield TimelineStep(
            number=number,
            start_s=now,
            duration_s=took,
            decode_requests=4 * number,
            chunks=tuple(chunk for chunk in chunks if chunk.end > chunk.start),
            waiting=10,
            preempted=(),
        )
        now += took


def diagnosis() -> Diagnosis:
    """Of two engines: one that worked and one that did not start."""
    names = ("vllm-0.32-cpu-kv-bound", "vllm-0.28-cpu-does-not-fit")
    found = doctor(*(LOGS / f"{name}.log" for name in names))
    said = tuple(replace(e, source=f"{Path(e.source).name} {EVIL}") for e in found.engines)
    return replace(found, engines=said, created=CREATED)


def everything(folder: Path) -> Findings:
    return load_findings(
        write(
            folder,
            found=profile(),
            verified=verification(),
            simulated=simulation(),
            diagnosed=diagnosis(),
        )
    )
