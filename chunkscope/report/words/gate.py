"""What is said of the gate's checks."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.numbers import as_written, number, plural
from chunkscope.console import printable
from chunkscope.report.words import Template, sentence

if TYPE_CHECKING:
    from chunkscope.gating.check import Check, GateResult

NAMED = 3  # datasets in a sentence


def answer(result: "GateResult") -> str:
    count, failed = len(result.checks), len(result.failed)
    if failed:
        return f"{failed:,} of {plural(count, 'check')} in {result.budget} fail."
    return f"All {plural(count, 'check')} in {result.budget} pass."


def failure(result: "GateResult") -> str:
    """The error of a gate that says no."""
    names = ", ".join(printable(check.title) for check in result.failed[:NAMED])
    more = f" and {len(result.failed) - NAMED:,} more" if len(result.failed) > NAMED else ""
    return f"{plural(len(result.failed), 'check')} failed: {names}{more}"


def limit_text(check: "Check") -> str:
    """What the budget asks for: "at most 8,000 tokens"."""
    limit, relation = check.limit, str(check.relation)
    match relation:
        case "present":
            return "there"
        case "unchanged":
            return "unchanged"
        case "made from":
            return f"made from this {limit}"
        case "accepted":
            return f"vLLM {limit} takes it" if limit else "as the plan"
        case "allowed":
            return "allowed" if check.passed else "left to vLLM"
        case "held":
            tokens = f", and a request of {number(limit)} tokens" if limit else ""  # type: ignore[arg-type]
            return f"the memory model holds it{tokens}"
        case "equal":
            return _setting(limit)
    return f"{relation} {_numbers(check)[0]}"


def value_text(check: "Check") -> str:
    """What the artefacts say."""
    value, relation = check.value, str(check.relation)
    match relation:
        case "present":
            text = "not in the profile" if value is None else plural(value, "row")  # type: ignore[arg-type]
        case "unchanged":
            names = {"same": "the same", "changed": "changed", "new": "not in the profile"}
            text = names.get(str(value), "not known")
        case "made from":
            text = {"this": "it is", "another": "made from another"}.get(str(value), "not known")
        case "accepted":
            text = "it does" if check.passed else "it does not"
        case "allowed":
            text = str(value)
        case "held":
            text = "not known" if value is None else f"a KV cache of {value:,} tokens, predicted"
        case "equal":
            text = _setting(value)
        case _:
            text = _numbers(check)[1]
    return text


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
    if value is None:
        return "left to vLLM"
    if isinstance(value, bool):
        return "on" if value else "off"
    return as_written(value)


def _written(value: float, unit: str) -> str:
    from chunkscope.gating.check import UNITS

    return UNITS[unit].write(value)


def _no_such_run(count: int, setting: str, names: str) -> str:
    how_many = "no run is" if not count else f"{count} runs are"
    return f"{how_many} called {setting}; there are: {names or 'none'}"


def _data_changed(profile: str, names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"The data changed since {profile} was written: {', '.join(names[:NAMED])}{more}"


def _within_plan(value: float, unit: str, requests: int) -> str:
    return f"predicted with {requests:,} requests; the plan: {_written(value, unit)}"


def _arguments_checked(checked: int, harmless: int) -> str:
    no_effect = f", {harmless:,} have no effect here" if harmless else ""
    return f"{plural(checked, 'argument')} checked{no_effect}"


def _refused_prompts(context: int | None, output: int, of: int, longest: int | None) -> str:
    room = f"vLLM refuses prompts over {number(context)} less {number(output)} for the output"
    return f"{room}; the longest of {of:,} has {number(longest)} tokens"


SENTENCES: dict[str, Template] = {
    "argument_refused": "{why}",
    "argument_unknown": "{why}",
    "argument_dropped": "vLLM drops `{key}: false` without a word; write `no-{instead}: true`",
    "argument_partial_prefills": "vLLM refuses it: concurrent partial prefills are not supported",
    "argument_other_file": "another file is not looked at: name that one in settings.file",
    "gate_no_such_run": _no_such_run,
    "gate_run_failed": "the run ended as {status}",
    "gate_unread_dataset": "{dataset} could not be read to its end",
    "gate_sample_only": (
        "only {rows:,} of {out_of:,} rows of {dataset} were counted; "
        "write `allow_sample = true` if that will do"
    ),
    "gate_refused_prompts": _refused_prompts,
    "gate_moved": lambda before, now: f"{number(before)} before, {number(now)} now",
    "gate_no_memory_model": "not known without `chunkscope recommend --model --gpu`",
    "gate_not_measured": "this run did not measure it",
    "gate_not_simulated": "nothing was simulated: `chunkscope recommend --model --gpu`",
    "gate_random_weights": "random weights: ties decide; verify a model with its own weights",
    "gate_outputs_not_compared": "not compared: `chunkscope verify --check-outputs`",
    "gate_log_silent": "the log does not say",
    "gate_rules": "{rules}",
    "gate_cannot_look": "{why}",
    "gate_no_file": "no file to look at (stdin or a hub dataset): name it in `not_checked`",
    "gate_not_led_to": "what was analyzed no longer leads to {path}: analyze again",
    "gate_file": "{path}",
    "gate_arguments_checked": _arguments_checked,
    "gate_other_model": "the plan is about {planned}",
    "gate_unjudged": (
        "it may change memory or speed, and nothing here judges it; "
        'write `allow = ["{name}"]` if that is meant'
    ),
    "gate_default_unknown": (
        "vLLM's default is not known without `chunkscope recommend --model --gpu`"
    ),
    "gate_split_otherwise": "as many GPUs, split differently",
    "gate_would_not_start": "vLLM would not start: the driver needs some of that memory",
    "gate_logprobs_do_not_fit": "prompt logprobs, which vLLM does not profile, would not fit",
    "gate_cannot_run": "it cannot run (predicted)",
    "gate_within_plan": _within_plan,
    "gate_data_changed": _data_changed,
    "gate_other_profile": "{plan} was made from another profile than {profile}",
    "gate_other_plan": "{verify} was measured with another plan than {plan}",
}
