"""What needs no torch: which models and lengths are refused."""

from types import SimpleNamespace

import pytest

from chunkscope.errors import InputError
from chunkscope.reference.demo import check_lengths
from chunkscope.reference.models import why_whole


def stub(config=(), model=()) -> SimpleNamespace:
    """A model as far as its config is looked at."""
    usual = {
        "output_attentions": False,
        "output_hidden_states": False,
        "model_type": "llama",
    }
    usual |= {"is_encoder_decoder": False, "max_position_embeddings": 512}
    text = SimpleNamespace(**{**usual, **dict(config)})
    text.get_text_config = lambda: text
    made = SimpleNamespace(config=text, can_generate=lambda: True, **dict(model))
    made.base_model = getattr(made, "base_model", made)
    return made


@pytest.mark.parametrize(
    ("config", "model"),
    [
        *(({name: True}, {}) for name in ("output_attentions", "output_hidden_states")),
        *(({"is_encoder_decoder": True}, {}), ({"model_type": "moshi"}, {})),
        *(
            ({"layer_types": ["full_attention", "mamba"]}, {}),
            ({}, {"_is_stateful": True}),
        ),
        *(({"is_causal": False}, {}), ({"use_bidirectional_attention": "all"}, {})),
        ({"rope_parameters": {"full": {"rope_type": "longrope"}}}, {}),
        ({"rope_parameters": {"mrope_section": [1, 2]}}, {}),
        *(({}, {"pooler": 1}), ({}, {"base_model": 1, "can_generate": lambda: False})),
    ],
)
def test_what_cannot_be_read_in_chunks_is_left_whole(config, model) -> None:
    made = stub(config, {})
    assert why_whole(made) is None or config
    made.__dict__.update(model)
    assert why_whole(made)


def test_a_demo_needs_a_context_for_its_longest_prompt_and_an_answer() -> None:
    check_lengths(stub(), 488)
    with pytest.raises(InputError, match="512"):
        check_lengths(stub(), 489)
