"""`gate --init`: a budget that today's artefacts keep, with a little room and a word on each line.

What would be broken today is written as a comment: the file is a start, not a failure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, floor, inf, log10
from pathlib import Path
from typing import Any

from chunkscope.artefacts.figures import BY_PROMISE, OUTPUT_RATE
from chunkscope.errors import InputError
from chunkscope.findings import Findings
from chunkscope.gating.budget_file import parse_file
from chunkscope.gating.check import judge
from chunkscope.gating.promises.data import all_rows, reuse_of
from chunkscope.gating.promises.memory import measured_peaks, predicted_peaks

ROOM = 0.1
SLOWER = 0.25  # timings differ from run to run
MANY_DATASETS = 100
NO_PROMISE = ("allow_sample",)

HEAD = """# Promises for `chunkscope gate`, which exits 1 when one of them is broken.
# Written by `chunkscope gate --init` from the artefacts of that day, with a little room.
# In pyproject.toml the same tables are called [tool.chunkscope.gate...].
"""
EXAMPLES = """
# Lengths against a profile that you commit:
# `mkdir -p baseline && cp reports/profile.json baseline/`
# [gate.drift]
# baseline = "baseline/profile.json"
# p50 = "10%"
# p95 = "10%"
# max = "20%"
# new_datasets = 0
# vanished_datasets = 0

# The engine arguments that you commit: `chunkscope recommend --emit vllm-yaml > vllm.yaml`
# [gate.settings]
# file = "vllm.yaml"         # or shell words, or lm-eval's model_args
# must_be = "as-good"        # it fits, and is simulated within 3 % of the plan; or "equal"
# allow = ["enforce-eager"]  # may be there, and is not judged; "model" allows another one
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise; `off` is why it is only written as a comment."""

    table: str
    key: str
    value: Any
    why: str
    off: str = ""


def starting_text(findings: Findings, path: Path) -> str:
    lines = [*_data(findings), *_memory(findings), *_speed(findings), *_freshness(findings)]
    broken = _broken(lines, findings, path)
    kept = [replace(x, off=broken.get((*x.table.split("."), x.key), "")) for x in lines]
    if all(line.off or line.key in NO_PROMISE for line in kept):
        raise InputError(
            f"nothing in {findings.folder} could be promised",
            hint="run `chunkscope analyze data/` first",
        )
    return _rendered(kept) + EXAMPLES


def _broken(lines: list[Promise], findings: Findings, path: Path) -> dict[tuple[str, ...], str]:
    if not lines:
        return {}
    # Tables here are called [gate], whatever the file will be called.
    result = judge(parse_file(_rendered(lines), path.with_name("chunkscope.toml")), findings)
    return {verdict.key: verdict.found for verdict in result.broken}


def _rendered(lines: Iterable[Promise]) -> str:
    tables = (_table(name, list(group)) for name, group in groupby(lines, key=lambda x: x.table))
    return HEAD + "".join(tables)


def _table(name: str, lines: list[Promise]) -> str:
    """A table with nothing left to promise would be an error: it is a comment as a whole."""
    live = any(not line.off and line.key not in NO_PROMISE for line in lines)
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

    def line(key: str, value: Any, why: str) -> Promise:
        return Promise(table="data", key=key, value=value, why=why)

    if any(dataset.sample for dataset in profile.datasets):
        yield line("allow_sample", True, "figures of a sample count")
    if lengths.count:
        yield line("longest_prompt", more(lengths.max or 0), f"tokens; today {lengths.max:,}")
        p95 = lengths.percentile(95) or 0
        yield line("p95", more(p95), f"tokens; today {p95:,.0f}")
    yield line("min_rows", max(1, floor(rows * (1 - ROOM))), f"today {rows:,}")
    if (reuse := reuse_of(profile.datasets)) and (found := reuse.hit_rate):
        least = f"{floor(100 * found * (1 - ROOM))}%"
        yield line("prefix_hit_rate", least, f"at least; today {100 * found:.1f} %")
    yield line("bad_rows", profile.skipped, "rows that could not be used, at most")
    if len(profile.datasets) <= MANY_DATASETS:
        names = [dataset.name for dataset in profile.datasets if dataset.rows]
        yield line("datasets", names, "must be there")
    if findings.plan is not None:
        length = findings.plan.argument("max_model_len").value
        yield line("max_model_len", length, "no prompt is refused at it; from the plan")


def _memory(findings: Findings) -> Iterator[Promise]:
    plan = findings.plan
    if plan is not None and plan.memory is not None:
        table = "memory.predicted"
        yield from _peaks(table, predicted_peaks(plan.memory), plan.memory.total_gib)
        if plan.capacity and plan.capacity.p95:
            held = max(1, floor(plan.capacity.p95 * (1 - ROOM)))
            why = f"the KV cache holds at least; today {plan.capacity.p95:,}"
            yield Promise(table=table, key="kv_requests_of_p95", value=held, why=why)
    verification = findings.verification
    if verification is not None and (run := verification.run("plan")) is not None:
        most = verification.machine.gpu_memory_gib if verification.machine else None
        yield from _peaks("memory.measured", measured_peaks(run), most)


def _peaks(table: str, peaks: Mapping[str, float | None], most: float | None) -> Iterator[Promise]:
    for key, peak in peaks.items():
        if peak is not None:
            # No GPU holds more than it has, though 10 % more would say so.
            limit = min(roomy(peak, ROOM), max(most or inf, peak))
            value = f"{_decimals(limit)}GiB"
            yield Promise(table=table, key=key, value=value, why=f"per GPU; today {peak:.2f}")


def _speed(findings: Findings) -> Iterator[Promise]:
    run = findings.verification.run("plan") if findings.verification else None
    figures = run.figures if run and run.ok else None
    for key in ("ttft_p95", "itl_p95"):
        if seconds := BY_PROMISE[key].of(figures):
            limit = f"{_decimals(roomy(seconds * 1000, SLOWER))}ms"
            why = f"measured; today {seconds * 1000:,.1f} ms"
            yield Promise(table="speed", key=key, value=limit, why=why)
    if rate := OUTPUT_RATE.of(figures):
        why = f"measured, at least; today {rate:,.0f}"
        least = max(1, floor(rate * (1 - SLOWER)))
        yield Promise(table="speed", key=OUTPUT_RATE.promise, value=least, why=why)


def _freshness(findings: Findings) -> Iterator[Promise]:
    for key, found, why in (
        ("data", findings.profile, "the files are those that were counted"),
        ("plan", findings.plan_is_of_this_profile, "made from this profile"),
        ("verification", findings.verification_is_of_this_plan, "measured with this plan"),
    ):
        if found is not None:
            yield Promise(table="freshness", key=key, value=True, why=why)


def more(tokens: float) -> int:
    """
    >>> more(23_235), more(41)
    (26000, 46)
    """
    return ceil(roomy(tokens, ROOM))


def roomy(value: float, room: float) -> float:
    """A little more, in two digits: a limit that nobody reads as exact.

    >>> roomy(0.84, 0.1)
    0.93
    """
    wanted = value * (1 + room)
    if wanted < 1e-6:
        return wanted  # too little for anyone to measure
    digits = 1 - floor(log10(wanted))
    step = 10.0**-digits
    return max(round(ceil(wanted / step) * step, max(digits, 0)), value)


def _decimals(value: float) -> str:
    """Not less than it is, and without an exponent: a budget file takes none.

    >>> _decimals(0.93), _decimals(139.80078125)
    ('0.93', '139.801')
    """
    return f"{ceil(round(value * 1000, 6)) / 1000:.3f}".rstrip("0").rstrip(".")
