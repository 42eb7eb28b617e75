"""Ask vLLM itself: its own parser and config validation, in another process, without a GPU.

chunkscope never imports vLLM. The interpreter that has it runs inside/chunkscope_check.py, as on a
CPU: rules that need a GPU do not run, and what vLLM would choose by the GPU is spelled out.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from chunkscope.artefacts.files import cache_folder, write_atomically
from chunkscope.errors import EngineError, MissingError
from chunkscope.models import known_model
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import DISTRIBUTIONS, command_line, installed_version
from chunkscope.vllm.log.failures import cause_in
from chunkscope.vllm.settings import Settings, Value

SECONDS = 600
MARK = "chunkscope-check:"
# A model without weights and tokenizer: enough to have arguments checked.
DRY: dict[str, Value] = {"load_format": "dummy", "skip_tokenizer_init": True}
PROGRAM = Path(__file__).parent / "inside" / "chunkscope_check.py"


def check(there: Deployment, settings: Settings, *, python: str) -> str:
    """The version of the vLLM that takes these settings; EngineError where it refuses them."""
    if there.shape is None:
        raise MissingError("a check needs the model", hint="pass --model to recommend")
    name = there.shape.load_name
    folder = (
        Path(name) if (Path(name) / "config.json").is_file() else config_folder(name)
    )
    full = there.effective(settings).given()
    try:
        run = _run(
            [python, str(PROGRAM), *command_line({**full, "model": str(folder), **DRY})]
        )
    except OSError as error:
        raise MissingError(f"cannot run {python}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"vLLM did not answer within {SECONDS} s") from error
    for line in run.stdout.splitlines()[::-1]:
        if line.startswith(MARK):
            version, refusal = json.loads(line.removeprefix(MARK))
            if refusal is not None:
                _, why = cause_in(refusal, started=False) or (None, refusal)
                raise EngineError(f"vLLM {version} refuses the arguments: {why}")
            return str(version)
    last = (run.stderr.strip().splitlines() or ["no message"])[-1]
    if "No module named 'vllm" in last:
        raise MissingError(
            f"{python} has no vLLM",
            hint="install it there, or name the Python that has it in CHUNKSCOPE_VLLM_PYTHON",
        )
    raise EngineError(f"vLLM's check ended without an answer: {last}")


def _run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603
        words, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def config_folder(name: str) -> Path:
    """A folder with a built-in model's config.json, always the same: by its path vLLM finds what it
    compiled before."""
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
    program = (
        "from importlib.metadata import distributions\n"
        f"print(*(d.version for d in distributions() if d.metadata['Name'] in {DISTRIBUTIONS}))"
    )
    with suppress(OSError, subprocess.TimeoutExpired):
        return next(iter(_run([python, "-c", program]).stdout.split()), None)
    return None
