"""Reading a simulation back: a file may come from anywhere, so every field is checked."""

from typing import Any

import orjson
from pydantic import Field, ValidationError

from chunkscope.artefacts.checked import Checked, first_fault
from chunkscope.costs.cost_model import CostModel, CostSource
from chunkscope.costs.step_time import GRAPHED_TOKENS, NO_HOST, Host, StepModel
from chunkscope.errors import InputError
from chunkscope.simulation.result import MADE_BY, SCHEMA, SimulatedRun, Simulation, WorkloadInfo


class _Coefficients(Checked):
    fixed_s: float
    per_token_s: float
    per_prefill_pair_s: float
    per_decode_context_s: float
    per_request_s: float
    free_tokens: int
    host: Host = NO_HOST
    graphed_tokens: int = GRAPHED_TOKENS


class _Cost(Checked):
    source: CostSource
    gpu: str
    model: str
    vllm: str | None
    samples: int | None
    error: float | None
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...]
    origin: str
    coefficients: _Coefficients


class _File(Checked):
    schema_name: str = Field(alias="schema")
    chunkscope: str
    command: tuple[str, ...] = ()
    label: str
    vllm: str
    cost_model: _Cost
    workload: WorkloadInfo
    runs: tuple[SimulatedRun, ...]
    pareto: tuple[int, ...]
    knee: int | None
    warnings: tuple[str, ...]


_DERIVED = ("output_tokens_per_s", "tokens_per_s")


def parse(found: dict[str, Any]) -> Simulation:
    try:
        file = _File.model_validate_json(orjson.dumps(_stored(found)))
    except (ValidationError, TypeError) as error:
        raise _damaged(first_fault(error)) from None
    if file.schema_name != SCHEMA:
        raise _damaged(f"its schema is {file.schema_name!r}, not {SCHEMA!r}")
    cost = file.cost_model
    plain = {name: getattr(cost, name) for name in _Cost.model_fields}
    step = StepModel(**dict(plain.pop("coefficients")), origin=plain.pop("origin"))
    simulation = Simulation(
        cost_model=CostModel(**plain, step=step),
        vllm=file.vllm,
        workload=file.workload,
        runs=file.runs,
        pareto=file.pareto,
        knee=file.knee,
        warnings=file.warnings,
        command=file.command,
        version=file.chunkscope,
    )
    places = (*file.pareto, *([] if file.knee is None else [file.knee]))
    if not all(0 <= place < len(file.runs) for place in places):
        raise _damaged("it marks a run that is not there")
    return simulation


def _stored(found: dict[str, Any]) -> dict[str, Any]:
    """Without what follows from the rest."""
    runs = found.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        return found
    stored = [{k: v for k, v in run.items() if k not in _DERIVED} for run in runs]
    return {**found, "runs": stored}


def _damaged(why: str) -> InputError:
    return InputError(f"the simulation is damaged: {why}", hint=f"make it again: `{MADE_BY}`")
