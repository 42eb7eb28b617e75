"""Which settings are compared: the plan's, the usual ones, and points the user adds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.artefact import built
from chunkscope.errors import UsageError
from chunkscope.planning.plan import Plan
from chunkscope.verification.result import DEFAULT, OFF, PLAN
from chunkscope.vllm.settings import NAMES, POSITIVE, Settings

LENGTH_POLICY = "length-rule"
NOTHING = "none"  # `--against none`
USUALLY = (DEFAULT, OFF, LENGTH_POLICY)
# What every row has in common: the longest request, the GPUs and the numbers of the KV
# cache.
COMMON = (
    "max_model_len",
    "kv_cache_dtype",
    "tensor_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One row to measure."""

    name: str
    settings: Settings
    same_as: tuple[str, ...] = ()


def check_room(rows: Sequence[SettingRow], longest: int) -> None:
    """UsageError where a context is too short.

    `longest`: tokens of the longest request with its answer.
    """
    for row in rows:
        context = row.settings.max_model_len
        if context is not None and context < longest:
            raise UsageError(
                f"{row.name}: max_model_len is {context:,}, the longest request takes "
                f"{longest:,} tokens",
                hint="leave max_model_len out, or plan for a shorter --max-output",
            )


def rows_of(
    plan: Plan, against: Sequence[str], also: Sequence[str] = ()
) -> list[SettingRow]:
    """The plan first: the others are compared with it.

    Names of equal settings share a row.
    """
    values = {name: getattr(plan.settings, name) for name in COMMON}
    common = Settings.of(values)
    rows = [SettingRow(name=PLAN, settings=plan.settings)]
    for name in names_in(against):
        # A plan that switches chunking off is itself what "off" asks for.
        is_plan = name == OFF and plan.settings.enable_chunked_prefill is False
        settings = plan.settings if is_plan else _compared(name, plan, common)
        rows.append(SettingRow(name=name, settings=settings))
    for text in also:
        rows.append(SettingRow(name=text, settings=parse_point(text).over(common)))
    return merged(rows)


def names_in(texts: Sequence[str]) -> list[str]:
    """
    >>> names_in(["off,default"]), names_in(["none"])
    (['off', 'default'], [])
    """
    names = []
    for text in texts:
        for name in text.split(","):
            if name not in ("", NOTHING):
                names.append(name)
    return names


def merged(rows: Sequence[SettingRow]) -> list[SettingRow]:
    """One row for equal settings: no GPU minute is spent on the same twice."""
    by_settings: dict[Settings, SettingRow] = {}
    for row in rows:
        twin = by_settings.setdefault(row.settings, row)
        if row.name not in (twin.name, *twin.same_as):
            same_as = (*twin.same_as, row.name)
            by_settings[row.settings] = replace(twin, same_as=same_as)
    return list(by_settings.values())


def _compared(name: str, plan: Plan, common: Settings) -> Settings:
    if name == DEFAULT:
        return common
    if name == OFF:
        return replace(common, enable_chunked_prefill=False)
    if name == LENGTH_POLICY:
        return plan.rule.over(common)
    raise UsageError(
        f"--against {name!r}: there is no such setting",
        hint=f"choose from {', '.join(USUALLY)}",
    )


def parse_point(text: str) -> Settings:
    """One point of the user's, as `--also` has it.

    >>> parse_point("max-num-seqs=64,kv-cache-dtype=fp8").given()
    {'max_num_seqs': 64, 'kv_cache_dtype': 'fp8'}
    """
    values = parse_engine_args(text.split(","), option="--also")
    for name in values:
        if name not in NAMES:
            raise UsageError(
                f"--also {text!r}: there is no {name}",
                hint=f"one of {', '.join(NAMES)}",
            )
    try:
        settings: Settings = built(Settings, values)
    except ValueError as error:
        # "Expected `int | null`, got `str` - at `$.max_num_seqs`"
        name = str(error).rpartition("$.")[2].strip("`")
        raise UsageError(
            f"--also {text!r}: {name} has no such value",
            hint="such as `max-num-seqs=64`",
        ) from None
    for name in POSITIVE:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise UsageError(f"--also {text!r}: {name} must be at least 1")
    return settings


def parse_engine_args(
    texts: Sequence[str], *, option: str = "--engine-arg"
) -> dict[str, Any]:
    """Arguments for every engine, as JSON where they are JSON.

    >>> parse_engine_args(["dtype=float32", "swap-space=2"])
    {'dtype': 'float32', 'swap_space': 2}
    """
    arguments: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.strip().lstrip("-").partition("=")
        if not name.strip() or not value.strip():
            raise UsageError(
                f"{option} {text!r} has no value",
                hint=f"write it as `{option} max-num-seqs=64`",
            )
        arguments[name.strip().replace("-", "_")] = _json_or_text(value.strip())
    return arguments


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
