"""The budget: which file holds it, what may be asked, table by table, and reading it.

`--config FILE`, else chunkscope.toml, else pyproject.toml. In pyproject.toml the table is
[tool.chunkscope.gate], elsewhere [gate]. A table or key that is missing asks for nothing. A limit
that `gate --init` wrote carries the value of its day: `p95 = { limit = 3200, today = 2880 }`.
"""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal

import pydantic

from chunkscope.artefacts.figures import BY_PROMISE
from chunkscope.artefacts.files import read_text
from chunkscope.artefacts.numbers import COUNT, SHARE, SIZE, TOKENS, Unit
from chunkscope.errors import InputError
from chunkscope.gating.check import Key, Relation

BUDGET, PROJECT = Path("chunkscope.toml"), Path("pyproject.toml")
HINT = "write a budget with `chunkscope gate --init`"
# What pydantic misses of a type; else a table.
WANTED = {"tuple_type": "a list", "bool_type": "true or false", "string_type": "text"}


# -- what may be limited ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that a budget may limit, by its key there."""

    key: str
    unit: Unit
    relation: Relation = Relation.AT_MOST

    def read(self, given: Any) -> float:
        dated = isinstance(given, dict) and given.keys() == {"limit", "today"}
        dated = (
            dated
            and type(given["today"]) in (int, float)
            and 0 <= given["today"] < 1e18
        )
        return self.unit.read(given["limit"] if dated else given)


_FIGURES = tuple(
    Limit(
        key,
        figure.unit,
        Relation.AT_MOST if figure.less_is_better else Relation.AT_LEAST,
    )
    for key, figure in BY_PROMISE.items()
)
LENGTHS = (
    *(Limit(key, TOKENS) for key in ("longest_prompt", "p50", "p95", "p99")),
    Limit("min_rows", COUNT, Relation.AT_LEAST),
    Limit("bad_rows", COUNT),
    Limit("prefix_hit_rate", SHARE, Relation.AT_LEAST),
    Limit("shared_prefix_tokens", TOKENS, Relation.AT_LEAST),
)
MOVES = tuple(Limit(key, SHARE, Relation.WITHIN) for key in ("p50", "p95", "max"))
DATASETS = tuple(Limit(key, COUNT) for key in ("new_datasets", "vanished_datasets"))
MEMORY = (
    *(limit for limit in _FIGURES if limit.unit is SIZE),
    Limit("kv_requests_of_p95", COUNT, Relation.AT_LEAST),  # predicted alone
)
SPEED = tuple(limit for limit in _FIGURES if limit.unit is not SIZE)
OUTPUTS = (Limit("equal", SHARE, Relation.AT_LEAST),)
LOG = (
    *(Limit(key, COUNT) for key in ("findings", "refused_prompts")),
    Limit("kv_use", SHARE),
    Limit("prefix_hit_rate", SHARE, Relation.AT_LEAST),
)


# -- the tables ------------------------------------------------------------------------------------


class _Table(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


def _table(*limits: Limit, **fields: Any) -> Any:
    for limit in limits:
        fields[limit.key] = (Annotated[Any, pydantic.PlainValidator(limit.read)], None)
    return pydantic.create_model("Table", __base__=_Table, **fields)


TEXT = Annotated[str, pydantic.Field(min_length=1)]
TEXTS = Annotated[tuple[TEXT, ...], pydantic.Strict(False)]  # TOML has only lists
SWITCH, PLAN = (bool, False), (TEXT, "plan")
LengthLimits = _table(*LENGTHS)
MemoryLimits = _table(*MEMORY)
MEMORY_LIMITS = (MemoryLimits | None, None)
TABLES: dict[str, Any] = {
    "data": _table(
        *LENGTHS,
        datasets=(TEXTS, ()),
        max_model_len=(Annotated[Any, pydantic.PlainValidator(TOKENS.read)], None),
        allow_sample=SWITCH,
        of=(GenericAlias(dict, (str, LengthLimits)), {}),
    ),
    "drift": _table(
        *MOVES,
        *DATASETS,
        baseline=(TEXT, ...),
        content=(Literal["same", "any"], "any"),
        allow_sample=SWITCH,
    ),
    "settings": _table(
        file=(TEXT, ...),
        form=(Literal["vllm-args", "vllm-yaml", "lm-eval"] | None, None),
        must_be=(Literal["equal", "as-good"], "as-good"),
        vllm_version=(TEXT | None, None),
        allow=(TEXTS, ()),
    ),
    "memory": _table(setting=PLAN, predicted=MEMORY_LIMITS, measured=MEMORY_LIMITS),
    "slo": _table(*SPEED),  # on the plan's predicted figures
    "speed": _table(*SPEED, setting=PLAN),
    "outputs": _table(*OUTPUTS, setting=PLAN),
    "doctor": _table(*LOG),
    "freshness": _table(
        data=SWITCH, plan=SWITCH, verification=SWITCH, not_checked=(TEXTS, ())
    ),
}
Budget = _table(**{name: (table | None, None) for name, table in TABLES.items()})
KEYS = {f"{name}.{key}" for name, table in TABLES.items() for key in table.model_fields}
KEYS |= {*TABLES, *(f"memory.predicted.{key}" for key in MemoryLimits.model_fields)}


# -- the file ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    path: Path
    budget: Any  # a Budget; what a table holds is checked when it is read
    text: str
    prefix: Key


def find_budget(config: Path | None = None) -> BudgetFile:
    path = config or (PROJECT if PROJECT.exists() and not BUDGET.exists() else BUDGET)
    return parse_budget(
        read_text(path, hint=f"run it where {path} is, or {HINT}"), path
    )


def parse_budget(text: str, path: Path) -> BudgetFile:
    prefix = ("tool", "chunkscope", "gate") if path.name == PROJECT.name else ("gate",)
    name = ".".join(prefix)
    try:
        table: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    for part in prefix:
        outer, table = table, table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise InputError(f"{path} has no [{name}] table", hint=HINT)
    if near := get_close_matches("gate", outer.keys() - {"gate"}, cutoff=0.8):
        raise InputError(f"{path}: {near[0]} is not known", hint="did you mean gate?")
    try:
        budget = Budget.model_validate(table)
    except pydantic.ValidationError as error:
        raise _fault(error.errors(include_url=False)[0], f"{path}: {name}") from None
    return BudgetFile(path=path, budget=budget, text=text, prefix=prefix)


def _fault(fault: Any, prefix: str) -> InputError:
    place = [str(part) for part in fault["loc"]]
    where, message = (
        ".".join((prefix, *place)),
        str(fault["msg"]).removeprefix("Value error, "),
    )
    if fault["type"] == "extra_forbidden":
        near = get_close_matches(
            ".".join(dict.fromkeys((place[0], place[-1]))), KEYS, cutoff=0.7
        )
        hint = f"did you mean gate.{near[0]}?" if near else "see `chunkscope help gate`"
        return InputError(f"{where} is not known", hint=hint)
    if fault["type"].endswith("_type"):
        message = f"it has to be {WANTED.get(fault['type'], 'a table')}"
    return InputError(f"{where}: {message}")
