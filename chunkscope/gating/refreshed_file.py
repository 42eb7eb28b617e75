"""`gate --update`: the limits of a budget moved to today's figures, all else left as it is written.

Moved is what is broken, and what still stands as `--init` wrote it; a limit that a person chose and
that is kept stays. Figures of a stale artefact are not taken.
"""

import re
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.units import SECONDS, SHARE
from chunkscope.errors import InputError, MissingError
from chunkscope.findings import Findings
from chunkscope.gating.budget_file import BudgetFile
from chunkscope.gating.check import judge
from chunkscope.gating.limits import Key, limit_of, unit_of
from chunkscope.gating.starting_file import Promise, starting_promises
from chunkscope.gating.verdict import GateResult, Verdict

if TYPE_CHECKING:
    from tomlkit.items import Item

_TODAY = re.compile(r"today ([0-9][0-9,.]*[0-9]|[0-9])( ms| %)?")
_NAMES = (("data", "datasets"), ("settings", "allow"))


def refreshed_text(file: BudgetFile, findings: Findings) -> str:
    try:
        import tomlkit
    except ModuleNotFoundError:  # a job that only gates can do without
        raise MissingError("--update needs tomlkit", hint="pip install tomlkit") from None
    try:
        document = tomlkit.parse(file.text)
    except ValueError as error:
        raise InputError(f"{file.path} is no TOML: {error}") from None
    table: Any = document
    for part in file.prefix:
        table = table[part]
    result = judge(file, findings)
    _refresh_names(table, result)
    today = {line.path: line for line in starting_promises(findings, file.path) if not line.off}
    for verdict in result.verdicts:
        if _is_limit(verdict.key) and not (verdict.because or verdict.is_doubted):
            _refresh(table, verdict, today.get(verdict.key))
    return tomlkit.dumps(document)


def _is_limit(key: Key) -> bool:
    """On a figure; other keys name files, or say how far something may move."""
    return key[0] in ("data", "memory", "speed", "outputs") and key not in (
        *_NAMES,
        ("speed", "baseline"),
    )


def _refresh(gate: Any, verdict: Verdict, promise: Promise | None) -> None:
    """`promise` is what `--init` would write; there are limits that it does not."""
    *tables, key = verdict.key
    table = gate
    for name in tables:
        table = table.get(name, {})
    if key not in table:
        return
    limit = promise.value if promise else _limit(verdict)
    is_moved = not verdict.kept or _as_written(verdict.key, table[key])
    if promise is not None:
        _retell(table[key], promise)
    if is_moved and limit is not None and limit != table[key].unwrap():
        table[key] = limit  # with the comment of the old one


def _limit(verdict: Verdict) -> int | str | None:
    found = verdict.found_value
    known = isinstance(found, int | float) and verdict.key != ("data", "max_model_len")
    return limit_of(verdict.key, found) if known else None


def _as_written(key: Key, old: "Item") -> bool:
    """Is it the limit that `--init` gave to the figure in its comment?"""
    told = _TODAY.search(old.trivia.comment)
    if told is None:
        return False
    unit = unit_of(key)
    scale = 1000 if unit is SECONDS else 100 if unit is SHARE else 1
    return bool(limit_of(key, float(told[1].replace(",", "")) / scale) == old.unwrap())


def _retell(item: "Item", promise: Promise) -> None:
    """The figure in the comment that `--init` wrote."""
    told = _TODAY.search(promise.why)
    if told and _TODAY.search(item.trivia.comment):
        item.trivia.comment = _TODAY.sub(told[0], item.trivia.comment, count=1)


def _refresh_names(gate: Any, result: GateResult) -> None:
    """Datasets that are gone are not asked for; arguments that nobody judges are allowed."""
    for verdict in result.broken:
        if verdict.because or verdict.key not in _NAMES:
            continue
        table, key = gate[verdict.key[0]], verdict.key[1]
        if key == "allow":
            table[key] = [*table.get(key, ()), verdict.subject]
        elif len(table[key]) > 1:
            table[key].remove(verdict.subject)
