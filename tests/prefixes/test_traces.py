"""`hash_ids`: what the prompts of a trace share, by the blocks that it names."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import chunkscope
from chunkscope.prefixes.tree import block_size_of
from tests.commands.helpers import write_jsonl


def request(tokens: int, *blocks: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": 0,
        "input_length": tokens,
        "output_length": 9,
        "hash_ids": blocks,
        **more,
    }


def reuse_of(place: Path, *rows: dict[str, Any]) -> Any:
    (dataset,) = chunkscope.analyze(write_jsonl(place / "t.jsonl", rows)).datasets
    return dataset.prefixes


def test_the_ceiling_of_mooncakes_conversations_is_what_other_tools_say(
    shared: Path,
) -> None:
    trace = shared / "data" / "mooncake_trace" / "conversation_trace.jsonl"
    (dataset,) = chunkscope.analyze(trace).datasets
    reuse = dataset.prefixes
    assert reuse is not None
    assert (reuse.prompts, reuse.block_size) == (12_031, 512)
    assert f"{reuse.hit_rate:.1%}" == "37.4%"
    assert dataset.sharing is not None
    assert len(dataset.sharing.lengths) == 12_031


@given(
    size=st.sampled_from([7, 16, 64, 512, 1000]),
    tokens=st.lists(st.integers(1, 9_000), min_size=1, max_size=20),
)
def test_the_block_size_follows_from_the_lengths(size: int, tokens: list[int]) -> None:
    counts = [-(-length // size) for length in tokens]
    found = block_size_of(tokens, counts)
    assert found is not None
    assert [-(-length // found) for length in tokens] == counts
    enough = [*tokens, 9_001, 64_000]  # several sizes may fit a few lengths
    counts = [-(-length // size) for length in enough]
    assert size in (7, 1000) or block_size_of(enough, counts) == size


def test_prompts_find_what_came_before_and_never_their_last_token(
    tmp_path: Path,
) -> None:
    reuse = reuse_of(
        tmp_path,
        request(1_300, 0, 1, 2),
        request(1_400, 0, 1, 3),  # 1,024 tokens
        request(1_300, 0, 1, 2),  # the same again: 1,299 in full blocks of 16
        request(512, 0),  # 511 likewise
        request(1_000, 4, 5),
    )
    assert reuse.cached_tokens == 1_024 + 1_296 + 496
    assert (reuse.common_tokens, reuse.tokens) == (0, 5_512)


def test_a_shorter_last_block_is_another_than_a_whole_one_of_its_number(
    tmp_path: Path,
) -> None:
    assert (
        reuse_of(tmp_path, request(600, 0, 1), request(1_024, 0, 1)).cached_tokens
        == 512
    )


def test_blocks_that_do_not_fit_the_lengths_are_not_used(tmp_path: Path) -> None:
    rows = [request(100, 0), request(5_000, 0, 1), request(100, 0, 1)]
    (dataset,) = chunkscope.analyze(write_jsonl(tmp_path / "t.jsonl", rows)).datasets
    assert (dataset.rows, dataset.prefixes) == (3, None)
    assert (
        reuse_of(tmp_path, request(1_024, 0, 1), request(1_024, 4, 1)) is None
    )  # not chained
    assert [note.code for note in dataset.notes] == ["blocks_unused"]


def test_a_row_may_name_no_blocks_and_a_bad_one_is_named(tmp_path: Path) -> None:
    rows = [request(900, 0, 1), request(900, 0, 1), request(700)]
    rows += [
        {"input_length": 5, "output_length": 1},
        {**request(900), "hash_ids": None},
    ]
    data = write_jsonl(
        tmp_path / "t.jsonl", [*rows, {**request(900), "hash_ids": "0, 1"}]
    )
    (dataset,) = chunkscope.analyze(data).datasets
    assert [(row.position, row.reason.code) for row in dataset.bad_rows] == [
        (6, "not_blocks")
    ]
    assert dataset.prefixes is not None
    assert dataset.prefixes.cached_tokens == 896
    assert (dataset.prefixes.prompts, dataset.prefixes.block_size) == (5, 512)
