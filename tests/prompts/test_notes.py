"""What prompts and lengths note has a sentence, in the singular for one."""

import re
from pathlib import Path

import pytest

import chunkscope
from chunkscope.artefacts.note import note
from chunkscope.report.words import sentence
from chunkscope.report.words.data import SENTENCES

PACKAGE = Path(chunkscope.__file__).parent


@pytest.mark.parametrize("code", ["media_rows", "tools_ignored", "media_requests", "helm_cached"])
def test_one_is_singular(code: str) -> None:
    """It was "1 rows hold images"."""
    assert re.search(r"\b1 (row|request)\b", sentence(note(code, count=1)))


def test_every_note_has_words() -> None:
    files = [*PACKAGE.glob("prompts/**/*.py"), *PACKAGE.glob("lengths/*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    codes = {*re.findall(r'\bnote\(\s*"(\w+)"', text)}
    assert len(codes) > 15
    assert codes <= SENTENCES.keys()
