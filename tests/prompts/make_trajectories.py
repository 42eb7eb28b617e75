"""Write `trajectories/` anew, with the harnesses themselves and a model that is a list.

    cd tests/prompts
    PYTHON_WITH_MINI_SWE_AGENT make_trajectories.py mini-swe-agent
    PYTHON_WITH_HARBOR make_trajectories.py harbor

mini-SWE-agent works in a shell of this machine, in a folder that is deleted; Harbor
turns its trajectories into ATIF, and writes one with a subagent and a continuation.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

FOLDER = Path("trajectories")
TASKS = ("Write a function that adds.", "Write a function that adds, and say how.")
COMMANDS = (
    "ls",
    "echo 'def add(a, b): return a + b' > add.py; cat add.py; sleep 0.2",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)


def call(number: int, command: str) -> dict:
    arguments = json.dumps({"command": command})
    function = {"name": "bash", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def run_mini_swe_agent() -> None:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import (
        DeterministicToolcallModel,
        make_toolcall_output,
    )

    folder = FOLDER.resolve() / "mini-swe-agent"
    for number, task in enumerate(TASKS, start=1):
        outputs = []
        for step, command in enumerate(COMMANDS):
            action = {"command": command, "tool_call_id": f"call_{step}"}
            outputs.append(
                make_toolcall_output(f"Step {step}.", [call(step, command)], [action])
            )
        agent = DefaultAgent(
            DeterministicToolcallModel(outputs=outputs),
            LocalEnvironment(),
            system_template="You work in a shell.",
            instance_template="{{task}}",
            cost_limit=0,
        )
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            agent.run(task)
        document = agent.serialize()
        document["info"]["config"]["model"]["outputs"] = []  # they are the answers
        write(folder / f"task-{number}" / f"task-{number}.traj.json", document)


def run_harbor() -> None:
    from harbor.agents.installed.mini_swe_agent import convert_mini_swe_agent_to_atif
    from harbor.models.trajectories import Agent, Metrics, Step, Trajectory

    job = FOLDER / "harbor"
    for number in range(1, len(TASKS) + 1):
        file = FOLDER / "mini-swe-agent" / f"task-{number}" / f"task-{number}.traj.json"
        document = json.loads(file.read_text())
        tokens = 100
        for message in document["messages"]:
            if message["role"] == "assistant":  # as LiteLLM logs it
                usage = {"prompt_tokens": tokens, "completion_tokens": 20}
                message["extra"]["response"] = {"usage": usage}
                tokens += 70
        trajectory = convert_mini_swe_agent_to_atif(document, f"session-{number}")
        write(job / f"task-{number}__a" / "agent" / "trajectory.json", trajectory)

    agent = Agent(name="of-ours", version="1", model_name="some/model")

    def step(number: int, prompt_tokens: int, **more: object) -> Step:
        metrics = Metrics(prompt_tokens=prompt_tokens, completion_tokens=30)
        return Step(step_id=number, source="agent", message="", metrics=metrics, **more)

    asked = Step(step_id=1, source="user", message="Write a long program.")
    subagent = Trajectory(
        trajectory_id="search", agent=agent, steps=[asked, step(2, 200), step(3, 300)]
    )
    folder = job / "task-3__a" / "agent"
    write(
        folder / "trajectory.json",
        Trajectory(
            agent=agent,
            steps=[asked, step(2, 1_000), step(3, 1_500)],
            subagent_trajectories=[subagent],
            continued_trajectory_ref="trajectory.cont-1.json",
        ),
    )
    copied = Step(step_id=2, source="agent", message="", is_copied_context=True)
    continued = Trajectory(agent=agent, steps=[asked, copied, step(3, 400)])
    write(folder / "trajectory.cont-1.json", continued)
    write(job / "config.json", {"job_name": "ours", "n_concurrent_trials": 3})
    write(job / "result.json", {"id": "1", "n_total_trials": 3})


def write(file: Path, document: object) -> None:
    if hasattr(document, "to_json_dict"):
        document = document.to_json_dict()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    {"mini-swe-agent": run_mini_swe_agent, "harbor": run_harbor}[sys.argv[1]]()
