"""Tokenizers of real models, compiled once per session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from chunkscope.tokenizers import compiler, conformance
from chunkscope.tokenizers.compiled import Compiled
from chunkscope.tokenizers.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def compiled(shared: Path) -> Callable[[str], Compiled]:
    """By folder name, or "default" for the embedded one."""

    @cache
    def ready(name: str) -> Compiled:
        place = None if name == "default" else str(shared / "tokenizers" / name)
        return Tokenizer(place).compiled

    return ready


@pytest.fixture
def fewer_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tokenizers made for one test: a part of the conformance strings is enough."""
    every = conformance.texts_for
    always = ["the answer is 12345"] * 4  # every fourth string is shown to AutoTokenizer

    def fewer(compiled: Compiled) -> list[str]:
        return [*every(compiled)[::40], *always]

    for module in (compiler, conformance):
        monkeypatch.setattr(module, "texts_for", fewer)
