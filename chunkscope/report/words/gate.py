"""Sentences about the gate's checks: limit, value, reason and remedy."""

from collections.abc import Iterator
from typing import Any

from chunkscope.artefacts.numbers import as_written, number, plural
from chunkscope.console import printable
from chunkscope.gating.check import UNITS, Check, GateResult
from chunkscope.report.words import Template, named, sentence

VALUES = {  # of checks without numbers
    "same": "unchanged",
    "new": "new: not in the profile",
    "this": "made from this {}",
    "another": "made from another {}",
}
# The unit of a count, by the end of the check's name.
COUNTED = {
    "datasets": "row",
    "max_model_len": "refused prompts",
    "as-good": "refused prompts",
}
COMMENTS = {  # of the budget that `gate --init` writes: its lines by table and key
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


def _rows(before: int, now: int) -> str:
    if before == now:
        return f"{now:,} rows"
    return f"{before:,} rows before, {now:,} now"


SENTENCES: dict[str, Template] = {
    "argument_refused": "{why}",
    "argument_unknown": "vLLM {version} [known?does not have it|has no such argument]"
    "[since?, {since} does][alike?; did you mean {alike}?]",
    "argument_stray": 'the word "{word}" belongs to no argument',
    "argument_twice": "lm-eval takes it or {other}, not both",
    "argument_not_of_llm": "vLLM's LLM class has no such argument",
    "argument_no_number": '"{value}" is not a whole number',
    "argument_dropped": "vLLM drops `{key}: false` silently; write `no-{instead}: true`",
    "argument_partial_prefills": "vLLM refuses it: concurrent partial prefills are not supported",
    "argument_other_file": "that other file is not read: name it in settings.file",
    "gate_no_such_run": "no run called {setting}; there are: {names}",
    "gate_run_failed": "the run ended as {status}",
    "gate_no_such_dataset": "not in the profile",
    "gate_unread_dataset": "{dataset} could not be read to its end",
    "gate_sample_only": "only {rows} of {out_of} rows of {dataset} counted (see allow_sample)",
    "gate_refused_prompts": "vLLM refuses prompts over {context} less {output} output tokens; the "
    "longest of {of} has {longest}",
    "gate_rows": _rows,
    "gate_rows_unknown": "not all rows were read, here or for the baseline",
    "gate_moved": lambda before, now: f"{number(before)} before, {number(now)} now",
    "gate_no_memory_model": "not known without `chunkscope recommend --model --gpu`",
    "gate_not_measured": "this run did not measure it",
    "gate_not_simulated": "nothing was simulated: `chunkscope recommend --model --gpu`",
    "gate_random_weights": "random weights: verify a model with its own weights",
    "gate_outputs_not_compared": "not compared: `chunkscope verify --check-outputs`",
    "gate_rules": "{rules}",
    "gate_cannot_look": "{why}",
    "gate_no_file": "no file to look at (stdin or a hub dataset): name it in `not_checked`",
    "gate_not_led_to": "{path} is no longer in the analyzed data: analyze again",
    "gate_file": "{path}",
    "gate_arguments_checked": "{checked:argument} checked",
    "gate_other_model": "the plan is for {planned}",
    "gate_unjudged": 'it may change memory or speed; `allow = ["{name}"]` accepts it',
    "gate_cannot_run": "it cannot run (predicted)",
    "gate_within_plan": "of the plan's, predicted with {requests} requests; different: {names}",
    "gate_limit_breaks": "predicted to break a limit that the plan keeps; different: {names}",
    "made_from_another": "{file} was made from another {source}",
}


def answer(result: GateResult) -> str:
    failed, checks = len(result.failed), plural(len(result.checks), "check")
    part, state = (f"{failed:,} of ", "failed") if failed else ("", "passed")
    return f"{part}{checks} in {result.budget} {state}."


def failure(result: GateResult) -> str:
    titles = [printable(check.title) for check in result.failed]
    return f"{plural(len(titles), 'check')} failed: {named(titles, 3)}"


def texts(check: Check) -> tuple[str, str]:
    """The limit and the value as text, by the relation that is checked."""
    limit, value, relation = check.limit, check.value, str(check.relation)
    match relation:
        case "unchanged" | "made from":
            return "", VALUES.get(str(value), str(value or "not known")).format(limit)
        case "accepted":
            does, is_as = ("accepts", "as") if check.passed else ("refuses", "not as")
            return "", f"vLLM {limit} {does} it" if limit else f"{is_as} in the plan"
        case "allowed":
            return "", f"allowed: {value}" if check.passed else str(value)
        case "equal":
            return f"must be {_setting(limit)}", _setting(value)
    wanted, figure = _numbers(check)
    noun = (
        COUNTED.get(check.name.rpartition(".")[2], "") if check.unit == "count" else ""
    )
    return f"{relation} {wanted} {noun}".rstrip(), figure


def _numbers(check: Check) -> tuple[str, str]:
    """Limit and value with enough digits to differ."""
    limit, value, unit = check.limit, check.value, UNITS[check.unit]
    if not isinstance(limit, int | float) or not isinstance(value, int | float):
        return unit.brief(limit) if isinstance(limit, int | float) else "", "not known"
    if check.relation == "within":
        written = unit.write_both(limit, abs(value))
        return written[0], f"{'+' if value > 0 else '-' if value else ''}{written[1]}"
    return unit.write_both(limit, value)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "left to vLLM" if value is None else as_written(value)


def value_text(check: Check) -> str:
    """The value, with its reason in parentheses."""
    text = texts(check)[1]
    return f"{text} ({sentence(check.reason)})" if check.reason else text


def result(check: Check) -> str:
    limit = texts(check)[0]
    return f"{limit}, found {value_text(check)}" if limit else value_text(check)


def remedy(*checks: Check) -> Iterator[str]:
    first, names = checks[0], list(dict.fromkeys(check.name for check in checks))
    if first.cause:
        yield f"{sentence(first.cause)}. Affected: {', '.join(names)}."
    if first.remedy:
        what = "it" if first.cause else named(names, 3)
        yield f"{_purpose(first.remedy, what)}: {first.remedy}"


def _purpose(command: str, what: str) -> str:
    if command.startswith("cp "):
        return f"To accept {what}"
    if " --init --force" in command:
        return f"To accept {what}, write all limits anew from today's results"
    if " --emit " in command:
        return "The plan's settings"
    return "To make it again"
