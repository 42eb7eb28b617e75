"""Models for the reference engine: one from a folder, or a small random one made on the spot."""

from pathlib import Path
from typing import Any

from chunkscope.artefacts.numbers import plural
from chunkscope.errors import InputError, MissingError
from chunkscope.reference.libraries import load_torch
from chunkscope.tokenizers.reference import auto_tokenizer, load_auto
from chunkscope.verification.verify import has_weights

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
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def tiny_model(seed: int = 0) -> Any:
    """Two million parameters: a step of 6,000 tokens takes two CPU cores about a second."""
    torch = load_torch("a model")
    auto_tokenizer()  # transformers, told to give no advice
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return _placed(LlamaForCausalLM(LlamaConfig(**TINY_SHAPE)))


def load_model(name: str) -> Any:
    """The model in a folder, on the GPU if there is one. Nothing is downloaded."""
    load_torch("a model")
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise MissingError(
            f"no such model: {name}",
            hint="name a folder with a config.json and weights (`hf download ID --local-dir DIR`)",
        )
    if not has_weights(folder):
        raise MissingError(
            f"{folder} holds no weights", hint="without --model a small random model is made"
        )
    auto_tokenizer()  # transformers, told to give no advice
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            dtype="auto",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # it is said below
        )
    except Exception as error:  # whatever a damaged or foreign file provokes
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"transformers cannot load the model in {folder}: {first}") from error
    if others := sorted(found["mismatched_keys"]):
        name, there, expected = others[0]
        raise InputError(
            f"the weights in {folder} do not belong to its config.json: {name} is of "
            f"{list(there)} numbers, where {list(expected)} are expected"
        )
    if missing := sorted(found["missing_keys"]):
        raise InputError(
            f"the weights in {folder} are not all there: {plural(len(missing), 'tensor')} "
            f"missing, such as {missing[0]}"
        )
    return _placed(model)


def _placed(model: Any) -> Any:
    import torch

    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def vocabulary_of(model: Any) -> int:
    return int(model.get_input_embeddings().num_embeddings)


def text_tokens(model: Any, folder: Path, text: str) -> list[int]:
    """A text by the tokenizer that lies beside the model; empty where none does."""
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return []
    tokens: list[int] = load_auto(folder)(text, add_special_tokens=False)["input_ids"]
    most, known = max(tokens, default=-1), vocabulary_of(model)
    if most >= known:
        raise InputError(
            f"the tokenizer in {folder} does not belong to its model: it makes token {most:,}, and "
            f"the model knows {known:,}",
            hint="put the tokenizer of that model into the folder, or none: then tokens are random",
        )
    return tokens
