"""What is asked of the prompts; `choose` makes a reader of it."""

from dataclasses import dataclass
from typing import Literal

from chunkscope.artefacts.files import several

PER_DATASET = ("fields", "each", "template", "choices", "output_field")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectOptions:
    """What the command line says about the prompt."""

    fields: tuple[str, ...] = ()
    each: tuple[str, ...] = ()  # lists that stand for so many prompts
    template: tuple[str, ...] | None = None  # the last one counts, as of output_field
    choices: tuple[str, ...] = ()
    task: Literal["generate", "loglikelihood"] = "generate"
    output_field: tuple[str, ...] | None = None
    log_model: str | None = None  # whose requests are counted, in a log of several

    def __post_init__(self) -> None:
        for name in PER_DATASET:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, several(value))

    @property
    def name_a_prompt(self) -> bool:
        return bool(self.fields or self.each or self.template)
