"""`gate --init` writes a budget that today's artefacts keep. `gate --update` moves limits: those
that fail, and those that `--init` wrote, which carry the value of their day."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor
from pathlib import Path
from typing import Any

import tomlkit

from chunkscope.artefacts.numbers import SECONDS, SHARE, SIZE
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.findings import Findings
from chunkscope.gating import checks as tables
from chunkscope.gating.budget import (
    LENGTHS,
    MEMORY,
    OUTPUTS,
    SPEED,
    BudgetFile,
    parse_budget,
)
from chunkscope.gating.check import Check, Key, Relation
from chunkscope.gating.gate import judge

ROOM = 0.1
# Timings differ from run to run; how full a GPU is does not.
ROOMS = {"speed": 0.25, "device_peak": 0.02, "equal": 0.01, "bad_rows": 0.0}
BASELINE, ARGUMENTS = "baseline/profile.json", "vllm.yaml"
DRIFT = {
    "baseline": BASELINE,
    "content": "same",
    "p50": "10%",
    "p95": "10%",
    "max": "20%",
    "new_datasets": 0,
    "vanished_datasets": 0,
}
# The limits that --init writes, by table.
FIGURES = {
    "data": ("longest_prompt", "p95", "min_rows", "bad_rows", "prefix_hit_rate"),
    "memory.predicted": ("activation_peak", "device_peak", "kv_requests_of_p95"),
    "memory.measured": ("activation_peak", "device_peak"),
    "slo": ("makespan", "ttft_p95", "itl_p95"),
    "speed": ("output_tokens_per_s", "ttft_p95", "itl_p95"),
    "outputs": ("equal",),
}
LIMITS = {limit.key: limit for limit in (*LENGTHS, *MEMORY, *SPEED, *OUTPUTS)}
_NAMES = ("allow_sample", "baseline")  # lines that ask for nothing by themselves


def limit_of(key: Key, value: float) -> int | str | None:
    """A limit that a value keeps, with a little room; None where none below it asks for anything.

    >>> limit_of(("data", "longest_prompt"), 23_235), limit_of(("speed", "ttft_p95"), 0.5)
    (25559, '625ms')
    """
    spec = LIMITS[key[-1]]
    room = ROOMS.get(spec.key, ROOMS.get(key[0], ROOM))
    if spec.relation is Relation.AT_LEAST:
        least = floor(value * (1 - room) * (100 if spec.unit is SHARE else 1))
        if spec.unit is SHARE:
            return f"{least}%" if least else None
        return max(1, least) if value > 0 else None
    most = round(value * (1 + room), 6)
    if spec.unit is SECONDS:
        return f"{ceil(most * 1000)}ms" if most < 10 else f"{ceil(most * 10) / 10}s"
    return f"{ceil(most * 1000) / 1000}GiB" if spec.unit is SIZE else ceil(most)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """`today`: the value that the limit was made from."""

    table: str
    key: str
    value: Any
    today: float | None = None

    def text(self, comments: Mapping[str, str]) -> str:
        value = tomlkit.item(self.value).as_string()
        if self.today is not None:
            value = f"{{ limit = {value}, today = {json.dumps(round(self.today, 6))} }}"
        why = comments.get(f"{self.table}.{self.key}", "")
        why = why or (LIMITS[self.key].relation.value if self.today is not None else "")
        return f"{self.key} = {value}" + (f"  # {why}" if why else "")


def other_tables(text: str, path: Path) -> str:
    """What a file has beside the gate's tables, as it is written."""
    try:
        document = tomlkit.parse(text)
    except ValueError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    document.pop("gate", None)
    return tomlkit.dumps(document)


def starting_text(
    findings: Findings, path: Path, comments: Mapping[str, str], others: str = ""
) -> tuple[str, list[str]]:
    """A budget for that path, behind other tables, and the limits left out: they fail today."""
    place = path.with_name(
        "chunkscope.toml"
    )  # tables are called [gate], whatever its name
    lines: list[BudgetLine] = []
    failing: list[str] = []
    for table, group in groupby(_lines(findings, place), key=lambda line: line.table):
        some = list(group)
        passing = _passing(some, findings, place)
        failing += [f"{table}.{line.key}" for line in some if line not in passing]
        if any(
            line.key not in _NAMES for line in passing
        ):  # a table has to ask for something
            lines += passing
    if not lines:
        hint = "run `chunkscope analyze data/` first"
        raise InputError(f"nothing in {findings.folder} could be checked", hint=hint)
    others = others.replace(comments["head"], "").rstrip("\n")
    others = f"{others}\n\n" if others else ""
    return others + comments["head"] + _rendered(lines, comments), failing


def _lines(findings: Findings, place: Path) -> Iterator[BudgetLine]:
    """All that can be asked for, table by table."""
    profile, plan = findings.profile, findings.plan
    if profile is not None:
        if any(dataset.sample for dataset in profile.datasets):
            yield BudgetLine(table="data", key="allow_sample", value=True)
        yield from _figures("data", tables.length_values(profile.datasets))
        names = [dataset.name for dataset in profile.datasets if dataset.rows]
        yield BudgetLine(table="data", key="datasets", value=names)
        if plan and (length := plan.settings.max_model_len):
            yield BudgetLine(table="data", key="max_model_len", value=length)
        for key, value in DRIFT.items() if (place.parent / BASELINE).exists() else ():
            yield BudgetLine(table="drift", key=key, value=value)
        if plan and (place.parent / ARGUMENTS).exists():
            yield BudgetLine(table="settings", key="file", value=ARGUMENTS)
            yield BudgetLine(table="settings", key="must_be", value="as-good")
    if plan:
        yield from _figures("memory.predicted", tables.predicted_memory(plan))
        yield from _figures("slo", tables.figure_values(SPEED, plan.run))
    if (verification := findings.verification) and (run := verification.run("plan")):
        yield from _figures("memory.measured", tables.figure_values(MEMORY, run))
        yield from _figures(
            "speed", tables.figure_values(SPEED, run if run.ok else None)
        )
        yield from _figures("outputs", tables.output_values(verification, run))
    fresh = {"data": profile, "plan": findings.plan_is_of_this_profile}
    fresh["verification"] = findings.verification_is_of_this_plan
    for key in (key for key in fresh if fresh[key] is not None):
        yield BudgetLine(table="freshness", key=key, value=True)


def _figures(table: str, values: tables.Values) -> Iterator[BudgetLine]:
    for key in FIGURES[table]:
        value = values.get(key)
        if value is not None and (limit := limit_of((table, key), value)) is not None:
            yield BudgetLine(table=table, key=key, value=limit, today=value)


def _passing(
    lines: list[BudgetLine], findings: Findings, place: Path
) -> list[BudgetLine]:
    """Those of a table that pass. A file that cannot be compared with passes nothing."""
    try:
        failed = judge(parse_budget(_rendered(lines, {}), place), findings).failed
    except ChunkscopeError:
        return []
    if lines[0].table != "settings":
        keys = {check.place[-1] for check in failed}
        return [line for line in lines if line.key not in keys]
    # What nobody judges is allowed by name; of the rest all holds or none.
    if any(check.name != "settings.allow" for check in failed):
        return []
    allowed = [check.subject for check in failed]
    more = [BudgetLine(table="settings", key="allow", value=allowed)] if allowed else []
    return [*lines, *more]


def _rendered(lines: list[BudgetLine], comments: Mapping[str, str]) -> str:
    text = ""
    for name, group in groupby(lines, key=lambda line: line.table):
        text += f"\n[gate.{name}]\n" + "".join(
            f"{line.text(comments)}\n" for line in group
        )
    return text


def updated_text(file: BudgetFile, findings: Findings) -> str:
    """The budget with its limits moved to today's values, all else left as it is written."""
    document: Any = tomlkit.parse(file.text)
    for check in judge(file, findings).checks:
        if isinstance(check.value, int | float) and not (
            check.cause or check.of_a_part
        ):
            _move_limit(document, file.prefix, check, check.value)
    return tomlkit.dumps(document)


def _move_limit(table: Any, prefix: Key, check: Check, value: float) -> None:
    *above, key = (*prefix, *check.place)
    for name in above:
        table = table.get(name, {})
    if check.name == "data.datasets" and check.reason:  # one that is gone
        (table if "of" in above else table[key]).remove(check.subject)
    if check.table in ("drift", "doctor") or key not in LIMITS or key not in table:
        return  # no limit of --init's: a name, or how far something may drift
    limit, written, today = (
        limit_of(check.place, value),
        table[key].unwrap(),
        round(value, 6),
    )
    dated = isinstance(written, dict)
    untouched = dated and limit_of(check.place, written["today"]) == written["limit"]
    if limit is None or (check.passed and not untouched):
        return
    if not dated:
        table[key] = limit  # with the comment of the old one
    elif written != {"limit": limit, "today": today}:
        table[key]["limit"], table[key]["today"] = limit, today
