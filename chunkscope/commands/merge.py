"""`chunkscope merge`."""

from pathlib import Path
from typing import Annotated

import typer

from chunkscope import console
from chunkscope.commands.analyze import end, show_notes
from chunkscope.commands.options import PROFILE, Output


def merge(
    parts: Annotated[
        list[Path],
        typer.Argument(metavar="PART...", help="Every part that `analyze --shard` wrote."),
    ],
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Exit 0 in spite of bad rows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
    output: Output = PROFILE,
) -> None:
    """Join the parts of `analyze --shard` into one profile.

    It is the same as if one machine had counted everything.

    Example: chunkscope merge reports/part-*.json
    """
    from chunkscope.artefacts.codec import dump
    from chunkscope.lengths.parts import ProfilePart, merged
    from chunkscope.report.terminal.profile import show_profile

    profile = merged([ProfilePart.load(part) for part in parts], [str(part) for part in parts])
    profile.save(output)
    if as_json:
        console.emit(dump(profile.to_json()))
    else:
        console.show(lambda out: show_profile(profile, out, longest=0))
    show_notes(profile)
    end(profile, output, skip_bad_rows=skip_bad_rows)
