"""Artefacts: read back as written, refused when changed, or when they are others."""

import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

import chunkscope
from chunkscope.artefacts.artefact import INCIDENTAL, Artefact
from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.hardware.calibration import Calibration
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.rule import decide
from chunkscope.report.page import render
from chunkscope.verification.result import Verification
from chunkscope.vllm.enums import Mode
from tests.build import run, verification
from tests.commands.helpers import chunkscope as command
from tests.commands.helpers import write_jsonl
from tests.conftest import REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str = field(default="", metadata=INCIDENTAL)
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Basket(Artefact):
    schema: ClassVar = "chunkscope/basket/2"
    made_by: ClassVar = "chunkscope shop"

    parts: tuple[Part, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    created: str = ""
    version: str = "0.1.0"

    def figures(self) -> dict[str, Any]:
        return {"items": len(self.counts)}


BASKET = Basket(
    parts=(Part(name="a", share=3.0), Part()), counts={"apples": 3}, created="today"
)


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    BASKET.save(tmp_path / "basket.json")
    again = Basket.load(tmp_path / "basket.json")
    assert again == BASKET
    assert again.digest() == BASKET.digest()
    assert BASKET.to_json()["figures"] == {"items": 1}


def test_the_digest_is_that_of_the_content() -> None:
    digest = BASKET.digest()
    assert replace(BASKET, created="later", version="9").digest() == digest
    assert (
        replace(BASKET, parts=(Part(name="b", share=3), Part())).digest() == digest
    ), "incidental"
    assert replace(BASKET, counts={"apples": 4}).digest() != digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            lambda d: d["counts"].update(apples=4), "", id="a number edited by hand"
        ),
        pytest.param(
            lambda d: d["figures"].update(items=4), "", id="a figure edited by hand"
        ),
        pytest.param(lambda d: d.pop("sha256"), "", id="no checksum"),
        pytest.param(
            lambda d: d.update(schema="chunkscope/basket/1"), "", id="an older schema"
        ),
        pytest.param(
            lambda d: d.update(schema="plan/7"), "is plan/7, not", id="another artefact"
        ),
        pytest.param(lambda d: d.update(schema=None), "", id="no artefact"),
        *(
            (b"", ""),
            (b"[]", ""),
            (b"null", ""),
            (b"\xff", ""),
            (b'{"schema": "chunk', "cut off"),
        ),
    ],
)
def test_a_changed_torn_or_foreign_file_is_refused_by_name(
    change, said, tmp_path
) -> None:
    document, path = BASKET.to_json(), tmp_path / "basket.json"
    if not isinstance(change, bytes):
        change(document)
    path.write_bytes(change if isinstance(change, bytes) else orjson.dumps(document))
    with pytest.raises(InputError, match=rf"basket\.json.*{said}") as raised:
        Basket.load(path)
    assert "chunkscope shop" in (raised.value.hint or "")


def test_values_of_another_type_are_refused_even_under_a_right_checksum(
    tmp_path: Path,
) -> None:
    Basket(counts={"apples": "many"}).save(tmp_path / "basket.json")  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"basket\.json.*counts"):
        Basket.load(tmp_path / "basket.json")


# -- made again from the same input ---------------------------------------------------


def test_making_it_again_changes_no_identity_and_disowns_no_measurement(
    tmp_path: Path,
) -> None:
    questions = (f"How much is {n} plus {n * n}? " * (1 + n % 7) for n in range(50))
    write_jsonl(tmp_path / "a.jsonl", ({"prompt": question} for question in questions))
    recommend = partial(
        command, tmp_path, "recommend", "--model", "qwen2.5-1.5b", "--gpu", "l4"
    )
    gate = partial(command, tmp_path, "gate")
    assert (command(tmp_path, "analyze", "a.jsonl").code, recommend().code) == (0, 0)
    file, plan_file = tmp_path / "reports/profile.json", tmp_path / "reports/plan.json"
    profile, plan = Profile.load(file), Plan.load(plan_file)
    verification(run("plan"), plan_digest=plan.digest()).save(
        tmp_path / "reports/verify.json"
    )
    assert (gate("--init").code, gate().code) == (0, 0)
    assert "verification = true" in (tmp_path / "chunkscope.toml").read_text()
    assert command(tmp_path, "analyze", "./a.jsonl").code == 0
    assert (Profile.load(file).digest(), gate().code) == (profile.digest(), 0)
    assert recommend().code == 0
    assert (Plan.load(plan_file).digest(), gate().code) == (plan.digest(), 0)
    file.write_text(file.read_text().replace('"chars": ', '"chars": 1', 1))
    assert gate().code == 3, "edited by hand"


# -- those that are committed ---------------------------------------------------------


REPORTS = REPOSITORY / "reports"
EXAMPLE, H200 = REPORTS / "example", REPORTS / "h200"
KINDS: dict[str, type[Artefact]] = {
    kind.schema: kind for kind in (Profile, Plan, Verification, Calibration)
}
# Those of a newcomer, who tries the commands here, stand beside these folders.
COMMITTED = sorted(
    {*REPORTS.glob("*/**/*.json")}
    - {*REPORTS.glob("example/lm_eval/*")}
    - {*REPORTS.glob("**/config.json")}  # of a model
)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: str(p.relative_to(REPORTS)))
def test_a_committed_artefact_is_written_as_it_was_read(
    path: Path, tmp_path: Path
) -> None:
    data = path.read_bytes()
    artefact = KINDS[orjson.loads(data)["schema"]].load(path)
    assert artefact.save(tmp_path / "again.json") == data


MEASURED = H200 / "llama-3.1-8b-long"
AGAIN = "run `python tests/make_examples.py`"


def test_the_example_profile_is_the_sample_datas_and_shows_all_three_modes() -> None:
    example = chunkscope.Profile.load(EXAMPLE / "profile.json")
    today = chunkscope.analyze(str(REPOSITORY / "sample_data"))
    assert {d.name: d.lengths for d in example.datasets} == {
        d.name: d.lengths for d in today.datasets
    }
    assert (today.overall.count, today.skipped, today.failures) == (850, 0, ())
    assert {decide(dataset.lengths).mode for dataset in today.datasets} == {*Mode}


def test_the_example_plan_follows_from_the_example_profile() -> None:
    profile = chunkscope.Profile.load(EXAMPLE / "profile.json")
    plan = chunkscope.recommend(
        profile, model="llama-3.1-8b", gpu="h200", vllm_version="0.32.0"
    )
    assert (
        chunkscope.Plan.load(EXAMPLE / "plan.json").settings.given()
        == plan.settings.given()
    )


@pytest.mark.parametrize(("folder", "picture"), [(EXAMPLE, EXAMPLE), (MEASURED, H200)])
def test_a_report_shows_the_results_beside_it(folder: Path, picture: Path) -> None:
    made = (folder / "report.html").read_bytes()
    assert made == render(load_findings(folder)), AGAIN
    assert len(made) < 1_000_000
    assert (picture / "report.png").stat().st_size < 250_000


def test_the_examples_name_no_place_on_a_machine() -> None:
    files = (path for path in EXAMPLE.rglob("*") if path.is_file())
    for path in (*files, MEASURED / "report.html", H200 / "report.png"):
        assert os.fsencode(Path.home()) not in path.read_bytes()
        assert os.fsencode(REPOSITORY) not in path.read_bytes()
