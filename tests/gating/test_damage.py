"""No damaged file turns a failed check into a passed one: 200 damages, drawn by a seed.

A checkout whose every check fails is damaged in one place at a time. What comes out is a failed
check or an error with exit code 3, and never a bug's.
"""

import json
import os
import random
from pathlib import Path

import pytest

from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.gating.budget import find_budget
from chunkscope.gating.gate import judge
from tests.build import MIXED, Place, run

SEED = int(os.environ.get("CHUNKSCOPE_SEED", "24"))
DAMAGES = 200
FILES = ("profile.json", "plan.json", "verify.json")
BUDGET = """
[gate.data]
longest_prompt = 10
min_rows = 9000
datasets = ["gone"]
[gate.settings]
file = "vllm.yaml"
[gate.memory.predicted]
activation_peak = "1MiB"
[gate.slo]
makespan = "1ms"
[gate.speed]
ttft_p95 = "1ms"
output_tokens_per_s = 900000
[gate.outputs]
equal = "99%"
"""
VALUES = (None, 0, -1, 10**15, float("nan"), "", "x", [], {}, True, False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    place = Place(tmp_path)
    plan = place.save_plan(place.save_profile(data=MIXED))
    place.save_verification(run("plan"), plan_digest=plan.digest())
    place.write("vllm.yaml", "max-num-seqs: 2\nenforce-eager: true\n")
    place.write("chunkscope.toml", BUDGET)
    return place.folder


def damaged(data: bytes, others: list[bytes], chance: random.Random) -> bytes | None:
    """A value removed or replaced, or the file gone (None), empty, cut off or another."""
    if chance.random() < 0.2:
        half = data[: chance.randrange(len(data))]
        return chance.choice([None, b"", b"{}", b"\xff\xfe", half, *others])
    part = document = json.loads(data)
    while True:
        key = chance.choice(list(part) if isinstance(part, dict) else range(len(part)))
        if not isinstance(part[key], dict | list) or not part[key] or chance.random() < 0.2:
            break
        part = part[key]
    if chance.random() < 0.3 and isinstance(part, dict):
        del part[key]
    else:
        part[key] = chance.choice([value for value in VALUES if value != part[key]])
    return json.dumps(document).encode()


def passing(checkout: Path) -> set[str]:
    """Which checks pass; nothing where the gate refuses to judge."""
    budget = find_budget(checkout / "chunkscope.toml")
    try:
        result = judge(budget, load_findings(checkout / "reports"))
    except InputError:
        return set()
    return {check.title for check in result.checks if check.passed}


def test_no_damage_makes_a_failed_check_pass(checkout: Path) -> None:
    chance, before = random.Random(SEED), passing(checkout)
    assert {title.split(" of ")[0] for title in before} <= {"settings.accepted", "settings.as-good"}
    data = {name: (checkout / "reports" / name).read_bytes() for name in FILES}
    for number in range(DAMAGES):
        name = chance.choice(FILES)
        path = checkout / "reports" / name
        new = damaged(data[name], [data[other] for other in FILES if other != name], chance)
        path.unlink() if new is None else path.write_bytes(new)
        passed = passing(checkout)
        path.write_bytes(data[name])
        assert passed <= before, f"damage {number} of seed {SEED} ({name}): {passed - before}"
