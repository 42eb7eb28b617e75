"""`lm-eval:gsm8k` and `inspect:file.py@task`: what a task would send, before there is a log.

A task is code. It runs only when it is named like that, in a process of its own (`inside/`), which
writes the harness's own log into a temporary folder; from there on it is read like any log.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.sources.base import Source, cannot_read, printable

PROGRAM = Path(__file__).parent / "inside" / "chunkscope_tasks.py"
_PACKAGES = {"lm-eval": "lm_eval", "inspect": "inspect_ai"}
_LOG_FORMATS = {"lm-eval": "jsonl", "inspect": "inspect"}
_LOCAL_BUILDERS = {"json", "csv", "parquet", "text", "arrow"}  # of `datasets`: files, no hub


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """What a harness is told; None is its own."""

    shots: int | None = None
    include_path: str | None = None
    fewshot_as_multiturn: bool | None = None
    limit: float | None = None
    timeout: float = 3_600


@dataclass(slots=True, kw_only=True)
class Rendering:
    """Use it as a context: what was rendered is there until it is left."""

    options: RenderOptions = field(default_factory=RenderOptions)
    tokenizer: str | None = None
    chat: bool = False
    chat_template: Path | None = None
    trust_remote_code: bool = False
    say: Callable[[str], None] = lambda _: None
    _folders: list["tempfile.TemporaryDirectory[str]"] = field(default_factory=list)

    def __enter__(self) -> "Rendering":
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            folder.cleanup()

    def is_task(self, text: str) -> bool:
        return is_task(text)

    def sources(self, text: str) -> list[Source]:
        """The datasets behind `lm-eval:TASKS` or `inspect:TASKS`."""
        harness, _, named = text.partition(":")
        tasks = [task.strip() for task in named.split(",") if task.strip()]
        if not tasks:
            raise UsageError(f"{text} names no task", hint="as in lm-eval:gsm8k,mmlu")
        asked = self._asked(harness, tasks)
        folder = tempfile.TemporaryDirectory(prefix="chunkscope-", ignore_cleanup_errors=True)
        self._folders.append(folder)
        place, python = Path(folder.name), _python()
        self.say(f"{text}: running the code of its tasks, in a process of its own ({python})")
        (place / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        ended = _run(python, place, self.options.timeout)
        outcome = _outcome(place)
        if "logs" not in outcome:
            raise explained(text, harness, python, outcome, ended)
        return [
            Source(
                name=log["task"],
                group="",
                path=f"{harness}:{log['task']}",
                format=_LOG_FORMATS[harness],
                file=place / log["file"],
                bytes=(place / log["file"]).stat().st_size,
                rendered=True,
            )
            for log in outcome["logs"]
        ]

    def _asked(self, harness: str, tasks: list[str]) -> dict[str, Any]:
        options, limit = self.options, self.options.limit
        if limit is not None and limit >= 1:
            limit = int(limit)
        if harness == "inspect":
            only = {"--shots": options.shots, "--include-path": options.include_path}
            for name in (name for name, given in only.items() if given is not None):
                raise UsageError(f"{name} is for lm-eval: an Inspect task decides that itself")
            if isinstance(limit, float):
                raise UsageError("--limit is a number of samples for an Inspect task")
        elif self.chat and self.tokenizer is None:
            raise UsageError(
                "--apply-chat-template needs to know whose template",
                hint="name the model: --model Qwen/Qwen3-8B",
            )
        elif options.fewshot_as_multiturn and not self.chat:
            raise UsageError("--fewshot-as-multiturn needs --apply-chat-template, as in lm-eval")
        return {
            "harness": harness,
            "tasks": tasks,
            "shots": options.shots,
            "limit": limit,
            "include_path": options.include_path,
            "multiturn": options.fewshot_as_multiturn,
            "tokenizer": self.tokenizer and os.path.expanduser(self.tokenizer),  # noqa: PTH111
            "chat": self.chat,
            "chat_template": _text_of(self.chat_template),
            "trust_remote_code": self.trust_remote_code,
        }


def is_task(text: str) -> bool:
    return text.partition(":")[0] in _PACKAGES and ":" in text


def _python() -> str:
    return os.environ.get("CHUNKSCOPE_HARNESS_PYTHON") or sys.executable


def _text_of(file: Path | None) -> str | None:
    try:
        return file.read_text(encoding="utf-8") if file else None
    except (OSError, UnicodeDecodeError) as error:
        raise cannot_read(str(file), error) from error


def _run(python: str, folder: Path, timeout_s: float) -> int | Literal["timeout"]:
    """The exit code. Nothing that was started is left, however this ends."""
    with (folder / "said").open("wb") as said:
        try:
            child = subprocess.Popen(  # noqa: S603
                [python, str(PROGRAM), str(folder)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            raise MissingError(
                f"cannot run {python}: {error.strerror}",
                hint="CHUNKSCOPE_HARNESS_PYTHON names the Python that has the harness",
            ) from error
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        _end(child)
        if child.stdin:
            child.stdin.close()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """With all that it started, where there are process groups."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()


def _outcome(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "outcome.json").read_bytes())
    except (OSError, ValueError):
        return {"last": _last_line(folder / "said")}
    return found if isinstance(found, dict) else {}


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def explained(
    text: str, harness: str, python: str, outcome: dict[str, Any], ended: int | str
) -> ChunkscopeError:
    """What went wrong, in a sentence, with the command that helps."""
    said = {key: printable(str(value)) for key, value in outcome.items() if value is not None}
    if "refused" in said:
        return InputError(f"{text}: {said['refused']}", hint=said.get("hint"))
    if "package" in said:
        return _missing_package(text, harness, python, said)
    if "dataset" in said:
        return _missing_dataset(text, python, said)
    if "raised" in said:
        place = said.get("place")
        return InputError(
            f"{text}: a task's code raised {said['raised']}", hint=place and f"it is in {place}"
        )
    if ended == "timeout":
        return InputError(
            f"{text}: no answer in time, so its process was ended; the last it said: "
            f"{said['last']}",
            hint="give it longer with --timeout SECONDS, or less to do with --limit N; an agent "
            "that waits for a certain answer never ends with a mock model",
        )
    return InputError(
        f"{text}: its process ended with {ended} and no answer; the last it said: {said['last']}"
    )


def _missing_package(text: str, harness: str, python: str, said: dict[str, str]) -> ChunkscopeError:
    package = said["package"]
    install = f"{shlex.quote(python)} -m pip install {shlex.quote(package)}"
    if package == _PACKAGES[harness]:
        return MissingError(
            f"{text} needs {package}, which {python} does not have",
            hint=f"`{install}`, or name a Python that has it in CHUNKSCOPE_HARNESS_PYTHON",
        )
    return MissingError(f"{text}: {said['said']}", hint=f"`{install}`")


def _missing_dataset(text: str, python: str, said: dict[str, str]) -> ChunkscopeError:
    path, first = said["dataset"], said["said"].partition("\\n")[0]
    message = f"{text}: its dataset {path} cannot be loaded: {first}"
    if path in _LOCAL_BUILDERS or Path(path).exists():
        return InputError(message, hint="see data_files in the task: from this folder on")
    wanted = ", ".join(repr(said[key]) for key in ("dataset", "config") if key in said)
    load = f"import datasets; datasets.load_dataset({wanted})"
    return MissingError(
        message,
        hint=f"load it once, with a network: `{shlex.quote(python)} -c {shlex.quote(load)}`",
    )
