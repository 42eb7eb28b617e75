"""These tests ask a real vLLM, found by CHUNKSCOPE_VLLM_PYTHON: the interpreter that has it.

Without that variable they are skipped; in CI (CI=true) they fail instead.
"""

import os

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "vllm: needs a real vLLM (CHUNKSCOPE_VLLM_PYTHON)")


@pytest.fixture(scope="session")
def vllm_python():
    python = os.environ.get("CHUNKSCOPE_VLLM_PYTHON")
    if python:
        return python
    message = "CHUNKSCOPE_VLLM_PYTHON is not set"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
