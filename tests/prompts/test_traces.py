"""Lengths that the data holds already."""

from typing import Any

import pytest

from chunkscope.prompts.paths import UnusableError
from chunkscope.prompts.selection import trace_columns, trace_length


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"ContextTokens": "374", "GeneratedTokens": "44"}, ("ContextTokens", "GeneratedTokens")),
        ({"input_length": 5, "output_length": 1}, ("input_length", "output_length")),
        (
            {"num_prefill_tokens": 5.0, "num_decode_tokens": 2.0},
            ("num_prefill_tokens", "num_decode_tokens"),
        ),
        ({"contexttokens": 5}, ("contexttokens", None)),
        ({"Context Tokens": 5, "generated_tokens": 1}, ("Context Tokens", "generated_tokens")),
        ({"input_length": 5, "output_length": "n/a"}, ("input_length", None)),
    ],
)
def test_a_trace_is_known_by_its_columns(record: dict[str, Any], columns: Any) -> None:
    assert trace_columns([record]) == (*columns, None)


@pytest.mark.parametrize(
    ("hash_ids", "column"),
    [([0, 1], "hash_ids"), ([], None), ("[0, 1]", None), (["a"], None), ([0.5], None)],
)
def test_the_blocks_of_a_trace_are_lists_of_numbers(hash_ids: Any, column: str | None) -> None:
    records = [{"input_length": 5, "output_length": 1, "hash_ids": hash_ids}] * 3
    found = trace_columns([*records, {"input_length": 5, "output_length": 1}])
    assert found == ("input_length", "output_length", column)


@pytest.mark.parametrize(
    "value",
    [None, "", -1, "-5", 1.5, float("nan"), float("inf"), 10**400, "many", "9" * 5000, True, [3]],
    ids=lambda value: str(value)[:9],
)
def test_anything_else_is_a_bad_row(value: Any) -> None:
    with pytest.raises(UnusableError, match='field "n"'):
        trace_length(value, "n")
