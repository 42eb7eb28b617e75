"""`chunkscope.chunked`: a model that reads long prompts in chunks answers as before."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from chunkscope.errors import UsageError  # noqa: E402
from chunkscope.reference.chunked import ChunkingStats, chunked  # noqa: E402
from tests.build import MIXED, SHORT, plan  # noqa: E402
from tests.reference.small_models import (  # noqa: E402
    FAMILIES,
    model_of,
    prompt_of,
    rounding,
)

pytestmark = pytest.mark.real

LENGTH = 90


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    """The tests share their models."""
    yield
    for family in FAMILIES:
        if hasattr(model_of(family), "chunking"):
            model_of(family).chunking.undo()


def ids_of(length: int = LENGTH, sequences: int = 1) -> Any:
    return torch.tensor([prompt_of(length, seed) for seed in range(sequences)])


def assert_close(model: Any, logits: Any, expected: Any) -> None:
    torch.testing.assert_close(logits, expected, rtol=0, atol=rounding(model, expected))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("keep", "first"),
    [
        pytest.param(0, 0, id="logits of all tokens"),
        pytest.param(1, -1, id="of the last one"),
        pytest.param(40, -40, id="of more than the last chunk"),
        pytest.param(500, 0, id="of more than there are"),
    ],
)
@torch.no_grad()
def test_logits_stay_the_same(family: str, keep: int, first: int) -> None:
    model = model_of(family)
    ids = ids_of(sequences=2)
    whole = model(ids).logits

    chunked(model, threshold=40, chunk=32)
    output = model(input_ids=ids, logits_to_keep=keep)

    assert_close(model, output.logits, whole[:, first:])
    assert model.chunking.stats.chunks_processed == 3


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_greedy_answers_stay_the_same(family: str) -> None:
    model = model_of(family)
    ids = ids_of(sequences=2)
    options = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 6,
        "do_sample": False,
    }
    answer = model.generate(ids, **options)

    chunked(model, threshold=40, chunk=32)

    assert torch.equal(model.generate(ids, **options), answer)
    stats = model.chunking.stats
    assert stats == ChunkingStats(
        total_sequences=2,
        chunked_sequences=2,
        chunks_processed=3,
        seconds=stats.seconds,
    )
    assert stats.seconds > 0


@given(
    length=st.integers(2, 120), chunk=st.integers(1, 130), threshold=st.integers(1, 130)
)
@torch.no_grad()
def test_logits_stay_the_same_for_any_length_and_chunk(
    length: int, chunk: int, threshold: int
) -> None:
    model = model_of("Llama")
    ids = ids_of(length)
    whole = model(ids).logits

    chunked(model, threshold=threshold, chunk=chunk)
    output = model(ids)
    chunks = model.chunking.stats.chunks_processed
    model.chunking.undo()

    assert_close(model, output.logits, whole)
    assert output.past_key_values.get_seq_length() == length
    size = min(chunk, threshold)
    if threshold < length and size < length:
        assert chunks == -(-length // size)
    else:
        assert chunks == 0


@pytest.fixture
def padded() -> dict[str, Any]:
    """Two prompts, one of them padded on the left, as generate wants it."""
    ids = ids_of(sequences=2)
    mask = torch.ones_like(ids)
    mask[0, :37] = 0
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def test_padded_prompts_stay_the_same(padded: dict[str, Any]) -> None:
    model = model_of("Llama")
    whole = model(**padded).logits[:, -1]

    chunked(model, threshold=40, chunk=32)

    assert_close(model, model(**padded).logits[:, -1], whole)
    assert model.chunking.stats.chunked_sequences == 2


def second_turn(model: Any, first_turn: dict[str, Any]) -> Any:
    """The logits after a second prompt that goes on from the cache of the first."""
    ids = ids_of(50, 2)
    mask = torch.cat([first_turn["attention_mask"], torch.ones_like(ids)], dim=1)
    cache = model(**first_turn).past_key_values
    output = model(ids, attention_mask=mask, past_key_values=cache, logits_to_keep=1)
    return output.logits


@torch.no_grad()
def test_second_turns_stay_the_same(padded: dict[str, Any]) -> None:
    model = model_of("Llama")
    whole = second_turn(model, padded)

    chunked(model, threshold=40, chunk=32)

    assert_close(model, second_turn(model, padded), whole)
    assert model.chunking.stats.chunked_sequences == 4


@pytest.mark.parametrize(
    ("threshold", "chunks"),
    [
        pytest.param(100, 10, id="never over the threshold"),
        pytest.param(700, 2, id="512 under 4K tokens"),
    ],
)
@torch.no_grad()
def test_without_a_chunk_it_is_by_length(threshold: int, chunks: int) -> None:
    model = chunked(model_of("Llama"), threshold=threshold)
    model(ids_of(950), logits_to_keep=1)

    assert model.chunking.stats.chunks_processed == chunks


@torch.no_grad()
def test_short_prompts_stay_whole_and_are_counted_but_decodes_are_not() -> None:
    model = chunked(model_of("Llama"), threshold=40)
    model(ids_of(40, 3))
    model(ids_of(1))

    assert model.chunking.stats == ChunkingStats(total_sequences=3)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"use_cache": False}, id="no cache"),
        pytest.param({"output_hidden_states": True}, id="hidden states"),
        pytest.param({"labels": ids_of()}, id="a loss"),
        pytest.param(
            {"attention_mask": torch.ones(1, 1, LENGTH, LENGTH)}, id="a custom mask"
        ),
        pytest.param({"logits_to_keep": torch.tensor([3])}, id="some tokens"),
    ],
)
@torch.no_grad()
def test_what_cannot_be_cut_stays_whole_with_one_warning(
    options: dict[str, Any],
) -> None:
    model = model_of("Llama")
    whole = model(ids_of(), **options).logits

    chunked(model, threshold=40, chunk=32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outputs = [model(ids_of(), **options) for _ in range(2)]

    for output in outputs:
        assert torch.equal(output.logits, whole)
    assert "whole" in str(caught[0].message)
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the caller's line is named"
    assert model.chunking.stats.chunked_sequences == 0


@torch.no_grad()
def test_a_tuple_that_was_asked_for_is_given() -> None:
    model = chunked(model_of("Llama"), threshold=40)
    with pytest.warns(UserWarning, match="return_dict"):
        assert type(model(ids_of(), return_dict=False)) is tuple


def test_chunking_again_replaces_the_first() -> None:
    model = model_of("Llama")
    chunked(chunked(model, threshold=40), threshold=64)

    assert model.chunking.threshold == 64


def test_undo_restores_the_model() -> None:
    model = model_of("Llama")
    before = model.forward
    chunked(chunked(model, threshold=40), threshold=64)
    model.chunking.undo()

    assert model.forward == before
    assert not hasattr(model, "chunking")


def test_undo_keeps_a_forward_that_somebody_else_has_set() -> None:
    """As accelerate does for a model with device_map."""
    model = model_of("GPT-2")
    model.forward = hooked = lambda **inputs: inputs
    try:
        chunked(model, threshold=40).chunking.undo()
        assert model.forward is hooked
    finally:
        del model.forward


def test_the_threshold_can_be_a_plans() -> None:
    planned = plan(MIXED)

    model = chunked(model_of("Llama"), plan=planned)

    assert model.chunking.threshold == planned.decision.threshold


@torch.no_grad()
def test_mode_off_leaves_prompts_whole_without_a_warning() -> None:
    model = chunked(model_of("Llama"), plan=plan(SHORT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(ids_of())

    assert model.chunking.stats.chunked_sequences == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "plan"),
        ({"threshold": 8, "plan": "plan.json"}, "plan"),
        ({"threshold": 0}, "threshold"),
        ({"threshold": 8, "chunk": "by-length"}, "chunk"),
    ],
)
def test_bad_input_is_a_clear_sentence(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        chunked(model_of("Llama"), **options)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="str"):
        chunked("a model", threshold=8)
