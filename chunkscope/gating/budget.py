"""The budget: what each of its tables may hold, which file holds it, and reading it.

The file is `--config FILE`, else chunkscope.toml, else pyproject.toml. In the last one
the tables are [tool.chunkscope.gate...], elsewhere [gate...]. A table or key that is
missing asks for nothing.
"""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic_core import ErrorDetails, core_schema

from chunkscope.artefacts.files import read_text
from chunkscope.artefacts.numbers import TOKENS, Unit, exceeds
from chunkscope.errors import InputError
from chunkscope.gating.check import UNITS, Relation

BUDGET = Path("chunkscope.toml")
PROJECT = Path("pyproject.toml")
HINT = "write a budget with `chunkscope gate --init`"


# -- limits ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """How a limit is written in the budget, and how a value has to stand to it."""

    unit_name: str
    relation: Relation

    @property
    def unit(self) -> Unit:
        return UNITS[self.unit_name]

    def is_kept(self, value: float, limit: float) -> bool:
        if self.relation is Relation.AT_LEAST:
            return not exceeds(limit, value)
        return not exceeds(abs(value), limit)

    def read(self, written: object) -> float:
        limit = self.unit.read(written)
        if self.relation is Relation.AT_LEAST and limit <= 0:
            raise ValueError(f"at least {self.unit.brief(limit)} is always true")
        return limit

    def __get_pydantic_core_schema__(
        self, source: object, handler: pydantic.GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


# TOML has no null, so None is only the default: no limit is set.
MostTokens = Annotated[float | None, Limit("tokens", Relation.AT_MOST)]
MostCount = Annotated[float | None, Limit("count", Relation.AT_MOST)]
LeastCount = Annotated[float | None, Limit("count", Relation.AT_LEAST)]
LeastShare = Annotated[float | None, Limit("share", Relation.AT_LEAST)]
MovedShare = Annotated[float | None, Limit("share", Relation.WITHIN)]
MostSeconds = Annotated[float | None, Limit("seconds", Relation.AT_MOST)]
MostSize = Annotated[float | None, Limit("GiB", Relation.AT_MOST)]
LeastRate = Annotated[float | None, Limit("tokens/s", Relation.AT_LEAST)]

Text = Annotated[str, pydantic.Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], pydantic.Strict(False)]  # TOML has only lists


# -- the tables ------------------------------------------------------------------------


class Table(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def possible_limits(cls) -> dict[str, Limit]:
        """What may be limited here, by its key."""
        limits = {}
        for key, field in cls.model_fields.items():
            for part in field.metadata:
                if isinstance(part, Limit):
                    limits[key] = part
        return limits


class LengthLimits(Table):
    """[gate.data.of.NAME], and a part of [gate.data]."""

    longest_prompt: MostTokens = None
    p50: MostTokens = None
    p95: MostTokens = None
    p99: MostTokens = None
    min_rows: LeastCount = None
    bad_rows: MostCount = None
    prefix_hit_rate: LeastShare = None


class DataTable(LengthLimits):
    datasets: Texts = ()
    max_model_len: Annotated[int | None, pydantic.PlainValidator(TOKENS.read)] = None
    allow_sample: bool = False
    of: dict[str, LengthLimits] = {}


class DriftTable(Table):
    baseline: Text
    p50: MovedShare = None
    p95: MovedShare = None
    max: MovedShare = None
    new_datasets: MostCount = None
    vanished_datasets: MostCount = None
    content: Literal["same", "any"] = "any"
    allow_sample: bool = False


class SettingsTable(Table):
    file: Text
    must_be: Literal["equal", "as-good"] = "as-good"
    vllm_version: Text | None = None
    allow: Texts = ()


class MemoryLimits(Table):
    activation_peak: MostSize = None
    device_peak: MostSize = None
    kv_requests_of_p95: LeastCount = None  # predicted only


class MemoryTable(Table):
    predicted: MemoryLimits | None = None
    measured: MemoryLimits | None = None


class SpeedLimits(Table):
    """[gate.slo] and [gate.speed]; the keys are those of `BY_PROMISE`."""

    makespan: MostSeconds = None
    input_tokens_per_s: LeastRate = None
    output_tokens_per_s: LeastRate = None
    ttft_p50: MostSeconds = None
    ttft_p95: MostSeconds = None
    ttft_p99: MostSeconds = None
    ttft_max: MostSeconds = None
    itl_p50: MostSeconds = None
    itl_p95: MostSeconds = None
    itl_p99: MostSeconds = None
    itl_max: MostSeconds = None
    e2e_p50: MostSeconds = None
    e2e_p95: MostSeconds = None
    e2e_p99: MostSeconds = None
    e2e_max: MostSeconds = None


class OutputsTable(Table):
    equal: LeastShare = None


class DoctorTable(Table):
    findings: MostCount = None
    refused_prompts: MostCount = None


class FreshnessTable(Table):
    data: bool = False
    plan: bool = False
    verification: bool = False
    not_checked: Texts = ()


class Budget(Table):
    """All tables; the checks have their order."""

    data: DataTable | None = None
    drift: DriftTable | None = None
    settings: SettingsTable | None = None
    memory: MemoryTable | None = None
    slo: SpeedLimits | None = None  # of the plan's predicted figures
    speed: SpeedLimits | None = None  # of what was measured
    outputs: OutputsTable | None = None
    doctor: DoctorTable | None = None
    freshness: FreshnessTable | None = None


# -- the file --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    path: Path
    budget: Budget
    text: str


def find_budget(config: Path | None = None) -> BudgetFile:
    """The budget of that file, else of the usual ones."""
    path = config
    if path is None:
        path = PROJECT if PROJECT.exists() and not BUDGET.exists() else BUDGET
    text = read_text(path, hint=f"run it where {path} is, or {HINT}")
    return parse_budget(text, path)


def parse_budget(text: str, path: Path) -> BudgetFile:
    """The budget in a file's text; an InputError names the place of a mistake."""
    try:
        document: dict[str, object] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    if path.name == PROJECT.name:
        document = _subtable(_subtable(document, "tool"), "chunkscope")
    gate = document.get("gate")
    name = gate_table(path)
    if not isinstance(gate, dict):
        raise InputError(f"{path} has no [{name}] table", hint=HINT)
    misspelled = get_close_matches("gate", document.keys() - {"gate"}, cutoff=0.8)
    if misspelled:
        what = f"{path}: {misspelled[0]} is not known"
        raise InputError(what, hint="did you mean gate?")
    try:
        budget = Budget.model_validate(gate)
    except pydantic.ValidationError as error:
        raise _mistake(error.errors(include_url=False)[0], f"{path}: {name}") from None
    return BudgetFile(path=path, budget=budget, text=text)


def gate_table(path: Path) -> str:
    """What the gate's table is called in that file."""
    return "tool.chunkscope.gate" if path.name == PROJECT.name else "gate"


def _subtable(table: dict[str, object], key: str) -> dict[str, object]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


MUST_BE = {  # by the type of pydantic's error
    "tuple_type": "it has to be a list",
    "bool_type": "it has to be true or false",
    "string_type": "it has to be text",
    "model_type": "it has to be a table",
    "dict_type": "it has to be a table",
}


def _mistake(fault: ErrorDetails, prefix: str) -> InputError:
    """What is wrong with one place, in a sentence."""
    place = [str(part) for part in fault["loc"]]
    where = ".".join((prefix, *place))
    if fault["type"] != "extra_forbidden":
        message = MUST_BE.get(fault["type"])
        message = message or fault["msg"].removeprefix("Value error, ")
        return InputError(f"{where}: {message}")
    names = set(Budget.model_fields)
    for table in Table.__subclasses__():
        names |= table.model_fields.keys()
    hint = "see `chunkscope help gate`"
    alike = get_close_matches(place[-1], names - {place[-1]}, n=1, cutoff=0.7)
    if alike:
        hint = f"did you mean {alike[0]}?"
    return InputError(f"{where} is not known", hint=hint)
