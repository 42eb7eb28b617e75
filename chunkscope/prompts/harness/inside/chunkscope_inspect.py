"""Inspect, run with its mock model and without scoring: its log has every request of a task."""

import itertools
from importlib.metadata import version
from pathlib import Path
from typing import Any

import inspect_ai
from chunkscope_tasks import CannotRender
from inspect_ai.model import ModelOutput, ModelUsage, get_model


def render(asked: "dict[str, Any]", folder: Path) -> "dict[str, Any]":
    # An answer that says what it used: the mock model would ask a tokenizer, over the network.
    answer = ModelOutput.from_content("mockllm/model", "no answer")
    answer.usage = ModelUsage()
    logs = []
    for task in asked["tasks"]:
        made = inspect_ai.eval(
            [task],
            model=get_model("mockllm/model", custom_outputs=itertools.repeat(answer)),
            score=False,
            limit=asked["limit"],
            log_dir=str(folder),
            log_format="eval",
            display="none",
        )
        if not made:
            raise CannotRender(f"Inspect found no task in {task}", "name it: inspect:file.py@task")
        for log in made:
            if log.status != "success":
                said = log.error.message if log.error else log.status
                raise CannotRender(f"the task {log.eval.task} raised: {said.strip()}")
            logs.append({"task": log.eval.task, "file": Path(log.location).name})
    return {"version": version("inspect_ai"), "logs": logs}
