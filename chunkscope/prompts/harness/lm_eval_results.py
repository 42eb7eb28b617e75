"""What lm-eval's results file says of a run: it lies beside the samples."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from chunkscope.sources.base import Source

_MOST_BYTES = 64 << 20
_DEFAULT_OUTPUT_CAP = 256
# These tokenize in lm-eval itself, and send what is longest first.
_LOCAL_MODELS = {"vllm", "vllm-vlm", "hf", "hf-auto", "huggingface", "hf-multimodal", "sglang"}
_SAMPLES_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]*\d)(\.json.*)?")
_KEYS = {"results", "configs", "versions", "config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What counts of a run; the defaults are those of a run of which nothing is known.

    A likelihood request is cut to `most_tokens`. `bos` is what a text may begin with already, so
    that no special token is added.
    """

    version: str | None = None
    task: str | None = None
    shots: int | None = None
    model: str | None = None
    max_length: int | None = None
    output_cap: int = _DEFAULT_OUTPUT_CAP
    special_tokens: bool = True
    bos: str | None = None

    @property
    def is_local(self) -> bool:
        return self.model in _LOCAL_MODELS

    @property
    def most_tokens(self) -> int | None:
        """Since vLLM wants room for one more token, lm-eval leaves it; 0.4.9 did not."""
        if self.max_length is None:
            return None
        return self.max_length - (0 if _is_older(self.version, (0, 4, 10)) else 1)


def is_results(value: Any) -> bool:
    """Whether a document is lm-eval's results file, by its keys."""
    return isinstance(value, dict) and value.keys() >= _KEYS


def is_results_file(file: Path) -> bool:
    """Whether this is such a file; only one that begins like it is read."""
    try:
        with file.open("rb") as opened:
            starts = re.match(rb'\s*\{\s*"results":', opened.read(64))
    except OSError:
        return False
    return starts is not None and _loaded(file) is not None


def results_file(source: Source) -> Path | None:
    """The results of the run that wrote these samples: of the same date, or the only ones."""
    if source.file is None or source.member is not None:
        return None
    if named := _SAMPLES_NAME.fullmatch(source.file.name):
        found = source.file.parent / f"results_{named['date']}.json"
        if found.is_file():
            return found
    plain = source.file.parent / "results.json"  # as 0.4.2 wrote it
    return plain if plain.is_file() else None


def task_in(name: str) -> str | None:
    """The task in the name of a file of samples, with its suffix or without."""
    named = _SAMPLES_NAME.fullmatch(name)
    return named["task"] if named else None


def settings_of(source: Source) -> RunSettings:
    named = source.file if source.rendered and source.file else PurePosixPath(source.path)
    task = task_in(named.name)
    file = results_file(source)
    results = _loaded(file) if file else None
    if results is None:
        return RunSettings(task=task)
    task = task or _task_in_name(source, results)
    config = _object(results.get("config"))
    arguments = _arguments(config.get("model_args"))
    version = _text(results.get("lm_eval_version"))
    lengths = (results, "max_length"), (arguments, "max_length"), (arguments, "max_model_len")
    return RunSettings(
        version=version,
        task=task,
        shots=_number(_object(results.get("n-shot")).get(task or "")),
        model=_text(config.get("model")),
        max_length=next((n for held, key in lengths if (n := _number(held.get(key)))), None),
        output_cap=_number(arguments.get("max_gen_toks")) or _DEFAULT_OUTPUT_CAP,
        special_tokens=_special_tokens(arguments, _text(config.get("model")), version),
        bos=_text(next(iter(results.get("tokenizer_bos_token") or [None]), None)),
    )


def _special_tokens(arguments: Mapping[str, Any], model: str | None, version: str | None) -> bool:
    """Whether <s> and the like were added. Those that name their version leave it to the
    tokenizer, older ones and those for an API add none unless they are told to.
    """
    asked = str(arguments.get("add_bos_token", "")).lower()
    if asked in ("true", "false"):
        return asked == "true"
    name = str(arguments.get("pretrained") or arguments.get("model") or "")
    is_api = "completions" in (model or "")
    return "gemma" in name.lower() or (version is not None and not is_api)


def _is_older(version: str | None, than: tuple[int, ...]) -> bool:
    numbers = re.findall(r"\d+", version or "")[: len(than)]
    return bool(numbers) and tuple(map(int, numbers)) < than


def _loaded(file: Path) -> dict[str, Any] | None:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        value = orjson.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if is_results(value) else None


def _task_in_name(source: Source, results: Mapping[str, Any]) -> str | None:
    """0.4.2 called its samples `<model arguments>_<task>.jsonl`."""
    stem = source.file.name.partition(".json")[0] if source.file else ""
    fits = [task for task in _object(results["configs"]) if stem.endswith(f"_{task}")]
    return max(fits, key=len, default=None)


def _arguments(value: Any) -> dict[str, Any]:
    """`model_args`: an object, or up to 0.4.9 text such as "pretrained=x,max_length=4096"."""
    if isinstance(value, str):
        pairs = (part.partition("=") for part in value.split(","))
        return {key.strip(): held.strip() for key, _, held in pairs}
    return _object(value)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    """A whole number that may be written as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 15:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
