"""The gate's verdict as blocks: which checks fail, why, and what to do about it."""

from collections.abc import Iterator, Sequence
from typing import Any

from chunkscope.artefacts.numbers import as_written, plural
from chunkscope.console import printable
from chunkscope.gating.check import UNITS, Check, GateResult, Relation
from chunkscope.report.blocks import (
    Block,
    Cell,
    Details,
    Headline,
    Look,
    Table,
    Text,
    table,
)
from chunkscope.report.notes import sentence
from chunkscope.report.wording import capital, named

MOST_FAILED = 30  # of the checks that fail, in the short answer
# What is counted, by the end of a check's name.
COUNTED = {"datasets": "row", "max_model_len": "prompt", "as-good": "prompt"}
# The comments of the budget that `gate --init` writes, by table and key.
COMMENTS = {
    "head": """# What `chunkscope gate` checks: it exits 1 when one of these fails.
# Written by `chunkscope gate --init`, with the values of that day in parentheses.
# In pyproject.toml the same tables are called [tool.chunkscope.gate...].
""",
    "data.datasets": "must be there",
    "data.max_model_len": "no prompt is refused at it; from the plan",
    "drift.baseline": "the profile that is compared with",
    "drift.content": 'no row is added, removed or changed; "any" switches it off',
    "drift.p50": "relative change, either way; also of each dataset",
    "drift.new_datasets": "at most",
    "drift.vanished_datasets": "at most",
    "settings.must_be": 'it fits, and is simulated within 3 % of the plan; or "equal"',
    "freshness.data": "the files are those that were counted",
    "freshness.plan": "made from this profile",
    "freshness.verification": "measured with this plan",
}


def gate_blocks(result: GateResult) -> list[Block]:
    blocks: list[Block] = [
        Headline(answer(result)),
        check_table(result.failed[:MOST_FAILED]),
    ]
    for checks in alike(result.failed):
        blocks.append(Text("\n".join(remedy(checks))))
    blocks.append(Details("Every check", (check_table(result.checks),)))
    return blocks


def answer(result: GateResult) -> str:
    checks = plural(len(result.checks), "check")
    if result.passed:
        return f"{checks} in {result.budget} passed."
    return f"{len(result.failed):,} of {checks} in {result.budget} failed."


def failure(result: GateResult) -> str:
    """The checks that fail, in a line."""
    titles = [printable(check.title) for check in result.failed]
    return f"{plural(len(titles), 'check')} failed: {named(titles, 3)}"


def check_table(checks: Sequence[Check]) -> Table:
    rows = []
    for check in checks:
        if check.passed:
            rows.append((Cell(text=check.title), f"ok: {outcome(check)}"))
        else:
            title = Cell(text=check.title, look=Look.BAD)
            rows.append((title, f"FAIL: {outcome(check)}"))
    return table(("check", "result"), rows, words=["result"])


# -- what a check found ----------------------------------------------------------------


def outcome(check: Check) -> str:
    """What a check found, and what was wanted where that is not the same."""
    if check.reason is None:
        return found(check)
    reason = sentence(check.reason)
    match check.reason.code:
        case "gate_refused_prompts":
            return f"{refused_prompts(check)}: {reason}"
        case "gate_within_plan":
            return f"{beside_the_plan(check)}; {reason}"
        case "gate_limit_breaks" | "gate_cannot_run":
            return reason
    return f"{found(check)}: {reason}"


def found(check: Check) -> str:
    """The value, and the limit in parentheses."""
    limit, value = check.limit, check.value
    match check.relation:
        case Relation.UNCHANGED:
            return "unchanged" if value == "same" else unchanged_state(value)
        case Relation.MADE_FROM:
            return made_from(limit, value)
        case Relation.ACCEPTED:
            return accepted(check)
        case Relation.ALLOWED:
            return f"allowed: {value}" if check.passed else str(value)
        case Relation.EQUAL:
            return equal(check)
    return measured(check)


def unchanged_state(value: object) -> str:
    """What became of a file or a dataset that should be as it was."""
    if value == "new":
        return "new, not in the profile"
    return str(value or "not known")


def made_from(limit: object, value: object) -> str:
    if value == "this":
        return f"made from this {limit}"
    if value == "another":
        return f"made from another {limit}"
    return "not known"


def accepted(check: Check) -> str:
    """Whether a vLLM takes an argument; without a version, whether it is the plan's."""
    if check.limit:
        verb = "accepts" if check.passed else "refuses"
        return f"vLLM {check.limit} {verb} it"
    return "as in the plan" if check.passed else "not as in the plan"


def equal(check: Check) -> str:
    value = setting(check.value)
    if check.passed:
        return value
    return f"{value} instead of {setting(check.limit)}"


def setting(value: Any) -> str:
    """An argument's value, for people."""
    if value is None:
        return "left to vLLM"
    if isinstance(value, bool):
        return "on" if value else "off"
    return as_written(value)


def measured(check: Check) -> str:
    """A figure and its limit, with enough digits to differ."""
    unit = UNITS[check.unit]
    limit, value = check.limit, check.value
    if not isinstance(limit, int | float):
        return "not known"
    if not isinstance(value, int | float):
        return f"not known ({check.relation} {counted(check, unit.brief(limit))})"
    if check.relation is Relation.WITHIN:
        limit_text, value_text = unit.write_both(limit, abs(value))
        return f"{sign(value)}{value_text} (within {limit_text})"
    limit_text, value_text = unit.write_both(limit, value)
    return f"{value_text} ({check.relation} {counted(check, limit_text)})"


def sign(value: float) -> str:
    if value > 0:
        return "+"
    if value < 0:
        return "-"
    return ""


def counted(check: Check, limit: str) -> str:
    """A limit with what is counted: `1 row`, `3 rows`."""
    noun = COUNTED.get(check.name.rpartition(".")[2])
    if check.unit != "count" or noun is None:
        return limit
    if limit == "1":
        return f"1 {noun}"
    return f"{limit} {noun}s"


def refused_prompts(check: Check) -> str:
    """How many prompts a server with this context refuses."""
    if not check.value:
        return "all prompts fit"
    limit = f" (at most {check.limit:,})" if check.limit else ""
    if check.value == 1:
        return f"1 prompt does not fit{limit}"
    return f"{check.value:,} prompts do not fit{limit}"


def beside_the_plan(check: Check) -> str:
    """How the committed settings compare with the plan's, by simulation."""
    return (
        f"predicted to take {times(check.value)} as long as the plan "
        f"(limit: {times(check.limit)})"
    )


def times(factor: Any) -> str:
    """
    >>> times(22.21), times(1.03), times(1)
    ('22x', '1.03x', '1x')
    """
    if factor >= 10:
        return f"{factor:,.0f}x"
    return f"{factor:.4g}x"


# -- what to do ------------------------------------------------------------------------


def alike(failed: Sequence[Check]) -> list[list[Check]]:
    """Checks that have one cause, or else one remedy, together; causes stand first."""
    by_cause: dict[str, list[Check]] = {}
    by_remedy: dict[str, list[Check]] = {}
    for check in failed:
        if check.cause is not None:
            by_cause.setdefault(sentence(check.cause), []).append(check)
        else:
            by_remedy.setdefault(check.remedy, []).append(check)
    return [*by_cause.values(), *by_remedy.values()]


def remedy(checks: Sequence[Check]) -> Iterator[str]:
    """Why they fail, and the command that mends it."""
    first = checks[0]
    names = list(dict.fromkeys(check.name for check in checks))
    accepted_names = named(names, 3)
    if first.cause is not None:
        yield f"{capital(sentence(first.cause))}. Affected: {', '.join(names)}."
        accepted_names = "it"
    if first.remedy:
        yield f"{purpose(first.remedy, accepted_names)}: {first.remedy}"


def purpose(command: str, names: str) -> str:
    """What a command is for, in front of it."""
    if command.startswith("cp "):
        return f"To accept {names}"
    if " --init --force" in command:
        return f"To accept {names}, write all limits anew from today's results"
    if " --emit " in command:
        return "To use the plan's settings"
    return "To make it again"
