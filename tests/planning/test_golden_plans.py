"""24 plans as they are today: what is advised for models, GPUs, limits and rates.

`pytest tests/planning/test_golden_plans.py --update-golden` writes them anew, and
whoever does so says why in the commit.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import recommend
from tests import build
from tests.conftest import REPOSITORY

FILE = Path(__file__).with_name("golden_plans.json")
MACHINES = {
    "1B on an H200": ("llama-3.2-1b", "h200"),
    "8B on an H100": ("llama-3.1-8b", "h100"),
    "8B on an L4": ("qwen3-8b", "l4"),
    "experts on an H200": ("qwen3-30b-a3b", "h200"),
    "windows on an A100": ("gemma-2-9b", "a100"),
    "32B on an H100": ("qwen3-32b", "h100"),
}
LIMITS = {"no limits": {}, "limits": {"slo": "itl_p99=100ms"}}
RATE = {"arrivals": "4/s", "slo": "ttft_p95=2s,itl_p99=150ms"}


def many_short() -> Profile:
    """1,319 short prompts with answers of 300 tokens, as GSM8K."""
    return build.profile(short=[40 + 7 * n % 120 for n in range(1_319)])


def mixed() -> Profile:
    return Profile.load(REPOSITORY / "reports" / "example" / "profile.json")


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """By name: the machine, and what is asked."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    for machine in MACHINES:
        for limits, options in LIMITS.items():
            asked[f"{machine}, mixed, {limits}"] = (machine, options)
        asked[f"{machine}, short"] = (machine, {"max_output": 300})
        asked[f"{machine}, mixed, 4 a second"] = (machine, RATE)
    return asked


CASES = cases()


def plan_of(name: str) -> Plan:
    machine, options = CASES[name]
    model, gpu = MACHINES[machine]
    profile = many_short() if "short" in name else mixed()
    return recommend(profile, model=model, gpu=gpu, vllm_version="0.24", **options)


def summary(plan: Plan) -> dict[str, Any]:
    """What would be felt if it changed."""
    seconds = None
    if plan.cost is not None:
        seconds = float(f"{plan.cost.hours * 3_600:.3g}")
    return {
        "kind": plan.advice.kind.value,
        "settings": plan.advice.settings.given(),
        "needed": plan.advice.needed.given(),
        "seconds": seconds,
        "at_once": plan.requests_in_flight,
        "notes": sorted(note.code for note in plan.notes),
    }


def test_there_are_24_plans() -> None:
    assert len(CASES) == 24


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_as_it_was(name: str, request: pytest.FixtureRequest) -> None:
    found = summary(plan_of(name))
    if request.config.getoption("--update-golden"):
        known = json.loads(FILE.read_text()) if FILE.exists() else {}
        known[name] = found
        FILE.write_text(json.dumps(known, indent=1) + "\n")
    assert found == json.loads(FILE.read_text())[name]
