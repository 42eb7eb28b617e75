"""What people without torch are told."""

import sys

import pytest

from chunkscope.errors import MissingError
from chunkscope.reference.libraries import load_torch


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match="chunkscope demo needs torch") as missing:
        load_torch("chunkscope demo")
    assert missing.value.hint == "pip install 'chunkscope[torch]'"
    assert missing.value.exit_code == 4
