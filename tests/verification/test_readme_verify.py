"""The manual's verify page for a laptop, word for word, on a real engine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chunkscope.verification.result import Verification
from tests.conftest import REPOSITORY
from tests.update_readme import GUIDE

pytestmark = pytest.mark.real

# Done already: the environment is there, and its Python is named.
LEFT_OUT = (".ci/vllm-env ", "export CHUNKSCOPE_VLLM_PYTHON=")


def laptop_block() -> str:
    section = (GUIDE / "verify.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    (block,) = [block for block in blocks if "tiny/config.json" in block]
    return block


def test_the_laptop_block_works(tmp_path, vllm_python) -> None:
    lines = laptop_block().splitlines()
    kept = [line for line in lines if not line.startswith(LEFT_OUT)]
    assert len(kept) == len(lines) - len(LEFT_OUT)
    shutil.copytree(REPOSITORY / "sample_data", tmp_path / "sample_data")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(kept)],
        cwd=tmp_path,
        env={**os.environ, "CHUNKSCOPE_VLLM_PYTHON": vllm_python, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    result = Verification.load(tmp_path / "reports" / "verify.json")
    rows = {name for run in result.runs for name in (run.setting, *run.same_as)}
    assert rows == {"plan", "default", "off", "length-policy"}
    assert all(run.ok for run in result.runs)
    assert result.model.dummy
    assert result.verdict in " ".join(done.stdout.split())
