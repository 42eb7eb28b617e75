"""Run by a Python that has vLLM: what its `vllm` command makes of each line of words.

Reads lines from stdin as JSON, runs the real `main` on each up to where a server would
start, and writes the parsed arguments; None for a line that it refuses.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm.entrypoints.cli import main as command
from vllm.entrypoints.cli.serve import ServeSubcommand

MARK = "serve-probe:"


def parsed(words):
    started = []
    ServeSubcommand.cmd = staticmethod(started.append)
    sys.argv = ["vllm", *words]
    try:
        command.main()
    except (Exception, SystemExit):
        return None
    ignored = {"dispatch_function", "config"}
    return {k: repr(v) for k, v in vars(started[0]).items() if k not in ignored}


if __name__ == "__main__":
    print(MARK + json.dumps([parsed(words) for words in json.load(sys.stdin)]))
