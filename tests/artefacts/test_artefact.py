"""Artefacts of every kind: read back as they were written, refused when they were changed."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkscope.artefacts import codec
from chunkscope.artefacts.artefact import Artefact
from chunkscope.errors import InputError
from chunkscope.hardware.calibration import Calibration, StepSamples
from chunkscope.hardware.step_time import ModelWork
from tests.report import examples
from tests.verification.runs import failed, run, verification

CALIBRATION = Calibration(
    gpu="NVIDIA H200",
    gpu_memory_gib=139.8,
    device="cuda",
    model=ModelWork(
        name="m",
        hub_id=None,
        weight_bytes=2,
        active_parameters=1,
        kv_bytes_per_token=1,
        pair_flops=0,
        read_bytes=2,
    ),
    tp=1,
    vllm="0.24.0",
    torch=None,
    eager=False,
    async_scheduling=True,
    method="events",
    steps=StepSamples(
        setting=("plan",),
        prefill_tokens=(1,),
        prefill_pairs=(1,),
        prefill_requests=(1,),
        decode_requests=(0,),
        decode_context_tokens=(0,),
        duration_s=(0.5,),
    ),
    version="0.1.0",
)
MADE: dict[str, Artefact] = {
    "profile": examples.profile(),
    "simulation": examples.simulation(command=("chunkscope", "simulate")),
    "verify": verification(run("plan", 10.0, 9.0), failed("off")),
    "calibration": CALIBRATION,
}
# What these hold is another program's, and any value will do.
FREE = {"options", "engine", "args"}
# Of a dataset, what need not have been measured, and what later versions say of it.
DATASET = ("datasets", 0)
LEFT_OUT = {
    (*DATASET, "prefixes"),
    (*DATASET, "sharing"),
    *((*DATASET, "prefixes", name) for name in ("running", "output_tokens", "beginnings")),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, of a list only the first."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inside = list(enumerate(value))[:1]
    for key, item in inside:
        if key not in FREE:
            yield from places(item, (*path, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    place = whole = copy.deepcopy(document)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return whole


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_what_is_written_is_read_back_equal(made: Artefact, tmp_path: Path) -> None:
    made.save(tmp_path / "made.json")
    found = type(made).load(tmp_path / "made.json")
    assert found.to_json() == made.to_json()
    assert found.digest() == made.digest()


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_value_of_another_type_is_found(made: Artefact) -> None:
    document = made.to_json()
    for path in places(document):
        with pytest.raises(InputError, match=f"^the {made.title} is damaged: ") as raised:
            type(made).from_json(changed(document, path, {"strange": [1.5]}))
        assert raised.value.hint == f"make it again: `{made.made_by}`"


@pytest.mark.parametrize("value", ["strange", -1.5, None, []], ids=repr)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_strange_value_is_found_or_kept(made: Artefact, value: Any) -> None:
    document = made.to_json()
    for path in places(document):
        if path[-1] == "failure" and value:
            continue  # it is counted, too: see Profile.added_later
        strange = changed(document, path, value)
        with contextlib.suppress(InputError):
            assert type(made).from_json(strange).to_json() == strange


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_field_too_many_or_too_few_is_found(made: Artefact) -> None:
    document = made.to_json()
    for path in places(document):
        if not isinstance(path[-1], str):
            continue
        with pytest.raises(InputError, match="damaged"):
            type(made).from_json(changed(document, (*path[:-1], "more"), 1))
        if path[-1] in made.added_later or path in LEFT_OUT:
            continue
        less = copy.deepcopy(document)
        place: Any = less
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]
        with pytest.raises(InputError, match="damaged"):
            type(made).from_json(less)


def test_a_file_is_named_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    codec.write_atomically(path, codec.dump({**CALIBRATION.to_json(), "tp": 0}))
    with pytest.raises(InputError, match=r"calibration\.json is damaged: tp: .* greater than 0"):
        Calibration.load(path)
