"""No damaged file turns a failed check into a passed one: 200 damages, drawn by a seed.

A checkout whose every check fails is damaged in one place at a time: a value of an artefact is
removed or replaced, a file is gone, empty, cut off or another. What comes out is a failed check or
an error with exit code 3, and never a bug's.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.gating.budget import read_budget
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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Place(tmp_path_factory.mktemp("damage"))
    plan = place.save_plan(place.save_profile(data=MIXED))
    place.save_verification(run("plan"), plan_digest=plan.digest())
    place.write("vllm.yaml", "max-num-seqs: 2\nenforce-eager: true\n")
    place.write("chunkscope.toml", BUDGET)
    return place.folder


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        parts = list(value.items())
    else:
        parts = list(enumerate(value)) if isinstance(value, list) else []
    for key, part in parts:
        yield from paths_of(part, (*path, key))


def damaged(data: bytes, others: list[bytes], chance: random.Random) -> bytes | None:
    """None: the file is gone."""
    if chance.random() < 0.2:
        half = data[: chance.randrange(len(data))]
        return chance.choice([None, b"", b"{}", b"\xff\xfe", half, *others])
    document = json.loads(data)
    *way, last = chance.choice(list(paths_of(document)))
    part = document
    for key in way:
        part = part[key]
    if chance.random() < 0.3 and isinstance(part, dict):
        del part[last]
    else:
        part[last] = chance.choice([value for value in VALUES if value != part[last]])
    return json.dumps(document).encode()


def outcome(checkout: Path) -> set[str]:
    """Which checks pass; nothing where the gate refuses to judge."""
    budget = read_budget(checkout / "chunkscope.toml")
    try:
        result = judge(budget, load_findings(checkout / "reports"))
    except InputError:
        return set()
    return {check.title for check in result.checks if check.passed}


def test_every_check_fails_before(checkout: Path) -> None:
    assert {title.split(" of ")[0] for title in outcome(checkout)} <= {
        "settings.accepted",
        "settings.as-good",
    }


def test_no_damage_makes_a_failed_check_pass(checkout: Path) -> None:
    chance, before = random.Random(SEED), outcome(checkout)
    data = {name: (checkout / "reports" / name).read_bytes() for name in FILES}
    for number in range(DAMAGES):
        name = chance.choice(FILES)
        path = checkout / "reports" / name
        others = [data[other] for other in FILES if other != name]
        new = damaged(data[name], others, chance)
        path.unlink() if new is None else path.write_bytes(new)
        try:
            passed = outcome(checkout)
        finally:
            path.write_bytes(data[name])
        assert passed <= before, f"damage {number} of seed {SEED} ({name}): {passed - before}"
