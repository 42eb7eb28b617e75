"""Ask vLLM's own parser and config validation, in another process, without a GPU.

chunkscope never imports vLLM. The interpreter that has it runs
inside/chunkscope_check.py, as on a CPU: rules that need a GPU do not run.
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
from chunkscope.models import ModelShape, known_model
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import DISTRIBUTIONS, command_line, installed_version
from chunkscope.vllm.log.failures import cause_in
from chunkscope.vllm.settings import Settings, Value

SECONDS = 600
MARK = "chunkscope-check:"
# A model without weights and tokenizer: enough to have arguments checked.
DRY: dict[str, Value] = {"load_format": "dummy", "skip_tokenizer_init": True}
PROGRAM = Path(__file__).parent / "inside" / "chunkscope_check.py"
_VERSION_PROGRAM = f"""
from importlib.metadata import distributions
for distribution in distributions():
    if distribution.metadata["Name"] in {DISTRIBUTIONS}:
        print(distribution.version)
        break
"""


def check(engine: Engine, settings: Settings, *, python: str) -> str:
    """The version of the vLLM that takes these settings; EngineError if it refuses."""
    if engine.shape is None:
        raise MissingError("a check needs the model", hint="pass --model to recommend")
    arguments = _spelled_out(engine, settings).given()
    arguments["model"] = str(_folder(engine.shape))
    try:
        run = _run([python, str(PROGRAM), *command_line({**arguments, **DRY})])
    except OSError as error:
        raise MissingError(f"cannot run {python}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"vLLM did not answer within {SECONDS} s") from error
    for line in reversed(run.stdout.splitlines()):
        if line.startswith(MARK):
            return _answer(line.removeprefix(MARK))
    message = run.stderr.strip().splitlines() or ["no message"]
    if "No module named 'vllm" in message[-1]:
        raise MissingError(
            f"{python} has no vLLM",
            hint="install it there, or name the Python that has it in "
            "CHUNKSCOPE_VLLM_PYTHON",
        )
    raise EngineError(f"vLLM's check ended without an answer: {message[-1]}")


def _spelled_out(engine: Engine, settings: Settings) -> Settings:
    """With the sizes that vLLM would choose by the GPU: the check has none."""
    complete = engine.complete(settings)
    sizes = Settings(
        max_model_len=complete.max_model_len,
        max_num_batched_tokens=complete.max_num_batched_tokens,
        max_num_seqs=complete.max_num_seqs,
    )
    return settings.over(sizes)


def _folder(shape: ModelShape) -> Path:
    """A folder with the model's config.json."""
    folder = Path(shape.load_name)
    if (folder / "config.json").is_file():
        return folder
    return config_folder(shape.load_name)


def _answer(text: str) -> str:
    version, refusal = json.loads(text)
    if refusal is None:
        return str(version)
    cause = cause_in(refusal, started=False)
    if cause is not None:
        _, refusal = cause
    raise EngineError(f"vLLM {version} refuses the arguments: {refusal}")


def _run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603
        words, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def config_folder(name: str) -> Path:
    """A folder with a built-in model's config.json.

    It is always the same: by its path vLLM finds what it compiled before.
    """
    model = known_model(name)
    if model is None:
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
    """The version of the vLLM that an interpreter has, without importing it."""
    if python == sys.executable:
        return installed_version()
    with suppress(OSError, subprocess.TimeoutExpired):
        return _run([python, "-c", _VERSION_PROGRAM]).stdout.strip() or None
    return None
