"""`chunkscope.chunked`: the same calls and results, in chunks; what it cannot cut stays whole."""

import copy
import pickle
import shutil
import sys
import threading
import warnings
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.errors import MissingError, UsageError

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tests.reference.small_models import (  # noqa: E402
    EXPERTS,
    FAMILIES,
    SMALL,
    VOCABULARY,
    WITH_WINDOW,
    model_of,
    prompt_of,
    rounding,
)

pytestmark = pytest.mark.real

REPORTS = Path(__file__).parents[2] / "reports"
GREEDY = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def a_model(family: str = "Llama") -> Any:
    """One of its own: what is wrapped is changed."""
    return copy.deepcopy(model_of(family))


def chunked_copy(model: Any) -> Any:
    return chunkscope.chunked(copy.deepcopy(model), threshold=16, chunk=7)


def wrapped(family: str = "Llama", threshold: int = 16, chunk: int | str = 7) -> Any:
    return chunkscope.chunked(a_model(family), threshold=threshold, chunk=chunk)


def small(kind: str, what: str = "AutoModel", **options: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **options)
    return getattr(transformers, what).from_config(config).eval()


def batch_of(*lengths: int, side: str = "left") -> dict[str, Any]:
    """Prompts of these lengths, padded to the longest."""
    longest = max(lengths)
    rows, masks = [], []
    for seed, length in enumerate(lengths):
        pad, ids = [0] * (longest - length), prompt_of(length, seed)
        rows.append(pad + ids if side == "left" else ids + pad)
        masks.append([int(token > 0) for token in rows[-1]])
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def forward(model: Any, **inputs: Any) -> Any:
    with torch.inference_mode():
        return model(**inputs)


def same(model: Any, found: Any, expected: Any) -> bool:
    assert found.shape == expected.shape
    return torch.allclose(found, expected, rtol=0, atol=rounding(model, expected))


# --- the results are those without it ------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [1, 7, "by-length"])
def test_logits_and_greedy_tokens_stay_the_same(family: str, chunk: int | str) -> None:
    whole, model = model_of(family), wrapped(family, threshold=20, chunk=chunk)
    inputs = batch_of(40, 27)
    expected, found = forward(whole, **inputs), forward(model, **inputs)
    for row, length in enumerate((40, 27)):  # what padding gives differs, and means nothing
        assert same(whole, found.logits[row, -length:], expected.logits[row, -length:])
    assert found.past_key_values.get_seq_length() == 40
    assert torch.equal(model.generate(**inputs, **GREEDY), whole.generate(**inputs, **GREEDY))
    stats = model.chunking.stats
    size = chunk if isinstance(chunk, int) else 20
    assert (stats.total_sequences, stats.chunked_sequences) == (4, 4)
    assert stats.chunks_processed == 2 * -(-40 // size)
    assert stats.seconds_per_chunk > 0


HEADS = {"num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.2}
OLDER = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, **HEADS}
MORE_FAMILIES: dict[str, dict[str, Any]] = {
    "phi3": SMALL,
    "olmo2": SMALL,
    "stablelm": SMALL,
    "cohere": SMALL,
    "granite": SMALL,
    "gpt_oss": {**WITH_WINDOW, **EXPERTS, "head_dim": 8, "num_local_experts": 4},
    "deepseek_v3": {
        **SMALL,
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 16,
    },
    "falcon": OLDER,
    "bloom": OLDER,
    "gpt_neox": OLDER,
    "opt": {**OLDER, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.2},
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", MORE_FAMILIES)
def test_so_it_is_in_families_that_attend_or_count_positions_otherwise(
    kind: str, side: str
) -> None:
    whole = small(kind, "AutoModelForCausalLM", **MORE_FAMILIES[kind])
    model, inputs = chunked_copy(whole), batch_of(40, 27, side=side)
    expected, found = forward(whole, **inputs).logits, forward(model, **inputs).logits
    for row, length in enumerate((40, 27)):
        seen = slice(-length, None) if side == "left" else slice(length)
        assert same(whole, found[row, seen], expected[row, seen])
    if side == "left":
        assert torch.equal(model.generate(**inputs, **GREEDY), whole.generate(**inputs, **GREEDY))
    assert model.chunking.stats.chunking_rate == 1.0


LLAMA = wrapped()


@settings(max_examples=20)
@given(length=st.integers(1, 60), chunk=st.integers(2, 60), threshold=st.integers(1, 60))
def test_so_it_is_for_any_length_and_chunk(length: int, chunk: int, threshold: int) -> None:
    model = chunkscope.chunked(LLAMA, threshold=threshold, chunk=chunk)
    inputs, plain = batch_of(length), model_of("Llama")
    expected = forward(plain, **inputs).logits
    assert same(plain, forward(model, **inputs).logits, expected)
    is_cut = length > threshold and chunk < length
    assert model.chunking.stats.chunks_processed == (-(-length // chunk) if is_cut else 0)


@pytest.mark.parametrize("family", ["Llama", "Mistral with a window", "GPT-2"])
def test_what_else_a_call_may_ask_is_answered_as_before(family: str) -> None:
    whole, model = model_of(family), wrapped(family)
    ids = torch.tensor([prompt_of(40)])
    for asked in ({"logits_to_keep": 1}, {"logits_to_keep": 9}, {"logits_to_keep": 100}):
        found = forward(model, input_ids=ids, **asked).logits
        assert same(whole, found, forward(whole, input_ids=ids, **asked).logits)
    expected = forward(whole, input_ids=ids, output_hidden_states=True).hidden_states
    found = forward(model, input_ids=ids, output_hidden_states=True).hidden_states
    for one, other in zip(found, expected, strict=True):
        assert same(whole, one, other)
    embedded = {"inputs_embeds": whole.get_input_embeddings()(ids)}
    expected = forward(whole, input_ids=ids)
    assert same(whole, forward(model, **embedded).logits, expected.logits)
    assert same(whole, forward(model, input_ids=ids, return_dict=False)[0], expected.logits)
    with torch.inference_mode():
        assert same(whole, model(ids).logits, expected.logits)  # by position
    assert model.chunking.stats.chunking_rate == 1.0


def test_a_prompt_goes_on_from_what_a_cache_holds() -> None:
    whole, model = model_of("Mistral with a window"), wrapped("Mistral with a window")
    ids = torch.tensor([prompt_of(60)])
    begun = forward(model, input_ids=ids[:, :23]).past_key_values
    mask = torch.ones_like(ids)
    rest = forward(model, input_ids=ids[:, 23:], past_key_values=begun, attention_mask=mask).logits
    assert same(whole, rest, forward(whole, input_ids=ids).logits[:, 23:])
    begun = forward(model, input_ids=ids[:, :23]).past_key_values
    going_on = model.generate(ids, past_key_values=begun, **GREEDY)
    assert torch.equal(going_on, whole.generate(ids, **GREEDY))


def test_a_second_turn_may_be_given_by_its_new_tokens_alone() -> None:
    model, ids = wrapped(), torch.tensor([prompt_of(80)])
    begun = forward(model, input_ids=ids[:, :14]).past_key_values
    asked = {"past_key_values": begun, "attention_mask": torch.ones_like(ids), **GREEDY}
    going_on = model.generate(ids[:, 14:], **asked)[:, -4:]
    assert torch.equal(going_on, model_of("Llama").generate(ids, **GREEDY)[:, -4:])
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences, stats.chunks_processed) == (2, 1, 10)


def test_gradients_flow_through_chunks() -> None:
    """As in attributions, which are made in eval mode."""
    found = []
    for model in (model_of("Llama"), wrapped()):
        embeds = model.get_input_embeddings()(torch.tensor([prompt_of(40)])).detach()
        embeds.requires_grad_(True)
        answer = model(inputs_embeds=embeds, output_hidden_states=True)
        (answer.logits[0, -1].max() + answer.hidden_states[1].sum()).backward()
        found.append(embeds.grad)
    assert model.chunking.stats.chunked_sequences == 1
    assert torch.allclose(*found, rtol=0, atol=1e-4 * float(found[0].abs().max()))


def test_generate_cuts_with_what_transformers_has_where_that_does_the_same() -> None:
    seen: list[int] = []
    whole, model = model_of("Llama"), wrapped()
    model.model.embed_tokens.register_forward_hook(
        lambda _, args, __: seen.append(args[0].shape[1])
    )
    asked: list[Any] = []
    plain_generate = type(model).generate

    def noted(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs.get("prefill_chunk_size"))
        return plain_generate(model, *args, **kwargs)

    model.generate._inner = noted
    inputs = batch_of(20)
    model.generate(**inputs, **GREEDY)
    assert (asked, seen[:4]) == ([7], [7, 7, 6, 1])
    # Hidden states of its last chunk alone are not those of the prompt: here the calls are cut.
    more = {"output_hidden_states": True, "return_dict_in_generate": True}
    found = model.generate(**inputs, **GREEDY, **more)
    assert asked == [7, None]
    expected = whole.generate(**inputs, **GREEDY, **more)
    assert same(whole, found.hidden_states[0][-1], expected.hidden_states[0][-1])
    embeds = {"inputs_embeds": whole.get_input_embeddings()(inputs["input_ids"])}
    assert torch.equal(model.generate(**embeds, **GREEDY), whole.generate(**embeds, **GREEDY))
    model.generate(**inputs, **GREEDY, prefill_chunk_size=5)  # who asks for other chunks gets them
    assert asked[-1] == 5
    assert model.chunking.stats.chunked_sequences == 3


def test_beams_and_seeded_samples_stay_the_same() -> None:
    whole, model, inputs = model_of("Llama"), wrapped(), batch_of(40, 30)
    for way in ({"num_beams": 3, "do_sample": False}, {"do_sample": True, "temperature": 0.7}):
        torch.manual_seed(1)
        expected = whole.generate(**inputs, **GREEDY | way)
        torch.manual_seed(1)
        assert torch.equal(model.generate(**inputs, **GREEDY | way), expected)
    assert model.chunking.stats.chunked_sequences == 4


# --- what is counted -----------------------------------------------------------------------------


def test_short_prompts_pass_and_are_counted_but_steps_are_not() -> None:
    model = wrapped()
    model.generate(**batch_of(16, 5), **GREEDY)
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences, stats.chunks_processed) == (2, 0, 0)
    assert (stats.chunking_rate, stats.seconds_per_chunk) == (0.0, None)
    forward(model, **batch_of(17))
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences, stats.chunks_processed) == (3, 1, 3)
    assert stats.chunking_rate == 1 / 3
    assert chunkscope.chunked(a_model(), threshold=9).chunking.stats.chunking_rate is None


class Operations(TorchDispatchMode):
    """What torch was asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, name: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(name))
        return name(*args, **kwargs or {})


def test_a_short_prompt_is_handed_on_untouched() -> None:
    given: list[Any] = []
    call = chunkscope.chunked(lambda *args, **kwargs: given.append((args, kwargs)), threshold=8)
    ids, mask = torch.ones(1, 8, dtype=torch.long), object()
    with Operations() as operations:
        call(ids, anything=mask)
    assert not operations.names
    assert given[0][0][0] is ids
    assert given[0][1] == {"anything": mask}


def test_memory_saved_is_measured_or_not_known() -> None:
    model = wrapped(threshold=256, chunk=64)
    assert model.chunking.stats.peak_memory_saved_bytes is None
    with pytest.raises(UsageError, match="a prompt of 20 tokens is not chunked"):
        model.chunking.measure(**batch_of(20))
    saved = model.chunking.measure(**batch_of(1_000), logits_to_keep=1)
    assert model.chunking.stats.peak_memory_saved_bytes == saved
    assert saved is None or isinstance(saved, int)


def test_measured_savings_are_those_of_the_activations() -> None:
    """A callable that takes a mebibyte for each token of a pass."""

    def greedy_for_memory(input_ids: Any, past_key_values: Any = None) -> Any:  # noqa: ARG001
        taken = torch.ones(input_ids.shape[1], 256, 1024)
        return SimpleNamespace(logits=taken[:1, :1, :1].clone(), past_key_values=input_ids)

    call = chunkscope.chunked(greedy_for_memory, threshold=100, chunk=40)
    saved = call.chunking.measure(input_ids=torch.ones(1, 240, dtype=torch.long))
    if sys.platform == "linux":
        assert saved == pytest.approx(200 * 2**20, rel=0.25)


def test_threads_share_a_model_and_its_counts() -> None:
    whole, model = model_of("Llama"), wrapped()
    prompts = [batch_of(length) for length in (10, 20, 30, 40)]
    expected = [whole.generate(**inputs, **GREEDY) for inputs in prompts]
    wrong: list[int] = []
    ready = threading.Barrier(4)

    def work(place: int) -> None:
        ready.wait()
        for turn in range(5):
            at = (place + turn) % 4
            inputs = prompts[at]
            if not torch.equal(model.generate(**inputs, **GREEDY), expected[at]):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences) == (20, 15)
    assert stats.chunks_processed == 5 * (3 + 5 + 6)


# --- compiled models -----------------------------------------------------------------------------


class Memory(torch.nn.Module):
    """A model that is compiled in a moment: each token's logits are the sum of all up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(VOCABULARY, 8))

    def forward(self, input_ids: Any, past_key_values: Any = None, use_cache: bool = True) -> Any:
        logits = self.table[input_ids].cumsum(dim=1)
        if past_key_values is not None:
            logits = logits + past_key_values
        return {"logits": logits, "past_key_values": logits[:, -1:] if use_cache else None}


class Graphs:
    """A backend that runs what it is given as it is, and counts it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, _: Any) -> Any:
        self.count += 1
        return graph.forward


@pytest.fixture
def graphs():
    torch.compiler.reset()
    yield Graphs()
    torch.compiler.reset()


def compiled(how: str, backend: Any) -> Any:
    model, options = Memory().eval(), {"backend": backend, "fullgraph": True, "dynamic": True}
    if how == "compiled first":
        return chunkscope.chunked(torch.compile(model, **options), threshold=16, chunk=7)
    if how == "compiled in place":
        model.compile(**options)
        return chunkscope.chunked(model, threshold=16, chunk=7)
    return torch.compile(
        chunkscope.chunked(model, threshold=16, chunk=7), backend=backend, dynamic=True
    )


@pytest.mark.parametrize("how", ["compiled first", "compiled in place", "wrapped first"])
def test_a_compiled_model_is_chunked(how: str, graphs: Graphs) -> None:
    model = compiled(how, graphs)
    ids = torch.tensor([prompt_of(40)])
    plain = Memory().eval()
    plain.load_state_dict(getattr(model, "_orig_mod", model).state_dict())
    with torch.inference_mode():
        found, expected = model(ids), plain(ids)
        assert torch.allclose(found["logits"], expected["logits"])
        assert model.chunking.stats.chunks_processed == 6
        short = model(ids[:, :9])["logits"]
        assert torch.allclose(short, expected["logits"][:, :9])
    assert 0 < graphs.count < 6  # and what ran was compiled, once for chunks of any length


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, by torch
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++")
def test_so_is_one_that_inductor_compiled(
    graphs: Graphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del graphs  # only what it leaves behind is wanted: nothing compiled
    # A run that was killed leaves half a library in the cache that all share.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain, ids = Memory().eval(), torch.tensor([prompt_of(40)])
    model = torch.compile(copy.deepcopy(plain), dynamic=True)
    model = chunkscope.chunked(model, threshold=16, chunk=8)
    with torch.inference_mode():
        assert torch.allclose(model(ids)["logits"], plain(ids)["logits"])
    assert model.chunking.stats.chunks_processed == 5
    assert list(tmp_path.iterdir()), "it was compiled"


def test_generate_of_a_compiled_model_is_chunked_too() -> None:
    model = chunkscope.chunked(torch.compile(a_model(), backend="eager"), threshold=16, chunk=7)
    inputs = batch_of(40)
    assert torch.equal(
        model.generate(**inputs, **GREEDY), model_of("Llama").generate(**inputs, **GREEDY)
    )
    stats = model.chunking.stats
    assert (stats.chunked_sequences, stats.chunks_processed) == (1, 6)
    assert stats.seconds_per_chunk is None  # transformers generates with what was compiled


# --- what cannot be chunked ----------------------------------------------------------------------


T5 = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 128}
CHUNKED_ATTENTION = {
    **SMALL,
    "head_dim": 8,
    "num_local_experts": 2,
    "attention_chunk_size": 16,
    "intermediate_size_mlp": 48,
    "num_hidden_layers": 4,
}
LINEAR_ATTENTION = {
    **SMALL,
    **EXPERTS,
    "head_dim": 8,
    "shared_expert_intermediate_size": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
BERT = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 128,
}


@pytest.mark.parametrize(
    ("make", "asked", "reason"),
    [
        (a_model, {"use_cache": False}, "no KV cache"),
        (a_model, {"attention_mask": torch.ones(1, 1, 40, 40).tril()}, "mask of its own"),
        (a_model, {"labels": torch.ones(1, 40, dtype=torch.long)}, "labels"),
        (lambda: a_model().train(), {}, "training mode"),
        (lambda: small("t5", **T5), {"decoder_input_ids": torch.ones(1, 4, dtype=torch.long)},
         "encoder-decoder"),
        (lambda: small("bert", "AutoModelForCausalLM", **BERT), {}, "gives no past_key_values"),
        (lambda: small("bert", **BERT, is_decoder=True), {}, "one answer for the whole prompt"),
        (lambda: small("llama", "AutoModelForSequenceClassification", **SMALL), {},
         "LlamaForSequenceClassification gives one answer"),
        (lambda: small("llama4_text", "AutoModelForCausalLM", **CHUNKED_ATTENTION), {},
         "layers of chunked_attention"),
        (lambda: small("qwen3_next", "AutoModelForCausalLM", **LINEAR_ATTENTION), {}, "state"),
        (lambda: small("mamba", hidden_size=16, num_hidden_layers=1, vocab_size=128), {}, "state"),
    ],
    ids=["no cache", "a mask", "labels", "training", "encoder-decoder", "an encoder", "a pooler",
         "a classifier", "chunked attention", "linear attention", "a state"],
)  # fmt: skip
def test_what_cannot_be_chunked_stays_whole_with_one_warning(
    make: Any, asked: dict[str, Any], reason: str
) -> None:
    inputs = {"input_ids": torch.tensor([prompt_of(40)]), **asked}
    model = make()
    whole = forward(model, **inputs)
    model = chunkscope.chunked(model, threshold=16, chunk=7)
    with pytest.warns(UserWarning, match=f"prompts are not chunked here: .*{reason}"):
        found = forward(model, **inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forward(model, **inputs)
    assert torch.equal(found[0], whole[0])
    stats = model.chunking.stats
    assert (stats.total_sequences, stats.chunked_sequences, stats.chunks_processed) == (2, 0, 0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
         "dynamic rotary embedding"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layers of linear_attention"),
        ({"use_bidirectional_attention": True}, "look ahead"),
        ({"model_type": "moshi"}, "does not go on from its cache"),
    ],
)  # fmt: skip
def test_a_model_whose_tokens_depend_on_the_whole_prompt_is_known(
    options: dict[str, Any], reason: str
) -> None:
    from chunkscope.reference.pieces import why_model_is_whole

    assert reason in str(why_model_is_whole(SimpleNamespace(**options)))
    assert why_model_is_whole(model_of("Mistral with a window").config) is None


def test_a_classifier_finds_the_last_token_of_padded_prompts() -> None:
    """In chunks it would look for it in the last chunk, which may be all padding."""
    model = small("llama", "AutoModelForSequenceClassification", **SMALL)
    inputs = batch_of(40, 20, side="right")
    expected, other = forward(model, **inputs).logits, chunked_copy(model)
    with pytest.warns(UserWarning, match="one answer for the whole prompt"):
        assert torch.equal(forward(other, **inputs).logits, expected)


def test_who_generates_without_the_wrapped_call_is_warned_too() -> None:
    model = small("t5", "AutoModelForSeq2SeqLM", **T5, decoder_start_token_id=0)
    expected, other = model.generate(**batch_of(40), **GREEDY), chunked_copy(model)
    with pytest.warns(UserWarning, match="not chunked here: it is an encoder-decoder"):
        assert torch.equal(other.generate(**batch_of(40), **GREEDY), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.generate(**batch_of(40), **GREEDY)


def test_positions_that_are_found_by_the_whole_mask_keep_a_padded_prompt_whole() -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    eyes = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 1}
    model = small(
        "qwen2_vl",
        "AutoModelForImageTextToText",
        text_config={**SMALL, "rope_parameters": rope},
        vision_config=eyes,
        image_token_id=125,
        video_token_id=126,
        vision_start_token_id=124,
    )
    ids = batch_of(40, 27)["input_ids"].clamp(max=120)
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    expected, other = forward(model, **inputs).logits, chunked_copy(model)
    with pytest.warns(UserWarning, match="by the whole mask"):
        assert torch.equal(forward(other, **inputs).logits, expected)
    assert torch.equal(other.generate(**inputs, **GREEDY), model.generate(**inputs, **GREEDY))
    assert other.chunking.stats.chunked_sequences == 2  # which has positions for every call


class Halves:
    """A cache that keeps half of each number's digits, as quantized ones do."""

    def __new__(cls) -> Any:
        from transformers import Cache
        from transformers.cache_utils import QuantizedLayer

        class HalvesQuantizedLayer(QuantizedLayer):
            def _quantize(self, tensor: Any, axis: int) -> Any:  # noqa: ARG002
                return tensor.to(torch.bfloat16)

            def _dequantize(self, tensor: Any) -> Any:
                return tensor.float()

        return Cache(layers=[HalvesQuantizedLayer(residual_length=4) for _ in range(2)])


def test_a_quantized_cache_keeps_prompts_whole() -> None:
    whole, model, inputs = model_of("Llama"), wrapped(), batch_of(40)
    expected = forward(whole, **inputs, past_key_values=Halves()).logits
    with pytest.warns(UserWarning, match="its cache is quantized"):
        found = forward(model, **inputs, past_key_values=Halves()).logits
    assert torch.equal(found, expected)
    for asked in ({"past_key_values": Halves()}, {"cache_implementation": "quantized"}):
        assert not model.generate._cuts({**inputs, **asked})
    assert model.generate._cuts(inputs)


# --- any callable, and taking it off again -------------------------------------------------------


Answer = namedtuple("Answer", "logits past_key_values")


def test_fixed_chunks_are_of_the_threshold_and_by_length_never_over_it() -> None:
    chunking = wrapped(threshold=2_048, chunk="by-length").chunking
    assert [chunking.size_for(n) for n in (3_000, 9_000, 50_000)] == [512, 1_024, 2_048]
    assert wrapped(threshold=700, chunk="by-length").chunking.size_for(9_000) == 700
    assert wrapped(threshold=700, chunk="fixed").chunking.size_for(9_000) == 700
    forward(model := wrapped(threshold=16, chunk=30), **batch_of(20))  # longer than the prompt
    assert model.chunking.stats.chunks_processed == 0


@pytest.mark.parametrize("kind", [dict, Answer, SimpleNamespace])
def test_any_callable_with_a_cache_is_chunked(kind: Any) -> None:
    """The cache of this one is all tokens so far, and its logits count them."""

    def call(input_ids: Any, past_key_values: Any = None) -> Any:
        before = 0 if past_key_values is None else past_key_values.shape[1]
        after = torch.arange(before + 1, before + 1 + input_ids.shape[1])
        seen = input_ids if past_key_values is None else torch.cat([past_key_values, input_ids], 1)
        return kind(logits=after[None, :, None].float(), past_key_values=seen)

    model = chunkscope.chunked(call, threshold=10, chunk=4)
    ids = torch.arange(19)[None]
    answer = model(input_ids=ids)
    answer = answer if kind is dict else {n: getattr(answer, n) for n in Answer._fields}
    assert torch.equal(answer["logits"][0, :, 0], torch.arange(1, 20).float())
    assert torch.equal(answer["past_key_values"], ids)
    assert model.chunking.stats.chunks_processed == 5
    assert model.__name__ == "call"


def test_a_callable_without_a_cache_stays_whole() -> None:
    model = chunkscope.chunked(lambda input_ids: input_ids * 2, threshold=4)
    with pytest.warns(UserWarning, match="takes no past_key_values"):
        assert int(model(torch.ones(1, 9))[0, 0]) == 2
    other = chunkscope.chunked(lambda *tokens: tokens[0] * 2, threshold=4)
    with pytest.warns(UserWarning, match="not called input_ids"):
        assert int(other(torch.ones(1, 9))[0, 0]) == 2


def test_wrapping_again_replaces_and_undo_leaves_the_model_as_it_was() -> None:
    model = a_model()
    before = set(vars(model))
    chunkscope.chunked(model, threshold=16, chunk=7)
    again = chunkscope.chunked(model, threshold=20, chunk=10)
    forward(model, **batch_of(40))
    assert again is model
    assert (model.chunking.threshold, model.chunking.stats.chunks_processed) == (20, 4)
    model.chunking.undo()
    assert set(vars(model)) == before
    forward(model, **batch_of(40))


def test_a_wrapped_model_can_be_pickled() -> None:
    whole, inputs = small("llama", "AutoModelForCausalLM", **SMALL), batch_of(40)
    model = pickle.loads(pickle.dumps(chunked_copy(whole)))
    assert same(whole, forward(model, **inputs).logits, forward(whole, **inputs).logits)
    assert torch.equal(model.generate(**inputs, **GREEDY), whole.generate(**inputs, **GREEDY))
    assert model.chunking.stats.chunks_processed == 12


def test_a_copy_counts_for_itself(tmp_path: Path) -> None:
    model = wrapped()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.lm_head.weight.zero_()
    assert not forward(other, **batch_of(40)).logits.any()
    assert forward(model, **batch_of(40, 30)).logits.any()
    assert other.chunking.stats.total_sequences == 1
    assert model.chunking.stats.total_sequences == 2
    model.save_pretrained(tmp_path)
    assert '"LlamaForCausalLM"' in (tmp_path / "config.json").read_text()


# --- where the threshold comes from, and bad input -----------------------------------------------


def test_the_threshold_is_that_of_a_plan_or_a_profile() -> None:
    plan, profile = REPORTS / "example" / "plan.json", REPORTS / "example" / "profile.json"
    for named in ({"plan": str(plan)}, {"profile": profile}, {"plan": chunkscope.Plan.load(plan)}):
        assert chunkscope.chunked(a_model(), **named).chunking.threshold == 2_303
    off = REPORTS / "h200" / "llama-3.1-8b-short" / "plan.json"
    model = chunkscope.chunked(a_model(), plan=off)
    assert repr(model.chunking).startswith("<Chunking off: ")
    forward(model, **batch_of(500))
    assert model.chunking.stats.chunking_rate == 0.0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "no threshold is given"),
        ({"threshold": 9, "plan": "reports/plan.json"}, "several of threshold, plan and profile"),
        ({"threshold": 0}, "threshold must be at least 1 token, not 0"),
        ({"threshold": "long"}, "threshold is 'long', not a number of tokens"),
        ({"threshold": 9, "chunk": 0}, "chunk must be at least 1 token, not 0"),
        ({"threshold": 9, "chunk": -4}, "chunk must be at least 1 token, not -4"),
        ({"threshold": 9, "chunk": 1.5}, "chunk is 1.5, not a number of tokens"),
        ({"threshold": 9, "chunk": True}, "chunk is True, not a number of tokens"),
        ({"threshold": 9, "chunk": "nonsense"}, "chunk is 'nonsense'"),
        ({"threshold": 9, "chunk": "adaptive"}, "chunk is 'adaptive', which needs an engine"),
    ],
)
def test_bad_input_is_a_clear_sentence(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        chunkscope.chunked(a_model(), **asked)
    if isinstance(asked.get("chunk"), str):
        assert caught.value.hint.endswith("one of: by-length, fixed")


def test_what_cannot_be_called_is_no_model() -> None:
    with pytest.raises(UsageError, match="str cannot be called"):
        chunkscope.chunked("meta-llama/Llama-3.1-8B", threshold=9)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match=r"chunkscope\.chunked needs torch"):
        chunkscope.chunked(print, threshold=9)
