"""The way of one prompt from its file to its number: how much of the package a reader passes."""

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import chunkscope

PACKAGE = Path(chunkscope.__file__).parent
MOST_FILES, MOST_FUNCTIONS = 30, 130
_OPTIMIZED = 1  # the flag of a function's code; that of a class body lacks it


def test_one_line_passes_few_files_and_functions(tmp_path: Path) -> None:
    lines = [tmp_path / f"{name}.jsonl" for name in "ab"]
    for line in lines:
        line.write_text(f'{{"question": "What is two and two?", "answer": "{line.stem}"}}\n')
    chunkscope.analyze(lines[0])  # whatever happens once has happened
    entered: set[CodeType] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(str(PACKAGE)) and code.co_flags & _OPTIMIZED
        if event == "call" and is_ours and "<" not in code.co_name:
            entered.add(code)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        chunkscope.analyze(lines[1])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert len({code.co_filename for code in entered}) <= MOST_FILES
    assert len(entered) <= MOST_FUNCTIONS
