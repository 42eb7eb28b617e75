"""What needs no torch: what is sent, how steps are packed, who is refused, what people are told."""

import sys
from types import SimpleNamespace

import pytest

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.reference.demo import check_lengths, demo, demo_requests
from chunkscope.reference.models import load_model, load_torch, why_whole


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match="chunkscope demo") as raised:
        load_torch("chunkscope demo")
    assert "chunkscope[torch]" in raised.value.hint


@pytest.mark.real
def test_a_folder_without_a_config_or_weights_is_no_model(tmp_path) -> None:
    pytest.importorskip("torch")
    for name in ("nothing", "config.json"):
        (tmp_path / name).touch()
        with pytest.raises(MissingError, match=str(tmp_path)):
            load_model(str(tmp_path))


def stub(config=(), model=()) -> SimpleNamespace:
    """A model as far as its config is looked at."""
    usual = {"output_attentions": False, "output_hidden_states": False, "model_type": "llama"}
    usual |= {"is_encoder_decoder": False, "max_position_embeddings": 512}
    text = SimpleNamespace(**{**usual, **dict(config)})
    text.get_text_config = lambda: text
    made = SimpleNamespace(config=text, can_generate=lambda: True, **dict(model))
    made.base_model = getattr(made, "base_model", made)
    made.get_input_embeddings = lambda: SimpleNamespace(num_embeddings=50)
    return made


@pytest.mark.parametrize(
    ("config", "model"),
    [
        *(({name: True}, {}) for name in ("output_attentions", "output_hidden_states")),
        *(({"is_encoder_decoder": True}, {}), ({"model_type": "moshi"}, {})),
        *(({"layer_types": ["full_attention", "mamba"]}, {}), ({}, {"_is_stateful": True})),
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


def test_the_demo_sends_two_short_prompts_then_two_long_ones_and_six_short_behind_them() -> None:
    requests = [*demo_requests(stub(), 300, 0)]
    sent = [(len(request.prompt), request.arrival_s) for request in requests]
    assert sent[:4] == [(60, 0.0), (100, 0.0), (300, 0.001), (300, 0.001)]
    assert requests == [*demo_requests(stub(), 300, 0)] != [*demo_requests(stub(), 300, 1)]
    check_lengths(stub(), 488)
    with pytest.raises(InputError, match="512"):
        check_lengths(stub(), 489)


@pytest.mark.parametrize("chunk", ["0", "x", "256,-1", "1234567890"])
def test_a_chunk_is_a_number_of_tokens(chunk) -> None:
    with pytest.raises(UsageError, match="--chunk"):
        demo(chunk=chunk)
