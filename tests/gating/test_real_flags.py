"""The table of other flags, and how words are read, against a real vLLM's parser."""

import os

import pytest

from chunkscope.engine.check import known_flags
from chunkscope.engine.flags import OTHER_FLAGS, release

PYTHON = os.environ.get("CHUNKSCOPE_VLLM_PYTHON")


@pytest.mark.vllm
@pytest.mark.skipif(PYTHON is None, reason="no CHUNKSCOPE_VLLM_PYTHON")
def test_the_other_flags_are_the_installed_vllms():
    version, flags = known_flags(python=PYTHON)
    known = release(version).version
    for flag in OTHER_FLAGS:
        assert (flag.spelling in flags) == flag.known_to(known), flag.name
