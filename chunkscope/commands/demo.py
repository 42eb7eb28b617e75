"""`chunkscope demo`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.errors import UsageError
from chunkscope.vllm.choices import ChunkPolicy

DEMO = shared.REPORTS / "demo" / "verify.json"
MOST_DIGITS = 9  # of a chunk: no prompt is longer


def demo(
    model: Annotated[
        str | None,
        shared.model_option("Folder of a transformers model. [default: a small random one]"),
    ] = None,
    chunk: Annotated[
        str,
        typer.Option(metavar="SIZES", help="Tokens of one prompt in a step, such as 32,512,none."),
    ] = "none,256",
    policy: Annotated[
        ChunkPolicy, typer.Option(help="How prompts are cut, as in `simulate`.")
    ] = ChunkPolicy.VLLM,
    long: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tokens of each of the two long prompts.")
    ] = 3_072,
    timeline: Annotated[
        int, typer.Option(metavar="N", min=0, help="Show the first N steps of each.")
    ] = 3,
    seed: shared.Seed = 0,
    as_json: shared.Json = False,
    quiet: shared.Quiet = False,
    output: shared.Output = DEMO,
) -> None:
    """Show chunked prefill on this machine, with a real model.

    With chunks and without, and that the answers are the same.

    Example: chunkscope demo --chunk 32,128,512,none
    """
    from chunkscope.reference.demo import DemoOptions, demonstrate

    asked = DemoOptions(
        model=model, chunks=_sizes(chunk), policy=policy, long_tokens=long, seed=seed
    )
    found = demonstrate(asked, lambda name: None if quiet else console.say(f"answering {name}"))
    measured = replace(found.measured, command=console.command())
    measured.save(output)
    if as_json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(measured.to_json()))
    else:
        from chunkscope.report.terminal.demo import show_demo

        console.show(lambda out: show_demo(found, timeline, out))
    console.say(f"\nwrote {output}; next: {_next(output)}")


def _sizes(text: str) -> tuple[int | None, ...]:
    """In the order given, each once; `none` reads prompts whole."""
    return tuple(dict.fromkeys(_size(word.strip()) for word in text.split(",")))


def _size(word: str) -> int | None:
    if word == "none":
        return None
    if not word.isdecimal() or len(word) > MOST_DIGITS or int(word) < 1:
        raise UsageError(
            f"--chunk {word!r} is no number of tokens",
            hint="write sizes of at least 1, or none: `--chunk 32,128,512,none`",
        )
    return int(word)


def _next(output: Path) -> str:
    if output.name != DEMO.name:
        return "chunkscope simulate"
    return shlex.join(["chunkscope", "report", str(output.parent)])
