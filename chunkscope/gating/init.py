"""`gate --init`: a budget of today's figures, with a little room."""

import json
import tomllib
from collections.abc import Mapping
from math import ceil, floor
from pathlib import Path

from chunkscope.artefacts.numbers import SECONDS, SHARE, SIZE, seconds
from chunkscope.errors import InputError
from chunkscope.findings import Findings
from chunkscope.gating.budget import (
    LengthLimits,
    Limit,
    MemoryLimits,
    OutputsTable,
    SpeedLimits,
)
from chunkscope.gating.check import Relation
from chunkscope.gating.evidence import Values
from chunkscope.gating.figures import figure_values, output_values, predicted_memory
from chunkscope.gating.lengths import length_values
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan

ROOM = 0.1  # of a value, between it and its limit
SPEED_ROOM = 0.25  # timings differ from run to run
ROOMS = {"device_peak": 0.02, "equal": 0.01, "bad_rows": 0.0}
BASELINE = "baseline/profile.json"
SETTINGS = "vllm.yaml"
LIMITS: dict[str, Limit] = {
    **LengthLimits.possible_limits(),
    **MemoryLimits.possible_limits(),
    **SpeedLimits.possible_limits(),
    **OutputsTable.possible_limits(),
}
# The limits that are written, by table.
WRITTEN = {
    "data": ("longest_prompt", "p95", "min_rows", "bad_rows", "prefix_hit_rate"),
    "memory.predicted": ("activation_peak", "device_peak", "kv_requests_of_p95"),
    "memory.measured": ("activation_peak", "device_peak"),
    "slo": ("makespan", "ttft_p95", "itl_p95"),
    "speed": ("output_tokens_per_s", "ttft_p95", "itl_p95"),
    "outputs": ("equal",),
}
DRIFT: "Table" = {
    "baseline": BASELINE,
    "p50": "10%",
    "p95": "10%",
    "max": "20%",
    "new_datasets": 0,
    "vanished_datasets": 0,
}

Table = dict[str, int | str | list[str]]
Tables = dict[str, Table]  # by name, such as memory.predicted


def starting_budget(
    findings: Findings, folder: Path, comments: Mapping[str, str]
) -> str:
    """The gate's part of a chunkscope.toml in that folder, for what there is today.

    `comments` are by table and key, such as data.p95.
    """
    values = _values(findings)
    if not values:
        hint = "run `chunkscope analyze data/` first"
        raise InputError(f"nothing in {findings.folder} could be checked", hint=hint)
    comments = {**comments, **_comments(values)}
    text = comments["head"]
    for name, table in _tables(findings, values, folder).items():
        if not table:
            continue
        text += f"\n[gate.{name}]\n"
        for key, value in table.items():
            # JSON is TOML for text, whole numbers, true and false, and lists of text.
            written = json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")
            text += f"{key} = {written}"
            comment = comments.get(f"{name}.{key}")
            text += f"  # {comment}\n" if comment else "\n"
    return text


def without_gate(text: str, path: Path, head: str) -> str:
    """A file's text without its [gate] tables, and without the comment above them."""
    rest = ""
    in_gate = False
    for line in text.replace(head, "").splitlines(keepends=True):
        if line.startswith("#"):  # it may be about the next table
            in_gate = False
        elif line.startswith("["):
            in_gate = line.startswith(("[gate]", "[gate."))
        if not in_gate:
            rest += line
    try:
        is_whole = "gate" not in tomllib.loads(rest)
    except ValueError:
        is_whole = False
    if not is_whole:
        hint = "take its `gate` keys out yourself, or name another file with --config"
        raise InputError(f"{path} does not write the gate as [gate] tables", hint=hint)
    return rest


# -- what can be asked for -------------------------------------------------------------


def _values(findings: Findings) -> dict[str, Values]:
    """Today's figures, by table."""
    values: dict[str, Values] = {}
    if findings.profile is not None:
        values["data"] = length_values(findings.profile.datasets)
    if findings.plan is not None:
        values["memory.predicted"] = predicted_memory(findings.plan)
        values["slo"] = figure_values(findings.plan.run)
    if findings.verification is not None:
        run = findings.verification.run("plan")
        measured = figure_values(run if run and run.ok else None)
        values["memory.measured"] = measured
        values["speed"] = measured
        values["outputs"] = output_values(findings.verification, run)
    return values


def _tables(findings: Findings, values: dict[str, Values], folder: Path) -> Tables:
    """All that the artefacts and the files beside the budget have values for."""
    tables: Tables = {name: _limits(name, values[name]) for name in values}
    profile = findings.profile
    plan = findings.plan
    if profile is not None:
        tables["data"] |= _data(profile, plan)
        if (folder / BASELINE).exists():
            known = all(dataset.content for dataset in profile.datasets)
            content = "same" if known else "any"
            tables["drift"] = {**DRIFT, "content": content}
    if plan is not None and (folder / SETTINGS).exists():
        tables["settings"] = {"file": SETTINGS, "must_be": "as-good"}
    tables["freshness"] = _freshness(findings)
    return tables


def _data(profile: Profile, plan: Plan | None) -> Table:
    """Which datasets there are, and the context that they have to fit."""
    data: Table = {}
    if any(dataset.sample for dataset in profile.datasets):
        data["allow_sample"] = True
    data["datasets"] = [dataset.name for dataset in profile.datasets if dataset.rows]
    if plan is not None and plan.settings.max_model_len:
        data["max_model_len"] = plan.settings.max_model_len
    return data


def _freshness(findings: Findings) -> Table:
    freshness: Table = {}
    profile = findings.profile
    if profile is not None:
        freshness["data"] = True
        unknown = [dataset.name for dataset in profile.datasets if not dataset.digest]
        if unknown:
            freshness["not_checked"] = unknown
    if findings.plan_is_of_this_profile is not None:
        freshness["plan"] = True
    if findings.verification_is_of_this_plan is not None:
        freshness["verification"] = True
    return freshness


def _limits(table: str, values: Values) -> Table:
    limits: Table = {}
    for key in WRITTEN[table]:
        value = values.get(key)
        limit = None if value is None else limit_of(table, key, value)
        if limit is not None:
            limits[key] = limit
    return limits


def _comments(values: dict[str, Values]) -> dict[str, str]:
    """What a limit is, with the value of today in the limit's unit."""
    comments = {}
    for table, figures in values.items():
        for key in WRITTEN[table]:
            value = figures.get(key)
            if value is None:
                continue
            spec = LIMITS[key]
            today = spec.unit.brief(value)
            if spec.unit is SECONDS:
                today = seconds(value, like=min(value, 60))
            comments[f"{table}.{key}"] = f"{spec.relation} (today {today})"
    return comments


def limit_of(table: str, key: str, value: float) -> int | str | None:
    """A limit that a value keeps, with room; None where it would ask for nothing.

    >>> limit_of("data", "longest_prompt", 23_235), limit_of("speed", "ttft_p95", 0.5)
    (25559, '625ms')
    """
    spec = LIMITS[key]
    room = ROOMS.get(key, SPEED_ROOM if table == "speed" else ROOM)
    if spec.relation is Relation.AT_LEAST:
        least = value * (1 - room)
        if spec.unit is SHARE:
            percent = floor(100 * least)
            return f"{percent}%" if percent else None
        return max(1, floor(least)) if value > 0 else None
    most = round(value * (1 + room), 6)
    if spec.unit is SECONDS and value < 1:
        return f"{ceil(most * 1_000)}ms"
    if spec.unit is SECONDS:
        return f"{ceil(most * 10) / 10}s"
    if spec.unit is SIZE:
        return f"{ceil(most * 1_000) / 1_000}GiB"
    return ceil(most)
