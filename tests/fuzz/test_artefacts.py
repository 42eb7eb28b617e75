"""Artefacts, budgets, committed settings and model configs that somebody else wrote or
damaged."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.gating.budget import find_budget
from chunkscope.gating.gate import judge
from chunkscope.gating.read_settings import read_settings
from chunkscope.hardware.calibration import Calibration
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model, known_model
from chunkscope.planning.plan import Plan
from chunkscope.simulation.result import Simulation
from chunkscope.verification.result import Verification
from tests.commands.helpers import chunkscope
from tests.conftest import REPOSITORY
from tests.fuzz.helpers import (
    INSTEAD,
    SEED,
    assert_fine,
    changed,
    damaged,
    explore,
    fine,
)
from tests.hardware.kv_models import CONFIGS
from tests.hardware.test_step_time import FP8
from tests.report import examples

MEASURED = REPOSITORY / "reports" / "h200" / "llama-3.1-8b-mixed"
KINDS = {
    "profile.json": Profile,
    "plan.json": Plan,
    "verify.json": Verification,
    "simulation.json": Simulation,
    "calibration.json": Calibration,
}
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
"""  # each of which fails
SETTINGS = b"""
model: llama-3.1-8b
max-num-seqs: 64
max_num_batched_tokens: 4K
quantization: fp8
""".lstrip()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one artefact of each kind."""
    place = tmp_path_factory.mktemp("artefacts")
    examples.folder(place / "reports", "profile", "plan", "simulation", "verify")
    (found,) = MEASURED.glob("calibration-*.json")
    shutil.copy(found, place / "reports" / "calibration.json")
    (place / "chunkscope.toml").write_text(BUDGET)
    (place / "vllm.yaml").write_bytes(SETTINGS)
    return place


def written(document: Any) -> bytes:
    """As a stranger may write it: also NaN, and half of a character."""
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", KINDS)
def test_an_artefact_is_read_or_refused(
    folder: Path, tmp_path: Path, name: str
) -> None:
    whole = (folder / "reports" / name).read_bytes()
    path = tmp_path / name

    def check(data: bytes) -> None:
        path.write_bytes(data)
        with fine():
            KINDS[name].load(path).to_json()

    past = [(b"",), (b"NaN",), (b"[" * 5_000,), (b'{"schema": 5}',), (whole[:-2],)]
    explore(check, damaged(whole), past=past)


def test_a_budget_is_judged_or_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)

    def check(data: bytes) -> None:
        (tmp_path / "chunkscope.toml").write_bytes(data)
        with fine():
            assert_fine(chunkscope(tmp_path, "gate"))

    past = [
        b"[gate.data]\np95 = nan",
        b"gate = 5",
        b"[gate]",
        b"[gate.data]\np95=1e999",
    ]
    explore(check, damaged(BUDGET.encode()), past=[(text,) for text in past])


def passing(checkout: Path) -> set[str]:
    """Which checks pass; nothing where the gate refuses to judge."""
    budget = find_budget(checkout / "chunkscope.toml")
    try:
        result = judge(budget, load_findings(checkout / "reports"))
    except InputError:
        return set()
    return {check.name for check in result.checks if check.passed}


def changed_once(document: Any, chance: random.Random) -> bytes:
    """Something else in one place: near the top as often as far below."""
    part = document
    while True:
        key = chance.choice(list(part) if isinstance(part, dict) else range(len(part)))
        if (
            not isinstance(part[key], dict | list)
            or not part[key]
            or chance.random() < 0.2
        ):
            part[key] = chance.choice(INSTEAD[1:])
            return written(document)
        part = part[key]


@pytest.mark.parametrize("name", ["profile.json", "plan.json", "verify.json"])
def test_no_damage_makes_a_failed_check_pass(
    folder: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path, before = tmp_path / "reports" / name, passing(tmp_path)
    assert before <= {"settings.accepted", "settings.as-good"}
    whole, others = (
        path.read_bytes(),
        [file.read_bytes() for file in path.parent.iterdir()],
    )

    def check(data: bytes | None) -> None:
        path.unlink() if data is None else path.write_bytes(data)
        assert passing(tmp_path) <= before

    for data in (b"", b"{}", whole[: len(whole) // 2], *others, None):
        check(data)
    for number in range(70):
        check(changed_once(json.loads(whole), random.Random(f"{SEED} {number}")))


@pytest.mark.parametrize("name", ["vllm.yaml", "args.txt"])
def test_committed_settings_are_read_or_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    def check(data: bytes) -> None:
        path.write_bytes(data)
        with fine():
            read_settings(path, version=(0, 24, 0))

    words = b"vllm serve m --max-num-seqs 64 --max-num-b 256 "
    words += b"--config other.yaml -O3 \\\n --x '"
    pairs = b"pretrained=m,max_num_seqs=64,batch_size=auto"
    kinds = damaged(SETTINGS) | damaged(words) | damaged(pairs)
    explore(check, kinds, past=[(b"a: &a [*a]",)])


def test_a_models_config_is_read_or_refused(tmp_path: Path) -> None:
    def check(config: Any) -> None:
        (tmp_path / "config.json").write_bytes(written(config))
        with fine():
            assert_fine(
                chunkscope(tmp_path, "memory", "--model", tmp_path, "--gpu", "h200")
            )
            shape = find_model(tmp_path)
            assert 0 <= shape.weight_bytes < 2**63
            assert not shape.experts or shape.experts.active <= shape.experts.count
            assert shape.kv_bytes_per_token() >= 0

    config = dict(known_model("qwen3-30b-a3b").config)
    tower = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
    sees = {"text_config": config, "vision_config": tower, "quantization_config": FP8}
    past = [
        ({**config, "num_hidden_layers": 10**15},),  # they were counted one by one
        (
            {**CONFIGS["granite-4"], "hidden_size": 0},
        ),  # states of no size made blocks of none
        ({**CONFIGS["lfm-2"], "conv_L_cache": 1},),
        ({**config, "max_position_embeddings": 10**30},),  # more than a result can hold
        (
            {**config, "num_experts_per_tok": 999},
        ),  # a power of it was too large a number
        ({**config, "hidden_size": 2**52},),  # as were all weights together
    ]
    kinds = st.one_of(*map(changed, (config, sees, *CONFIGS.values())))
    explore(check, kinds, past=past)
