"""Notes about the gate's checks, as text: reasons of a value, refusals, causes."""

from collections.abc import Sequence

from chunkscope.artefacts.numbers import number, plural
from chunkscope.report.wording import NoteText, named


def rows(*, before: int, now: int) -> str:
    if before == now:
        return plural(now, "row")
    return f"{plural(before, 'row')} before, {now:,} now"


def moved(*, before: float | None, now: float | None) -> str:
    return f"{number(before)} before, {number(now)} now"


def refused_prompts(*, context: int, output: int, longest: int, of: int) -> str:
    """`of` and `longest` are for programs that read the check."""
    del longest, of
    return (
        f"max_model_len {context:,} leaves {context - output:,} tokens for the prompt"
    )


def within_plan(*, requests: int, names: Sequence[str]) -> str:
    return f"{differing(names)} (simulated with {plural(requests, 'request')})"


def limit_breaks(*, requests: int, names: Sequence[str]) -> str:
    return (
        "predicted to break a limit that the plan keeps; "
        f"{differing(names)} (simulated with {plural(requests, 'request')})"
    )


def differing(names: Sequence[str]) -> str:
    """
    >>> differing(["max_num_seqs"]), differing(["a", "b"])
    ('max_num_seqs differs from the plan', 'a and b differ from the plan')
    """
    verb = "differs" if len(names) == 1 else "differ"
    return f"{named(names, 3)} {verb} from the plan"


def no_such_run(*, count: int, setting: str, names: Sequence[str]) -> str:
    if count == 0:
        return f"no run is called {setting}; the runs are {', '.join(names)}"
    return f"{count:,} runs are called {setting}; the runs are {', '.join(names)}"


def argument_unknown(
    *, version: str, since: str | None, known: bool, alike: Sequence[str]
) -> str:
    if not known:
        text = f"vLLM {version} has no such argument"
    elif since:
        text = f"vLLM {version} does not have it, {since} does"
    else:
        text = f"vLLM {version} does not have it"
    if alike:
        text += f"; did you mean {', '.join(alike)}?"
    return text


NOTES: dict[str, NoteText] = {
    "argument_refused": "{why}",
    "argument_unknown": argument_unknown,
    "argument_stray": 'the word "{word}" belongs to no argument',
    "argument_twice": "lm-eval takes it or {other}, not both",
    "argument_not_of_llm": "vLLM's LLM class has no such argument",
    "argument_no_number": '"{value}" is not a whole number',
    "argument_dropped": "vLLM drops `{key}: false` silently; write `no-{instead}: "
    "true`",
    "argument_partial_prefills": "vLLM refuses it: concurrent partial prefills are not "
    "supported",
    "argument_other_file": "the file it names is not read; name it in settings.file "
    "instead",
    "gate_no_such_run": no_such_run,
    "gate_run_failed": "the run ended as {status}",
    "gate_no_such_dataset": "it is not in the profile",
    "gate_unread_dataset": "{dataset} could not be read to its end",
    "gate_sample_only": "only {rows} of {out_of} rows of {dataset} were counted "
    "(allow_sample = true accepts that)",
    "gate_refused_prompts": refused_prompts,
    "gate_rows": rows,
    "gate_rows_unknown": "not all rows were read, here or for the baseline",
    "gate_moved": moved,
    "gate_no_memory_model": "not known without `chunkscope recommend --model --gpu`",
    "gate_not_measured": "this run did not measure it",
    "gate_not_simulated": "nothing was simulated: `chunkscope recommend --model --gpu`",
    "gate_random_weights": "the weights were random: verify a model with its own "
    "weights",
    "gate_outputs_not_compared": "the answers were not compared: `chunkscope verify "
    "--check-outputs`",
    "gate_rules": "{rules}",
    "gate_cannot_look": "{why}",
    "gate_no_file": "stdin and a set on the hub are no files to look at: name it in "
    "not_checked",
    "gate_not_led_to": "{path} is no longer in the analyzed data: analyze again",
    "gate_file": "{path}",
    "gate_arguments_checked": "{checked:plural(argument)} checked",
    "gate_other_model": "the plan is for {planned}",
    "gate_unjudged": 'it may change memory or speed; `allow = ["{name}"]` accepts it',
    "gate_cannot_run": "it cannot run (predicted)",
    "gate_within_plan": within_plan,
    "gate_limit_breaks": limit_breaks,
    "made_from_another": "{file} was made from another {source}",
}
