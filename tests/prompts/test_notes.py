"""What prompts and lengths note has a sentence, in the singular for one."""

import re
from pathlib import Path

import chunkscope
from chunkscope.report.words.data import SENTENCES

PACKAGE = Path(chunkscope.__file__).parent


def test_every_note_has_words() -> None:
    files = [*PACKAGE.glob("prompts/**/*.py"), *PACKAGE.glob("lengths/*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    codes = {*re.findall(r'\bnote\(\s*"(\w+)"', text)}
    assert len(codes) > 15
    assert codes <= SENTENCES.keys()
