"""Pass arguments through vLLM's own parser and validation: a task on stdin, an answer on stdout.

On a machine without a GPU vLLM is told that it is on a CPU; what it chooses by the GPU's memory and
name, it chooses by those of the case.
"""

import json
import os
import sys
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import vllm
import vllm.platforms as platforms

if platforms.current_platform.device_type in ("", None):
    from vllm.platforms.cpu import CpuPlatform

    platforms.current_platform = CpuPlatform()

from chunkscope_config import facts
from vllm.engine import arg_utils
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.model_executor.models import registry
from vllm.usage.usage_lib import UsageContext

try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

MARK = "chunkscope-check:"
# vLLM looks at each model class in yet another process, lest this one initialize a GPU: it may.
registry._run_in_subprocess = lambda look: look()


class Parser(FlexibleArgumentParser):  # type: ignore[misc]
    def error(self, message: str) -> None:
        raise ValueError(message)


class OnGpu:
    """This machine's platform, but for what vLLM chooses its defaults by."""

    def __init__(self, real: Any, gpu: "dict[str, Any]") -> None:
        self.real = real
        self.is_cpu = lambda: False
        self.get_device_total_memory = lambda *_: gpu["memory_bytes"]
        self.get_device_name = lambda *_: gpu["title"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def pretend(gpu: "dict[str, Any] | None") -> None:
    """Have the next batch sizes chosen as on that GPU; versions before 0.11.1 choose elsewhere."""
    if OWN_DEFAULTS is None:
        return

    def defaults(cls: Any, *args: Any, **kwargs: Any) -> Any:
        real = arg_utils.current_platform
        arg_utils.current_platform = OnGpu(real, gpu) if gpu else real
        try:
            return OWN_DEFAULTS.__func__(cls, *args, **kwargs)
        finally:
            arg_utils.current_platform = real

    EngineArgs.get_batch_defaults = classmethod(defaults)


def serve_parser() -> "tuple[Any, list[str]]":
    """With the server's own options, where they are defined; and words that it wants first."""
    for module in ("launchers", "openai"):
        try:
            args = __import__(f"vllm.entrypoints.{module}.cli_args", fromlist=["make_arg_parser"])
            return args.make_arg_parser(Parser()), ["model"]
        except ImportError:
            continue
    return ENGINE_PARSER, []


def checked(case: "dict[str, Any]") -> Any:
    """The settings it would run with; None where only its words were to be read."""
    keywords, words = case.get("keywords"), case.get("words", [])
    if case.get("only_read"):
        parser, model = serve_parser()
        parser.parse_args([*model, *words])
        return None
    pretend(case.get("gpu"))
    if keywords is not None:
        return facts(EngineArgs(**keywords).create_engine_config(UsageContext.LLM_CLASS))
    args = AsyncEngineArgs.from_cli_args(ENGINE_PARSER.parse_args(words))
    return facts(args.create_engine_config(UsageContext.OPENAI_API_SERVER))


def answer(case: "dict[str, Any]") -> "dict[str, Any]":
    try:
        return {"accepted": True, "message": "", "seen": checked(case)}
    except (Exception, SystemExit) as error:
        return {"accepted": False, "message": f"{type(error).__name__}: {error}"}


OWN_DEFAULTS: Any = EngineArgs.__dict__.get("get_batch_defaults")
ENGINE_PARSER = AsyncEngineArgs.add_cli_args(Parser())

if __name__ == "__main__":
    results = [answer(case) for case in json.load(sys.stdin)["cases"]]
    print(MARK + json.dumps({"version": vllm.__version__, "results": results}), flush=True)
