"""How many of chunkscope's own files and functions a command enters.

    python -m tests.benchmarks.count_entered            # the table
    python -m tests.benchmarks.count_entered recommend  # and their names

Counted with sys.setprofile over a whole command, from `main` to its end, in its main
thread. A reader of the command has to follow that many.
"""

import io
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import chunkscope

PACKAGE = str(Path(chunkscope.__file__).parent)
COMMANDS = {
    "analyze": "analyze one.jsonl",
    "recommend": "recommend --model qwen2.5-1.5b --gpu l4",
}
AIMS = {"analyze": (30, 130), "recommend": (40, 250)}


def entered(words: list[str]) -> set[tuple[str, str]]:
    """The file and the name of every function of chunkscope that is entered."""
    functions = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Bodies of modules and classes, which run once when they are loaded, are none.
        is_function = code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<"
        if event == "call" and is_function and code.co_filename.startswith(PACKAGE):
            functions.add((code.co_filename, code.co_qualname))

    from chunkscope.cli import main

    sys.argv = ["chunkscope", *words]
    sys.setprofile(note)
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.setprofile(None)
    return functions


def main() -> None:
    listed = sys.argv[1:]
    found = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("one.jsonl").write_text('{"prompt": "How far is it?"}\n')
        for name, line in COMMANDS.items():
            silent = io.TextIOWrapper(io.BytesIO())
            with redirect_stdout(silent), redirect_stderr(io.StringIO()):
                found[name] = entered(line.split())
    print("command    files (aim)  functions (aim)")
    for name, functions in found.items():
        files = {file for file, _ in functions}
        most_files, most_functions = AIMS[name]
        print(
            f"{name:10} {len(files):5} ({most_files:3})  "
            f"{len(functions):9} ({most_functions:3})"
        )
    for name in listed:
        for file, function in sorted(found[name]):
            print(f"{file.removeprefix(PACKAGE)}: {function}")


if __name__ == "__main__":
    main()
