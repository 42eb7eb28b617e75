"""`chunkscope demo`."""

from dataclasses import replace
from typing import Annotated

from chunkscope import console
from chunkscope.commands.options import (
    INPUT,
    REPORTS,
    SETTING,
    Details,
    Json,
    Out,
    Quiet,
    option,
)
from chunkscope.commands.printing import command_line, say_written, show


def demo(
    long: Annotated[
        int,
        option(
            INPUT,
            "Tokens of the two long prompts. [default: 3072]",
            "--long",
            metavar="N",
            min=1,
        ),
    ] = 3_072,
    chunk: Annotated[
        str,
        option(
            SETTING,
            "Tokens of one prompt per step, such as 32,512,none. [default: none,256]",
            "--chunk",
            metavar="SIZES",
        ),
    ] = "none,256",
    details: Details = False,
    json: Json = False,
    quiet: Quiet = False,
    out: Out = REPORTS / "demo" / "verify.json",
) -> None:
    """Show chunked prefill on this machine, with a small random model.

    Answers the same requests with chunks and without, and compares times, memory and
    answers.

    Example: chunkscope demo --chunk 32,128,512,none
    """
    from chunkscope.reference.demo import demo as demonstrate

    answering = say_nothing if quiet else say_setting
    demonstration = demonstrate(long=long, chunk=chunk, answering=answering)
    measured = replace(demonstration.measured, command=console.command())
    measured.save(out)
    if json:
        show(measured, json=True)
    else:
        show(demonstration, details=details)
    say_written(out, then=command_line("report", out.parent))


def say_setting(name: str) -> None:
    console.say(f"answering {name}")


def say_nothing(name: str) -> None:
    """What --quiet says of a setting that begins."""
