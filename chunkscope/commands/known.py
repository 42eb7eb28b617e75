"""Small commands: `prefixes`, `memory`, `demo`, `models`, `gpus`, `help`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import INPUT, PROFILE, REPORTS, SETTING, argument
from chunkscope.errors import InputError, UsageError

Cell = Callable[[dict[str, Any]], str]  # what a row has in a column
PartArg = Annotated[str, argument("[PART]", "Only names that contain it.")]


def prefixes(
    profile: Annotated[Path, argument("[PROFILE]", "From `chunkscope analyze`.")] = PROFILE,
    details: opt.Details = False,
    json: opt.Json = False,
) -> None:
    """How much of the prompts vLLM's prefix cache can serve.

    Example: chunkscope prefixes
    """
    opt.refuse_data((profile,), "profile", "chunkscope prefixes")
    opt.show(api.prefixes(profile), details=details, json=json)


def memory(
    model: opt.Model = None,
    gpu: opt.Gpu = None,
    tp: opt.Tp = None,
    dp: opt.Dp = None,
    ep: opt.Ep = False,
    kv_cache_dtype: opt.KvCache = None,
    vllm_version: opt.VllmVersion = None,
    entry: opt.EntryPoint = None,
    max_num_batched_tokens: Annotated[int | None, SETTING("[default: vLLM's]", "N", min=1)] = None,
    max_num_seqs: Annotated[int | None, SETTING("[default: vLLM's]", "N", min=1)] = None,
    max_model_len: Annotated[
        int | None, SETTING("[default: the model's context]", "N", min=1)
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None, SETTING("[default: none]", "N", min=0)
    ] = None,
    gpu_memory_utilization: Annotated[float | None, SETTING("[default: vLLM's]", "SHARE")] = None,
    task: opt.TaskKind = None,
    json: opt.Json = False,
) -> None:
    """Where every GiB of a GPU goes, and how many requests fit. Needs no data.

    Example: chunkscope memory --model qwen3-8b --gpu h100
    """
    given = opt.typed(locals())
    from chunkscope.vllm.footprint import memory as run

    if model is None:
        raise UsageError("--model is missing", hint="`chunkscope models` lists those known by name")
    opt.show(run(**opt.settled("memory", {}, given)), json=json)


def demo(
    model: Annotated[
        str | None,
        opt.model(INPUT, "Folder of a transformers model. [default: a small random one]"),
    ] = None,
    long: Annotated[
        int | None, INPUT("Tokens of the two long prompts. [default: 3072]", "N", min=1)
    ] = None,
    seed: Annotated[int | None, INPUT("Random seed. [default: 0]", "SEED")] = None,
    chunk: Annotated[
        str | None,
        SETTING("Tokens of one prompt per step, such as 32,512,none. [default: none,256]", "SIZES"),
    ] = None,
    details: opt.Details = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    output: opt.Output = REPORTS / "demo" / "verify.json",
) -> None:
    """Show chunked prefill on this machine, with a real model.

    Answers the same requests with chunks and without, and compares times, memory and answers.

    Example: chunkscope demo --chunk 32,128,512,none
    """
    options = opt.settled("demo", {}, opt.typed(locals()))
    demonstration = api.demo(
        answering=lambda name: None if quiet else console.say(f"answering {name}"), **options
    )
    measured = replace(demonstration.measured, command=console.command())
    measured.save(output)
    opt.show(measured if json else demonstration, details=details, json=json)
    is_usual = output.name == "verify.json"
    after = f"chunkscope report{opt.quoted(output.parent)}" if is_usual else "chunkscope simulate"
    console.say(f"\nwrote {output}; next: {after}")


def models(
    part: PartArg = "",
    json: opt.Json = False,
) -> None:
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
    _list("models", rows, columns, part, json=json)


def gpus(
    part: PartArg = "",
    json: opt.Json = False,
) -> None:
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
    _list("gpus", rows, columns, part, json=json)


def _figure(name: str) -> Cell:
    return lambda row: "-" if row[name] is None else f"{row[name]:,.1f}".removesuffix(".0")


def _list(
    what: str, rows: Sequence[dict[str, Any]], columns: dict[str, Cell], part: str, *, json: bool
) -> None:
    names = ("name", "title", "hub_ids")
    rows = [row for row in rows if part.lower() in " ".join(str(row.get(n)) for n in names).lower()]
    if not rows:
        raise InputError(
            f"no known name contains {part!r}", hint=f"`chunkscope {what}` lists all of them"
        )
    if json:
        from chunkscope.artefacts.codec import dump

        return console.emit(dump({what: rows}))
    from chunkscope.report import terminal
    from chunkscope.report.section import Section, table_of

    cells = [[cell(row) for cell in columns.values()] for row in rows]
    table = table_of(tuple(columns), cells, words=tuple(columns)[:2])
    return console.show(lambda out: terminal.draw([Section(table=table)], out))


def show_help(
    page: Annotated[
        str | None,
        argument(
            "[PAGE]",
            "A command, `config`, `formats`, `python` or `security`.",
            autocompletion=opt.known_pages,
        ),
    ] = None,
) -> None:
    """Show a page of the manual.

    Example: chunkscope help recommend
    """
    if page is None:
        titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in opt.pages().values()]
        named = [title.removeprefix("# ").split(": ") for title in titles]
        lines = [f"chunkscope help {name:<9}  {about}\n" for name, about in named]
        console.emit("".join(lines).encode())
    elif page in opt.pages():
        console.emit(opt.pages()[page].read_bytes())
    else:
        raise UsageError(f"there is no page {page}", hint=f"one of {', '.join(opt.pages())}")
