"""What is asked of a plan, as people write it."""

import pytest

from chunkscope.errors import UsageError
from chunkscope.planning.request import AskedOutput, read_max_output


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        pytest.param(None, AskedOutput(), id="nothing"),
        pytest.param(64, AskedOutput(of_all=64), id="a number"),
        pytest.param("64", AskedOutput(of_all=64), id="a text"),
        pytest.param({"a": 1}, AskedOutput(by_dataset={"a": 1}), id="a mapping"),
        pytest.param(
            ["a=1,b=2", "64"],
            AskedOutput(of_all=64, by_dataset={"a": 1, "b": 2}),
            id="names, and one for the rest",
        ),
        pytest.param(
            "a=b=3", AskedOutput(by_dataset={"a=b": 3}), id="a name with an equals sign"
        ),
    ],
)
def test_the_longest_answer_is_read_by_dataset(text, asked):
    assert read_max_output(text) == asked


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(["64", "128"], "all datasets is named twice", id="two for all"),
        pytest.param("a=1,a=2", "a is named twice", id="two for one"),
        pytest.param("a=1,,b=2", "'' is not a number", id="nothing between commas"),
        pytest.param("a=many", "'a=many' is not a number", id="a word"),
        pytest.param("a=", "'a=' is not a number", id="no number"),
    ],
)
def test_what_could_mean_two_things_is_a_usage_error(text, why):
    with pytest.raises(UsageError, match=why):
        read_max_output(text)
