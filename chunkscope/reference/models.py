"""Models for the reference engine: one from a folder, or a small random one made on the spot."""

from pathlib import Path
from typing import Any

from chunkscope.errors import InputError, MissingError
from chunkscope.tokenizers.reference import auto_tokenizer

TINY = "a random Llama"
TINY_SHAPE = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "initializer_range": 0.1,  # decisive: of flat logits rounding would choose the largest
    "bos_token_id": None,
    "eos_token_id": None,
}
# Layers that keep a state hold no keys and values that a later chunk could look at.
LAYERS = {"full_attention", "sliding_attention"}
# Their own code goes on from a cache by one token at a time alone.
ONE_BY_ONE = {"cpmant", "git", "moshi", "prophetnet"}
ROPE_BY_LENGTH = {"dynamic", "longrope"}


def load_torch(who: str) -> Any:
    """The module; MissingError where it is not installed. `who` needs it: "chunkscope demo"."""
    try:
        import torch
    except ImportError as error:
        raise MissingError(
            f"{who} needs torch, which is not installed",
            hint="pip install 'chunkscope[torch]'",
        ) from error
    return torch


def tiny_model(seed: int = 0) -> Any:
    """Two million parameters: a step of 6,000 tokens takes two CPU cores about a second."""
    import torch

    auto_tokenizer()  # transformers, told to give no advice
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return _placed(LlamaForCausalLM(LlamaConfig(**TINY_SHAPE)))


def load_model(name: str) -> Any:
    """The model in a folder, on the GPU if there is one. Nothing is downloaded."""
    from chunkscope.verification.verify import has_weights

    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file() or not has_weights(folder):
        raise MissingError(
            f"{name} is not a folder with a config.json and weights",
            hint="`hf download ID --local-dir DIR` makes one; without --model a small random model "
            "is used",
        )
    auto_tokenizer()  # transformers, told to give no advice
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype="auto"
        )
    except Exception as error:  # whatever a damaged or foreign file provokes
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"transformers cannot load the model in {folder}: {first}"
        ) from error
    return _placed(model)


def _placed(model: Any) -> Any:
    import torch

    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def context_of(model: Any) -> int | None:
    """How many tokens a request may have in all, if the model says so."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None


def why_whole(model: Any) -> str | None:
    """What keeps prompts of this model from being read in chunks; None: nothing does."""
    config = model.config
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    ropes = [part for part in (rope, *rope.values()) if isinstance(part, dict)]
    layers = sorted(set(getattr(text, "layer_types", None) or ()) - LAYERS)
    ahead = getattr(text, "use_bidirectional_attention", None)
    if config.output_attentions or config.output_hidden_states:
        return "it returns attentions or hidden states of the whole prompt"
    if config.is_encoder_decoder:
        return "it is an encoder-decoder"
    if layers or getattr(model, "_is_stateful", False):
        return f"it has layers that keep a state ({', '.join(layers) or type(model).__name__})"
    if config.model_type in ONE_BY_ONE:
        return f"{config.model_type} cannot continue from its cache with several tokens"
    if getattr(text, "is_causal", True) is False or ahead in (True, "all"):
        return "its tokens look ahead"
    if any(part.get("rope_type") in ROPE_BY_LENGTH for part in ropes):
        return "its rotary embedding depends on the length of the whole prompt"
    if any("mrope_section" in part for part in ropes):
        return "it computes positions from the whole prompt"
    if getattr(model, "pooler", None) is not None or (
        model.base_model is not model and not model.can_generate()
    ):
        return f"{type(model).__name__} gives one answer for the whole prompt"
    return None
