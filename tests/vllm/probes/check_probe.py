"""Run by a Python that has vLLM: does it take these arguments, and what runs then?

Reads [{"words" or "keywords", "gpu"?}, ...] from stdin as JSON. What vLLM chooses by
the GPU's memory and name, it chooses by those of the case.
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[3] / "chunkscope" / "vllm" / "inside"))

from chunkscope_check import Parser
from chunkscope_config import facts
from vllm.engine import arg_utils
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.usage.usage_lib import UsageContext

MARK = "check-probe:"
ENGINE_PARSER = AsyncEngineArgs.add_cli_args(Parser())
OWN_DEFAULTS = EngineArgs.__dict__.get(
    "get_batch_defaults"
)  # versions before 0.11.1 have none


def pretend(memory_bytes, title):
    """Have the next batch sizes chosen as on that GPU."""

    def defaults(cls, *args, **kwargs):
        with mock.patch.multiple(
            arg_utils.current_platform,
            is_cpu=lambda: False,
            get_device_total_memory=lambda *_: memory_bytes,
            get_device_name=lambda *_: title,
        ):
            return OWN_DEFAULTS.__func__(cls, *args, **kwargs)

    return mock.patch.object(EngineArgs, "get_batch_defaults", classmethod(defaults))


def checked(case):
    with pretend(*case["gpu"]) if case.get("gpu") and OWN_DEFAULTS else nullcontext():
        if "keywords" in case:
            args, usage = EngineArgs(**case["keywords"]), UsageContext.LLM_CLASS
        else:
            args = AsyncEngineArgs.from_cli_args(
                ENGINE_PARSER.parse_args(case["words"])
            )
            usage = UsageContext.OPENAI_API_SERVER
        return facts(args.create_engine_config(usage))


def answer(case):
    try:
        return {"accepted": True, "message": "", "seen": checked(case)}
    except (Exception, SystemExit) as error:
        return {"accepted": False, "message": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    print(MARK + json.dumps([answer(case) for case in json.load(sys.stdin)]))
