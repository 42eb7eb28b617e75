"""torch, if it is there."""

from typing import Any

from chunkscope.errors import MissingError


def load_torch(who: str) -> Any:
    """The module; MissingError where it is not installed. `who` needs it: "chunkscope demo"."""
    try:
        import torch
    except ImportError as error:
        raise MissingError(
            f"{who} needs torch, which is not installed", hint="pip install 'chunkscope[torch]'"
        ) from error
    return torch
