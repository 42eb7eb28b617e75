"""Small commands: `prefixes`, `report`, `memory`, `doctor`, `demo`, `models`, `gpus`, `help`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import (
    INPUT,
    MACHINE,
    OUTPUT,
    SETTING,
    WORKLOAD,
    argument,
)
from chunkscope.errors import UsageError
from chunkscope.vllm.enums import KvCacheType, Task


def prefixes(
    profile: Path = argument(
        "[PROFILE]", f"[default: {opt.PROFILE}]", default=opt.PROFILE
    ),
    json: bool = opt.JSON,
) -> None:
    """How much of the prompts vLLM's prefix cache can serve.

    Example: chunkscope prefixes
    """
    from chunkscope.report.prefixes import prefixes as run

    opt.show(run(profile), json=json)


def memory(
    model: str | None = opt.MODEL,
    gpu: str | None = opt.GPU,
    tp: int | None = opt.TP,
    dp: int | None = opt.DP,
    ep: bool = opt.EP,
    kv_cache_dtype: KvCacheType | None = opt.KV_CACHE,
    vllm_version: str | None = opt.VLLM_VERSION,
    max_num_batched_tokens: int | None = SETTING(
        "Tokens per step. [default: vLLM's]", "N", min=1
    ),
    max_num_seqs: int | None = SETTING(
        "Requests at once. [default: vLLM's]", "N", min=1
    ),
    max_model_len: int | None = SETTING(
        "Longest context. [default: the model's]", "N", min=1
    ),
    long_prefill_token_threshold: int | None = SETTING(
        "Tokens of one prompt per step. [default: no limit]", "N", min=0
    ),
    gpu_memory_utilization: float | None = SETTING(
        "GPU memory to use. [default: vLLM's]", "SHARE"
    ),
    task: Task | None = WORKLOAD("Generate answers or score choices."),
    json: bool = opt.JSON,
) -> None:
    """Where every GiB of a GPU goes, and how many requests fit. Needs no data.

    Example: chunkscope memory --model qwen3-8b --gpu h100
    """
    options = opt.settled(memory, locals())
    from chunkscope.vllm.footprint import memory as run

    if "model" not in options:
        raise UsageError(
            "--model is missing", hint="`chunkscope models` lists those known by name"
        )
    opt.show(run(**options), json=json)


def report(
    folder: Path = argument(
        "[FOLDER]", "Folder with the results. [default: reports]", default=opt.REPORTS
    ),
    new: Path | None = argument(
        "[NEW]", "A second folder: show what changed since the first."
    ),
    form: Literal["html", "md", "text"] | None = OUTPUT(
        "[default: html; for two folders text; or by the suffix of --output]",
        "--format",
    ),
    json: bool = opt.JSON,
    output: Path | None = opt.output(
        None, "[default: report.html in the folder; md and JSON go to stdout]"
    ),
    details: bool = opt.DETAILS,
) -> None:
    """Make one HTML page of all results, or compare two folders.

    Example: chunkscope report reports/
    """
    from chunkscope.artefacts.artefact import PRETTY, dumped
    from chunkscope.artefacts.files import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.report.folder import compare
    from chunkscope.report.markdown import markdown

    opt.check_format(form, json=json)
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    usual = "text" if new or suffix == "txt" else "html"
    usual = suffix if suffix in ("html", "md", "json") else usual
    kind = "json" if json else form or usual
    if kind == "html":
        return opt.tell("wrote", file=api.report(folder, new, output=output))
    if kind == "text" and output is not None:
        raise UsageError(
            "--format text goes to the terminal", hint="leave --output out"
        )
    shown: Any = load_findings(folder)
    shown = compare(shown, load_findings(new)) if new else shown
    if kind == "text":
        return opt.show(shown, details=details)
    data = (
        dumped(shown.to_json(), PRETTY) if kind == "json" else markdown(shown).encode()
    )
    if output is None:
        return console.emit(data)
    write_atomically(output, data)
    return opt.tell("wrote", file=output)


def doctor(
    logs: list[str] = argument(
        "LOG|URL...", "vLLM logs (- for stdin), or running servers.", default=...
    ),
    plan: Path | None = INPUT(
        "Plan to compare with. [default: reports/plan.json]", "FILE"
    ),
    profile: Path | None = INPUT(
        "The data that was sent. [default: reports/profile.json]", "FILE"
    ),
    seconds: float = INPUT(
        "How long to watch a server. [default: 10]", "S", min=0.1, default=10.0
    ),
    model: str | None = opt.model(
        MACHINE, "The model that ran. [default: as in the log]"
    ),
    gpu: str | None = opt.GPU,
    details: bool = opt.DETAILS,
    form: Literal["text", "md"] | None = OUTPUT("How the result is shown.", "--format"),
    json: bool = opt.JSON,
    output: Path = opt.output(opt.REPORTS / "doctor.json"),
) -> None:
    """What limits vLLM, from its log or a running server.

    Example: chunkscope doctor vllm.log
    """
    from chunkscope.diagnosis.doctor import doctor as run

    opt.check_format(form, json=json)
    plan = plan or (opt.PLAN if opt.PLAN.exists() else None)
    profile = profile or (opt.PROFILE if opt.PROFILE.exists() else None)
    diagnosis = run(
        *logs, plan=plan, profile=profile, gpu=gpu, model=model, seconds=seconds
    )
    after = f"chunkscope report{opt.quoted(output.parent, usual=opt.REPORTS)}"
    opt.finish(diagnosis, output, after=after, details=details, json=json, form=form)


def demo(
    long: int | None = INPUT(
        "Tokens of the two long prompts. [default: 3072]", "N", min=1
    ),
    chunk: str | None = SETTING(
        "Tokens of one prompt per step, such as 32,512,none. [default: none,256]",
        "SIZES",
    ),
    details: bool = opt.DETAILS,
    json: bool = opt.JSON,
    quiet: bool = opt.QUIET,
    output: Path = opt.output(opt.REPORTS / "demo" / "verify.json"),
) -> None:
    """Show chunked prefill on this machine, with a small random model.

    Answers the same requests with chunks and without, and compares times, memory and answers.

    Example: chunkscope demo --chunk 32,128,512,none
    """
    options = opt.settled(demo, locals())
    from chunkscope.reference.demo import demo as run

    tell = (
        (lambda _: None)
        if quiet
        else (lambda name: opt.tell("answering", setting=name))
    )
    demonstration = run(answering=tell, **options)
    measured = replace(demonstration.measured, command=console.command())
    measured.save(output)
    opt.show(measured if json else demonstration, details=details, json=json)
    opt.tell(
        "wrote_next", file=output, after=f"chunkscope report{opt.quoted(output.parent)}"
    )


def models(json: bool = opt.JSON) -> None:
    """List the models known by name. Others: a folder with a config.json, or a hub id.

    Example: chunkscope models
    """
    from chunkscope.models.find import MODELS, built_in

    rows, cells = [], []
    for name, model in MODELS.items():
        if shape := built_in(name):
            size, context, hub_ids = (
                shape.parameters.total,
                shape.limit,
                list(model.hub_ids),
            )
            rows.append(
                {
                    "name": name,
                    "hub_ids": hub_ids,
                    "parameters": size,
                    "context": context,
                }
            )
            cells.append(
                (name, hub_ids[0], f"{size / 1e9:.{int(size < 1e11)}f}B", context)
            )
    _list("models", rows, ("name", "on the hub", "size", "context"), cells, json=json)


def gpus(json: bool = opt.JSON) -> None:
    """List the GPUs known by name. Others: --gpu 80GiB.

    Example: chunkscope gpus
    """
    from chunkscope.hardware.gpus import ALIASES, FIGURES, TABLE

    rows, cells = [], []
    for card in TABLE.values():
        also = [alias for alias, name in ALIASES.items() if name == card.name]
        figures = {name: getattr(card, name) for name in FIGURES}
        rows.append({"name": card.name, "title": card.title, "also": also, **figures})
        memory, *speed = figures.values()
        cells.append((card.name, card.title, f"{memory:.1f}", *speed))
    _list(
        "gpus", rows, ("name", "GPU", "GiB", "GB/s", "dense TFLOPS"), cells, json=json
    )


def _list(
    what: str, rows: Any, headings: Sequence[str], cells: Any, *, json: bool
) -> None:
    if json:
        from chunkscope.artefacts.artefact import PRETTY, dumped

        return console.emit(dumped({what: rows}, PRETTY))
    from chunkscope.report import terminal
    from chunkscope.report.section import Section, table_of

    table = table_of(tuple(headings), cells, words=tuple(headings)[:2])
    return console.show(lambda out: terminal.draw([Section(table=table)], out))


def show_help(
    page: str | None = argument(
        "[PAGE]",
        "A command, `accuracy`, `cluster`, `config`, `formats`, `python` or `security`.",
        autocompletion=opt.pages,
    ),
) -> None:
    """Show a page of the manual.

    Example: chunkscope help recommend
    """
    if page is None:
        for path in opt.pages().values():
            title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            console.emit(
                "chunkscope help {:<9}  {}\n".format(*title.split(": ")).encode()
            )
    elif page in opt.pages():
        console.emit(opt.pages()[page].read_bytes())
        if page == "accuracy":
            from chunkscope.report.accuracy import accuracy_tables

            console.emit(accuracy_tables().encode())
    else:
        raise UsageError(
            f"there is no page {page}", hint=f"one of {', '.join(opt.pages())}"
        )
