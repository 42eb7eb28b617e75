"""lm-eval, asked for the requests of its tasks: the evaluation itself, ended before the model.

Tasks are loaded, given their shots and turned into requests by lm-eval's own `simple_evaluate`,
so that they are what a run would send. The first request that would reach a model ends it:
nothing is scored.
"""

import difflib
import inspect
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval
from chunkscope_tasks import CannotRender
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.tasks import TaskManager

DATE = "2000-01-01T00-00-00"  # the same requests are the same bytes


class Rendered(Exception):  # noqa: N818  (it is what is wanted)
    """Every request is there."""


class NoModel(LM):  # type: ignore[misc]  # what it is, is known where lm-eval is
    """Renders chats as lm-eval's own models do, and answers nothing."""

    def __init__(self, asked: "dict[str, Any]") -> None:
        super().__init__()
        self._name = asked["tokenizer"] or ""
        self._tokenizer: Any = chat_tokenizer(asked) if asked["chat"] else None

    @property
    def tokenizer_name(self) -> str:
        return str(self._name)

    @property
    def bos(self) -> "str | None":
        return getattr(self._tokenizer, "bos_token", None)

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> Any:
        return self._tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def chat_template(self, chat_template: Any = False) -> Any:  # noqa: ARG002
        return self._tokenizer.chat_template if self._tokenizer else ""

    def loglikelihood(self, requests: Any, **_: Any) -> Any:  # noqa: ARG002
        raise Rendered

    generate_until = loglikelihood_rolling = loglikelihood


def chat_tokenizer(asked: "dict[str, Any]") -> Any:
    from transformers import AutoTokenizer

    name = asked["tokenizer"]
    place = str(Path(name).parent) if Path(name).is_file() else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            place, trust_remote_code=asked["trust_remote_code"]
        )
    except (OSError, ValueError) as error:
        said = str(error).strip().split("\n")[0]
        raise CannotRender(f"transformers cannot load the tokenizer {name}: {said}") from error
    if asked["chat_template"]:
        tokenizer.chat_template = asked["chat_template"]
    if not tokenizer.chat_template:
        raise CannotRender(
            f"{name} has no chat template",
            "give one with --chat-template FILE, or leave --apply-chat-template out",
        )
    return tokenizer


def render(asked: "dict[str, Any]", folder: Path) -> "dict[str, Any]":
    manager = TaskManager(include_path=asked["include_path"])
    names = matching(asked["tasks"], manager)
    built: list[Any] = []
    build = Task.build_all_requests

    def noting(task: Any, *args: Any, **kwargs: Any) -> Any:
        result = build(task, *args, **kwargs)
        built.append(task)
        return result

    Task.build_all_requests = noting
    model = NoModel(asked)
    try:
        lm_eval.simple_evaluate(model, tasks=names, task_manager=manager, **settings(asked))
    except Rendered:
        pass
    finally:
        Task.build_all_requests = build
    described = {
        "lm_eval_version": version("lm_eval"),
        "results": {},
        "configs": {},
        "versions": {},
        "config": {"model": "vllm", "model_args": {"pretrained": asked["tokenizer"] or ""}},
        "n-shot": {task.config.task: task.config.num_fewshot or 0 for task in built},
        "tokenizer_bos_token": [model.bos] if model.bos else [],
    }
    (folder / f"results_{DATE}.json").write_text(json.dumps(described), encoding="utf-8")
    logs = [{"task": task.config.task, "file": written(task, folder)} for task in built]
    return {"version": described["lm_eval_version"], "logs": logs}


def matching(tasks: "list[str]", manager: Any) -> "list[str]":
    names: list[str] = []
    for task in tasks:
        found = manager.match_tasks([task])
        if not found:
            near = difflib.get_close_matches(task, manager.all_tasks, n=5, cutoff=0.5)
            raise CannotRender(
                f"lm-eval {version('lm_eval')} has no task called {task}",
                f"near it: {', '.join(near)}"
                if near
                else "`lm_eval ls tasks` lists all; --include-path names a folder with your own",
            )
        names += [name for name in found if name not in names]
    return names


def settings(asked: "dict[str, Any]") -> "dict[str, Any]":
    """As lm-eval's command line has them; an older version may not know some."""
    given = {"num_fewshot": asked["shots"], "limit": asked["limit"], "bootstrap_iters": 0}
    if asked["chat"]:
        given["apply_chat_template"] = True
    if asked["multiturn"] is not None:
        given["fewshot_as_multiturn"] = asked["multiturn"]
    known = inspect.signature(lm_eval.simple_evaluate).parameters
    if unknown := [name for name in given if name not in known]:
        raise CannotRender(
            f"lm-eval {version('lm_eval')} has no {unknown[0]}", "is there a newer one?"
        )
    # Never run, since nothing is scored: the task need not be refused.
    safe = {"confirm_run_unsafe_code": True, "fewshot_as_multiturn": False}
    if asked["chat"]:
        del safe["fewshot_as_multiturn"]  # how shots are sent is up to the version
    return {**{name: value for name, value in safe.items() if name in known}, **given}


def written(task: Any, folder: Path) -> str:
    """The samples that a run would log, without documents and answers."""
    documents: dict[Any, list[Any]] = {}
    for request in task.instances:
        documents.setdefault(request.doc_id, []).append(request)
    name = f"samples_{task.config.task}_{DATE}.jsonl".replace("/", "_")
    with (folder / name).open("w", encoding="utf-8") as file:
        for number, requests in documents.items():
            sample = {
                "doc_id": number,
                "arguments": {
                    f"gen_args_{at}": {f"arg_{n}": value for n, value in enumerate(request.args)}
                    for at, request in enumerate(requests)
                },
                "resps": [[None] * (request.repeats or 1) for request in requests],
            }
            file.write(json.dumps(sample, default=type_name) + "\n")
    return name


def type_name(value: object) -> str:
    """Of images and sounds only that they are there is of interest."""
    return type(value).__name__
