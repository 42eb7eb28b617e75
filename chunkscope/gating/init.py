"""`gate --init` writes a budget that today's artefacts keep; `gate --update` moves its limits.

All that has evidence is asked for: also the drift from a baseline, which is copied, and arguments
in a vllm.yaml that is there already. What fails today is a comment: the file is a start, not a
failure. A limit carries the value of its day, so `--update` knows which were written by `--init`:
it moves those and what fails; a limit that a person chose and that is kept stays.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, floor, inf, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.figures import BY_PROMISE, OUTPUT_RATE, Better
from chunkscope.artefacts.units import COUNT, SECONDS, SHARE, SIZE, TOKENS, Unit
from chunkscope.errors import ChunkscopeError, InputError, MissingError
from chunkscope.findings import Findings
from chunkscope.gating.budget import BudgetFile, parse_budget
from chunkscope.gating.check import Check, GateResult, Key
from chunkscope.gating.checks import (
    AT_LEAST,
    all_rows,
    equal_outputs,
    measured_peaks,
    predicted_peaks,
    reuse_of,
)
from chunkscope.gating.gate import CHECKS, judge

if TYPE_CHECKING:
    from tomlkit.items import Item

MANY_DATASETS = 100
ROOM = 0.1
SLOWER = 0.25  # timings differ from run to run
BASELINE, MEASURED, ARGUMENTS = "baseline/profile.json", "baseline/verify.json", "vllm.yaml"
HEAD = """# What `chunkscope gate` checks: it exits 1 when one of these fails.
# Written by `chunkscope gate --init`; `today` is the value of that day, `limit` leaves some room.
# In pyproject.toml the same tables are called [tool.chunkscope.gate...].
"""
SETTINGS_EXAMPLE = """
# The engine arguments that you commit: `chunkscope recommend --emit vllm-yaml > vllm.yaml`
# [gate.settings]
# file = "vllm.yaml"         # or shell words, or lm-eval's model_args
# must_be = "as-good"        # it fits, and is simulated within 3 % of the plan; or "equal"
# allow = ["enforce-eager"]  # may be there, and is not judged; "model" allows another one
"""
_COUNTS = ("min_rows", "bad_rows", "kv_requests_of_p95")
_EXACT = ("bad_rows", "equal")


# -- limits ----------------------------------------------------------------------------------------


def limit_of(key: Key, value: float) -> int | str | None:
    """A limit that a value keeps, with a little room, as a budget file writes it.

    None where a value is so small that no limit below it would ask for anything.

    >>> limit_of(("data", "longest_prompt"), 23_235), limit_of(("speed", "ttft_p95"), 0.5)
    (26000, '630ms')
    """
    unit, name = _unit_of(key), key[-1]
    room = 0.0 if name in _EXACT else SLOWER if key[0] == "speed" else ROOM
    figure = BY_PROMISE.get(name)
    more = figure is not None and figure.better is Better.MORE
    if more or name in (*AT_LEAST, "kv_requests_of_p95", "equal"):
        least = floor(value * (1 - room) * (100 if unit is SHARE else 1))
        if unit is SHARE:
            return f"{least}%" if least else None
        return max(1, least) if value > 0 else None
    if unit is SECONDS:
        return f"{decimals(roomy(value * 1000, room))}ms"
    if unit is SIZE:
        return f"{decimals(roomy(value, room))}GiB"
    return ceil(roomy(value, room)) if room else int(value)


def _unit_of(key: Key) -> Unit:
    name = key[-1]
    if name in _COUNTS:
        return COUNT
    if name in ("prefix_hit_rate", "equal"):
        return SHARE
    return TOKENS if key[0] == "data" else BY_PROMISE[name].unit


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


def decimals(value: float) -> str:
    """Not less than it is, and without an exponent: a budget file takes none.

    >>> decimals(0.93), decimals(139.80078125)
    ('0.93', '139.801')
    """
    return f"{ceil(round(value * 1000, 6)) / 1000:.3f}".rstrip("0").rstrip(".")


# -- the lines of a file ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """`today`: the value that the limit was made from; `off`: why it is only a comment.

    One that `only_names` something asks for nothing by itself.
    """

    table: str
    key: str
    value: Any
    why: str
    today: float | None = None
    off: str = ""
    only_names: bool = False

    @property
    def path(self) -> Key:
        return (*self.table.split("."), self.key)

    def text(self) -> str:
        value = toml(self.value)
        if self.today is not None:
            value = f"{{ limit = {value}, today = {round(self.today, 6):g} }}"
            value = (
                value.replace(f"{self.today:g}", toml(self.today)) if self.today >= 1e6 else value
            )
        pair = f"{self.key} = {value}  # {self.why}"
        off = "".join(c if c.isprintable() else " " for c in self.off)  # a comment is one line
        return f"# {pair}; fails today: {off}" if off else pair


def toml(value: Any) -> str:
    """
    >>> toml(["a b", 'c"d']), toml(True), toml(2048)
    ('["a b", "c\\\\"d"]', 'true', '2048')
    """
    written = json.dumps(value, ensure_ascii=False)  # the same in TOML, but for a few characters
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in written)


def starting_text(findings: Findings, path: Path) -> str:
    lines = starting_lines(findings, path)
    if all(line.off or line.only_names for line in lines):
        raise InputError(
            f"nothing in {findings.folder} could be checked",
            hint="run `chunkscope analyze data/` first",
        )
    example = "" if any(line.table == "settings" for line in lines) else SETTINGS_EXAMPLE
    return _rendered(lines) + example


def starting_lines(findings: Findings, path: Path) -> list[BudgetLine]:
    """For a budget at that path: what it names is looked for beside it."""
    place = path.with_name("chunkscope.toml")  # tables are called [gate], whatever its name
    groups = [
        [*_data(findings), *_memory(findings), *_speed(findings), *_freshness(findings)],
        list(_drift(findings, place)),
        list(_slower(findings, place)),
    ]
    lines = [line for group in groups for line in _judged(group, findings, place)]
    lines += _settings(findings, place)
    return sorted(lines, key=lambda line: list(CHECKS).index(line.path[0]))


def _judged(lines: list[BudgetLine], findings: Findings, place: Path) -> list[BudgetLine]:
    """With what fails today as comments. A file that cannot be compared with is one, too."""
    if all(line.only_names for line in lines):
        return []
    try:
        failed = judge(parse_budget(_rendered(lines), place), findings).failed
    except ChunkscopeError as error:
        return [replace(line, off=error.message) for line in lines]
    values = {check.place: f"{check.value}" for check in failed}
    return [replace(line, off=values.get(line.path, "")) for line in lines]


def _rendered(lines: Iterable[BudgetLine]) -> str:
    tables = (_table(name, list(group)) for name, group in groupby(lines, key=lambda x: x.table))
    return HEAD + "".join(tables)


def _table(name: str, lines: list[BudgetLine]) -> str:
    """A table with nothing left to ask for would be an error: it is a comment as a whole."""
    live = any(not line.off and not line.only_names for line in lines)
    return "\n" + "".join(
        f"{text}\n" if live or text.startswith("#") else f"# {text}\n"
        for text in (f"[gate.{name}]", *(line.text() for line in lines))
    )


# -- what can be asked for -------------------------------------------------------------------------


def _figure(table: str, key: str, value: float, why: str) -> BudgetLine:
    limit = limit_of((*table.split("."), key), value)
    return BudgetLine(table=table, key=key, value=limit, why=why, today=value)


def _data(findings: Findings) -> Iterator[BudgetLine]:
    profile = findings.profile
    if profile is None:
        return
    lengths, reuse = profile.overall, reuse_of(profile.datasets)
    if any(dataset.sample for dataset in profile.datasets):
        why = "figures of a sample count"
        yield BudgetLine(table="data", key="allow_sample", value=True, why=why, only_names=True)
    if lengths.count:
        yield _figure("data", "longest_prompt", lengths.max or 0, "tokens")
        yield _figure("data", "p95", lengths.percentile(95) or 0, "tokens")
    yield _figure("data", "min_rows", all_rows(profile.datasets) or 1, "at least")
    if reuse and limit_of(("data", "prefix_hit_rate"), reuse.hit_rate or 0):
        yield _figure("data", "prefix_hit_rate", reuse.hit_rate or 0, "at least")
    yield _figure("data", "bad_rows", profile.skipped, "rows that could not be used, at most")
    if len(profile.datasets) <= MANY_DATASETS:
        names = [dataset.name for dataset in profile.datasets if dataset.rows]
        yield BudgetLine(table="data", key="datasets", value=names, why="must be there")
    if findings.plan and (length := findings.plan.settings.max_model_len):
        why = "no prompt is refused at it; from the plan"
        yield BudgetLine(table="data", key="max_model_len", value=length, why=why)


def _memory(findings: Findings) -> Iterator[BudgetLine]:
    plan, verification = findings.plan, findings.verification
    if plan is not None and plan.memory is not None:
        table = "memory.predicted"
        yield from _peaks(table, predicted_peaks(plan.memory), plan.memory.total_gib)
        if plan.capacity and plan.capacity.p95:
            why = "the KV cache holds at least"
            yield _figure(table, "kv_requests_of_p95", plan.capacity.p95, why)
    if verification is not None and (run := verification.run("plan")) is not None:
        most = verification.machine.gpu_memory_gib if verification.machine else None
        yield from _peaks("memory.measured", measured_peaks(run), most)


def _peaks(
    table: str, peaks: Mapping[str, float | None], most: float | None
) -> Iterator[BudgetLine]:
    for key, peak in peaks.items():
        if peak is not None:
            # No GPU holds more than it has, though 10 % more would say so.
            limit = f"{decimals(min(roomy(peak, ROOM), max(most or inf, peak)))}GiB"
            yield BudgetLine(table=table, key=key, value=limit, why="GiB per GPU", today=peak)


def _speed(findings: Findings) -> Iterator[BudgetLine]:
    measured = findings.verification
    run = measured.run("plan") if measured else None
    figures = run.figures if run and run.ok else None
    for key in ("ttft_p95", "itl_p95"):
        if seconds := BY_PROMISE[key].value(figures):
            yield _figure("speed", key, seconds, "seconds, measured")
    if rate := OUTPUT_RATE.value(figures):
        yield _figure("speed", OUTPUT_RATE.promise, rate, "measured, at least")
    if measured and (equal := equal_outputs(measured, run)) is not None:
        why = "share of answers that are the same"
        yield BudgetLine(table="outputs", key="equal", value="99%", why=why, today=equal)


def _freshness(findings: Findings) -> Iterator[BudgetLine]:
    for key, artefact, why in (
        ("data", findings.profile, "the files are those that were counted"),
        ("plan", findings.plan_is_of_this_profile, "made from this profile"),
        ("verification", findings.verification_is_of_this_plan, "measured with this plan"),
    ):
        if artefact is not None:
            yield BudgetLine(table="freshness", key=key, value=True, why=why)


def _drift(findings: Findings, place: Path) -> Iterator[BudgetLine]:
    if findings.profile is None or not (place.parent / BASELINE).exists():
        return
    either = "relative change, either way; also of each dataset"
    for key, value, why in (
        ("baseline", BASELINE, "the profile that is compared with"),
        ("content", "same", 'no row is added, removed or changed; "any" switches it off'),
        ("p50", "10%", either),
        ("p95", "10%", either),
        ("max", "20%", either),
        ("new_datasets", 0, "at most"),
        ("vanished_datasets", 0, "at most"),
    ):
        names = key == "baseline"
        yield BudgetLine(table="drift", key=key, value=value, why=why, only_names=names)


def _slower(findings: Findings, place: Path) -> Iterator[BudgetLine]:
    if findings.verification is not None and (place.parent / MEASURED).exists():
        why = "the measurement that is compared with: at most 5 % slower"
        yield BudgetLine(table="speed", key="baseline", value=MEASURED, why=why)


def _settings(findings: Findings, place: Path) -> list[BudgetLine]:
    """What stands there and is not judged is allowed by name. One line failed is all failed."""
    if None in (findings.plan, findings.profile) or not (place.parent / ARGUMENTS).exists():
        return []
    good = 'it fits, and is simulated within 3 % of the plan; or "equal"'
    lines = [
        BudgetLine(table="settings", key="file", value=ARGUMENTS, why="the arguments you commit"),
        BudgetLine(table="settings", key="must_be", value="as-good", why=good),
    ]
    try:
        failed = judge(parse_budget(_rendered(lines), place), findings).failed
    except ChunkscopeError as error:
        return [replace(line, off=error.message) for line in lines]
    allowed = [check.subject for check in failed if check.name == "settings.allow"]
    if allowed:
        why = "may be there, and is not judged"
        lines.append(BudgetLine(table="settings", key="allow", value=allowed, why=why))
    others = [check.title for check in failed if check.name != "settings.allow"]
    return [replace(line, off=others[0] if others else "") for line in lines]


# -- `gate --update` -------------------------------------------------------------------------------

_NAMES = (("data", "datasets"), ("settings", "allow"))
_NOT_LIMITS = (*_NAMES, ("speed", "baseline"), ("data", "max_model_len"))


def updated_text(file: BudgetFile, findings: Findings) -> str:
    """The budget with its limits moved to today's values, all else left as it is written."""
    try:
        import tomlkit
    except ModuleNotFoundError:  # a job that only gates can do without
        raise MissingError("--update needs tomlkit", hint="pip install tomlkit") from None
    document: Any = tomlkit.parse(file.text)
    table = document
    for part in file.prefix:
        table = table[part]
    result = judge(file, findings)
    _update_names(table, result)
    today = {line.path: line for line in starting_lines(findings, file.path) if not line.off}
    for check in result.checks:
        is_limit = check.table in ("data", "memory", "speed", "outputs")
        stale = check.cause is not None or check.of_a_part
        if is_limit and check.place not in _NOT_LIMITS and not stale:
            _update_limit(table, check, today.get(check.place))
    return tomlkit.dumps(document)


def _update_limit(gate: Any, check: Check, line: BudgetLine | None) -> None:
    """`line` is what `--init` would write; there are limits that it does not."""
    *tables, key = check.place
    table = gate
    for name in tables:
        table = table.get(name, {})
    if key not in table:
        return
    value = check.value if isinstance(check.value, int | float) else None
    limit = line.value if line else limit_of(check.place, value) if value is not None else None
    old: Item = table[key]
    written = old.unwrap()
    dated = isinstance(written, dict)
    if limit is None or (check.passed and not (dated and _is_untouched(check.place, written))):
        return
    if dated and value is not None:
        if written != {"limit": limit, "today": value}:
            table[key]["limit"], table[key]["today"] = limit, round(value, 6)
    elif written != limit:
        table[key] = limit  # with the comment of the old one


def _is_untouched(key: Key, written: dict[str, Any]) -> bool:
    """Is it the limit that `--init` made from the value beside it?"""
    limit = limit_of(key, written["today"])
    return bool(limit == written["limit"]) or key[-1] == "equal"


def _update_names(gate: Any, result: GateResult) -> None:
    """Datasets that are gone are not asked for; arguments that nobody judges are allowed."""
    for check in result.failed:
        if check.cause is not None or check.place not in _NAMES:
            continue
        table, key = gate[check.place[0]], check.place[1]
        if key == "allow":
            table[key] = [*table.get(key, ()), check.subject]
        elif len(table[key]) > 1:
            table[key].remove(check.subject)
