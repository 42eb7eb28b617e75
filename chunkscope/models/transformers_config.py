"""What transformers' class for a model type adds to its config.json.

A config.json leaves out what its class has as a default, and many classes work out the
kind of each layer. No code of the model's own repository is run, and nothing is
downloaded.
"""

import os
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from chunkscope.models.fields import NESTED, Config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# Properties that a class works out, beside the fields that it states.
WORKED_OUT = ("layer_types", "mlp_layer_types")


def class_fields(config: Config) -> dict[str, object]:
    """The language model's fields, by the class of the whole model or else its own.

    None where transformers has no such class, or it refuses what is stated.
    """
    parts = [config]
    for key in NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping):
            parts.append(nested)
    for part in parts:
        kind = str(part.get("model_type"))
        if kind in _classes():
            return _fields(_classes()[kind], part)
    return {}


def _fields(
    config_class: "type[PretrainedConfig]", stated: Config
) -> dict[str, object]:
    # transformers writes infinite numbers so, and takes them back from its files alone.
    finite = {k: value for k, value in stated.items() if "__float__" not in str(value)}
    try:
        with warnings.catch_warnings(action="ignore"):  # of names that are older
            text = config_class.from_dict(finite).get_text_config(decoder=True)
            fields = text.to_dict()
    except Exception:  # each class raises what it likes
        return {}
    for standard, own in text.attribute_map.items():
        fields.setdefault(standard, fields.get(own))
    for name in WORKED_OUT:
        fields[name] = getattr(text, name, None)
    fields["model_type"] = text.model_type
    return {name: value for name, value in fields.items() if value is not None}


@cache
def _classes() -> "Mapping[str, type[PretrainedConfig]]":
    """By model type; none without transformers. Importing them takes seconds."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        return {}
    classes: Mapping[str, type[PretrainedConfig]] = CONFIG_MAPPING
    return classes
