"""`gate --init`: a budget that today's artefacts keep, with a little room and a word on each line.

All that has evidence is promised: also the drift from baselines, and arguments in a vllm.yaml,
that are there already. What is broken today is a comment: the file is a start, not a failure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

from chunkscope.artefacts.figures import BY_PROMISE, OUTPUT_RATE
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.findings import Findings
from chunkscope.gating.budget_file import parse_file
from chunkscope.gating.check import CHECKS, judge
from chunkscope.gating.limits import ROOM, Key, decimals, limit_of, roomy
from chunkscope.gating.promises.data import all_rows, reuse_of
from chunkscope.gating.promises.memory import measured_peaks, predicted_peaks
from chunkscope.gating.promises.outputs import output_figure

MANY_DATASETS = 100

HEAD = """# Promises for `chunkscope gate`, which exits 1 when one of them is broken.
# Written by `chunkscope gate --init` from the artefacts of that day, with a little room.
# In pyproject.toml the same tables are called [tool.chunkscope.gate...].
"""
BASELINE, MEASURED, ARGUMENTS = "baseline/profile.json", "baseline/verify.json", "vllm.yaml"
DRIFT_EXAMPLE = """
# Lengths against a profile that you commit:
# `mkdir -p baseline && cp reports/profile.json baseline/`
# [gate.drift]
# baseline = "baseline/profile.json"
# p50 = "10%"
# p95 = "10%"
# max = "20%"
# new_datasets = 0
# vanished_datasets = 0
"""
SETTINGS_EXAMPLE = """
# The engine arguments that you commit: `chunkscope recommend --emit vllm-yaml > vllm.yaml`
# [gate.settings]
# file = "vllm.yaml"         # or shell words, or lm-eval's model_args
# must_be = "as-good"        # it fits, and is simulated within 3 % of the plan; or "equal"
# allow = ["enforce-eager"]  # may be there, and is not judged; "model" allows another one
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A line; `off` is why it is only a comment. One that `only_names` something is no promise."""

    table: str
    key: str
    value: Any
    why: str
    off: str = ""
    only_names: bool = False

    @property
    def path(self) -> Key:
        return (*self.table.split("."), self.key)


def starting_text(findings: Findings, path: Path) -> str:
    kept = starting_promises(findings, path)
    if all(line.off or line.only_names for line in kept):
        raise InputError(
            f"nothing in {findings.folder} could be promised",
            hint="run `chunkscope analyze data/` first",
        )
    tables = {line.table for line in kept}
    examples = {"drift": DRIFT_EXAMPLE, "settings": SETTINGS_EXAMPLE}
    return _rendered(kept) + "".join(text for name, text in examples.items() if name not in tables)


def starting_promises(findings: Findings, path: Path) -> list[Promise]:
    """For a budget at that path: what it names is looked for beside it."""
    place = path.with_name("chunkscope.toml")  # tables are called [gate], whatever its name
    tables = (_data, _memory, _speed, _outputs, _freshness)
    figures = [line for lines_of in tables for line in lines_of(findings)]
    broken = _broken(figures, findings, place)
    lines = [replace(line, off=broken.get(line.path, "")) for line in figures]
    committed = (_drift, _settings, _slower)
    lines += [line for named in committed for line in named(findings, place)]
    return sorted(lines, key=lambda line: list(CHECKS).index(line.path[0]))


def _broken(lines: Iterable[Promise], findings: Findings, place: Path) -> dict[Key, str]:
    """By key, what was found instead, or why that is no evidence."""
    text = _rendered(lines)
    if text == HEAD:
        return {}
    result = judge(parse_file(text, place), findings)
    return {v.key: v.note if v.is_doubted else v.found for v in result.broken}


def _rendered(lines: Iterable[Promise]) -> str:
    tables = (_table(name, list(group)) for name, group in groupby(lines, key=lambda x: x.table))
    return HEAD + "".join(tables)


def _table(name: str, lines: list[Promise]) -> str:
    """A table with nothing left to promise would be an error: it is a comment as a whole."""
    live = any(not line.off and not line.only_names for line in lines)
    return "\n" + "".join(
        f"{text}\n" if live or text.startswith("#") else f"# {text}\n"
        for text in (f"[gate.{name}]", *map(_line, lines))
    )


def _line(line: Promise) -> str:
    pair = f"{line.key} = {toml(line.value)}"
    if not line.off:
        return f"{pair}  # {line.why}"
    found = "".join(c if c.isprintable() else " " for c in line.off)  # a comment is one line
    return f"# {pair}  # {line.why}; broken today: {found}"


def toml(value: Any) -> str:
    """
    >>> toml(["a b", 'c"d']), toml(True), toml(2048)
    ('["a b", "c\\\\"d"]', 'true', '2048')
    """
    written = json.dumps(value, ensure_ascii=False)  # the same in TOML, but for a few characters
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in written)


# -- what can be promised ------------------------------------------------------------------------


def _data(findings: Findings) -> Iterator[Promise]:
    profile = findings.profile
    if profile is None:
        return
    lengths = profile.overall
    rows = all_rows(profile.datasets)

    def line(key: str, value: Any, why: str, **more: Any) -> Promise:
        return Promise(table="data", key=key, value=value, why=why, **more)

    def figure(key: str, found: float, why: str) -> Promise:
        return line(key, limit_of(("data", key), found), why)

    if any(dataset.sample for dataset in profile.datasets):
        yield line("allow_sample", True, "figures of a sample count", only_names=True)
    if lengths.count:
        yield figure("longest_prompt", lengths.max or 0, f"tokens; today {lengths.max:,}")
        p95 = lengths.percentile(95) or 0
        yield figure("p95", p95, f"tokens; today {p95:,.0f}")
    yield line("min_rows", limit_of(("data", "min_rows"), rows) or 1, f"today {rows:,}")
    if (reuse := reuse_of(profile.datasets)) and (found := reuse.hit_rate):
        share = figure("prefix_hit_rate", found, f"at least; today {100 * found:.1f} %")
        if share.value is not None:
            yield share
    yield figure("bad_rows", profile.skipped, "rows that could not be used, at most")
    if len(profile.datasets) <= MANY_DATASETS:
        names = [dataset.name for dataset in profile.datasets if dataset.rows]
        yield line("datasets", names, "must be there")
    if findings.plan and (length := findings.plan.effective.max_model_len):
        yield line("max_model_len", length, "no prompt is refused at it; from the plan")


def _memory(findings: Findings) -> Iterator[Promise]:
    plan = findings.plan
    if plan is not None and plan.memory is not None:
        table = "memory.predicted"
        yield from _peaks(table, predicted_peaks(plan.memory), plan.memory.total_gib)
        if plan.capacity and plan.capacity.p95:
            key, found = "kv_requests_of_p95", plan.capacity.p95
            why = f"the KV cache holds at least; today {found:,}"
            yield Promise(table=table, key=key, value=limit_of((table, key), found), why=why)
    verification = findings.verification
    if verification is not None and (run := verification.run("plan")) is not None:
        most = verification.machine.gpu_memory_gib if verification.machine else None
        yield from _peaks("memory.measured", measured_peaks(run), most)


def _peaks(table: str, peaks: Mapping[str, float | None], most: float | None) -> Iterator[Promise]:
    for key, peak in peaks.items():
        if peak is not None:
            # No GPU holds more than it has, though 10 % more would say so.
            limit = min(roomy(peak, ROOM), max(most or inf, peak))
            value = f"{decimals(limit)}GiB"
            yield Promise(table=table, key=key, value=value, why=f"per GPU; today {peak:.2f}")


def _speed(findings: Findings) -> Iterator[Promise]:
    run = findings.verification.run("plan") if findings.verification else None
    figures = run.figures if run and run.ok else None
    for key in ("ttft_p95", "itl_p95"):
        if seconds := BY_PROMISE[key].value(figures):
            why = f"measured; today {seconds * 1000:,.1f} ms"
            yield Promise(table="speed", key=key, value=limit_of(("speed", key), seconds), why=why)
    if rate := OUTPUT_RATE.value(figures):
        why = f"measured, at least; today {rate:,.0f}"
        least = limit_of(("speed", OUTPUT_RATE.promise), rate)
        yield Promise(table="speed", key=OUTPUT_RATE.promise, value=least, why=why)


def _outputs(findings: Findings) -> Iterator[Promise]:
    """What people ask of chunks, whatever is found today: if it is broken, that shows."""
    measured = findings.verification
    run = measured.run("plan") if measured else None
    if measured is None or run is None or run.outputs is None:
        return
    if (equal := output_figure(measured, run, "equal")) is not None:
        why = f"as those of {run.outputs.reference}; today {100 * equal:.1f} %"
        yield Promise(table="outputs", key="equal", value="99%", why=why)


def _freshness(findings: Findings) -> Iterator[Promise]:
    for key, found, why in (
        ("data", findings.profile, "the files are those that were counted"),
        ("plan", findings.plan_is_of_this_profile, "made from this profile"),
        ("verification", findings.verification_is_of_this_plan, "measured with this plan"),
    ):
        if found is not None:
            yield Promise(table="freshness", key=key, value=True, why=why)


# -- what is compared with files that are committed -----------------------------------------------


def _drift(findings: Findings, place: Path) -> list[Promise]:
    if findings.profile is None or not (place.parent / BASELINE).exists():
        return []
    either = "relative change, either way; also of each dataset"
    lines = [
        Promise(table="drift", key=key, value=value, why=why, only_names=key == "baseline")
        for key, value, why in (
            ("baseline", BASELINE, "the profile that is compared with"),
            ("p50", "10%", either),
            ("p95", "10%", either),
            ("max", "20%", either),
            ("new_datasets", 0, "at most"),
            ("vanished_datasets", 0, "at most"),
        )
    ]
    return _judged(lines, findings, place)


def _settings(findings: Findings, place: Path) -> list[Promise]:
    """What stands there and is not judged is allowed by name. One line broken is all broken."""
    if None in (findings.plan, findings.profile) or not (place.parent / ARGUMENTS).exists():
        return []
    lines = [
        Promise(table="settings", key="file", value=ARGUMENTS, why="the arguments you commit"),
        Promise(
            table="settings",
            key="must_be",
            value="as-good",
            why='it fits, and is simulated within 3 % of the plan; or "equal"',
        ),
    ]
    try:
        result = judge(parse_file(_rendered(lines), place), findings)
    except ChunkscopeError as error:
        return [replace(line, off=error.message) for line in lines]
    beside = [v.subject for v in result.broken if v.promise == "settings.allow"]
    if beside:
        why = "may be there, and is not judged"
        lines.append(Promise(table="settings", key="allow", value=beside, why=why))
    others = [v for v in result.broken if v.promise != "settings.allow"]
    why = f"{others[0].promise}: {others[0].found}" if others else ""
    return [replace(line, off=why) for line in lines]


def _slower(findings: Findings, place: Path) -> list[Promise]:
    if findings.verification is None or not (place.parent / MEASURED).exists():
        return []
    why = "the measurement that is compared with: at most 5 % slower"
    return _judged(
        [Promise(table="speed", key="baseline", value=MEASURED, why=why)], findings, place
    )


def _judged(lines: list[Promise], findings: Findings, place: Path) -> list[Promise]:
    """A baseline that cannot be compared with is no reason to write nothing."""
    try:
        broken = _broken(lines, findings, place)
    except ChunkscopeError as error:
        return [replace(line, off=error.message) for line in lines]
    return [replace(line, off=broken.get(line.path, "")) for line in lines]
