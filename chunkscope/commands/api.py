"""The commands as Python functions: they take and return what the commands do, by the same names.

`memory`, `doctor` and `gate` are those of the layers below.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from chunkscope.errors import UsageError

if TYPE_CHECKING:
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan
    from chunkscope.reference.demo import Demonstration
    from chunkscope.report.reuse import PrefixSummary
    from chunkscope.simulation.result import Simulation
    from chunkscope.verification.result import Verification

T = TypeVar("T")
Name = str | os.PathLike[str]
# Options that a command line repeats, and what the models call them.
ALIASES = {"field": "fields", "name": "names", "prefix_file": "prefix_files"}


def analyze(
    paths: Name | Sequence[Name],
    *,
    model: Name | None = None,
    options: "AnalyzeOptions | None" = None,
    **given: Any,
) -> "Profile":
    """How long the prompts are: `analyze("data/", model="qwen3-8b", field="question")`.

    Every option of the command and of chunkscope.toml is a keyword.
    """
    from chunkscope.lengths.analyze import analyze as run
    from chunkscope.lengths.options import AnalyzeOptions

    if model is not None:
        given["tokenizer"] = tokenizer_of(model)
    return run(paths, options=options or filled(AnalyzeOptions, given, "analyze"))


def prefixes(profile: "Profile | Name", plan: "Plan | Name | None" = None) -> "PrefixSummary":
    """How much of the prompts vLLM's prefix cache can serve; with a plan, in its KV cache."""
    from chunkscope.report.reuse import prefixes as run

    return run(profile, plan)


def recommend(profiles: "Profile | Name | Sequence[Profile | Name]", **given: Any) -> "Plan":
    """Which vLLM settings to use: `recommend("profile.json", model="qwen3-8b", gpu="h100")`.

    Several profiles are sent together.
    """
    from chunkscope.planning.recommend import recommend as run

    return run(joined(profiles), **given)


def simulate(
    plan: "Plan | Name",
    profile: "Profile | Name | Sequence[Profile | Name] | None" = None,
    *,
    calibration: Name | Sequence[Name] = (),
    **given: Any,
) -> "Simulation":
    """What a setting does, without a GPU: `simulate(plan, profile, max_num_seqs=64)`."""
    from chunkscope.hardware.calibration import Calibration, together
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions, predict
    from chunkscope.simulation.slo import read_slo
    from chunkscope.vllm.settings import NAMES, Settings

    engine = {name: given.pop(name) for name in NAMES if name in given}
    if isinstance(given.get("slo"), str):
        given["slo"] = read_slo(given["slo"])
    files = [calibration] if isinstance(calibration, str | os.PathLike) else calibration
    return predict(
        Plan.given(plan),
        joined(profile) if profile is not None else None,
        filled(SimulateOptions, {**given, "asked": Settings.of(engine)}, "simulate"),
        calibration=together([Calibration.load(Path(f)) for f in files]) if files else None,
    )


def verify(
    plan: "Plan | Name",
    profile: "Profile | Name",
    *,
    model: str | None = None,
    endpoint: str | None = None,
    **given: Any,
) -> "Verification":
    """What a real engine does with the plan, or what a server at `endpoint` does."""
    from chunkscope.simulation.slo import read_slo
    from chunkscope.verification.verify import VerifyOptions, verify_endpoint
    from chunkscope.verification.verify import verify as run

    if isinstance(given.get("slo"), str):
        given["slo"] = read_slo(given["slo"])
    options = filled(VerifyOptions, given, "verify")
    if endpoint is None:
        return run(plan, profile, model=model, options=options)
    return verify_endpoint(endpoint, plan, profile, model=model, options=options)


def report(
    folder: Name = "reports", output: Name | None = None, *, compare: Name | None = None
) -> Path:
    """One HTML page of all results in a folder; `compare` adds what changed since another one."""
    from chunkscope.artefacts.codec import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.report.comparison import compare as changes
    from chunkscope.report.page import render

    findings = load_findings(Path(folder))
    old = load_findings(Path(compare)) if compare is not None else None
    page = Path(output) if output is not None else Path(folder) / "report.html"
    write_atomically(page, render(findings, changes(old, findings) if old else None))
    return page


def demo(**given: Any) -> "Demonstration":
    """Chunked prefill with a real model on this machine: `demo(chunks=(None, 256))`."""
    from chunkscope.reference.demo import DemoOptions, demonstrate

    return demonstrate(filled(DemoOptions, given, "demo"))


# -- options -------------------------------------------------------------------------------------


def joined(profiles: "Profile | Name | Iterable[Profile | Name]") -> "Profile":
    """One profile, or several put together."""
    from chunkscope.lengths.profile import Profile

    if isinstance(profiles, Profile | str | os.PathLike):
        return Profile.given(profiles)
    first, *others = map(Profile.given, profiles)
    return sum(others, start=first)


def tokenizer_of(model: Name) -> str:
    """The name under which a model's tokenizer is found."""
    from chunkscope.models.find import known_model

    path = Path(model).expanduser()
    if path.is_file():  # its config.json
        return str(path.parent)
    known = None if path.exists() else known_model(str(model))
    return known.hub_id(str(model)) if known else str(model)


def option_names(kind: type[Any]) -> dict[str, Any]:
    """Every option of a model by its name, with its type; those of nested models, too."""
    hints = get_type_hints(kind)
    names: dict[str, Any] = {}
    for field in fields(kind):
        if is_dataclass(field.default_factory):
            names |= option_names(field.default_factory)
        else:
            names[field.name] = hints[field.name]
    return names


def filled(kind: type[T], given: dict[str, Any], command: str) -> T:
    """The options model; options of nested models go by their own names: `delimiter`."""
    names = option_names(kind)
    values = {ALIASES.get(name, name): value for name, value in given.items()}
    for name in values:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            known = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(names))}"
            raise UsageError(f"{command} has no option {name}", hint=known)
    return _filled(kind, values)


def _filled(kind: type[T], values: dict[str, Any]) -> T:
    arguments: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        nested = field.default_factory
        if nested is not MISSING and is_dataclass(nested):
            arguments[field.name] = _filled(nested, values)
        elif field.name in values:
            arguments[field.name] = values[field.name]
    return kind(**arguments)
