"""Which models and lengths are refused. This needs no torch."""

from types import SimpleNamespace

import pytest

from chunkscope.errors import InputError
from chunkscope.reference.demo import check_lengths, read_chunks
from chunkscope.reference.models import obstacles


def model_with(*, can_generate: bool = True, **config: object) -> SimpleNamespace:
    """A model as far as its config is looked at."""
    usual = {
        "output_attentions": False,
        "output_hidden_states": False,
        "is_encoder_decoder": False,
        "model_type": "llama",
        "max_position_embeddings": 512,
    }
    text_config = SimpleNamespace(**{**usual, **config})
    text_config.get_text_config = lambda: text_config
    return SimpleNamespace(config=text_config, can_generate=lambda: can_generate)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="nothing said"),
        pytest.param(
            {"layer_types": ["full_attention", "sliding_attention"]}, id="windows"
        ),
        pytest.param({"rope_parameters": {"rope_type": "llama3"}}, id="usual rope"),
        pytest.param(
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            id="rope by layer type",
        ),
    ],
)
def test_a_decoder_with_attention_can_be_read_in_chunks(config) -> None:
    assert list(obstacles(model_with(**config))) == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"output_attentions": True}, "attentions"),
        ({"output_hidden_states": True}, "hidden states"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "moshi"}, "moshi"),
        ({"layer_types": ["full_attention", "mamba"]}, "mamba"),
        ({"is_causal": False}, "look ahead"),
        ({"use_bidirectional_attention": "all"}, "look ahead"),
        ({"rope_parameters": {"full": {"rope_type": "longrope"}}}, "length"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "length"),
        ({"rope_parameters": {"mrope_section": [1, 2]}}, "positions"),
        ({"can_generate": False}, "does not generate"),
    ],
    ids=str,
)
def test_what_cannot_be_read_in_chunks_has_one_reason(config, reason) -> None:
    (obstacle,) = obstacles(model_with(**config))

    assert reason in obstacle


def test_a_model_that_says_it_keeps_a_state_cannot_be_read_in_chunks() -> None:
    model = model_with()
    model._is_stateful = True

    assert list(obstacles(model)) == ["its layers keep a state"]


def test_a_prompt_that_just_fits_the_context_with_its_answer_is_taken() -> None:
    check_lengths(model_with(), 488)


def test_a_prompt_that_does_not_fit_the_context_names_the_context() -> None:
    with pytest.raises(InputError, match="512") as refused:
        check_lengths(model_with(), 489)
    assert refused.value.hint == "pass --long 488, or less"


def test_chunk_sizes_are_read_in_their_order_each_once() -> None:
    assert read_chunks("32, NONE,512,32") == [32, None, 512]
