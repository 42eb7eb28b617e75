"""Trajectories of mini-SWE-agent and Harbor, and tau2-bench's results.

Those in `trajectories/` were written by the harnesses (make_trajectories.py).
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.sources.base import DataError, ReadOptions
from chunkscope.sources.find import discover
from tests.prompts.helpers import ReadLog, read_log

FOLDER = Path(__file__).with_name("trajectories")
MINI_SWE = FOLDER / "mini-swe-agent"
HARBOR = FOLDER / "harbor"


def dataset_in(path: Path, **options: Any) -> ReadLog:
    """The log of all trajectories in a folder, which are one dataset."""
    (source,) = discover([str(path)], options=ReadOptions())[0]
    return read_log(source, **options)


def by_session(log: ReadLog) -> list[list[Any]]:
    """The prompts of each session."""
    sessions: dict[str, list[Any]] = {}
    for request in log.requests:
        sessions.setdefault(request.session.session, []).append(request.prompt)
    return list(sessions.values())


# --- mini-SWE-agent -------------------------------------------------------------------


def test_each_answer_of_mini_swe_agent_is_a_turn_after_all_before_it() -> None:
    log = dataset_in(MINI_SWE)
    first, second = by_session(log)
    assert [len(prompt.messages) for prompt in first] == [2, 4, 6]
    assert first[0].messages[0] == {"role": "system", "content": "You work in a shell."}
    assert (
        second[0].messages[1]["content"] == "Write a function that adds, and say how."
    )
    assert first[0].tools[0]["function"]["name"] == "bash"
    assert [request.answer[0]["content"] for request in log.requests[:3]] == [
        "Step 0.",
        "Step 1.",
        "Step 2.",
    ]
    assert (log.log.header.harness, log.summary.documents) == ("mini-SWE-agent", 2)


def test_the_time_of_its_commands_goes_between_the_turns() -> None:
    """The second command sleeps for 0.2 s."""
    log = dataset_in(MINI_SWE)
    pauses = [request.session.pause_s for request in log.requests[:3]]
    assert pauses[0] is None
    assert pauses[1] < 0.2 < pauses[2] < 1


def test_what_it_sent_is_counted_with_the_answers_that_it_repeats(shared) -> None:
    tokenizer = str(shared / "tokenizers" / "qwen3")
    (dataset,) = chunkscope.analyze(MINI_SWE, tokenizer=tokenizer).datasets
    sessions = dataset.sessions
    assert sessions.turns == (3, 3)
    assert min(sessions.output_tokens) > 20
    for place in sessions.later_turns:
        before = sessions.contexts[place - 1]
        assert sessions.kept_tokens[place] == before < sessions.prompt_tokens[place]


def edited(folder: Path, **changes: Any) -> Path:
    """A trajectory of mini-SWE-agent with other messages or another model."""
    document = json.loads((MINI_SWE / "task-1" / "task-1.traj.json").read_text())
    document |= changes
    path = folder / "task.traj.json"
    path.write_text(json.dumps(document))
    return path


def test_counts_that_litellm_logged_need_no_tokenizer(tmp_path) -> None:
    usage = {"prompt_tokens": 70, "completion_tokens": 9}
    messages = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": "A",
            "extra": {"response": {"usage": usage}, "timestamp": 5.0},
        },
    ]
    log = dataset_in(edited(tmp_path, messages=messages))
    assert [(request.prompt, request.output) for request in log.requests] == [(70, 9)]


def test_an_answer_that_it_could_not_read_was_sent_and_left_out(tmp_path) -> None:
    refused = {"interrupt_type": "FormatError"}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "no command", "extra": refused},
        {"role": "assistant", "content": "A"},
        {"role": "exit", "content": ""},
    ]
    log = dataset_in(edited(tmp_path, messages=messages))
    assert [len(request.prompt.messages) for request in log.requests] == [1, 2]
    assert [bool(request.answer) for request in log.requests] == [False, True]


# --- Harbor ---------------------------------------------------------------------------


def test_harbors_trials_are_sessions_by_the_servers_counts() -> None:
    log = dataset_in(HARBOR, log_model="deterministic_toolcall")
    assert by_session(log) == [[100, 170, 240], [100, 170, 240]]
    assert [request.output for request in log.requests] == [20] * 6
    assert log.log.at_once == 3  # as the job's config.json says
    assert (log.log.header.version, log.summary.documents) == ("ATIF-v1.7", 2)


def test_a_subagent_is_a_session_and_a_continuation_belongs_to_its_trial() -> None:
    log = dataset_in(HARBOR, log_model="some/model")
    assert by_session(log) == [[1000, 1500, 400], [200, 300]]


def test_a_job_of_several_models_asks_for_one() -> None:
    with pytest.raises(DataError, match="deterministic_toolcall, some/model"):
        dataset_in(HARBOR)


def test_lengths_of_harbor_do_not_depend_on_a_tokenizer(shared) -> None:
    tokenizer = str(shared / "tokenizers" / "qwen3")
    profile = chunkscope.analyze(HARBOR, tokenizer=tokenizer, log_model="some/model")
    (dataset,) = profile.datasets
    assert dataset.sessions.prompt_tokens == (1000, 1500, 400, 200, 300)
    assert dataset.sessions.kept_tokens == (0, 1030, 0, 0, 230)
    codes = [note.code for note in dataset.notes]
    assert codes == ["other_models", "sharing_not_logged"]


def test_what_harbor_converted_is_read_once(tmp_path) -> None:
    folder = tmp_path / "job" / "task-1__a" / "agent"
    shutil.copytree(HARBOR / "task-1__a" / "agent", folder)
    native = MINI_SWE / "task-1" / "task-1.traj.json"
    shutil.copy(native, folder / "mini-swe-agent.trajectory.json")
    assert by_session(dataset_in(tmp_path / "job")) == [[100, 170, 240]]


def trajectory(*steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "a", "version": "1", "model_name": "m"},
        "steps": [{"step_id": n, **step} for n, step in enumerate(steps, start=1)],
    }


def agent(tokens: int | None, **more: Any) -> dict[str, Any]:
    metrics = {"prompt_tokens": tokens, "completion_tokens": 5}
    return {"source": "agent", "message": "", "metrics": metrics, **more}


def write(folder: Path, *documents: Any) -> Path:
    for number, document in enumerate(documents):
        path = folder / f"trial-{number}" / "agent" / "trajectory.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document))
    return folder


def test_steps_that_no_model_was_asked_for_are_no_requests(tmp_path) -> None:
    steps = (
        {"source": "user", "message": "a"},
        agent(10),
        {"source": "agent", "message": "", "llm_call_count": 0},
        {"source": "agent", "message": "", "is_copied_context": True},
        {"source": "agent", "message": ""},
        agent(30),
    )
    log = dataset_in(write(tmp_path, trajectory(*steps)))
    assert by_session(log) == [[10, 30]]
    (uncounted, _) = log.log.notes()
    assert (uncounted.code, uncounted.values["count"]) == ("steps_without_counts", 1)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(trajectory(agent(10), agent(20, llm_call_count=3)), id="sums"),
        pytest.param({"schema_version": "ATIF-v1.8", "steps": None}, id="no steps"),
    ],
)
def test_a_bad_trajectory_is_named_and_the_others_count(tmp_path, bad) -> None:
    good = trajectory(agent(10), agent(20))
    log = dataset_in(write(tmp_path, good, bad, good))
    assert log.bad == [2]
    assert by_session(log) == [[10, 20], [10, 20]]


def test_a_trajectory_that_is_cut_off_is_a_bad_row(tmp_path) -> None:
    folder = write(tmp_path, *[trajectory(agent(10), agent(20))] * 2)
    cut = folder / "trial-0" / "agent" / "trajectory.json"
    cut.write_bytes(cut.read_bytes()[:-9])
    assert dataset_in(folder).bad == [1]


def test_what_lies_beside_trajectories_is_left_out_and_said(tmp_path) -> None:
    shutil.copytree(HARBOR, tmp_path / "job")
    (tmp_path / "job" / "questions.jsonl").write_text('{"question": "a"}\n')
    (tmp_path / "others.json").write_text('[{"question": "a"}]')
    sources, skipped = discover([str(tmp_path)], options=ReadOptions())
    names = [Path(source.path).name for source in sources]
    assert names == ["questions.jsonl", "job", "others.json"]
    assert len(sources[1].files) == 4
    files = [Path(str(skip.values["file"])).name for skip in skipped]
    assert files == ["config.json", "result.json"]


def test_trajectories_that_are_named_one_by_one_are_one_dataset() -> None:
    files = sorted(str(file) for file in MINI_SWE.glob("*/*.json"))
    (source,) = discover(files, options=ReadOptions())[0]
    assert (source.name, len(source.files)) == ("mini-swe-agent", 2)


def test_files_named_from_the_root_and_from_here_are_one_dataset(monkeypatch) -> None:
    monkeypatch.chdir(MINI_SWE)
    files = ["task-1/task-1.traj.json", str(MINI_SWE / "task-2" / "task-2.traj.json")]
    (source,) = discover(files, options=ReadOptions())[0]
    assert (source.name, len(source.files)) == ("task-1", 2)


# --- tau2-bench -----------------------------------------------------------------------


def message(role: str, at: int, prompt: int | None, **more: Any) -> dict[str, Any]:
    """One that took a second to write and was complete at second `at`."""
    usage = None
    if prompt is not None:
        usage = {"prompt_tokens": prompt, "completion_tokens": 20}
    return {
        "role": role,
        "content": "",
        "timestamp": f"2026-11-01T10:00:{at:02}.000000",
        "generation_time_seconds": 1.0,
        "usage": usage,
        **more,
    }


TALK = [
    message("assistant", 0, None, generation_time_seconds=None),  # no model wrote it
    message("user", 2, 400),
    message("assistant", 5, 2_000),
    message("tool", 6, None),
    message("assistant", 9, 2_100),
    message("user", 12, 500),
]


def results(
    *simulations: Any, agent: str = "qwen", user: str = "gpt"
) -> dict[str, Any]:
    info = {
        "git_commit": "abc",
        "agent_info": {"llm": agent},
        "user_info": {"llm": user},
        "environment_info": {"domain_name": "retail"},
    }
    return {"info": info, "tasks": [{"id": "0"}], "simulations": list(simulations)}


def simulation(*messages: Any) -> dict[str, Any]:
    return {"task_id": "0", "termination_reason": "stop", "messages": list(messages)}


def tau2(folder: Path, document: Any, **options: Any) -> ReadLog:
    path = folder / "results.json"
    path.write_text(json.dumps(document))
    return read_log(path, **options)


@pytest.mark.parametrize(
    ("name", "prompts", "pauses"),
    [
        pytest.param("agent", [2_000, 2_100], [None, 3.0], id="the agent"),
        pytest.param("qwen", [2_000, 2_100], [None, 3.0], id="by its model"),
        pytest.param("user", [400, 500], [None, 9.0], id="the simulated user"),
    ],
)
def test_each_side_of_tau2_is_counted_by_name(tmp_path, name, prompts, pauses) -> None:
    log = tau2(tmp_path, results(simulation(*TALK)), log_model=name)
    assert [request.prompt for request in log.requests] == prompts
    assert [request.session.pause_s for request in log.requests] == pauses
    assert (log.log.header.harness, log.log.header.task) == ("tau2-bench", "retail")


def test_two_models_of_tau2_ask_for_one(tmp_path) -> None:
    with pytest.raises(DataError, match="several models: qwen, gpt"):
        tau2(tmp_path, results(simulation(*TALK)))


def test_one_model_on_both_sides_is_two_sessions(tmp_path) -> None:
    document = results(simulation(*TALK), simulation(*TALK), user="qwen")
    log = tau2(tmp_path, document)
    assert by_session(log) == [[400, 500], [2_000, 2_100]] * 2
    assert log.summary.documents == 2


def test_results_without_tasks_are_read_too(tmp_path) -> None:
    document = results(simulation(*TALK)) | {"tasks": []}
    assert len(tau2(tmp_path, document, log_model="agent").requests) == 2


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"task_id": "0", "messages": None}, id="no messages"),
        pytest.param(simulation(message("user", 1, None)), id="no counts"),
        pytest.param(
            simulation(message("assistant", 1, None, usage={"x": 1})), id="odd counts"
        ),
    ],
)
def test_a_bad_simulation_is_named_and_the_others_count(tmp_path, bad) -> None:
    good = simulation(*TALK)
    log = tau2(tmp_path, results(good, bad, good), log_model="agent")
    assert log.bad == [2]
    assert len(log.requests) == 4
