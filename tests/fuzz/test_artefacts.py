"""Artefacts, budgets, committed settings and model configs that somebody else wrote or damaged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chunkscope.gating.read_arguments import read_arguments
from chunkscope.hardware.calibration import Calibration
from chunkscope.lengths.profile import Profile
from chunkscope.models import known_model
from chunkscope.planning.plan import Plan
from chunkscope.simulation.result import Simulation
from chunkscope.verification.result import Verification
from tests.commands.helpers import chunkscope
from tests.conftest import REPOSITORY
from tests.fuzz.helpers import assert_fine, changed, damaged, explore, fine
from tests.gating.test_damage import BUDGET
from tests.hardware.test_kv_groups import CONFIGS
from tests.report import examples

MEASURED = REPOSITORY / "reports" / "h200" / "llama-3.1-8b-mixed"
KINDS = {
    "profile.json": Profile,
    "plan.json": Plan,
    "verify.json": Verification,
    "simulation.json": Simulation,
    "calibration.json": Calibration,
}
SETTINGS = b"model: llama-3.1-8b\nmax-num-seqs: 64\nmax_num_batched_tokens: 4K\nquantization: fp8\n"


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
def test_an_artefact_is_read_or_refused(folder: Path, tmp_path: Path, name: str) -> None:
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

    past = [b"[gate.data]\np95 = nan", b"gate = 5", b"[gate]", b"[gate.data]\np95=1e999"]
    explore(check, damaged(BUDGET.encode()), past=[(text,) for text in past])


@pytest.mark.parametrize("name", ["vllm.yaml", "args.txt", "serve.sh", "compose.yaml"])
def test_committed_settings_are_read_or_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    def check(data: bytes) -> None:
        path.write_bytes(data)
        with fine():
            read_arguments(path, version=(0, 24, 0))

    words = b"vllm serve m --max-num-seqs 64 --max-num-b 256 --config other.yaml -O3 \\\n --x '"
    explore(check, damaged(SETTINGS) | damaged(words), past=[(b"a: &a [*a]",)])


def test_a_models_config_is_read_or_refused(tmp_path: Path) -> None:
    def check(config: Any) -> None:
        (tmp_path / "config.json").write_bytes(written(config))
        with fine():
            assert_fine(chunkscope(tmp_path, "memory", "--model", tmp_path, "--gpu", "h200"))

    config = dict(known_model("qwen3-30b-a3b").config)
    past = [
        ({**config, "num_hidden_layers": 10**15},),  # they were counted one by one
        ({**CONFIGS["jamba"], "hidden_size": 0},),  # states of no size made blocks of none
        ({**CONFIGS["lfm-2"], "conv_L_cache": 1},),
        ({**config, "max_position_embeddings": 10**30},),  # more than a result can hold
    ]
    kinds = st.one_of(*map(changed, (config, *CONFIGS.values())))
    explore(check, kinds, past=past)
