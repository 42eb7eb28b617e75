"""The budget: what may be promised, table by table, checked key by key.

A table that is missing promises nothing; a key that is missing promises nothing.
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    create_model,
)

from chunkscope.artefacts import units
from chunkscope.artefacts.figures import Figure, Group, in_group
from chunkscope.errors import InputError


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Tokens = Annotated[int, BeforeValidator(units.TOKENS.read)]
Count = Annotated[int, BeforeValidator(units.COUNT.read)]
Share = Annotated[float, BeforeValidator(units.SHARE.read)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[str, ...], Strict(False)]  # TOML has only lists


class LengthPromises(_Table):
    """Limits on one dataset, or on all together."""

    longest_prompt: Tokens | None = None
    p50: Tokens | None = None
    p95: Tokens | None = None
    p99: Tokens | None = None
    min_rows: Count | None = None
    bad_rows: Count | None = None
    prefix_hit_rate: Share | None = None
    shared_prefix_tokens: Tokens | None = None


class DataPromises(LengthPromises):
    datasets: list[Text] | None = None
    max_model_len: Tokens | None = None
    allow_sample: bool = False
    of: dict[str, LengthPromises] = {}


class DriftPromises(_Table):
    baseline: Text
    p50: Share | None = None
    p95: Share | None = None
    max: Share | None = None
    new_datasets: Count | None = None
    vanished_datasets: Count | None = None
    each_dataset: bool = True
    allow_sample: bool = False


class SettingsPromises(_Table):
    file: Text
    form: Literal["vllm-args", "vllm-yaml", "lm-eval"] | None = None
    must_be: Literal["equal", "as-good"] = "as-good"
    threshold_tolerance: Share | None = None
    vllm_version: Text | None = None
    allow: Names = ()


TIMES = in_group(Group.TTFT, Group.ITL, Group.E2E)
SPEED = (*TIMES, *(figure for figure in in_group(Group.THROUGHPUT) if figure.promise))
PEAKS = tuple(figure for figure in in_group(Group.MEMORY) if figure.promise)

if TYPE_CHECKING:  # their keys are the figures', which a type checker cannot know
    Peaks = _Table
    LatencyPromises = _Table
    Speeds = _Table
else:

    def _limits(name: str, figures: tuple[Figure, ...]) -> type:
        fields = {
            figure.promise: (Annotated[float, BeforeValidator(figure.unit.read)] | None, None)
            for figure in figures
        }
        return create_model(name, __base__=_Table, **fields)

    Peaks = _limits("Peaks", PEAKS)
    LatencyPromises = _limits("LatencyPromises", TIMES)
    Speeds = _limits("Speeds", SPEED)


class PeakPromises(Peaks):
    kv_requests_of_p95: Count | None = None


class MemoryPromises(_Table):
    setting: Text = "plan"
    predicted: PeakPromises | None = None
    measured: PeakPromises | None = None


class SpeedPromises(Speeds):
    setting: Text = "plan"
    short: LatencyPromises | None = None
    long: LatencyPromises | None = None
    baseline: Text | None = None
    tolerance: Share = 0.05
    compare: Names = ("ttft_p95", "itl_p95", "output_tokens_per_s")


class OutputPromises(_Table):
    """How far answers may differ from those of the run that others are compared with."""

    setting: Text = "plan"
    equal: Share | None = None


class DoctorPromises(_Table):
    """Limits on what an engine's log says."""

    findings: Count | None = None
    refused_prompts: Count | None = None
    kv_use: Share | None = None
    prefix_hit_rate: Share | None = None


class FreshnessPromises(_Table):
    data: bool = False
    plan: bool = False
    verification: bool = False
    not_checked: list[Text] = []


class Budget(_Table):
    output_tokens: Annotated[Tokens, Field(ge=1)] | None = None
    data: DataPromises | None = None
    drift: DriftPromises | None = None
    settings: SettingsPromises | None = None
    memory: MemoryPromises | None = None
    speed: SpeedPromises | None = None
    outputs: OutputPromises | None = None
    doctor: DoctorPromises | None = None
    freshness: FreshnessPromises | None = None


def parse_budget(table: dict[str, Any], *, file: str, prefix: str) -> Budget:
    """The table under `prefix` of that file; InputError names the key and what it may be."""
    try:
        budget = Budget.model_validate(table)
    except ValidationError as error:
        raise _fault(error.errors(include_url=False)[0], file, prefix) from None
    known = [figure.promise for figure in SPEED]
    for name in budget.speed.compare if budget.speed else ():
        if name not in known:
            what = f"{file}: {prefix}.speed.compare: there is no figure {name!r}"
            raise InputError(what, hint=_nearest(name, known))
    return budget


def _fault(fault: Any, file: str, prefix: str) -> InputError:
    place = [str(part) for part in fault["loc"]]
    where = f"{file}: {'.'.join((prefix, *place))}"
    if fault["type"] == "extra_forbidden":
        return unknown_key(place[-1], _known_at(place[:-1]), where)
    if fault["type"] == "missing":
        return InputError(f"{where} is missing", hint=f"add a line `{place[-1]} = ...`")
    return InputError(f"{where}: {_said(fault)}")


def _said(fault: Any) -> str:
    """Pydantic's words, or ours where a validator spoke."""
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "literal_error":
        return f"{fault['input']!r} is not one of {fault['ctx']['expected']}"
    return message[0].lower() + message[1:]


def _known_at(place: list[str]) -> list[str]:
    """The keys that may stand in a table."""
    model: Any = Budget
    for part in place:
        if part in model.model_fields:  # else it is the name of a dataset in `data.of`
            model = _table_in(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _table_in(annotation: Any) -> type[_Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, _Table):
        return annotation
    return next(filter(None, map(_table_in, get_args(annotation))), None)


def unknown_key(key: str, known: list[str], where: str) -> InputError:
    return InputError(f"{where} is no promise known here", hint=_nearest(key, known))


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
