"""The budget: which file holds it, what may be asked, table by table, and reading it.

`--config FILE`, else chunkscope.toml, else pyproject.toml. In pyproject.toml the table is
[tool.chunkscope.gate], elsewhere [gate]. A table or key that is missing asks for nothing. A limit
that `gate --init` wrote carries the value of its day: `p95 = { limit = 3200, today = 2880 }`.
"""

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
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
from chunkscope.artefacts.codec import read_text
from chunkscope.artefacts.figures import Figure, Group, in_group
from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.gating.check import Key

BUDGET = Path("chunkscope.toml")
PROJECT = Path("pyproject.toml")
HINT = "write a starting file with `chunkscope gate --init`"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _read_by(unit: units.Unit) -> BeforeValidator:
    def read(given: Any) -> float:
        dated = isinstance(given, dict) and given.keys() == {"limit", "today"}
        return unit.read(given["limit"] if dated else given)

    return BeforeValidator(read)


Tokens = Annotated[int, _read_by(units.TOKENS)]
Count = Annotated[int, _read_by(units.COUNT)]
Share = Annotated[float, _read_by(units.SHARE)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[str, ...], Strict(False)]  # TOML has only lists


class LengthLimits(_Table):
    """On one dataset, or on all together."""

    longest_prompt: Tokens | None = None
    p50: Tokens | None = None
    p95: Tokens | None = None
    p99: Tokens | None = None
    min_rows: Count | None = None
    bad_rows: Count | None = None
    prefix_hit_rate: Share | None = None
    shared_prefix_tokens: Tokens | None = None


class DataLimits(LengthLimits):
    datasets: list[Text] | None = None
    max_model_len: Tokens | None = None
    allow_sample: bool = False
    of: dict[str, LengthLimits] = {}


class DriftLimits(_Table):
    baseline: Text
    content: Literal["same", "any"] = "any"
    p50: Share | None = None
    p95: Share | None = None
    max: Share | None = None
    new_datasets: Count | None = None
    vanished_datasets: Count | None = None
    each_dataset: bool = True
    allow_sample: bool = False


class SettingsLimits(_Table):
    file: Text
    form: Literal["vllm-args", "vllm-yaml", "lm-eval"] | None = None
    must_be: Literal["equal", "as-good"] = "as-good"
    vllm_version: Text | None = None
    allow: Names = ()


SPEED = tuple(
    figure
    for figure in in_group(Group.TTFT, Group.ITL, Group.E2E, Group.THROUGHPUT)
    if figure.promise
)
PEAKS = tuple(figure for figure in in_group(Group.MEMORY) if figure.promise)

if TYPE_CHECKING:  # their keys are the figures', which a type checker cannot know
    Peaks = _Table
    Speeds = _Table
else:

    def _limits(name: str, figures: tuple[Figure, ...]) -> type:
        fields = {
            figure.promise: (Annotated[float, _read_by(figure.unit)] | None, None)
            for figure in figures
        }
        return create_model(name, __base__=_Table, **fields)

    Peaks = _limits("Peaks", PEAKS)
    Speeds = _limits("Speeds", SPEED)


class PeakLimits(Peaks):
    kv_requests_of_p95: Count | None = None


class MemoryLimits(_Table):
    setting: Text = "plan"
    predicted: PeakLimits | None = None
    measured: PeakLimits | None = None


class SpeedLimits(Speeds):
    setting: Text = "plan"
    baseline: Text | None = None
    tolerance: Share = 0.05
    compare: Names = ("ttft_p95", "itl_p95", "output_tokens_per_s")


class OutputLimits(_Table):
    """How far answers may differ from those of the run that others are compared with."""

    setting: Text = "plan"
    equal: Share | None = None


class DoctorLimits(_Table):
    """On what an engine's log says."""

    findings: Count | None = None
    refused_prompts: Count | None = None
    kv_use: Share | None = None
    prefix_hit_rate: Share | None = None


class FreshnessLimits(_Table):
    data: bool = False
    plan: bool = False
    verification: bool = False
    not_checked: list[Text] = []


class Budget(_Table):
    output_tokens: Annotated[Tokens, Field(ge=1)] | None = None
    data: DataLimits | None = None
    drift: DriftLimits | None = None
    settings: SettingsLimits | None = None
    memory: MemoryLimits | None = None
    slo: Speeds | None = None  # the plan's predicted figures
    speed: SpeedLimits | None = None
    outputs: OutputLimits | None = None
    doctor: DoctorLimits | None = None
    freshness: FreshnessLimits | None = None


# -- the file ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    """`notes`: what a reader should know about which file was taken."""

    path: Path
    budget: Budget
    text: str
    prefix: Key
    notes: tuple[Note, ...] = ()

    @property
    def folder(self) -> Path:
        """Files that the budget names are looked for from here."""
        return self.path.parent

    def lines(self) -> dict[Key, int]:
        """Where each key stands, for annotations: {("data", "p95"): 7}.

        As far as one line tells: tomllib keeps no positions.
        """
        lines: dict[Key, int] = {}
        table: Key = ()
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[([^\[\]]+)\]", line):
                table = tuple(part.strip(' "') for part in header[1].split("."))
                lines[table] = number
            elif key := re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line):
                lines[*table, key[1]] = number
        start = len(self.prefix)
        return {key[start:]: n for key, n in lines.items() if key[:start] == self.prefix}


def find_budget(config: Path | None = None) -> BudgetFile:
    if config is not None:
        return read_budget(config)
    in_project = _is_in_project()
    if BUDGET.exists():
        both = note("gate_two_budgets", taken=str(BUDGET), other=str(PROJECT))
        return read_budget(BUDGET, notes=(both,) if in_project else ())
    if in_project:
        return read_budget(PROJECT)
    raise InputError(f"there is no {BUDGET}, and no [tool.chunkscope.gate] in {PROJECT}", hint=HINT)


def _is_in_project() -> bool:
    try:
        text = read_text(PROJECT, hint=HINT) if PROJECT.exists() else ""
        return _table_of(_toml(text, PROJECT), PROJECT) is not None
    except InputError:
        return not BUDGET.exists()  # then reading it says what is wrong


def read_budget(path: Path, *, notes: tuple[Note, ...] = ()) -> BudgetFile:
    return parse_budget(read_text(path, hint=HINT), path, notes=notes)


def parse_budget(text: str, path: Path, *, notes: tuple[Note, ...] = ()) -> BudgetFile:
    prefix = ("tool", "chunkscope", "gate") if path.name == PROJECT.name else ("gate",)
    table = _table_of(_toml(text, path), path)
    if table is None:
        raise InputError(f"{path} has no [{'.'.join(prefix)}] table", hint=HINT)
    try:
        budget = Budget.model_validate(table)
    except ValidationError as error:
        raise _fault(error.errors(include_url=False)[0], f"{path}: {'.'.join(prefix)}") from None
    names = [figure.promise for figure in SPEED]
    for name in budget.speed.compare if budget.speed else ():
        if name not in names:
            what = f"{path}: {'.'.join(prefix)}.speed.compare: there is no figure {name!r}"
            raise InputError(what, hint=_nearest(name, names))
    return BudgetFile(path=path, budget=budget, text=text, prefix=prefix, notes=notes)


def _table_of(document: dict[str, Any], path: Path) -> dict[str, Any] | None:
    if path.name == PROJECT.name:
        tool = document.get("tool")
        document = tool.get("chunkscope") if isinstance(tool, dict) else None  # type: ignore[assignment]
    table = document.get("gate") if isinstance(document, dict) else None
    return table if isinstance(table, dict) else None


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no TOML: {error}") from None


def _fault(fault: Any, prefix: str) -> InputError:
    place = [str(part) for part in fault["loc"]]
    where = ".".join((prefix, *place))
    if fault["type"] == "extra_forbidden":
        return InputError(f"{where} is not known", hint=_nearest(place[-1], _keys_at(place[:-1])))
    if fault["type"] == "missing":
        return InputError(f"{where} is missing", hint=f"add a line `{place[-1]} = ...`")
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "literal_error":
        message = f"{fault['input']!r} is not one of {fault['ctx']['expected']}"
    return InputError(f"{where}: {message[0].lower()}{message[1:]}")


def _keys_at(place: list[str]) -> list[str]:
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


def _nearest(name: str, names: list[str]) -> str:
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
