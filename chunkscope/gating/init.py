"""`gate --init`: a budget that today's artefacts keep, with a little room."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path

from chunkscope.artefacts.numbers import SECONDS, SHARE, SIZE
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.findings import Findings
from chunkscope.gating.budget import (
    LengthLimits,
    Limit,
    MemoryLimits,
    OutputsTable,
    SpeedLimits,
    parse_budget,
)
from chunkscope.gating.check import Check, Relation
from chunkscope.gating.evidence import Values
from chunkscope.gating.figures import figure_values, output_values, predicted_memory
from chunkscope.gating.gate import judge
from chunkscope.gating.lengths import length_values
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.verification.result import Verification

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
ASKS_NOTHING = ("allow_sample", "baseline")  # lines that ask for nothing by themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """A key and its value; of a limit also what it is, with the value of today."""

    key: str
    value: int | str | list[str]
    comment: str = ""

    def text(self, comment: str) -> str:
        # JSON is TOML for text, whole numbers, true and false, and lists of text.
        written = json.dumps(self.value, ensure_ascii=False).replace("\x7f", r"\u007f")
        comment = comment or self.comment
        if comment:
            return f"{self.key} = {written}  # {comment}\n"
        return f"{self.key} = {written}\n"


Tables = dict[str, list[BudgetLine]]  # by name, such as memory.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingBudget:
    """The tables that pass today, and what was left out because it fails."""

    tables: Tables
    left_out: list[str]

    def text(self, comments: Mapping[str, str]) -> str:
        """The gate's part of a chunkscope.toml; `comments` are by table and key."""
        return comments["head"] + _rendered(self.tables, comments)


def starting_budget(findings: Findings, path: Path) -> StartingBudget:
    """What today's results keep, for a budget at that path."""
    # The tables are called [gate] wherever the file is, but in pyproject.toml.
    place = path.with_name("chunkscope.toml")
    kept: Tables = {}
    left_out = []
    for table, lines in _tables(findings, place.parent).items():
        passing = _passing(table, lines, findings, place)
        for line in lines:
            if line not in passing:
                left_out.append(f"{table}.{line.key}")
        if any(line.key not in ASKS_NOTHING for line in passing):
            kept[table] = passing
    if not kept:
        hint = "run `chunkscope analyze data/` first"
        raise InputError(f"nothing in {findings.folder} could be checked", hint=hint)
    return StartingBudget(tables=kept, left_out=left_out)


def without_gate(text: str, path: Path, head: str) -> str:
    """A file's text without the gate's tables, and without the comment above them."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    if "gate" not in document:
        return text
    rest = ""
    in_gate = False
    for line in text.replace(head, "").splitlines(keepends=True):
        if line.startswith("["):
            name = line.strip("[] \t\r\n").partition(".")[0]
            in_gate = name.strip("\"' \t") == "gate"
        if not in_gate:
            rest += line
    del document["gate"]
    try:
        is_whole = tomllib.loads(rest) == document
    except ValueError:
        is_whole = False
    if not is_whole:
        hint = "take its `gate` keys out yourself, or name another file with --config"
        raise InputError(f"{path} does not write the gate as [gate] tables", hint=hint)
    return rest


# -- what can be asked for -------------------------------------------------------------


def _tables(findings: Findings, folder: Path) -> Tables:
    """All that the artefacts and the files beside the budget have values for."""
    tables: Tables = {}
    profile = findings.profile
    plan = findings.plan
    if profile is not None:
        tables["data"] = _data_lines(profile, plan)
        if (folder / BASELINE).exists():
            tables["drift"] = _drift_lines()
        if plan is not None and (folder / SETTINGS).exists():
            tables["settings"] = [
                BudgetLine(key="file", value=SETTINGS),
                BudgetLine(key="must_be", value="as-good"),
            ]
    if plan is not None:
        memory = predicted_memory(plan)
        tables["memory.predicted"] = _limits("memory.predicted", memory)
        tables["slo"] = _limits("slo", figure_values(plan.run))
    if findings.verification is not None:
        tables |= _measured_tables(findings.verification)
    tables["freshness"] = _freshness_lines(findings)
    return tables


def _data_lines(profile: Profile, plan: Plan | None) -> list[BudgetLine]:
    lines = []
    if any(dataset.sample for dataset in profile.datasets):
        lines.append(BudgetLine(key="allow_sample", value=True))
    lines += _limits("data", length_values(profile.datasets))
    names = [dataset.name for dataset in profile.datasets if dataset.rows]
    lines.append(BudgetLine(key="datasets", value=names))
    if plan is not None and plan.settings.max_model_len:
        context = plan.settings.max_model_len
        lines.append(BudgetLine(key="max_model_len", value=context))
    return lines


def _drift_lines() -> list[BudgetLine]:
    return [
        BudgetLine(key="baseline", value=BASELINE),
        BudgetLine(key="content", value="same"),
        BudgetLine(key="p50", value="10%"),
        BudgetLine(key="p95", value="10%"),
        BudgetLine(key="max", value="20%"),
        BudgetLine(key="new_datasets", value=0),
        BudgetLine(key="vanished_datasets", value=0),
    ]


def _measured_tables(verification: Verification) -> Tables:
    run = verification.run("plan")
    if run is None:
        return {}
    speed = figure_values(run if run.ok else None)
    outputs = output_values(verification, run)
    return {
        "memory.measured": _limits("memory.measured", figure_values(run)),
        "speed": _limits("speed", speed),
        "outputs": _limits("outputs", outputs),
    }


def _freshness_lines(findings: Findings) -> list[BudgetLine]:
    known = {
        "data": findings.profile is not None,
        "plan": findings.plan_is_of_this_profile is not None,
        "verification": findings.verification_is_of_this_plan is not None,
    }
    return [
        BudgetLine(key=key, value=True) for key, is_known in known.items() if is_known
    ]


def _limits(table: str, values: Values) -> list[BudgetLine]:
    """A line for each value that a limit can be made from."""
    lines = []
    for key in WRITTEN[table]:
        value = values.get(key)
        limit = None if value is None else limit_of(table, key, value)
        if limit is not None:
            spec = LIMITS[key]
            comment = f"{spec.relation} (today {spec.unit.brief(value)})"
            lines.append(BudgetLine(key=key, value=limit, comment=comment))
    return lines


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
    if spec.unit is SECONDS:
        if most < 10:
            return f"{ceil(most * 1_000)}ms"
        return f"{ceil(most * 10) / 10}s"
    if spec.unit is SIZE:
        return f"{ceil(most * 1_000) / 1_000}GiB"
    return ceil(most)


# -- what passes -----------------------------------------------------------------------


def _passing(
    table: str, lines: list[BudgetLine], findings: Findings, place: Path
) -> list[BudgetLine]:
    """The lines of a table that pass today; none where it cannot be judged."""
    if not lines:
        return []
    try:
        budget = parse_budget(_rendered({table: lines}, {}), place)
        failed = judge(budget, findings).failed
    except ChunkscopeError:
        return []
    if table == "settings":
        return _passing_settings(lines, failed)
    keys = {check.place[-1] for check in failed}
    return [line for line in lines if line.key not in keys]


def _passing_settings(
    lines: list[BudgetLine], failed: tuple[Check, ...]
) -> list[BudgetLine]:
    """What nobody judges is allowed by name; of the rest all lines hold, or none."""
    for check in failed:
        if check.name != "settings.allow":
            return []
    if not failed:
        return lines
    allowed = [check.subject for check in failed]
    return [*lines, BudgetLine(key="allow", value=allowed)]


def _rendered(tables: Tables, comments: Mapping[str, str]) -> str:
    text = ""
    for name, lines in tables.items():
        text += f"\n[gate.{name}]\n"
        for line in lines:
            text += line.text(comments.get(f"{name}.{line.key}", ""))
    return text
