"""Which settings are compared: the plan's, what it is compared to, and points the user adds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.artefact import built
from chunkscope.artefacts.note import Note, note
from chunkscope.errors import UsageError
from chunkscope.planning.plan import Plan
from chunkscope.verification.result import DEFAULT, OFF, PLAN
from chunkscope.vllm.deployment import POSITIVE
from chunkscope.vllm.settings import NAMES, Settings

LENGTH_POLICY = "length-rule"
USUALLY = (DEFAULT, OFF, LENGTH_POLICY)
# What every row has in common: the longest request, the GPUs and the numbers of the KV cache.
COMMON = (
    *("max_model_len", "kv_cache_dtype"),
    *("tensor_parallel_size", "data_parallel_size", "enable_expert_parallel"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One row to measure. `refused` says why this vLLM cannot run it at all."""

    name: str
    settings: Settings
    same_as: tuple[str, ...] = ()
    refused: Note | None = None

    def checked(self, longest: int) -> "SettingRow":
        """`longest`: the tokens of the longest request, which a row must take."""
        context, refused = self.settings.max_model_len, None
        if context is not None and context < longest:
            refused = note("context_too_short", max_model_len=context, longest=longest)
        return replace(self, refused=refused)


def rows_of(
    plan: Plan, against: Sequence[str], also: Sequence[str] = ()
) -> list[SettingRow]:
    """The plan first: the others are compared with it. Names for the same settings share a row."""
    planned = plan.settings
    common = Settings.of({name: getattr(planned, name) for name in COMMON})
    rows = [SettingRow(name=PLAN, settings=planned)]
    if planned.enable_chunked_prefill is False and OFF in against:
        rows = [replace(rows[0], same_as=(OFF,))]  # the plan is to switch it off
        against = [name for name in against if name != OFF]
    rows += [
        SettingRow(name=name, settings=_against(name, plan, common)) for name in against
    ]
    rows += [
        SettingRow(name=text, settings=parse_point(text).over(common)) for text in also
    ]
    merged: dict[
        Settings, SettingRow
    ] = {}  # a GPU minute is not spent twice on the same settings
    for row in rows:
        twin = merged.setdefault(row.settings, row)
        if row.name not in (twin.name, *twin.same_as):
            merged[row.settings] = replace(twin, same_as=(*twin.same_as, row.name))
    return list(merged.values())


def _against(name: str, plan: Plan, common: Settings) -> Settings:
    rows = {
        DEFAULT: common,
        OFF: replace(common, enable_chunked_prefill=False),
        LENGTH_POLICY: plan.rule.over(common),
    }
    if name not in rows:
        hint = f"choose from {', '.join(rows)}"
        raise UsageError(f"--against {name!r}: there is no such setting", hint=hint)
    return rows[name]


def parse_point(text: str) -> Settings:
    """One point of the user's, as `--also` has it.

    >>> parse_point("max-num-seqs=64,kv-cache-dtype=fp8").given()
    {'max_num_seqs': 64, 'kv_cache_dtype': 'fp8'}
    """
    given, hint = (
        parse_engine_args(text.split(","), option="--also"),
        f"one of {', '.join(NAMES)}",
    )
    if unknown := given.keys() - {*NAMES}:
        raise UsageError(f"--also {text!r}: there is no {min(unknown)}", hint=hint)
    try:
        settings: Settings = built(Settings, given)
    except ValueError as error:
        name, hint = (
            str(error).rpartition("$.")[2].strip("`"),
            "such as `max-num-seqs=64`",
        )
        raise UsageError(
            f"--also {text!r}: {name} has no such value", hint=hint
        ) from None
    for name in settings.given().keys() & set(POSITIVE):
        if given[name] < 1:
            raise UsageError(f"--also {text!r}: {name} must be at least 1")
    return settings


def parse_engine_args(
    texts: Sequence[str], *, option: str = "--engine-arg"
) -> dict[str, Any]:
    """Arguments for every engine, as JSON where they are JSON.

    >>> parse_engine_args(["dtype=float32", "swap-space=2"])
    {'dtype': 'float32', 'swap_space': 2}
    """
    parsed: dict[str, Any] = {}
    for text in texts:
        key, _, value = (
            part.strip() for part in text.strip().lstrip("-").partition("=")
        )
        if not key or not value:
            raise UsageError(
                f"{option} {text!r} has no value",
                hint=f"write it as `{option} max-num-seqs=64`",
            )
        try:
            parsed[key.replace("-", "_")] = json.loads(value)
        except ValueError:
            parsed[key.replace("-", "_")] = value
    return parsed
