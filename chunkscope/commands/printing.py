"""What commands print: the answer on stdout, and what to do next on stderr."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chunkscope import console
from chunkscope.artefacts.note import Note
from chunkscope.errors import UsageError


def show(
    result: Any, *, details: bool = False, json: bool = False, form: str | None = None
) -> None:
    """Print a result: as JSON, as Markdown, or for a terminal."""
    if json:
        from chunkscope.artefacts.artefact import PRETTY, dumped

        console.emit(dumped(result.to_json(), PRETTY))
    elif form == "md":
        from chunkscope.report.markdown import markdown
        from chunkscope.report.show import blocks

        console.emit(markdown(blocks(result)).encode())
    else:
        from chunkscope.report import terminal
        from chunkscope.report.show import blocks

        shown = blocks(result)
        console.show(lambda out: terminal.show(shown, out, details=details))


def check_format(form: str | None, *, json: bool) -> None:
    if json and form not in (None, "text"):
        raise UsageError(
            "--json and --format cannot be used together", hint="use one of them"
        )


def say_note(note: Note) -> None:
    """Say on stderr what a part below noticed, such as a file that was skipped."""
    from chunkscope.report.notes import sentence

    console.say(sentence(note))


def say_written(file: Path, *, then: str = "") -> None:
    """Say what was written, and the command that usually comes next."""
    if then:
        console.say(f"\nwrote {file}; next: {then}")
    else:
        console.say(f"\nwrote {file}")


def command_line(*words: object) -> str:
    """A command that a shell takes, such as "chunkscope recommend 'my file.json'"."""
    return shlex.join(["chunkscope", *(str(word) for word in words)])


def unless_usual(file: Path, usual: Path) -> list[Path]:
    """The file as an argument of the next command, which has the usual by default."""
    return [] if file == usual else [file]


def show_list(
    name: str,
    documents: Sequence[Mapping[str, object]],
    headings: Sequence[str],
    rows: Sequence[Sequence[str | float | None]],
    *,
    json: bool,
) -> None:
    """Print what is known by name: a table, or as JSON {name: documents}."""
    if json:
        from chunkscope.artefacts.artefact import PRETTY, dumped

        console.emit(dumped({name: documents}, PRETTY))
        return
    from chunkscope.report import terminal
    from chunkscope.report.blocks import table

    listed = table(headings, rows, words=headings[:2])
    console.show(lambda out: terminal.draw([listed], out))
