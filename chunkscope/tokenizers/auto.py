"""transformers' AutoTokenizer: the view of a tokenizer that vLLM serves. Slow to import."""

import os
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError, MissingError


def auto_tokenizer() -> Any:
    """The class, which takes a second to import."""
    # Of a local folder: no request may leave the machine, and no advice be printed.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    return AutoTokenizer


def load_auto(folder: Path, *, trust_remote_code: bool = False) -> Any:
    made_by = auto_tokenizer()
    try:
        return made_by.from_pretrained(
            str(folder), trust_remote_code=trust_remote_code, local_files_only=True
        )
    except ImportError as error:
        raise MissingError(f"the tokenizer in {folder} needs a package: {error}") from error
    except Exception as error:  # from_pretrained raises whatever a damaged file provokes
        if "trust_remote_code" in str(error):
            raise InputError(
                f"the tokenizer in {folder} is a Python program, which is not run unasked",
                hint="if you trust it, pass --trust-remote-code",
            ) from error
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"transformers cannot load the tokenizer in {folder}: {first}") from error
