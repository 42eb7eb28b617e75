"""What people without torch, or without a model, are told."""

import sys

import pytest

from chunkscope.errors import MissingError
from chunkscope.reference.models import load_model, load_torch


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match="chunkscope demo") as raised:
        load_torch("chunkscope demo")
    assert "chunkscope[torch]" in raised.value.hint


@pytest.mark.real
def test_a_folder_without_a_config_or_weights_is_no_model(tmp_path) -> None:
    pytest.importorskip("torch")
    for name in ("nothing", "config.json"):
        (tmp_path / name).touch()
        with pytest.raises(MissingError, match=str(tmp_path)):
            load_model(str(tmp_path))
