"""What can be read in chunks, and which lengths the demo takes. This needs no torch."""

from types import SimpleNamespace

import pytest

from chunkscope.errors import InputError
from chunkscope.reference.chunked import model_obstacles
from chunkscope.reference.demo import check_length, read_chunks


def model_with(*, can_generate: bool = True, **config: object) -> SimpleNamespace:
    """A model as far as its config is looked at."""
    usual = {
        "output_attentions": False,
        "output_hidden_states": False,
        "is_encoder_decoder": False,
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
    ],
)
def test_a_decoder_with_attention_can_be_read_in_chunks(config) -> None:
    assert list(model_obstacles(model_with(**config))) == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"output_attentions": True}, "attentions"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"layer_types": ["full_attention", "mamba"]}, "state"),
        ({"use_bidirectional_attention": "all"}, "look ahead"),
        ({"rope_parameters": {"full": {"rope_type": "longrope"}}}, "whole prompt"),
        ({"rope_parameters": {"mrope_section": [1, 2]}}, "whole prompt"),
        ({"can_generate": False}, "does not generate"),
    ],
    ids=str,
)
def test_what_cannot_be_read_in_chunks_has_one_reason(config, reason) -> None:
    (obstacle,) = model_obstacles(model_with(**config))

    assert reason in obstacle


def test_a_prompt_has_to_fit_the_context_with_its_answer() -> None:
    check_length(32_744)
    with pytest.raises(InputError, match="32,768"):
        check_length(32_745)


def test_chunk_sizes_are_read_in_their_order_each_once() -> None:
    assert read_chunks("32, NONE,512,32") == [32, None, 512]
