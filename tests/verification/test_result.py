"""verify.json: written, read back equal, refused when it is damaged."""

import json

import pytest

from chunkscope.errors import InputError
from chunkscope.verification.result import Predicted, Verification
from chunkscope.vllm.log.fate import Status
from tests.build import failed, run, verification

MADE = verification(
    run("plan", 10.0, 9.0, same_as=("default",), kv_cache_tokens=1_000, kv_concurrency=3.5,
        predicted=Predicted(weights_gib=1, activation_gib=0.5, kv_cache_tokens=900, note="n")),
    failed("off"),
    verdict="Keep the plan.", plan_digest="abc", command=("chunkscope", "verify"),
    options={"enforce_eager": True},
)  # fmt: skip


def test_what_is_written_is_read_back_equal(tmp_path) -> None:
    MADE.save(tmp_path / "verify.json")
    assert Verification.load(tmp_path / "verify.json") == MADE


def test_the_figures_people_look_for_are_at_hand() -> None:
    first, second = json.loads(json.dumps(MADE.to_json()))["runs"]
    assert first["status"] == "ok"
    assert first["activation_peak_gib"] == 0.5
    assert first["device_peak_gib"] == 120.0
    assert first["ttft_s"] == {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0,
                               "short": {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0},
                               "long": None}  # fmt: skip
    assert first["spread"]["makespan_s"] == {"min": 9.0, "max": 10.0, "median": 9.5}
    assert second["status"] == "out_of_memory"
    assert second["makespan_s"] is None


def test_the_workload_can_be_sent_again() -> None:
    workload = MADE.to_json()["workload"]
    assert workload["prompt_tokens"] == [100, 5_000]
    assert workload["arrival_s"] == [0.0, 0.5]
    assert workload["requests"] == 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["runs", 0, "status"], "fine"),
        (["runs", 0, "makespan_s"], "long"),
        (["workload", "prompt_tokens"], [1]),
        (["machine"], {"device": 3}),
        (["more"], 1),
    ],
)
def test_a_damaged_file_is_refused(path, value) -> None:
    document = json.loads(json.dumps(MADE.to_json()))
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(InputError, match="the verify file is damaged"):
        Verification.from_json(document)


def test_a_row_made_anew_takes_the_place_of_the_old_one() -> None:
    again = MADE.with_run(run("off", 5.0))
    assert [(r.setting, r.status) for r in again.runs] == [("plan", Status.OK), ("off", Status.OK)]


def test_a_row_is_found_by_each_of_its_names() -> None:
    assert MADE.run("default") is MADE.runs[0]
    assert MADE.run("nothing") is None


def test_only_what_would_happen_again_is_final() -> None:
    final = {status for status in Status if status.is_final}
    assert final == {Status.OK, Status.OUT_OF_MEMORY, Status.REFUSED}
