"""How a target is explored: seeded, and by a number of examples that the clock has no say in."""

from functools import partial

import pytest

from tests.fuzz.helpers import Explore, explore_for

LONGER = 30  # times as many examples, about half an hour: `pytest -m fuzz`


@pytest.fixture(
    params=[
        pytest.param(1, id="short"),
        pytest.param(LONGER, id="long", marks=pytest.mark.fuzz),
    ]
)
def explore(request: pytest.FixtureRequest) -> Explore:
    return partial(explore_for, request.param)
