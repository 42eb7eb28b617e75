"""`chunkscope demo`."""

from dataclasses import replace
from typing import Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import options
from chunkscope.errors import UsageError

DEMO = shared.REPORTS / "demo" / "verify.json"
MOST_DIGITS = 9  # of a chunk: no prompt is longer


OPTIONS = options("""
Input:
  --model -m NAME  Folder of a transformers model. [default: a small random one]
  --long N         Tokens of the two long prompts. [default: 3072]
  --seed SEED      Random seed. [default: 0]
Setting:
  --chunk SIZES    Tokens of one prompt per step, such as 32,512,none. [default: none,256]
""")


def demo(
    model: Annotated[str | None, OPTIONS["model"]] = None,
    chunk: Annotated[str, OPTIONS["chunk"]] = "none,256",
    long: Annotated[int, OPTIONS["long"]] = 3_072,
    seed: Annotated[int, OPTIONS["seed"]] = 0,
    details: shared.Details = False,
    as_json: shared.Json = False,
    quiet: shared.Quiet = False,
    output: shared.Output = DEMO,
) -> None:
    """Show chunked prefill on this machine, with a real model.

    Answers the same requests with chunks and without, and compares times, memory and answers.

    Example: chunkscope demo --chunk 32,128,512,none
    """
    from chunkscope.reference.demo import DemoOptions, demonstrate

    chosen = DemoOptions(model=model, chunks=_sizes(chunk), long_tokens=long, seed=seed)
    demonstration = demonstrate(
        chosen, lambda name: None if quiet else console.say(f"answering {name}")
    )
    measured = replace(demonstration.measured, command=console.command())
    measured.save(output)
    shown = measured if as_json else demonstration
    shared.show(shown, as_json=as_json, details=details)
    is_usual = output.name == DEMO.name
    after = (
        f"chunkscope report{shared.quoted(output.parent)}" if is_usual else "chunkscope simulate"
    )
    console.say(f"\nwrote {output}; next: {after}")


def _sizes(text: str) -> tuple[int | None, ...]:
    """In the order given, each once; `none` computes each prompt in one step."""
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
