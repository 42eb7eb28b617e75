"""The commands as Python functions with the same names and options, which return artefacts.

A command parses, calls one of these, and prints. `demo`, `doctor`, `gate`, `memory` and `prefixes`
are defined in other folders.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from chunkscope.errors import InputError, MissingError, UsageError, nearest

if TYPE_CHECKING:
    from chunkscope.console import Progress
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.profile import Profile
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.planning.plan import Plan
    from chunkscope.simulation.result import Simulation
    from chunkscope.verification.options import Report
    from chunkscope.verification.result import Verification

T = TypeVar("T")
Name = str | os.PathLike[str]
# Options that are repeated on a command line: their names there, and in the models.
ALIASES = {
    "field": "fields",
    "engine_arg": "engine_args",
}


def analyze(
    paths: Name | Sequence[Name],
    *,
    model: Name | None = None,
    ray: bool | str = False,
    export_trace: Name | None = None,
    export: "TraceExport | None" = None,
    options: "AnalyzeOptions | None" = None,
    listener: "Progress | None" = None,
    **given: Any,
) -> "Profile":
    """Measure how long the prompts are: `analyze("data/", model="qwen3-8b", field="question")`.

    Every option of the command and of chunkscope.toml is a keyword; `ray` may be an address.
    """
    from chunkscope.lengths.analyze import analyze as run
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.trace_export import TraceExport

    if model is not None:
        given["tokenizer"] = tokenizer_of(model)
    chosen = options or filled(AnalyzeOptions, given, "analyze")
    if ray:
        from chunkscope.lengths.on_ray import analyze_on_ray

        address = ray if isinstance(ray, str) else os.environ.get("RAY_ADDRESS")
        return analyze_on_ray(paths, address, options=chosen, listener=listener)
    export = export or (TraceExport() if export_trace is not None else None)
    profile = run(paths, options=chosen, listener=listener, export=export)
    if export is not None and export_trace is not None:
        export.write(Path(export_trace))
    return profile


def recommend(
    profiles: "Profile | Name | Sequence[Profile | Name] | None" = None, **given: Any
) -> "Plan":
    """Recommend vLLM settings: `recommend("profile.json", model="qwen3-8b", gpu="h100")`.

    Several profiles are planned as one run. `gpu` is this machine's by default, if it has one.
    """
    from chunkscope.hardware.gpus import LOCAL, find_gpu
    from chunkscope.lengths.profile import Profile, joined
    from chunkscope.planning.recommend import recommend as run
    from chunkscope.planning.rule import LengthRule

    cuts = [field.name for field in fields(LengthRule) if field.name in given]
    if cuts:
        given["rule"] = LengthRule(**{name: given.pop(name) for name in cuts})
    if "gpu" not in given:
        with suppress(MissingError):
            given["gpu"] = find_gpu(LOCAL)
    return run(Profile.load() if profiles is None else joined(profiles), **given)


def simulate(
    plan: "Plan | Name | None" = None,
    profile: "Profile | Name | Sequence[Profile | Name] | None" = None,
    *,
    calibration: Name | Sequence[Name] = (),
    tick: Callable[[], None] = lambda: None,
    **given: Any,
) -> "Simulation":
    """Predict what a setting does, without a GPU: `simulate(plan, profile, max_num_seqs=64)`."""
    from chunkscope.hardware.calibration import Calibration, together
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions, predict

    files = [calibration] if isinstance(calibration, str | os.PathLike) else calibration
    return predict(
        Plan.load(plan),
        None if profile is None and "trace" in given else profile_of(plan, profile),
        filled(SimulateOptions, given, "simulate"),
        calibration=together([Calibration.load(Path(f)) for f in files])
        if files
        else None,
        tick=tick,
    )


def verify(
    plan: "Plan | Name | None" = None,
    profile: "Profile | Name | Sequence[Profile | Name] | None" = None,
    *,
    model: str | None = None,
    endpoint: str | None = None,
    report: "Report | None" = None,
    resume: "Verification | Name | None" = None,
    **given: Any,
) -> "Verification":
    """Measure the plan on a real engine, or a running server at `endpoint`."""
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.options import VerifyOptions
    from chunkscope.verification.verify import verify as run
    from chunkscope.verification.verify import verify_endpoint

    profile = profile_of(plan, profile)
    options = filled(VerifyOptions, {**given, "model": model}, "verify")
    plan = Plan.load(plan)
    if endpoint is not None:
        return verify_endpoint(endpoint, plan, profile, options, report)
    return run(plan, profile, options, report, resume)


def report(
    folder: Name = "reports", new: Name | None = None, *, output: Name | None = None
) -> Path:
    """Write one HTML page of a folder's results, or of what changed in `new`. Returns its path."""
    from chunkscope.artefacts.files import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.report.folder import compare
    from chunkscope.report.page import render

    shown = load_findings(Path(folder if new is None else new))
    changes = compare(load_findings(Path(folder)), shown) if new is not None else None
    page = Path(output) if output is not None else shown.folder / "report.html"
    write_atomically(page, render(shown, changes))
    return page


def profile_of(
    plan: "Plan | Name | None",
    named: "Profile | Name | Sequence[Profile | Name] | None" = None,
) -> "Profile":
    """The named profiles joined, else the one that the plan was made from."""
    from chunkscope.lengths.profile import Profile, joined
    from chunkscope.planning.plan import Plan

    if named is not None:
        return joined(named)
    planned, usual = Plan.load(plan), Profile.default_path
    folder = Path(plan).parent if isinstance(plan, str | os.PathLike) else usual.parent
    for files in (planned.profile_files(folder), [folder / usual.name], [usual]):
        profile = joined(files) if files and all(map(Path.exists, files)) else None
        if profile is not None and profile.digest() == planned.source.profile_digest:
            return profile
    hint = "name it with --profile, or run `chunkscope recommend` again"
    raise InputError("the profile that the plan was made from is not here", hint=hint)


def tokenizer_of(model: Name) -> str:
    """A model's tokenizer: its folder or hub id."""
    from chunkscope.models.find import MODELS, built_in, suggestion

    name, path = str(model), Path(model).expanduser()
    if path.exists():
        return str(path.parent) if path.is_file() else name  # its config.json
    if shape := built_in(name):
        return shape.load_name
    if get_close_matches(name.lower(), MODELS, cutoff=0.8):  # mistyped
        raise MissingError(f"unknown model: {name}", hint=suggestion(name))
    return name


def option_types(kind: Any) -> dict[str, Any]:
    """Type by name of all options of a model or function, nested models included."""
    types: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        types |= option_types(hint) if is_dataclass(hint) else {name: hint}
    return {name: hint for name, hint in types.items() if name != "return"}


def filled(kind: type[T], given: dict[str, Any], command: str) -> T:
    """The options model from keywords; those of nested models are given flat (`delimiter`)."""
    names = option_types(kind)
    values = {ALIASES.get(name, name): value for name, value in given.items()}
    for name in sorted(values.keys() - names):
        written = {long: short for short, long in ALIASES.items()}
        hint = nearest(name, [written.get(one, one) for one in names])
        raise UsageError(f"{command} has no option {name}", hint=hint)
    for name, value in values.items():
        wanted, allowed = names[name], names[name] | os.PathLike | str
        if wanted in (str, str | None, Path | None) and not isinstance(value, allowed):
            raise UsageError(
                f"{name} is {value!r:.60}, not text", hint="write it in quotes"
            )
        if get_origin(wanted) is Literal and value not in get_args(wanted):
            raise UsageError(
                f"{name} is {value!r:.60}", hint=nearest(str(value), get_args(wanted))
            )
    if "slo" in values:
        from chunkscope.simulation.slo import read_slo

        values["slo"] = read_slo(values["slo"])
    return _filled(kind, values)


def _filled(kind: type[T], values: dict[str, Any]) -> T:
    hints: dict[str, Any] = get_type_hints(kind)
    nested = {}
    for name, hint in hints.items():
        if is_dataclass(hint):
            nested[name] = _filled(hint, values)  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in hints if name in values} | nested)
