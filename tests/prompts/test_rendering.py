"""What a task would send, asked of the real lm-eval and Inspect: tasks and data are
written here.

The rest needs no harness: how the process of a task is started, and that nothing of it
is left.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from chunkscope.errors import MissingError
from chunkscope.prompts.harness.rendering import (
    PROGRAM,
    Rendering,
    RenderOptions,
    failure,
)
from tests.commands.helpers import Run, analyze, command, environment, write_jsonl
from tests.processes import PATIENCE_S, ended_by_ctrl_c, members, started, wait_until
from tests.prompts.helpers import lengths, lm_eval_sample

SUMS = """task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl, train: shots.jsonl}}
test_split: test
fewshot_split: train
num_fewshot: 3
repeats: 2
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 33}
"""
QUIZ = """task: quiz
dataset_path: json
dataset_kwargs: {data_files: {test: quiz.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: label
"""
CODED = (
    SUMS.replace("task: sums", "task: coded")
    + "process_docs: !function broken.nothing\n"
)
ON_THE_HUB = """task: on_the_hub
dataset_path: nobody/nothing
dataset_name: main
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
"""
CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tasks, their data, and a tokenizer that has a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("tasks")
    for name, count, sign in (("sums", 9, "+"), ("shots", 7, "*")):
        rows = [
            {"question": f"{n} {sign} {n}?", "answer": str(n)} for n in range(count)
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
    quiz = [
        {"question": f"No. {n}?", "choices": ["a", "b", "or c"], "label": 0}
        for n in range(5)
    ]
    write_jsonl(folder / "quiz.jsonl", quiz)
    tasks = folder / "tasks"
    tasks.mkdir()
    for text in (SUMS, QUIZ, CODED, ON_THE_HUB):
        (tasks / f"{text.split()[1]}.yaml").write_text(text)
    (tasks / "broken.py").write_text(
        "def nothing(docs):\n    return docs[0]['no such key']\n"
    )
    model = folder / "model"
    model.mkdir()
    words = Tokenizer(models.WordLevel({"?": 0, "<s>": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(model / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT}
    (model / "tokenizer_config.json").write_text(json.dumps(described))
    (folder / "chunkscope.toml").write_text('[analyze]\ninclude_path = "tasks"\n')
    return folder


# --- lm-eval --------------------------------------------------------------------------

# It would read the 14,000 files of its own tasks first, each time.
OWN_TASKS_ONLY = """from functools import partialmethod
from lm_eval.tasks import TaskManager
TaskManager.__init__ = partialmethod(TaskManager.__init__, include_defaults=False)
"""
# lm-eval's own command line, twice: plain, and as a chat with another number of shots.
RUN_LM_EVAL = f"""{OWN_TASKS_ONLY}
import sys
from lm_eval.__main__ import cli_evaluate
from lm_eval.models.dummy import DummyLM
DummyLM.tokenizer_name = "model"
common = "lm_eval --model dummy --include_path tasks --log_samples --tasks sums,quiz"
for words in ("--output_path plain",
              "--output_path chat --apply_chat_template --num_fewshot 2 --limit 4"):
    sys.argv = [*common.split(), *words.split()]
    cli_evaluate()
"""


@pytest.fixture(scope="module")
def logged(harness_python: Path, place: Path) -> Path:
    """The folder in which lm-eval itself wrote what it sent."""
    subprocess.run(
        [str(harness_python), "-c", RUN_LM_EVAL],
        cwd=place,
        check=True,
        capture_output=True,
    )
    return place


def sent(run: Run) -> dict[str, tuple]:
    """What was sent by task: every length, kind and cap."""
    assert run.code == 0, run.err
    same = ("requests", "kinds", "output_caps", "shots")
    datasets = run.profile["datasets"]
    return {
        d["log"]["task"]: (lengths(d), *(d["log"][key] for key in same))
        for d in datasets
    }


@pytest.mark.real
def test_what_is_rendered_is_counted_as_what_lm_eval_logs(logged: Path) -> None:
    rendered = analyze(logged, "lm-eval:sums,quiz", "--model", "model")
    written = analyze(logged, "plain", "--model", "model")
    assert sent(rendered) == sent(written)
    assert "lm-eval:sums,quiz" in rendered.err, "that code is run is said"
    assert not written.err.count("lm-eval:")
    logs = {
        dataset["log"]["task"]: dataset["log"]
        for dataset in rendered.profile["datasets"]
    }
    assert (logs["sums"]["documents"], logs["sums"]["rendered"]) == (9, True)
    assert logs["sums"]["order"] == "longest first"


# The program that runs tasks, asked several times: a harness takes long to import.
ASK = f"""{OWN_TASKS_ONLY}
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import chunkscope_tasks
for text in open("asks.jsonl"):
    outcome = chunkscope_tasks.outcome_of(json.loads(text), pathlib.Path("rendered"))
    print("answer:" + json.dumps(outcome), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes(harness_python: Path, place: Path) -> list[dict]:
    """A chat of two tasks, and what cannot be rendered."""
    (place / "evals.py").write_text(INSPECT)
    (place / "rendered").mkdir()
    asked = Rendering(options=RenderOptions(include_path="tasks"))
    few = RenderOptions(include_path="tasks", shots=2, limit=4)
    no_template = Rendering(options=asked.options, tokenizer="tasks", chat=True)
    asks = [
        Rendering(options=few, tokenizer="model", chat=True).request(
            "lm-eval", ["quiz", "sums"]
        ),
        *(asked.request("lm-eval", [task]) for task in ("sumz", "on_the_hub", "coded")),
        no_template.request("lm-eval", ["sums"]),
        Rendering().request("inspect", ["evals.py@broken"]),
    ]
    write_jsonl(place / "asks.jsonl", asks)
    program = [str(harness_python), "-c", ASK, str(PROGRAM.parent)]
    done = subprocess.run(
        program, cwd=place, capture_output=True, text=True, check=False
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("answer:")]
    assert len(answers) == len(asks), done.stderr
    return [json.loads(answer.removeprefix("answer:")) for answer in answers]


@pytest.mark.real
def test_chats_and_the_order_of_requests_are_those_of_lm_eval(logged, outcomes) -> None:
    logs = outcomes[0]["logs"]
    assert {log["task"] for log in logs} == {"sums", "quiz"}
    for log in logs:
        (samples,) = (logged / "chat").rglob(f"samples_{log['task']}_*.jsonl")
        arguments = arguments_in(logged / "rendered" / log["file"])
        assert arguments == arguments_in(samples)
        assert "<user>" in json.dumps(arguments)


def arguments_in(samples: Path) -> dict:
    rows = map(json.loads, samples.read_text().splitlines())
    return {row["doc_id"]: row["arguments"] for row in rows}


@pytest.mark.real
def test_what_cannot_be_rendered_is_a_sentence(outcomes: list[dict]) -> None:
    errors = [failure("it", outcome, 0) for outcome in outcomes[1:]]
    no_task, no_set, coded, no_chat, raises = errors
    assert "sumz" in no_task.message
    assert "sums" in no_task.hint.removeprefix("near it: ").split(", ")
    assert [error.exit_code for error in errors] == [3, 4, 3, 3, 3]
    assert "KeyError: 'no such key'" in coded.message
    assert "broken.py, line 2" in coded.hint
    assert "nobody/nothing" in no_set.message
    assert "load_dataset" in no_set.hint
    assert "tokenizer tasks" in no_chat.message
    assert "RuntimeError: no data today" in raises.message


# --- Inspect --------------------------------------------------------------------------

INSPECT = """from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import model_graded_qa
from inspect_ai.solver import generate, multiple_choice, system_message

@task
def sums():
    samples = [Sample(input=f"{n} + {n}?", target=str(2 * n)) for n in range(4)]
    solvers = [system_message("Shots: 1 + 1 = 2"), generate()]
    return Task(samples, solver=solvers, scorer=model_graded_qa(), epochs=2)

@task
def quiz():
    choices = ["a", "b"]
    samples = [Sample(f"No. {n}?", choices=choices, target="A") for n in range(3)]
    return Task(samples, solver=multiple_choice())

@task
def broken():
    raise RuntimeError("no data today")
"""


@pytest.mark.real
def test_an_inspect_task_is_rendered_through_its_mock_model(
    harness_python, place
) -> None:
    from tokenizers import pre_tokenizers

    assert harness_python
    (place / "evals.py").write_text(INSPECT)
    (place / "chunkscope.toml").unlink()
    words = ("--tokenizer", "model", "--limit", "2")
    run = analyze(place, "inspect:evals.py@sums,evals.py@quiz", *words)
    assert run.code == 0, run.err
    logs = {dataset["name"]: dataset["log"] for dataset in run.profile["datasets"]}
    assert {name: log["requests"] for name, log in logs.items()} == {
        "sums": 4,
        "quiz": 2,
    }
    assert all(log["rendered"] for log in logs.values())
    sums = run.profile["datasets"][0]
    prompt = "<system>Shots: 1 + 1 = 2\n<user>0 + 0?\n<assistant>"
    split = pre_tokenizers.Whitespace().pre_tokenize_str(prompt)
    assert lengths(sums) == {len(split): 4}
    assert sums["output_lengths"] is None  # a mock's answers are none
    assert "inspect:" in run.err, "that code is run is said"


# --- without a harness ----------------------------------------------------------------


@pytest.fixture
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHUNKSCOPE_HARNESS_PYTHON", raising=False)


@pytest.mark.usefixtures("own_python")
@pytest.mark.skipif(find_spec("lm_eval") is not None, reason="it is installed")
def test_a_harness_that_is_not_installed_is_named_with_its_install_command() -> None:
    with ExitStack() as folders, pytest.raises(MissingError) as raised:
        Rendering(folders=folders).sources("lm-eval:gsm8k")
    assert f"{sys.executable} -m pip install lm_eval" in (raised.value.hint or "")


def test_what_a_task_died_of_is_told() -> None:
    error = failure(
        "lm-eval:a", {"message": "no set", "missing": True, "hint": "load it"}, 0
    )
    assert (error.exit_code, error.message, error.hint) == (
        4,
        "lm-eval:a: no set",
        "load it",
    )
    error = failure("lm-eval:a", {"output": "thinking\nKilled\n"}, 137)
    assert (error.exit_code, error.hint) == (3, None)
    assert error.message.startswith("lm-eval:a: ")
    assert error.message.endswith("137; the end of its output: Killed")


HANGS = """import os, subprocess, sys, time
print('thinking', flush=True)
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1_000_000)'])
open('group.part', 'w').write(str(os.getpgid(0)))
os.rename('group.part', 'group')
time.sleep(1_000_000)
"""


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_python: None) -> Path:
    """A folder with an lm_eval that hangs when it is imported, and its child."""
    assert own_python is None
    (tmp_path / "lm_eval").mkdir()
    (tmp_path / "lm_eval" / "__init__.py").write_text(HANGS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_task_that_hangs_is_ended(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = subprocess.Popen.wait

    def until_it_hangs(
        process: "subprocess.Popen[bytes]", timeout: float | None = None
    ) -> int:
        if timeout != RenderOptions().timeout:
            return wait(process, timeout)
        wait_until((hanging / "group").exists)
        raise subprocess.TimeoutExpired("it", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", until_it_hangs)
    run = analyze(hanging, "lm-eval:any")
    assert (run.code, "no answer in time" in run.err, "thinking" in run.err) == (
        3,
        True,
        True,
    ), run.err
    wait_until(lambda: not members(int((hanging / "group").read_text())))


@pytest.mark.parametrize("how", ["ctrl-c", "killed"])
def test_nothing_of_a_task_outlives_chunkscope(hanging: Path, how: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    temporary = hanging / "temporary"
    temporary.mkdir()
    env = environment(TMPDIR=str(temporary))
    with started(command("lm-eval:any"), cwd=hanging, env=env, **pipes) as run:
        wait_until((hanging / "group").exists)
        group = int((hanging / "group").read_text())
        assert group != os.getpgid(run.pid)
        assert len(members(group)) == 2
        if how == "ctrl-c":
            ended_by_ctrl_c(run)
            assert not [*temporary.iterdir()]
        else:
            run.kill()
            run.wait(PATIENCE_S)
        wait_until(lambda: not members(group))


def test_nothing_runs_unless_a_task_is_named_so(tmp_path, monkeypatch) -> None:
    """A log may say what it likes, and a file may be called like a task."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    sample = lm_eval_sample(0, ["lm-eval:x", " A"], doc={"x": "!function"})
    logged = write_jsonl(tmp_path / "samples_mine.jsonl", [sample])
    write_jsonl(tmp_path / "lm-eval:gsm8k", [{"prompt": "hi"}])
    (tmp_path / "chunkscope.toml").write_text('[analyze]\ninput_format = "jsonl"\n')
    run = analyze(tmp_path, logged, "lm-eval:gsm8k")
    assert run.code == 0, run.err
    assert run.profile["figures"]["overall"]["tokens"]["count"] == 2


@pytest.mark.parametrize("limit", [0.5, 1, 3])
def test_the_program_is_asked_as_the_options_say(tmp_path, monkeypatch, limit) -> None:
    """A limit is a share below one, and a count from there."""
    requests = []

    def run(_: str, folder: Path, __: float) -> int:
        """A harness that renders one prompt."""
        requests.append(json.loads((folder / "request.json").read_text()))
        row = lm_eval_sample(0, ["word", {"until": []}], resps=[[None]])
        write_jsonl(folder / "samples_a_2000-01-01T00-00-00.jsonl", [row])
        logs = [{"task": "a", "file": "samples_a_2000-01-01T00-00-00.jsonl"}]
        (folder / "outcome.json").write_text(json.dumps({"logs": logs}))
        return 0

    monkeypatch.setattr("chunkscope.prompts.harness.rendering.run_program", run)
    (tmp_path / "chunkscope.toml").write_text('[analyze]\ninclude_path = "mine"\n')
    done = analyze(tmp_path, "lm-eval:a", "--shots", "4", "--limit", str(float(limit)))
    assert done.code == 0, done.err
    assert done.dataset["path"] == "lm-eval:a"
    assert done.dataset["digest"] is None  # there is no file for the gate to look at
    (request,) = requests
    assert (request["tasks"], request["shots"], request["include_path"]) == (
        ["a"],
        4,
        "mine",
    )
    assert (request["limit"], type(request["limit"])) == (limit, type(limit))
