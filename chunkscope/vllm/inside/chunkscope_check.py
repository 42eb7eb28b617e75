"""Pass words through vLLM's parser and validation; say on stdout why it refuses them.

On a machine without a GPU vLLM is told that it is on a CPU.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import vllm
import vllm.platforms as platforms

if platforms.current_platform.device_type in ("", None):
    from vllm.platforms.cpu import CpuPlatform

    platforms.current_platform = CpuPlatform()

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.models import registry
from vllm.usage.usage_lib import UsageContext

try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

# vLLM looks at each model class in yet another process, lest this one initialize a GPU:
# it may.
registry._run_in_subprocess = lambda look: look()


class Parser(FlexibleArgumentParser):  # type: ignore[misc]
    def error(self, message: str) -> None:
        raise ValueError(message)


def refusal(words: "list[str]") -> "str | None":
    try:
        args = AsyncEngineArgs.from_cli_args(
            AsyncEngineArgs.add_cli_args(Parser()).parse_args(words)
        )
        args.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    print(
        "chunkscope-check:" + json.dumps([vllm.__version__, refusal(sys.argv[1:])]),
        flush=True,
    )
