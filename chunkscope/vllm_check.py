"""Ask vLLM itself: its own parser and config validation, in another process, without a GPU.

chunkscope never imports vLLM. The interpreter that has it is given the small program below, which
pretends to be on a CPU where there is no GPU: the rules on arguments are the same there, those that
need a GPU (attention backend, KV fit) do not run.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkscope.errors import EngineError, MissingError
from chunkscope.models import MODELS, find_model
from chunkscope.plan import Plan
from chunkscope.vllm_flags import dry_words

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
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser


class Refused(Exception):
    pass


class Parser(FlexibleArgumentParser):
    def error(self, message):
        raise Refused(message)


def check(case):
    parser = AsyncEngineArgs.add_cli_args(Parser())
    try:
        args = AsyncEngineArgs.from_cli_args(parser.parse_args(case["args"]))
        config = args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (Exception, SystemExit) as error:
        return {"accepted": False, "message": f"{type(error).__name__}: {error}"}
    scheduler = config.scheduler_config
    names = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
    seen = {name: getattr(scheduler, name) for name in names}
    chunked = getattr(scheduler, "enable_chunked_prefill", None)
    if chunked is None:
        chunked = getattr(scheduler, "chunked_prefill_enabled", None)
    seen["enable_chunked_prefill"] = chunked
    seen["max_model_len"] = config.model_config.max_model_len
    seen["gpu_memory_utilization"] = config.cache_config.gpu_memory_utilization
    return {"accepted": True, "message": "", "seen": seen}


def flags():
    parser = AsyncEngineArgs.add_cli_args(Parser())
    return sorted(word for action in parser._actions for word in action.option_strings)


task = json.load(sys.stdin)
answer = {"version": vllm.__version__}
if task.get("flags"):
    answer["flags"] = flags()
answer["results"] = [check(case) for case in task.get("cases", [])]
print("chunkscope-check:" + json.dumps(answer), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """vLLM's word on one line of arguments, and the settings it would run with."""

    accepted: bool
    message: str
    vllm_version: str
    seen: dict[str, Any] | None = None


def check(plan: Plan, *, python: str = sys.executable) -> Verdict:
    """Pass the plan's arguments through vLLM's own parser and validation."""
    with model_folder(plan) as folder:
        return check_many([(folder, plan.cli_args())], python=python)[0]


def check_many(
    cases: Sequence[tuple[Path, Sequence[str]]], *, python: str = sys.executable
) -> list[Verdict]:
    """One process for all cases: importing vLLM takes most of the time."""
    asked = [{"args": [*dry_words(str(folder)), *args]} for folder, args in cases]
    answer = _ask(python, {"cases": asked})
    return [
        Verdict(
            accepted=result["accepted"],
            message=result["message"],
            vllm_version=answer["version"],
            seen=result.get("seen"),
        )
        for result in answer["results"]
    ]


def known_flags(*, python: str = sys.executable) -> tuple[str, frozenset[str]]:
    """The version of that vLLM and every option its engine's parser knows."""
    answer = _ask(python, {"flags": True})
    return answer["version"], frozenset(answer["flags"])


@contextmanager
def model_folder(plan: Plan) -> Iterator[Path]:
    """A folder with the model's config.json; a built-in model's is written for the occasion."""
    if plan.model is None:
        raise MissingError("a check needs the model", hint="pass --model to recommend")
    name = plan.model.hub_id or plan.model.name
    if (Path(name) / "config.json").is_file():
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="chunkscope-") as temporary:
        folder = Path(temporary)
        (folder / "config.json").write_text(json.dumps(config_of(name)))
        yield folder


def config_of(name: str) -> Mapping[str, Any]:
    """The built-in config.json of that name or hub id."""
    for short, entry in MODELS.items():
        if name == short or name in entry.hub_ids:
            return entry.config
    source = Path(find_model(name).source)
    raise MissingError(
        f"no config.json of {name} at hand ({source})", hint="pass the model's folder to --model"
    )


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
