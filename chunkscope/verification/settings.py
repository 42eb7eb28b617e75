"""Which settings are compared: the plan, what it is compared to, and points of the user's own."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.lengths.profile import Profile
from chunkscope.planning.choose import by_lengths
from chunkscope.planning.plan import Plan
from chunkscope.planning.problem import Problem
from chunkscope.planning.rule import decide
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.flags import SWITCHES, Off, Release
from chunkscope.vllm.settings import NAMES, Settings, Value

PLAN = "plan"
DEFAULT = "default"
LENGTH_POLICY = "length-policy"
AGAINST = (DEFAULT, Mode.OFF, LENGTH_POLICY, Mode.CONSERVATIVE, Mode.AGGRESSIVE)
USUALLY = AGAINST[:3]
# What every row has in common: the longest request and the number of GPUs.
COMMON = ("max_model_len", "tensor_parallel_size", "kv_cache_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSetting:
    """One row. `impossible` says why it cannot be run at all on this vLLM."""

    name: str
    settings: Settings
    same_as: tuple[str, ...] = ()
    impossible: str | None = None


def settings_of(
    plan: Plan,
    profile: Profile,
    installed: Release,
    *,
    against: Sequence[str] = USUALLY,
    also: Sequence[str] = (),
    longest: int = 0,
) -> tuple[ComparedSetting, ...]:
    """The plan first: the others are compared with it. Names for the same arguments share a row.

    `longest`: the tokens of the longest request, which a row must take.
    """
    planned = plan.settings
    common = Settings.of({name: getattr(planned, name) for name in COMMON})
    rows = [ComparedSetting(name=PLAN, settings=planned)]
    if planned.enable_chunked_prefill is False and Mode.OFF in against:
        rows = [replace(rows[0], same_as=(Mode.OFF.value,))]  # the plan is to switch it off
        against = [name for name in against if name != Mode.OFF]
    rows += (_against(name, plan, profile, installed, common) for name in against)
    rows += (ComparedSetting(name=text, settings=parse_point(text).over(common)) for text in also)
    return tuple(_with_room(row, longest) for row in _merged(rows))


def _against(
    name: str, plan: Plan, profile: Profile, installed: Release, common: Settings
) -> ComparedSetting:
    if name == DEFAULT:
        return ComparedSetting(name=name, settings=common)
    if name == Mode.OFF:
        settings = replace(common, enable_chunked_prefill=False)
        reason = f"vLLM {installed.text} ignores chunked prefill off for generative models"
        ignored = installed.off is Off.IGNORED
        return ComparedSetting(name=name, settings=settings, impossible=reason if ignored else None)
    if name == LENGTH_POLICY:
        return ComparedSetting(name=name, settings=(plan.rule or OWN).over(common))
    if name not in AGAINST:
        raise UsageError(
            f"--against {name!r}: there is no such setting", hint=f"choose of {', '.join(AGAINST)}"
        )
    try:
        replanned = _replan(plan, profile, Mode(name))
        return ComparedSetting(name=name, settings=replanned.over(common))
    except ChunkscopeError as error:
        return ComparedSetting(name=name, settings=common, impossible=error.message)


def _with_room(row: ComparedSetting, longest: int) -> ComparedSetting:
    room = row.settings.max_model_len
    if row.impossible or room is None or room >= longest:
        return row
    said = f"its max_model_len is {room:,}, and the longest request has {longest:,} tokens"
    return replace(row, impossible=said)


def _replan(plan: Plan, profile: Profile, mode: Mode) -> Settings:
    """What the length rule sets with this mode, for all that was asked of the plan."""
    request, there = replace(plan.request, mode=mode, slo=()), plan.deployment
    problem = Problem.of(profile, request, there).fitted()
    draft = by_lengths(problem, decide(problem.lengths, request.rule, mode=mode))
    return there.shortest(draft.settings)


def _merged(rows: Sequence[ComparedSetting]) -> Iterator[ComparedSetting]:
    """A GPU minute is not spent twice on the same arguments."""
    done: dict[Settings, ComparedSetting] = {}
    for row in rows:
        twin = done.setdefault(row.settings, row)
        if row.name not in (twin.name, *twin.same_as):
            done[row.settings] = replace(twin, same_as=(*twin.same_as, row.name))
    yield from done.values()


def parse_point(text: str) -> Settings:
    """One point of the user's own.

    >>> parse_point("max-num-batched-tokens=4096,enable-chunked-prefill=true").given()
    {'max_num_batched_tokens': 4096, 'enable_chunked_prefill': True}
    """
    return Settings.of(dict(_parse_one(part) for part in text.split(",") if part.strip()))


def _parse_one(text: str) -> tuple[str, Value]:
    key, equals, value = text.strip().lstrip("-").partition("=")
    name = key.strip().replace("-", "_")
    if name not in NAMES or not equals:
        near = get_close_matches(name, NAMES, n=1)
        spelled = (near[0] if near else "max_num_batched_tokens").replace("_", "-")
        raise UsageError(
            f"--also {text!r} is not an engine argument with a value",
            hint=f"write it like `--also {spelled}=4096`",
        )
    return name, _value(name, value.strip(), is_switch=name in SWITCHES)


def _value(name: str, text: str, *, is_switch: bool) -> Value:
    words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    try:
        if is_switch:
            return words[text.lower()]
        return float(text) if name == "gpu_memory_utilization" else int(text.replace("_", ""))
    except (KeyError, ValueError):
        kind = "true or false" if is_switch else "a number"
        raise UsageError(f"--also {name}={text}: that is not {kind}") from None


def parse_engine_args(texts: Sequence[str]) -> dict[str, Any]:
    """Arguments for every engine, as JSON where they are JSON.

    >>> parse_engine_args(["dtype=float32", "swap-space=2"])
    {'dtype': 'float32', 'swap_space': 2}
    """
    parsed: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.strip().lstrip("-").partition("=")
        if not key or not equals:
            raise UsageError(
                f"--engine-arg {text!r} has no value",
                hint="write it as `--engine-arg dtype=float32`",
            )
        try:
            parsed[key.replace("-", "_")] = json.loads(value)
        except ValueError:
            parsed[key.replace("-", "_")] = value
    return parsed
