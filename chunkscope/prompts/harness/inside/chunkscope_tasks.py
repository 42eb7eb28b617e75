"""Ask a harness what its tasks would send, and write that down as the harness's own
log.

    python chunkscope_tasks.py FOLDER

FOLDER/request.json says what is wanted. The logs go to FOLDER, and FOLDER/outcome.json
says which they are, or what went wrong. When stdin ends (it does when chunkscope is
gone, however it went), everything in this process group ends too.
"""

import contextlib
import difflib
import inspect
import itertools
import json
import os
import signal
import sys
import threading
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATE = "2000-01-01T00-00-00"  # the same requests are the same bytes


class CannotRender(Exception):  # noqa: N818  (nothing is broken)
    """The request cannot be fulfilled: a sentence, and what to do about it."""


class Rendered(Exception):  # noqa: N818  (it is what is wanted)
    """Every request is there."""


# --- lm-eval: its own evaluation, ended at the first request that would reach a model -


def render_lm_eval(request: "dict[str, Any]", folder: Path) -> "list[dict[str, str]]":
    """Tasks are loaded, given their shots and turned into requests by
    `simple_evaluate`, so that they are what a run would send. Nothing is scored.
    """
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=request["include_path"])
    for task in request["tasks"]:
        if not manager.match_tasks([task]):
            raise unknown_task(task, manager.all_tasks)
    tasks = tasks_that_are_built()
    tokenizer = chat_tokenizer(request) if request["chat"] else None
    with contextlib.suppress(Rendered):
        lm_eval.simple_evaluate(
            no_model(request["tokenizer"] or "", tokenizer),
            tasks=manager.match_tasks(request["tasks"]),
            task_manager=manager,
            **evaluate_settings(request),
        )
    write_results(request, tasks, tokenizer, folder)
    logs = []
    for task in tasks:
        logs.append({"task": task.config.task, "file": write_samples(task, folder)})
    return logs


def unknown_task(task: str, known: Any) -> CannotRender:
    near = difflib.get_close_matches(task, known, n=5, cutoff=0.5)
    hint = "`lm_eval ls tasks` lists all"
    if near:
        hint = f"near it: {', '.join(near)}"
    return CannotRender(f"lm-eval {version('lm_eval')} has no task called {task}", hint)


def tasks_that_are_built() -> "list[Any]":
    """A list to which every task is added when its requests are there."""
    from lm_eval.api.task import Task

    tasks: list[Any] = []
    build = Task.build_all_requests

    def build_and_note(task: Any, *args: Any, **kwargs: Any) -> Any:
        result = build(task, *args, **kwargs)
        tasks.append(task)
        return result

    Task.build_all_requests = build_and_note
    return tasks


def evaluate_settings(request: "dict[str, Any]") -> "dict[str, Any]":
    """As lm-eval's command line has them.

    Unsafe code is never run, since nothing is scored: a task that has some need not be
    refused.
    """
    import lm_eval

    settings = {
        "num_fewshot": request["shots"],
        "limit": request["limit"],
        "bootstrap_iters": 0,
    }
    as_turns = request["fewshot_as_multiturn"]
    if request["chat"]:
        settings["apply_chat_template"] = True
    if as_turns is not None or not request["chat"]:
        settings["fewshot_as_multiturn"] = bool(as_turns)  # else up to the version
    parameters = inspect.signature(lm_eval.simple_evaluate).parameters
    if "confirm_run_unsafe_code" in parameters:
        settings["confirm_run_unsafe_code"] = True
    return settings


def write_results(
    request: "dict[str, Any]", tasks: "list[Any]", tokenizer: Any, folder: Path
) -> None:
    """What a run would write beside its samples, as far as it says how requests are
    counted.
    """
    bos = getattr(tokenizer, "bos_token", None)
    model_args = {"pretrained": request["tokenizer"] or ""}
    results = {
        "results": {},
        "configs": {},
        "versions": {},
        "lm_eval_version": version("lm_eval"),
        "config": {"model": "vllm", "model_args": model_args},
        "n-shot": {task.config.task: task.config.num_fewshot or 0 for task in tasks},
        "tokenizer_bos_token": [bos] if bos else [],
    }
    text = json.dumps(results)
    (folder / f"results_{DATE}.json").write_text(text, encoding="utf-8")


def no_model(name: str, tokenizer: Any) -> Any:
    """A model that renders chats as lm-eval's own models do, and answers nothing."""
    from lm_eval.api.model import LM

    class NoModel(LM):  # type: ignore[misc]  # lm-eval is known where this runs
        tokenizer_name = name

        def apply_chat_template(
            self, chat_history: Any, add_generation_prompt: bool = True
        ) -> Any:
            return tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )

        def chat_template(self, chat_template: Any = False) -> Any:  # noqa: ARG002
            return tokenizer.chat_template if tokenizer else ""

        def loglikelihood(self, requests: Any, **_: Any) -> Any:  # noqa: ARG002
            raise Rendered

        generate_until = loglikelihood_rolling = loglikelihood

    return NoModel()


def chat_tokenizer(request: "dict[str, Any]") -> Any:
    from transformers import AutoTokenizer

    name = request["tokenizer"]
    place = str(Path(name).parent) if Path(name).is_file() else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            place, trust_remote_code=request["trust_remote_code"]
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise CannotRender(
            f"transformers cannot load the tokenizer {name}: {reason}"
        ) from error
    if request["chat_template"]:
        tokenizer.chat_template = Path(request["chat_template"]).read_text(
            encoding="utf-8"
        )
    if not tokenizer.chat_template:
        raise CannotRender(
            f"{name} has no chat template",
            "give one with --chat-template FILE, or leave --apply-chat-template out",
        )
    return tokenizer


def write_samples(task: Any, folder: Path) -> str:
    """The samples that a run would log, without documents and answers."""
    documents: dict[Any, list[Any]] = {}
    for instance in task.instances:
        documents.setdefault(instance.doc_id, []).append(instance)
    name = f"samples_{task.config.task}_{DATE}.jsonl".replace("/", "_")
    with (folder / name).open("w", encoding="utf-8") as file:
        for number, instances in documents.items():
            # Of images and sounds only that they are there is of interest.
            row = json.dumps(sample_of(number, instances), default=type_name)
            file.write(row + "\n")
    return name


def type_name(value: Any) -> str:
    return type(value).__name__


def sample_of(number: Any, instances: "list[Any]") -> "dict[str, Any]":
    groups = {}
    for place, instance in enumerate(instances):
        arguments = {f"arg_{n}": value for n, value in enumerate(instance.args)}
        groups[f"gen_args_{place}"] = arguments
    answers = [[None] * (instance.repeats or 1) for instance in instances]
    return {"doc_id": number, "arguments": groups, "resps": answers}


# --- Inspect: its mock model, without scoring -----------------------------------------


def render_inspect(request: "dict[str, Any]", folder: Path) -> "list[dict[str, str]]":
    import inspect_ai
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    # An answer that says what it used: the mock model would ask a tokenizer, over the
    # network. It is over the limit of tokens, so that a sample ends: a stand-in's next
    # turn is invented.
    answer = ModelOutput.from_content("mockllm/model", "no answer")
    answer.usage = ModelUsage(output_tokens=2, total_tokens=2)
    logs = []
    for task in request["tasks"]:
        evaluated = inspect_ai.eval(
            [task],
            model=get_model("mockllm/model", custom_outputs=itertools.repeat(answer)),
            score=False,
            limit=request["limit"],
            token_limit=1,
            log_dir=str(folder),
            log_format="eval",
            display="none",
        )
        if not evaluated:
            raise CannotRender(
                f"Inspect found no task in {task}", "name it: inspect:file.py@task"
            )
        for log in evaluated:
            if log.status != "success":
                reason = log.error.message if log.error else log.status
                raise CannotRender(f"the task {log.eval.task} raised: {reason.strip()}")
            logs.append({"task": log.eval.task, "file": Path(log.location).name})
    return logs


# --- the process ----------------------------------------------------------------------

RENDER = {"lm-eval": render_lm_eval, "inspect": render_inspect}


def main() -> None:
    folder = Path(sys.argv[1])
    end_with_parent()
    outcome = outcome_of(json.loads((folder / "request.json").read_bytes()), folder)
    (folder / "outcome.json").write_text(json.dumps(outcome), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads of a task may still be waiting for something


def end_with_parent() -> None:
    stdin = os.dup(0)
    os.dup2(
        os.open(os.devnull, os.O_RDONLY), 0
    )  # a task that reads from it gets nothing

    def wait() -> None:
        while os.read(stdin, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def outcome_of(request: "dict[str, Any]", folder: Path) -> "dict[str, Any]":
    try:
        return {"logs": RENDER[request["harness"]](request, folder)}
    except CannotRender as refused:
        return failure(*refused.args)
    except BaseException as error:  # a task may raise anything, SystemExit too
        traceback.print_exc()
        return explained(error)


def failure(
    message: str, hint: "str | None" = None, missing: bool = False
) -> "dict[str, Any]":
    return {"message": message, "hint": hint, "missing": missing}


def explained(error: BaseException) -> "dict[str, Any]":
    """What a task raised, as one line; a package that it needs is named."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        install = f"`{sys.executable} -m pip install {package}`"
        other = "or name a Python that has it in CHUNKSCOPE_HARNESS_PYTHON"
        message = f"{sys.executable} has no {package}"
        return failure(message, f"{install}, {other}", missing=True)
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    package = type(error).__module__.partition(".")[0]
    if package in ("datasets", "huggingface_hub") or isinstance(error, ConnectionError):
        hint = "load it once, with a network, by `datasets.load_dataset`"
        return failure(f"its dataset cannot be loaded: {text}", hint, missing=True)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"it is in {last.filename}, line {last.lineno}"
    return failure(f"a task's code raised {text}", place)


if __name__ == "__main__":
    main()
