"""Models for the reference engine: one from a folder, or a small random one."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.errors import InputError, MissingError, first_line
from chunkscope.tokenizers.reference import auto_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TINY = "a random Llama"
# Two million parameters: a step of 6,000 tokens takes two CPU cores about a second.
TINY_SHAPE = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    # Large enough that one logit stands out; among flat ones rounding would decide.
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
}
# Layers of other types keep a state instead of keys and values, so that a later chunk
# could not look at the tokens of an earlier one.
LAYER_TYPES = {"full_attention", "sliding_attention"}
# The code of these models continues from a cache with a single token only.
SINGLE_TOKEN_MODELS = {"cpmant", "git", "moshi", "prophetnet"}
ROPE_BY_LENGTH = {"dynamic", "longrope"}


def require_torch(feature: str) -> None:
    """Raise MissingError, which names the extra, where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"{feature} needs torch, which is not installed",
            hint="in a clone of chunkscope: pip install '.[torch]'",
        ) from error


def tiny_model(seed: int = 0) -> "PreTrainedModel":
    import torch

    auto_tokenizer()  # imports transformers and silences its advice
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return on_fastest_device(LlamaForCausalLM(LlamaConfig(**TINY_SHAPE)))


def load_model(name: str) -> "PreTrainedModel":
    """The model in a folder, on the GPU if there is one. Nothing is downloaded."""
    from chunkscope.verification.verify import has_weights

    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file() or not has_weights(folder):
        raise MissingError(
            f"{name} is not a folder with a config.json and weights",
            hint="`hf download ID --local-dir DIR` makes one; without --model a small "
            "random model is used",
        )
    auto_tokenizer()  # imports transformers and silences its advice
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype="auto"
        )
    except Exception as error:  # a damaged file can raise anything in transformers
        raise InputError(
            f"transformers cannot load the model in {folder}: {first_line(error)}"
        ) from error
    return on_fastest_device(model)


def on_fastest_device(model: "PreTrainedModel") -> "PreTrainedModel":
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval()


def context_of(model: "PreTrainedModel") -> int | None:
    """The most tokens that a prompt and its answer may have, if the model says so."""
    config = model.config.get_text_config()
    tokens = getattr(config, "max_position_embeddings", None)
    if isinstance(tokens, int) and tokens > 0:
        return tokens
    return None


def obstacles(model: "PreTrainedModel") -> Iterator[str]:
    """Reasons why prompts of this model cannot be read in chunks."""
    config = model.config
    text_config = config.get_text_config()
    layer_types = set(getattr(text_config, "layer_types", None) or ())
    if config.output_attentions or config.output_hidden_states:
        yield "it returns attentions or hidden states of the whole prompt"
    if config.is_encoder_decoder:
        yield "it is an encoder-decoder"
    if layer_types - LAYER_TYPES:
        names = ", ".join(sorted(layer_types - LAYER_TYPES))
        yield f"it has layers that keep a state ({names})"
    if getattr(model, "_is_stateful", False):
        yield "its layers keep a state"
    if config.model_type in SINGLE_TOKEN_MODELS:
        yield f"{config.model_type} cannot continue from its cache with several tokens"
    if getattr(text_config, "is_causal", True) is False:
        yield "its tokens look ahead"
    if getattr(text_config, "use_bidirectional_attention", None) in (True, "all"):
        yield "its tokens look ahead"
    if not model.can_generate():
        yield f"{type(model).__name__} does not generate text"
    yield from rope_obstacles(getattr(text_config, "rope_parameters", None) or {})


def rope_obstacles(parameters: dict[str, object]) -> Iterator[str]:
    """The same for rotary embeddings, whose parameters may stand by layer type."""
    by_layer_type = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in [parameters, *by_layer_type]:
        if rope.get("rope_type") in ROPE_BY_LENGTH:
            yield "its rotary embedding depends on the length of the whole prompt"
        if "mrope_section" in rope:
            yield "it computes positions from the whole prompt"
