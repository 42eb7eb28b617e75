"""Artefacts, budgets and verdicts for the tests of `gate`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.figures import Figures, Latencies
from chunkscope.artefacts.percentiles import Percentiles
from chunkscope.findings import load_findings
from chunkscope.gating.budget_file import parse_file
from chunkscope.gating.check import judge
from chunkscope.gating.verdict import GateResult, Verdict
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.problem import round_up
from chunkscope.planning.recommend import profile_digest, recommend
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.result import (
    Machine,
    PromptSource,
    Run,
    Subject,
    Verification,
    WorkerMemory,
)
from chunkscope.vllm.enums import Basis, Task
from chunkscope.vllm.log.fate import Status
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, profile

__all__ = ["MIXED", "profile"]


class Place:
    """A checkout: reports/, and a budget beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports = folder / "reports"

    def save_profile(self, found: Profile | None = None, **lengths: Sequence[int]) -> Profile:
        made = found or profile(**(lengths or {"data": MIXED}))
        made.save(self.reports / "profile.json")
        return made

    def save_plan(self, found: Profile, **options: Any) -> Plan:
        chosen = {"model": "llama-3.1-8b", "gpu": "h200", "vllm_version": "0.24.0", **options}
        # By the length rule: these tests are not about what pays.
        context = round_up((found.overall.max or 1) + (options.get("max_output") or 256))
        fixed = {"policy": Basis.LENGTHS, "max_model_len": context}
        made = recommend(found, **{**fixed, **chosen})
        made.save(self.reports / "plan.json")
        return made

    def save_verification(self, *runs: Run, name: str = "reports/verify.json", **more: Any) -> None:
        verification(*runs, **more).save(self.folder / name)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def gate(self, budget: str) -> GateResult:
        """Judge by a budget whose tables are written without `gate.`: [data] is [gate.data]."""
        text = budget.replace("\n[", "\n[gate.")
        text = "[gate." + text[1:] if text.startswith("[") else f"[gate]\n{text}"
        file = parse_file(text, self.folder / "chunkscope.toml")
        return judge(file, load_findings(self.reports))

    def one(self, budget: str, promise: str | None = None, subject: str | None = None) -> Verdict:
        """The only verdict, or the only one of that promise and subject."""
        found = [
            verdict
            for verdict in self.gate(budget).verdicts
            if promise in (None, verdict.promise) and subject in (None, verdict.subject)
        ]
        assert len(found) == 1, found
        return found[0]


def latency(seconds: float) -> Percentiles:
    return Percentiles(p50=seconds / 2, p95=seconds, p99=seconds * 1.5, max=seconds * 2)


def figures(
    ttft: float = 0.2, itl: float | None = 0.02, rate: float = 1000.0, **more: Any
) -> Figures:
    """Short prompts take half as long."""
    latencies = [
        Latencies(
            ttft_s=latency(ttft * share),
            itl_s=latency(itl * share) if itl is not None else None,
            e2e_s=latency(2.0 * share),
        )
        for share in (1, 0.5)
    ]
    times = {name: getattr(latencies[0], name) for name in ("ttft_s", "itl_s", "e2e_s")}
    return Figures(
        makespan_s=10.0,
        short=latencies[1],
        input_tokens_per_s=9000.0,
        output_tokens_per_s=rate,
        **times,
        **more,
    )


def run(setting: str = "plan", found: Figures | None = None, **more: Any) -> Run:
    memory = WorkerMemory(rank=0, activation_peak_gib=0.84, device_peak_gib=129.0)
    usual: dict[str, Any] = {
        "status": Status.OK,
        "workers": (memory,),
        "kv_cache_tokens": 16_000,
        "figures": found or figures(),
        "repeats": (found or figures(),),
    }
    return Run(
        setting=setting,
        settings=Settings(),
        started="2025-01-01T00:00:00+00:00",
        took_s=1.0,
        **{**usual, **more},
    )


def out_of_memory(setting: str = "plan") -> Run:
    ended = run(setting, workers=(), kv_cache_tokens=None, repeats=())
    return replace(ended, figures=None, status=Status.OUT_OF_MEMORY)


def verification(*runs: Run, **more: Any) -> Verification:
    # As many tokens as the figures' rates and seconds make; outputs leave room for higher rates.
    request = Request(prompt_tokens=90_000, output_tokens=1_000_000)
    usual: dict[str, Any] = {
        "model": Subject(name="llama-3.1-8b", load_format="dummy"),
        "workload": Workload(
            requests=(request,), seed=0, arrivals="batch", task=Task.GENERATE, long_over=2048
        ),
        "machine": Machine(device="cuda", gpu="NVIDIA H200", gpus=1, gpu_memory_gib=139.8),
    }
    return Verification(
        source=PromptSource(), repeats=1, runs=runs or (run(),), **{**usual, **more}
    )


def digest_of(found: Profile) -> str:
    return profile_digest(found)
