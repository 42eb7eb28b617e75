"""Parts of sentences that answers about plans, simulations and measurements share."""

from collections.abc import Sequence

from chunkscope.artefacts.figures import ITL_P99
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import as_written
from chunkscope.models.find import MODELS
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.settings import Settings

DEFAULTS = "vLLM's defaults"
DEFAULT_NAME = "vLLM's default"
RUN_NAMES = {
    "default": DEFAULT_NAME,
    "plan": "the plan",
    "off": "chunking off",
    "asked": "your setting",
    "length-rule": "length rule",
    "best": "best found",
}
STARTED_BY = {Entry.LLM: "vLLM's LLM class", Entry.OTHER: "vLLM's engine"}
# Notes that the line about the setup has in its own words.
NEWEST_ASSUMED = "vllm_not_installed"
OUTPUT_ASSUMED = "assumed_output"
# Notes that say how near predictions came, which are details.
NOT_VALIDATED = "unlike_measured"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def settings_text(settings: Settings, default: Settings | None = None) -> str:
    """Arguments with their values, and vLLM's own values where a default is given.

    >>> settings_text(Settings(max_num_seqs=64, max_model_len=4096))
    'max_model_len 4,096 and max_num_seqs 64'
    >>> settings_text(Settings(max_num_seqs=64), Settings(max_num_seqs=256))
    'max_num_seqs 64 instead of 256'
    """
    parts = []
    for name, value in settings.given().items():
        part = f"{name} {as_written(value)}"
        usual = getattr(default, name) if default is not None else None
        if usual:  # a threshold of 0 is no limit
            part += f" instead of {as_written(usual)}"
        parts.append(part)
    return listed(parts)


def machine_text(model: str, gpu: str | None, gpus: int = 1) -> str:
    """
    >>> machine_text("Qwen/Qwen3-8B", "NVIDIA H100 80GB HBM3")
    'Qwen3-8B on one H100 80GB'
    >>> machine_text("qwen3-8b", "NVIDIA A100", 2)
    'Qwen3-8B on 2 x A100'
    >>> machine_text("qwen3-8b", "a GPU with 24 GiB")
    'Qwen3-8B on a GPU with 24 GiB'
    """
    if model in MODELS:
        model = MODELS[model].hub_ids[0]
    name = model.rstrip("/").rpartition("/")[2]
    if gpu is None:
        return name
    card = gpu.removeprefix("NVIDIA ").partition(" HBM")[0]
    if gpus > 1:
        return f"{name} on {gpus} x {card.removeprefix('a ')}"
    if card.startswith("a "):
        return f"{name} on {card}"
    return f"{name} on one {card}"


def validated_text(notes: Sequence[Note]) -> str:
    """What follows the machine's name where nothing like it was measured."""
    if has_note(notes, NOT_VALIDATED):
        return " (not validated)"
    return ""


def version_text(engine: Engine, notes: Sequence[Note]) -> str:
    """
    vLLM's version and how it is started, where that is not `vllm serve`.
    """
    text = f"vLLM {engine.release.text}"
    if has_note(notes, NEWEST_ASSUMED):
        text += " (newest known)"
    if engine.entry in STARTED_BY:
        text += f", {STARTED_BY[engine.entry]}"
    return text


def has_note(notes: Sequence[Note], code: str) -> bool:
    return any(note.code == code for note in notes)


def limit_state(run: SimulatedRun | None) -> str:
    """What became of the tightest limit, as a clause.

    `itl_p99 is 31.0 ms, within the limit of 50.0 ms`.
    """
    if run is None or run.slo is None:
        return "it does not run"
    limit = run.slo.tightest
    seconds = run.slo.found_of(limit)
    if seconds is None:  # an answer of one token has no gap
        return f"{limit.name} does not apply"
    allowed, value = ITL_P99.unit.write_both(limit.seconds, seconds)
    if run.slo.is_met:
        return f"{limit.name} is {value}, within the limit of {allowed}"
    return f"{limit.name} is {value}, over the limit of {allowed}"


def load_state(run: SimulatedRun | None) -> str:
    """The same for requests that come at a rate, which may be too high to be served."""
    if run is not None and run.queue_grows:
        return "requests come faster than they are served"
    return limit_state(run)
