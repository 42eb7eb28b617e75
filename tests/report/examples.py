"""Folders of results: a profile, a plan, measured and simulated runs, a diagnosis."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from chunkscope.commands.api import simulate
from chunkscope.diagnosis.doctor import doctor
from chunkscope.findings import Findings, load_findings
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import AdviceKind, Plan
from chunkscope.planning.recommend import recommend
from chunkscope.simulation.result import Simulation
from chunkscope.simulation.slo import read_slo
from chunkscope.verification.result import Verification
from chunkscope.verification.verdict import judged
from tests import build
from tests.conftest import REPOSITORY

LOG = REPOSITORY / "tests" / "diagnosis" / "logs" / "vllm-0.28-cpu-kv-bound.log"
HOSTILE = "<b>a|b`c_d</b>\x1b[31m\n::error::[/b]=1+1 @team"


@cache
def profile() -> Profile:
    return build.profile(short=build.SHORT, mixed=build.MIXED)


@cache
def plan(**options: str) -> Plan:
    usual = {"model": "qwen2.5-1.5b", "gpu": "l4", "vllm_version": "0.24.0"}
    return recommend(profile(), **{**usual, **options})


def limits_broken() -> Plan:
    """As if its limits could not be kept: to find that out takes a while."""
    advice = replace(plan().advice, kind=AdviceKind.NO_SETTING, rate=3.0)
    request = replace(plan().request, slo=read_slo("ttft_p95=1ms"), arrivals="50/s")
    return replace(plan(), advice=advice, request=request)


@cache
def simulation(**options: Any) -> Simulation:
    return simulate(plan(), profile(), **options)


def verification() -> Verification:
    runs = (
        build.run("plan", 10.0, 10.2),
        build.run("default", 12.0, 12.1, gap_s=0.005),
        build.failed("off"),
    )
    return judged(build.verification(*runs, plan_digest=plan().digest()))


def folder(place: Path, *names: str) -> Findings:
    """A folder with these results, or with all of them."""
    makers = {
        "profile": profile,
        "plan": plan,
        "simulation": lambda: simulation(timeline=5),
        "verify": verification,
        "doctor": lambda: doctor(str(LOG)),
    }
    for name in names or makers:
        makers[name]().save(place / f"{name}.json")
    return load_findings(place)


def hostile() -> Profile:
    """Names that no output may obey."""
    dataset = profile().datasets[0]
    strange = replace(dataset, name=HOSTILE, path=HOSTILE, field=HOSTILE, notes=())
    return replace(profile(), datasets=(strange,))
