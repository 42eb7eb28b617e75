"""`lm-eval:gsm8k` and `inspect:file.py@task`: what a task would send, before there is a
log.

A task is code. It runs only when it is named like that, in a process of its own
(`inside/`), which writes the harness's own log into a temporary folder; from there on
it is read like any log.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import note
from chunkscope.console import Tell
from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.sources.base import Source, printable

PROGRAM = Path(__file__).parent / "inside" / "chunkscope_tasks.py"
LOG_FORMATS = {"lm-eval": "jsonl", "inspect": "inspect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """What a harness is told; None is its own."""

    shots: int | None = None
    include_path: str | None = None
    fewshot_as_multiturn: bool | None = None
    limit: float | None = None
    timeout: float = 3_600.0


@dataclass(slots=True, kw_only=True)
class Rendering:
    """What was rendered is there until `folders` is closed."""

    folders: ExitStack = field(default_factory=ExitStack)
    options: RenderOptions = field(default_factory=RenderOptions)
    tokenizer: str | None = None
    chat: bool = False
    chat_template: Path | None = None
    trust_remote_code: bool = False
    tell: Tell = lambda _: None

    def sources(self, text: str) -> list[Source] | None:
        """The datasets behind `lm-eval:TASKS` or `inspect:TASKS`; None for anything
        else.
        """
        harness, colon, names = text.partition(":")
        if harness not in LOG_FORMATS or not colon:
            return None
        tasks = [task.strip() for task in names.split(",") if task.strip()]
        if not tasks:
            raise UsageError(f"{text} names no task", hint="as in lm-eval:gsm8k,mmlu")
        request = json.dumps(self.request(harness, tasks))
        python = os.environ.get("CHUNKSCOPE_HARNESS_PYTHON") or sys.executable
        self.tell(note("running_tasks", tasks=text, python=python))
        temporary = tempfile.TemporaryDirectory(
            prefix="chunkscope-", ignore_cleanup_errors=True
        )
        folder = Path(self.folders.enter_context(temporary))
        (folder / "request.json").write_text(request, encoding="utf-8")
        ended = run_program(python, folder, self.options.timeout)
        outcome = outcome_in(folder)
        if "logs" not in outcome:
            raise failure(text, outcome, ended)
        return [rendered_source(harness, log, folder) for log in outcome["logs"]]

    def request(self, harness: str, tasks: list[str]) -> dict[str, Any]:
        """What the program is asked for."""
        options, limit = self.options, self.options.limit
        check_over_zero("--limit", limit)
        check_over_zero("timeout", options.timeout)
        if limit is not None and limit >= 1:  # a count; below it is a share
            limit = int(limit)
        if harness == "inspect" and (options.shots is not None or options.include_path):
            raise UsageError(
                "--shots and include_path are for lm-eval, not for Inspect's tasks"
            )
        if harness == "lm-eval" and self.chat and self.tokenizer is None:
            hint = "name it: --model Qwen/Qwen3-8B"
            raise UsageError("--apply-chat-template needs a model", hint=hint)
        tokenizer = self.tokenizer
        if tokenizer is not None:  # a name on the hub is no path, and stays as it is
            tokenizer = os.path.expanduser(tokenizer)  # noqa: PTH111
        return {
            **asdict(options),
            "harness": harness,
            "tasks": tasks,
            "limit": limit,
            "tokenizer": tokenizer,
            "chat": self.chat,
            "chat_template": str(self.chat_template) if self.chat_template else None,
            "trust_remote_code": self.trust_remote_code,
        }


def check_over_zero(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < inf:
        raise UsageError(f"{name} must be over 0, not {value:g}")


def outcome_in(folder: Path) -> dict[str, Any]:
    """What the program says came of it; if it says nothing, what it wrote on the
    way.
    """
    try:
        outcome: dict[str, Any] = json.loads((folder / "outcome.json").read_bytes())
    except (OSError, ValueError):
        output = (folder / "output").read_text(encoding="utf-8", errors="replace")
        return {"output": output}
    return outcome


def rendered_source(harness: str, log: dict[str, str], folder: Path) -> Source:
    file = folder / log["file"]
    return Source(
        name=log["task"],
        path=f"{harness}:{log['task']}",
        format=LOG_FORMATS[harness],
        file=file,
        bytes=file.stat().st_size,
        rendered=True,
    )


def run_program(python: str, folder: Path, timeout_s: float) -> int | None:
    """The exit code, None after a timeout. Nothing that was started is left, however it
    ends.
    """
    with (folder / "output").open("wb") as output:
        try:
            child = subprocess.Popen(  # noqa: S603
                [python, str(PROGRAM), str(folder)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise MissingError(
                f"cannot run {python}: {error.strerror}",
                hint="CHUNKSCOPE_HARNESS_PYTHON names the Python that has the harness",
            ) from error
    with child:
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # with all that it started


def failure(text: str, outcome: dict[str, Any], ended: int | None) -> ChunkscopeError:
    """What went wrong: as the program says, or by how its process ended."""
    if "message" in outcome:
        kind = MissingError if outcome["missing"] else InputError
        hint = outcome["hint"] and printable(outcome["hint"])
        return kind(f"{text}: {printable(outcome['message'])}", hint=hint)
    last = printable(outcome["output"].strip().rpartition("\n")[2] or "nothing")
    end = f"the end of its output: {last}"
    if ended is not None:
        return InputError(f"{text}: its process ended with {ended}; {end}")
    return InputError(
        f"{text}: no answer in time, so its process was stopped; {end}",
        hint="give it less to do with --limit N; an agent that waits for a certain "
        "answer never ends with a mock model",
    )
