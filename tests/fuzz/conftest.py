"""How a target is explored: seeded, and by a number of examples that the clock has no say in."""

import os
from functools import partial

import pytest

from tests.fuzz.helpers import Explore, explore_for

USUAL = 25  # examples of a property, as in tests/conftest.py


@pytest.fixture
def explore() -> Explore:
    return partial(explore_for, int(os.environ.get("CHUNKSCOPE_EXAMPLES", USUAL)) / USUAL)
