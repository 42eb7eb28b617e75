"""`chunkscope.chunked`: a model that reads long prompts in chunks answers as before."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from chunkscope.errors import UsageError  # noqa: E402
from chunkscope.reference.chunked import ChunkedMemory, chunked  # noqa: E402
from tests.build import MIXED, SHORT, plan, profile  # noqa: E402
from tests.reference.small_models import FAMILIES, model_of, prompt_of, rounding  # noqa: E402

pytestmark = pytest.mark.real

LENGTH = 90


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    """Small models are made once for all tests."""
    yield
    for family in FAMILIES:
        if hasattr(model_of(family), "chunking"):
            model_of(family).chunking.undo()


def ids_of(length: int = LENGTH, sequences: int = 1) -> Any:
    return torch.tensor([prompt_of(length, seed) for seed in range(sequences)])


def is_close(model: Any, one: Any, other: Any) -> bool:
    return torch.allclose(one, other, rtol=0, atol=rounding(model, other))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_stay_the_same(family: str) -> None:
    model, ids = model_of(family), ids_of(sequences=2)
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        whole = model(ids).logits
        greedy = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False}
        answer = model.generate(ids, **greedy)
        chunked(model, threshold=40, chunk=32)
        assert is_close(model, model(ids).logits, whole)
        assert is_close(model, model(ids, logits_to_keep=1).logits, whole[:, -1:])
        kept = model(input_ids=ids, attention_mask=mask, logits_to_keep=40).logits
        assert is_close(model, kept, whole[:, -40:])
        assert torch.equal(model.generate(ids, **greedy), answer)
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences, stats.chunks_processed) == (
        8,
        8,
        12,
    )
    assert stats.seconds > 0


@given(
    length=st.integers(2, 120), chunk=st.integers(1, 130), threshold=st.integers(1, 130)
)
def test_so_they_do_for_any_length_and_chunk(
    length: int, chunk: int, threshold: int
) -> None:
    model, ids = model_of("Llama"), ids_of(length)
    with torch.inference_mode():
        whole = model(ids).logits
        chunked(model, threshold=threshold, chunk=chunk)
        output = model(ids)
    size = min(chunk, threshold)
    is_cut = threshold < length and size < length
    assert is_close(model, output.logits, whole)
    assert model.chunking.stats.chunks_processed == (
        -(-length // size) if is_cut else 0
    )
    assert output.past_key_values.get_seq_length() == length
    model.chunking.undo()


def test_padded_prompts_and_second_turns_stay_the_same() -> None:
    model, ids = model_of("Llama"), ids_of(sequences=2)
    mask = torch.ones_like(ids)
    mask[0, :37] = 0  # padded on the left, as generate wants it
    turn = ids_of(50, 2)
    with torch.inference_mode():

        def answers() -> list[Any]:
            first = model(ids, attention_mask=mask)
            both = torch.cat([mask, torch.ones_like(turn)], dim=1)
            cache = first.past_key_values
            second = model(
                turn, attention_mask=both, past_key_values=cache, logits_to_keep=1
            )
            sampled = {"max_new_tokens": 5, "num_beams": 2, "do_sample": False}
            beams = model.generate(ids, attention_mask=mask, **sampled)
            return [first.logits[:, -1], second.logits[:, -1], beams.float()]

        expected = answers()
        chunked(model, threshold=40, chunk=32)
        for one, other in zip(answers(), expected, strict=True):
            assert is_close(model, one, other)
    assert model.chunking.stats.chunked_sequences == 6


@pytest.mark.parametrize(
    ("threshold", "chunks"), [(100, 10), (700, 2)]
)  # 512 under 4K tokens
def test_without_a_chunk_it_is_by_length_and_never_over_the_threshold(
    threshold, chunks
) -> None:
    model = chunked(model_of("Llama"), threshold=threshold)
    with torch.inference_mode():
        model(ids_of(950), logits_to_keep=1)
    assert model.chunking.stats.chunks_processed == chunks


def test_short_prompts_pass_and_are_counted_but_steps_are_not() -> None:
    model = chunked(model_of("Llama"), threshold=40)
    with torch.inference_mode():
        model(ids_of(40, 3))
        model(ids_of(1))
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences, stats.chunks_processed) == (
        3,
        0,
        0,
    )
    assert (stats.chunked_sequences, stats.seconds) == (0, 0)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"use_cache": False}, id="no cache"),
        pytest.param({"output_hidden_states": True}, id="hidden states"),
        pytest.param({"labels": ids_of()}, id="a loss"),
        pytest.param(
            {"attention_mask": torch.ones(1, 1, LENGTH, LENGTH)}, id="a mask of its own"
        ),
        pytest.param({"logits_to_keep": torch.tensor([3])}, id="some tokens"),
    ],
)
def test_what_cannot_be_cut_stays_whole_with_one_warning(asked: dict[str, Any]) -> None:
    model = model_of("Llama")
    with torch.inference_mode():
        whole = model(ids_of(), **asked)
        chunked(model, threshold=40, chunk=32)
        with pytest.warns(UserWarning, match="whole") as warned:
            again = [model(ids_of(), **asked) for _ in range(2)]
    assert len(warned) == 1
    assert torch.equal(again[0].logits, whole.logits)
    assert model.chunking.stats.chunked_sequences == 0


def test_the_documented_call_saves_memory_and_a_call_that_costs_some_says_so() -> None:
    """Resident memory of a CPU wavers by tens of megabytes; the scores of this take hundreds."""
    model = chunked(model_of("Llama", "eager"), threshold=64, chunk=64)
    saved = model.chunking.measure(ids_of(1_000, 8), logits_to_keep=1)
    assert saved.saved_bytes == saved.whole_bytes - saved.chunked_bytes
    assert saved.saved_bytes > 0
    assert "logits_to_keep" not in repr(saved)
    assert "logits_to_keep" in repr(ChunkedMemory(whole_bytes=1, chunked_bytes=2))


def test_wrapping_again_replaces_and_undo_leaves_the_model_as_it_was() -> None:
    model = model_of("Llama")
    before = set(model.__dict__)
    chunked(chunked(model, threshold=40), threshold=64)
    assert model.chunking.threshold == 64
    model.chunking.undo()
    assert set(model.__dict__) == before


def test_the_threshold_is_that_of_a_plan_or_a_profile() -> None:
    planned, lengths = plan(MIXED), profile(data=MIXED)
    model = model_of("Llama")
    assert chunked(model, plan=planned).chunking.threshold == planned.decision.threshold
    assert (
        chunked(model, profile=lengths).chunking.threshold == planned.decision.threshold
    )
    off = chunked(model, profile=profile(data=SHORT))
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error")
        off(ids_of())
    assert off.chunking.stats.chunked_sequences == 0


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, "profile"),
        ({"threshold": 8, "profile": "profile.json"}, "profile"),
        ({"threshold": 0}, "threshold"),
        ({"threshold": 8, "chunk": "by-length"}, "chunk"),
    ],
)
def test_bad_input_is_a_clear_sentence(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        chunked(model_of("Llama"), **asked)
    with pytest.raises(UsageError, match="str"):
        chunked("a model", threshold=8)
