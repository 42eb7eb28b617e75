"""What is said of the gate's checks."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.numbers import as_written, number, plural
from chunkscope.console import printable
from chunkscope.report.words import Template, sentence

if TYPE_CHECKING:
    from chunkscope.gating.check import Check, GateResult

NAMED = 3  # datasets in a sentence
VALUES = {  # of a check that compares no numbers
    "same": "the same",
    "new": "not in the profile",
    "this": "it is",
    "another": "made from another",
}


def answer(result: "GateResult") -> str:
    count, failed = len(result.checks), len(result.failed)
    if failed:
        return f"{failed:,} of {plural(count, 'check')} in {result.budget} fail."
    return f"All {plural(count, 'check')} in {result.budget} pass."


def failure(result: "GateResult") -> str:
    """The error of a gate that says no."""
    titles = [printable(check.title) for check in result.failed]
    return f"{plural(len(titles), 'check')} failed: {_first(titles)}"


def limit_text(check: "Check") -> str:
    """What the budget asks for: "at most 8,000 tokens"."""
    return _texts(check)[0]


def value_text(check: "Check") -> str:
    """What the artefacts say."""
    return _texts(check)[1]


def _texts(check: "Check") -> tuple[str, str]:
    """Limit and value, by how they stand to each other."""
    limit, value, relation = check.limit, check.value, str(check.relation)
    match relation:
        case "present":
            rows = "not in the profile" if value is None else plural(value, "row")  # type: ignore[arg-type]
            return "there", rows
        case "unchanged":
            return "unchanged", VALUES.get(str(value), str(value or "not known"))
        case "made from":
            return f"made from this {limit}", VALUES.get(str(value), "not known")
        case "accepted":
            asked = f"vLLM {limit} takes it" if limit else "as the plan"
            return asked, "it does" if check.passed else "it does not"
        case "allowed":
            return "allowed" if check.passed else "left to vLLM", str(value)
        case "held":
            tokens = f", with a request of {number(limit)} tokens" if limit else ""  # type: ignore[arg-type]
            cache = "not known" if value is None else f"a KV cache of {value:,} tokens, predicted"
            return f"fits the memory{tokens}", cache
        case "equal":
            return _setting(limit), _setting(value)
    texts = _numbers(check)
    return f"{relation} {texts[0]}", texts[1]


def found(check: "Check") -> str:
    """The value, with what is to be said of it."""
    text = value_text(check)
    return f"{text} ({sentence(check.reason)})" if check.reason else text


def both(check: "Check") -> str:
    return f"limit {limit_text(check)}, found {value_text(check)}"


def remedy(checks: "Sequence[Check]") -> Iterator[str]:
    first = checks[0]
    if first.cause:
        names = ", ".join(dict.fromkeys(check.name for check in checks))
        yield f"{sentence(first.cause)}. Failing because of that: {names}."
    if first.remedy:
        yield f"If that is intended: {first.remedy}"


def _numbers(check: "Check") -> tuple[str, str]:
    """Limit and value; two that differ never look the same."""
    from chunkscope.gating.check import UNITS

    limit, value, unit = check.limit, check.value, UNITS[check.unit]
    if not isinstance(limit, int | float):
        return "", "not known"
    if value is None or isinstance(value, str):
        return unit.write(limit), "not known"
    if check.relation == "within":
        texts = unit.write_both(limit, abs(value))
        return texts[0], f"{'+' if value > 0 else '-' if value else ''}{texts[1]}"
    return unit.write_both(limit, value)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "left to vLLM" if value is None else as_written(value)


def _first(names: "Sequence[str]") -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _written(value: float, unit: str) -> str:
    from chunkscope.gating.check import UNITS

    return UNITS[unit].write(value)


def _rows_changed(added: int | None, removed: int | None, before: int, now: int) -> str:
    if added is None or removed is None:
        return f"{before:,} rows before, {now:,} now"
    changed = min(added, removed)
    counts = {"changed": changed, "added": added - changed, "removed": removed - changed}
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    return f"{', '.join(parts) or 'none changed'} of {before:,} rows"


SENTENCES: dict[str, Template] = {
    "argument_refused": "{why}",
    "argument_unknown": "{why}",
    "argument_dropped": "vLLM drops `{key}: false` silently; write `no-{instead}: true`",
    "argument_partial_prefills": "vLLM refuses it: concurrent partial prefills are not supported",
    "argument_other_file": "that other file is not read: name it in settings.file",
    "gate_no_such_run": lambda count, setting, names: (
        f"{count or 'no'} runs are called {setting}; there are: {names or 'none'}"
    ),
    "gate_run_failed": "the run ended as {status}",
    "gate_unread_dataset": "{dataset} could not be read to its end",
    "gate_sample_only": "{rows} of {out_of} rows of {dataset} were counted; `allow_sample = true` "
    "accepts that",
    "gate_refused_prompts": "vLLM refuses prompts over {context} less {output} output tokens; the "
    "longest of {of} has {longest}",
    "gate_rows": _rows_changed,
    "gate_rows_unknown": "not all rows were read, here or for the baseline",
    "gate_moved": lambda before, now: f"{number(before)} before, {number(now)} now",
    "gate_no_memory_model": "not known without `chunkscope recommend --model --gpu`",
    "gate_not_measured": "this run did not measure it",
    "gate_not_simulated": "nothing was simulated: `chunkscope recommend --model --gpu`",
    "gate_random_weights": "random weights: verify a model with its own weights",
    "gate_outputs_not_compared": "not compared: `chunkscope verify --check-outputs`",
    "gate_log_silent": "the log does not say",
    "gate_rules": "{rules}",
    "gate_cannot_look": "{why}",
    "gate_no_file": "no file to look at (stdin or a hub dataset): name it in `not_checked`",
    "gate_not_led_to": "{path} is no longer among what was analyzed: analyze again",
    "gate_file": "{path}",
    "gate_arguments_checked": "{checked:argument} checked, {harmless} without effect here",
    "gate_other_model": "the plan is about {planned}",
    "gate_unjudged": 'it may change memory or speed; `allow = ["{name}"]` accepts it',
    "gate_default_unknown": "vLLM's default is not known without `chunkscope recommend --model "
    "--gpu`",
    "gate_split_otherwise": "as many GPUs, split differently",
    "gate_would_not_start": "vLLM would not start: the driver needs some of that memory",
    "gate_logprobs_do_not_fit": "prompt logprobs, which vLLM does not profile, would not fit",
    "gate_cannot_run": "it cannot run (predicted)",
    "gate_within_plan": "predicted with {requests} requests, beside the plan",
    "gate_limit_breaks": "predicted with {requests} requests: a limit breaks that the plan keeps",
    "gate_data_changed": lambda profile, names: (
        f"The data changed since {profile} was written: {_first(names)}"
    ),
    "gate_other_profile": "{plan} was made from another profile than {profile}",
    "gate_other_plan": "{verify} was measured with another plan than {plan}",
}
