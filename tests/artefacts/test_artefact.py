"""Artefacts: read back as they were written, refused when they were changed or are others."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from chunkscope.artefacts.artefact import INCIDENTAL, Artefact
from chunkscope.errors import InputError


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


BASKET = Basket(parts=(Part(name="a", share=3.0), Part()), counts={"apples": 3}, created="today")


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    BASKET.save(tmp_path / "basket.json")
    again = Basket.load(tmp_path / "basket.json")
    assert again == BASKET
    assert again.digest() == BASKET.digest()
    assert BASKET.to_json()["figures"] == {"items": 1}


def test_the_digest_is_that_of_the_content() -> None:
    digest = BASKET.digest()
    assert replace(BASKET, created="later", version="9").digest() == digest
    assert replace(BASKET, parts=(Part(name="b", share=3), Part())).digest() == digest, "incidental"
    assert replace(BASKET, counts={"apples": 4}).digest() != digest


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d["counts"].update(apples=4), id="a number edited by hand"),
        pytest.param(lambda d: d["figures"].update(items=4), id="a figure edited by hand"),
        pytest.param(lambda d: d.pop("sha256"), id="no checksum"),
        pytest.param(lambda d: d.update(schema="chunkscope/basket/1"), id="an older schema"),
        pytest.param(lambda d: d.update(schema="chunkscope/plan/2"), id="another artefact"),
        pytest.param(lambda d: d.update(schema=None), id="no artefact"),
        *(b"", b"[]", b"null", b"\xff", b'{"schema": "chunk'),
    ],
)
def test_a_changed_torn_or_foreign_file_is_refused_by_name(change: Any, tmp_path: Path) -> None:
    document, path = BASKET.to_json(), tmp_path / "basket.json"
    if not isinstance(change, bytes):
        change(document)
    path.write_bytes(change if isinstance(change, bytes) else orjson.dumps(document))
    with pytest.raises(InputError, match=r"basket\.json") as raised:
        Basket.load(path)
    assert "chunkscope shop" in (raised.value.hint or "")


def test_what_a_file_is_instead_of_a_result_is_said(tmp_path: Path) -> None:
    path = tmp_path / "basket.json"
    data = BASKET.save(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="cut off"):
        Basket.load(path)
    path.write_bytes(data.replace(b"basket/2", b"plan/7"))
    with pytest.raises(InputError, match="is chunkscope/plan/7, not chunkscope/basket/2"):
        Basket.load(path)


def test_values_of_another_type_are_refused_even_under_a_right_checksum(tmp_path: Path) -> None:
    Basket(counts={"apples": "many"}).save(tmp_path / "basket.json")  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"basket\.json.*counts"):
        Basket.load(tmp_path / "basket.json")
