"""Harbor's trajectories (ATIF): Terminal-Bench and most coding agents.

An agent's step is a request, with the server's counts. Its messages are what the agent
made of them, not what was sent, so they are not counted. Subagents are sessions of
their own; what a trajectory is continued in belongs to its session.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    SessionTurn,
    as_count,
    as_dict,
    as_list,
    as_text,
    chosen_model,
    first_count,
    models_noted,
    most_have,
)
from chunkscope.prompts.harness.trajectory_files import CONTINUATION, FORMAT, MAIN
from chunkscope.sources.base import DataError

NO_MODEL = "no name"


def recognise(start: LogStart) -> HarnessLog | None:
    if start.format != FORMAT:
        return None
    documents = [as_dict(as_dict(row).get("document")) for row in start.records]
    if not most_have(documents, "schema_version", "steps"):
        return None
    models: dict[str, None] = {}
    for document in documents:
        for trajectory in trajectories_in(document):
            for step in requests_in(trajectory):
                models[model_of(step, trajectory)] = None
    model = chosen_model(list(models) or [NO_MODEL], start.model)
    header = LogHeader(
        harness="Harbor", version=as_text(documents[0]["schema_version"])
    )
    log = HarborLog(header, model)
    log.at_once = trials_at_once(Path(start.records[0]["file"]))
    return log


def trials_at_once(file: Path) -> int | None:
    """As the job's settings say: JOB/config.json of JOB/TRIAL/agent/trajectory.json."""
    if len(file.parents) < 3:
        return None
    config = file.parents[2] / "config.json"
    with suppress(OSError, ValueError):
        return as_count(
            as_dict(json.loads(config.read_bytes())).get("n_concurrent_trials")
        )
    return None


def trajectories_in(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The trajectory and those of its subagents."""
    yield document
    for subagent in as_list(document.get("subagent_trajectories")):
        yield from trajectories_in(as_dict(subagent))


def requests_in(trajectory: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps that a model was asked for; not those that were copied from another
    trajectory, nor those that the agent did without a model.
    """
    for step in map(as_dict, as_list(trajectory.get("steps"))):
        is_request = step.get("source") == "agent" and step.get("llm_call_count") != 0
        if is_request and not step.get("is_copied_context"):
            yield step


def model_of(step: dict[str, Any], trajectory: dict[str, Any]) -> str:
    agent = as_dict(trajectory.get("agent"))
    return (
        as_text(step.get("model_name")) or as_text(agent.get("model_name")) or NO_MODEL
    )


class HarborLog(HarnessLog):
    def __init__(self, header: LogHeader, model: str) -> None:
        super().__init__(header)
        self.model = model
        self.other_models: Counter[str] = Counter()
        self.uncounted_steps = 0

    def requests(self, row: Any) -> Iterator[SentRequest]:
        document = as_dict(as_dict(row).get("document"))
        if not isinstance(document.get("steps"), list):
            raise DataError("no_sample", harness="Harbor", fields=["steps"])
        file = Path(row["file"])
        for trajectory in trajectories_in(document):
            name = session_name(
                file, trajectory, is_subagent=trajectory is not document
            )
            for request in self._session(name, trajectory):
                self.add_document(file.parent)
                yield request

    def _session(self, name: str, trajectory: dict[str, Any]) -> Iterator[SentRequest]:
        for step in requests_in(trajectory):
            model = model_of(step, trajectory)
            if model != self.model:
                self.other_models[model] += 1
                continue
            request = self._request(name, step)
            if request is not None:
                yield request

    def _request(self, name: str, step: dict[str, Any]) -> SentRequest | None:
        """None for a step without counts."""
        metrics = as_dict(step.get("metrics"))
        tokens = first_count(metrics.get("prompt_tokens"))
        if tokens is None:
            self.uncounted_steps += 1
            return None
        calls = first_count(step.get("llm_call_count")) or 1
        if calls > 1:
            raise DataError("sum_of_calls", step=step.get("step_id"), calls=calls)
        return SentRequest(
            prompt=tokens,
            output=as_count(metrics.get("completion_tokens")),
            session=SessionTurn(session=name),
        )

    def notes(self) -> Iterator[Note]:
        yield from models_noted(self.other_models)
        if self.uncounted_steps:
            yield note("steps_without_counts", count=self.uncounted_steps)
        yield note("sharing_not_logged")


def session_name(file: Path, trajectory: dict[str, Any], *, is_subagent: bool) -> str:
    """A trial's folder; with the trajectory's own name where it is not its main one."""
    folder = str(file.parent)
    if is_subagent:
        return f"{folder} {trajectory.get('trajectory_id')}"
    if file.name == MAIN or CONTINUATION.fullmatch(file.name):
        return folder
    return str(file)
