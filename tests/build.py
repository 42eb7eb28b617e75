"""The one place that makes things for tests: profiles, plans, measured runs, checkouts.

A profile has some 50 prompts, and the same plan is made once per session.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.figures import Figures, Latencies, Percentiles
from chunkscope.artefacts.note import Note
from chunkscope.findings import load_findings
from chunkscope.gating.budget import parse_budget
from chunkscope.gating.check import Check, GateResult
from chunkscope.gating.gate import judge
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.models import find_model
from chunkscope.planning.case import round_up
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import recommend
from chunkscope.planning.rule import decide
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.workload import Workload, single
from chunkscope.tokenizers.resolve import TokenizerInfo
from chunkscope.verification.result import (
    Distribution,
    Machine,
    PromptSource,
    Run,
    Subject,
    Verification,
    WorkerMemory,
)
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

# -- profiles ------------------------------------------------------------------------

MODEL = "llama-3.1-8b"
TOKENIZER = TokenizerInfo(
    name="test",
    digest="0",
    kind="test",
    engine="test",
    reference="test",
    special_tokens_added=0,
)
SHORT = tuple(range(20, 420, 8))
MIXED = (*range(50, 1_550, 32), *[2_500] * 3, 4_000)
FITTING = (*range(50, 850, 16), 2_500, 4_000)  # fits the KV cache of an H200
LONG = tuple(range(4_000, 14_000, 200))
USUAL = {"model": MODEL, "gpu": "h200", "vllm_version": "0.24.0"}
CREATED = "2025-01-01T00:00:00+00:00"


def dataset(name: str, lengths: Iterable[int], **more: Any) -> DatasetProfile:
    return DatasetProfile(
        name=name,
        path=f"{name}.jsonl",
        format="jsonl",
        field="prompt",
        lengths=LengthHistogram.of(lengths),
        **more,
    )


def profile(**datasets: Iterable[int]) -> Profile:
    made = tuple(dataset(name, lengths) for name, lengths in datasets.items())
    return Profile(tokenizer=TOKENIZER, datasets=made, created=CREATED)


# -- plans ---------------------------------------------------------------------------


def plan(lengths: Sequence[int] = MIXED, **options: Any) -> Plan:
    """By the length rule, with a context for these lengths: nothing depends on a
    prediction."""
    return advised(lengths, **_ruled(LengthHistogram.of(lengths), options))


def _ruled(lengths: LengthHistogram, options: dict[str, Any]) -> dict[str, Any]:
    context = round_up((lengths.max or 1) + (options.get("max_output") or 256))
    model = options.get("model", MODEL)
    shape = find_model(model) if isinstance(model, str) else model
    limit = (shape.limit if shape else None) or context
    return {
        "mode": decide(lengths).mode,
        "max_model_len": min(context, limit),
        **options,
    }


def advised(lengths: Sequence[int] = MIXED, **options: Any) -> Plan:
    """By evidence, as `recommend` decides by itself."""
    return planned(profile(data=lengths), **{**USUAL, **options})


PLANS: dict[str, Plan] = {}


@wraps(recommend)
def planned(of: Profile, **options: Any) -> Plan:
    """What `recommend` makes of it, made once per session."""
    values = {
        k: v.digest() if isinstance(v, Artefact) else v for k, v in options.items()
    }
    values.pop("tick", None)
    key = f"{of.digest()} {of.command} {of.paths} {sorted(values.items())}"
    if key not in PLANS:
        PLANS[key] = recommend(of, **options)
    return PLANS[key]


def plan_that_sets(
    lengths: Sequence[int] = SHORT, *, given: dict[str, Any], **options: Any
) -> Plan:
    """A plan with these engine arguments, whatever `recommend` would advise."""
    return replace(plan(lengths, **options), settings=Settings(**given))


# -- measured runs -------------------------------------------------------------------


def workload(
    *lengths: int, output: int = 8, apart_s: float = 0.0, shared: int = 0, **more: Any
) -> Workload:
    """Prompts of these lengths, one every so many seconds; `shared` tokens begin all of
    them."""
    sessions = tuple(
        single(length, output, number * apart_s, 0 if shared else -1)
        for number, length in enumerate(lengths)
    )
    usual: dict[str, Any] = {"seed": 0, "arrivals": "batch", "task": Task.GENERATE}
    usual |= {"long_over": 2_048, "shared_prefix": shared}
    stretches = (Stretch(parent=-1, tokens=shared),) if shared else ()
    return Workload(sessions=sessions, stretches=stretches, **{**usual, **more})


WORKLOAD = workload(100, 5_000, apart_s=0.5)


def latency(p50: float) -> Percentiles:
    return Percentiles(p50=p50, p95=2 * p50, p99=3 * p50, max=4 * p50)


def figures(
    makespan_s: float = 10.0, gap_s: float | None = 0.01, **more: Any
) -> Figures:
    times = {
        "ttft_s": latency(makespan_s / 10),
        "itl_s": latency(gap_s) if gap_s is not None else None,
        "e2e_s": latency(makespan_s / 2),
    }
    usual: dict[str, Any] = {
        **times,
        "short": Latencies(**times),
        "input_tokens_per_s": 5_100 / makespan_s,
        "output_tokens_per_s": 16 / makespan_s,
        "steps": 10,
        "tokens_per_step": 512.5,
        "chunked_prompts": 1,
        "chunks_max": 3,
        "preemptions": 0,
        "prefix_hit_rate": 0.0,
    }
    return Figures(makespan_s=makespan_s, **{**usual, **more})


def run(
    setting: str = "plan", *makespans: float, gap_s: float = 0.01, **more: Any
) -> Run:
    """The first makespan is the median's; all of them are repeats."""
    repeats = tuple(figures(makespan, gap_s) for makespan in makespans or (10.0,))
    usual: dict[str, Any] = {
        "settings": Settings(max_num_batched_tokens=2_048),
        "status": Status.OK,
        "started": CREATED,
        "took_s": 60.0,
        "repeats": repeats,
        "figures": repeats[0],
        "distribution": Distribution(ttft_s=(0.5,) * 101, itl_s=None),
        "workers": (
            WorkerMemory(rank=0, activation_peak_gib=0.5, device_peak_gib=120.0),
        ),
        "kv_cache_tokens": 16_000,
    }
    return Run(setting=setting, **{**usual, **more})


def failed(setting: str = "plan", status: Status = Status.OUT_OF_MEMORY) -> Run:
    values = {"phase": "loading", "detail": "no memory", "step_tokens": 32_768}
    return run(
        setting,
        status=status,
        failure=Note(code="engine_out_of_memory", values=values),
        repeats=(),
        figures=None,
        workers=(),
        kv_cache_tokens=None,
    )


def verification(*runs: Run, **more: Any) -> Verification:
    usual: dict[str, Any] = {
        "model": Subject(name="tiny", load_format="dummy", parameters=1_000),
        "workload": WORKLOAD,
        "source": PromptSource(),
        "repeats": 2,
        "machine": Machine(device="cuda", gpu="NVIDIA H200", gpus=1, vllm="0.24.0"),
        "created": CREATED,
        "version": "0.1.0",
    }
    return Verification(runs=runs or (run(),), **{**usual, **more})


# -- a checkout ----------------------------------------------------------------------


class Place:
    """A checkout: reports/, and the gate's budget beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports = folder / "reports"

    def save_profile(
        self, made: Profile | None = None, **lengths: Sequence[int]
    ) -> Profile:
        made = made or profile(**(lengths or {"data": MIXED}))
        made.save(self.reports / "profile.json")
        return made

    def save_plan(self, of: Profile, **options: Any) -> Plan:
        """By the length rule: the gate's tests are not about what pays."""
        made = planned(of, **_ruled(of.overall, {**USUAL, **options}))
        made.save(self.reports / "plan.json")
        return made

    def save_verification(
        self, *runs: Run, name: str = "reports/verify.json", **more: Any
    ) -> None:
        verification(*runs, **more).save(self.folder / name)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def gate(self, budget: str) -> GateResult:
        """Judge by a budget whose tables are written without `gate.`: [data] is
        [gate.data]."""
        text = budget.replace("\n[", "\n[gate.")
        text = "[gate." + text[1:] if text.startswith("[") else f"[gate]\n{text}"
        file = parse_budget(text, self.folder / "chunkscope.toml")
        return judge(file, load_findings(self.reports))

    def one(
        self, budget: str, name: str | None = None, subject: str | None = None
    ) -> Check:
        """The only check, or the only one of that name and subject."""
        checks = [
            check
            for check in self.gate(budget).checks
            if name in (None, check.name) and subject in (None, check.subject)
        ]
        assert len(checks) == 1, checks
        return checks[0]
