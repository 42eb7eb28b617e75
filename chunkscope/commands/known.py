"""Small commands: `prefixes`, `memory`, `demo`, `models`, `gpus`, `help`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    PROFILE,
    REPORTS,
    Given,
    command,
    pages,
    quoted,
    refuse_data,
    settled,
    show,
)
from chunkscope.errors import InputError, UsageError

Cell = Callable[[dict[str, Any]], str]  # what a row has in a column
DEMO = REPORTS / "demo" / "verify.json"


@command("""
Arguments:
  [PROFILE]    From `chunkscope analyze`.
Input:
  --plan FILE  From `chunkscope recommend`: its KV cache. [default: beside the profile]
Output:
  --details --json
""")
def prefixes(given: Given) -> None:
    """How much of the prompts vLLM's prefix cache can serve.

    Example: chunkscope prefixes
    """
    from chunkscope.report.reuse import plan_for

    profile = given.profile or PROFILE
    refuse_data((profile,), "profile", "chunkscope prefixes")
    show(api.prefixes(profile, given.plan or plan_for(profile)), given)


@command("""
Machine:
  --model --gpu --tp --dp --ep --kv-cache-dtype --vllm-version --entry
Setting:
  --max-num-batched-tokens N        [default: vLLM's]
  --max-num-seqs N                  [default: vLLM's]
  --max-model-len N                 [default: the model's context]
  --long-prefill-token-threshold N  [default: none]
  --gpu-memory-utilization SHARE    [default: vLLM's]
Workload:
  --task
Output:
  --details --json
""")
def memory(given: Given) -> None:
    """Where every GiB of a GPU goes, and how many requests fit. Needs no data.

    Example: chunkscope memory --model qwen3-8b --gpu h100
    """
    from chunkscope.vllm.footprint import memory as run

    if given.model is None:
        raise UsageError("--model is missing", hint="`chunkscope models` lists those known by name")
    show(run(**settled("memory", {}, given)), given)


@command("""
Input:
  --model -m NAME  Folder of a transformers model. [default: a small random one]
  --long N         Tokens of the two long prompts. [default: 3072]
  --seed SEED      Random seed. [default: 0]
Setting:
  --chunk SIZES    Tokens of one prompt per step, such as 32,512,none. [default: none,256]
Output:
  --details --json --quiet --output
""")
def demo(given: Given) -> None:
    """Show chunked prefill on this machine, with a real model.

    Answers the same requests with chunks and without, and compares times, memory and answers.

    Example: chunkscope demo --chunk 32,128,512,none
    """
    output = given.output or DEMO
    demonstration = api.demo(
        answering=lambda name: None if given.quiet else console.say(f"answering {name}"),
        **settled("demo", {}, given),
    )
    measured = replace(demonstration.measured, command=console.command())
    measured.save(output)
    show(measured if given.json else demonstration, given)
    is_usual = output.name == DEMO.name
    after = f"chunkscope report{quoted(output.parent)}" if is_usual else "chunkscope simulate"
    console.say(f"\nwrote {output}; next: {after}")


@command("""
Arguments:
  [PART]  Only names that contain it.
Output:
  --json
""")
def models(given: Given) -> None:
    """List the models known by name. Others: a folder with a config.json, or a hub id.

    Example: chunkscope models qwen3
    """
    from chunkscope.models.find import MODELS, built_in

    rows = [
        {
            "name": name,
            "hub_ids": list(model.hub_ids),
            "parameters": shape.parameters.total,
            "context": shape.limit,
        }
        for name, model in MODELS.items()
        if (shape := built_in(name)) is not None
    ]
    columns: dict[str, Cell] = {
        "name": itemgetter("name"),
        "on the hub": lambda row: row["hub_ids"][0],
        "parameters": lambda row: f"{row['parameters'] / 1e9:,.1f}B",
        "context": lambda row: f"{row['context']:,}" if row["context"] else "-",
    }
    _list("models", rows, columns, given)


@command("""
Arguments:
  [PART]  Only names that contain it.
Output:
  --json
""")
def gpus(given: Given) -> None:
    """List the GPUs known by name. Others: --gpu 80GiB.

    Example: chunkscope gpus h
    """
    from chunkscope.hardware.gpus import ALIASES, CARDS

    figures = {"memory_gib": "GiB", "bandwidth_gb_s": "GB/s", "dense_tflops": "dense TFLOPS"}
    rows = [
        {
            "name": card.name,
            "title": card.title,
            "also": [alias for alias, name in ALIASES.items() if name == card.name],
            **{name: getattr(card, name) for name in figures},
        }
        for card in CARDS
    ]
    columns: dict[str, Cell] = {"name": itemgetter("name"), "GPU": itemgetter("title")}
    columns |= {heading: _figure(name) for name, heading in figures.items()}
    _list("gpus", rows, columns, given)


def _figure(name: str) -> Cell:
    return lambda row: "-" if row[name] is None else f"{row[name]:,.1f}".removesuffix(".0")


def _list(
    what: str, rows: Sequence[dict[str, Any]], columns: dict[str, Cell], given: Given
) -> None:
    part = (given.part or "").lower()
    names = ("name", "title", "hub_ids")
    rows = [row for row in rows if part in " ".join(str(row.get(n)) for n in names).lower()]
    if not rows:
        raise InputError(
            f"no known name contains {given.part!r}", hint=f"`chunkscope {what}` lists all of them"
        )
    if given.json:
        from chunkscope.artefacts.codec import dump

        return console.emit(dump({what: rows}))
    from chunkscope.report import terminal
    from chunkscope.report.section import Column, Section, Table

    heads = tuple(Column(heading=head, right=at > 1) for at, head in enumerate(columns))
    cells = tuple([cell(row) for cell in columns.values()] for row in rows)
    table = Table(columns=heads, rows=cells)
    return console.show(lambda out: terminal.draw([Section(table=table)], out))


@command("""
Arguments:
  [PAGE]  A command, `config`, `formats`, `python` or `security`.
""")
def show_help(given: Given) -> None:
    """Show a page of the manual.

    Example: chunkscope help recommend
    """
    if given.page is None:
        titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in pages().values()]
        named = [title.removeprefix("# ").split(": ") for title in titles]
        lines = [f"chunkscope help {name:<9}  {about}\n" for name, about in named]
        console.emit("".join(lines).encode())
    elif given.page in pages():
        console.emit(pages()[given.page].read_bytes())
    else:
        raise UsageError(f"there is no page {given.page}", hint=f"one of {', '.join(pages())}")
