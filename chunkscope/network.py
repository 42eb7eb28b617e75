"""Whether the Hugging Face hub answers: its own client tries again and again, for minutes."""

import os
from urllib.parse import urlsplit

from chunkscope.errors import MissingError

PATIENCE_S = 5.0


def expect_hub() -> None:
    """MissingError unless it answers anything, and soon."""
    place = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if problem := hub_problem(place):
        raise MissingError(
            f"the hub ({urlsplit(place).netloc or place}) cannot be reached: {problem}",
            hint="check the network and HF_ENDPOINT, or name a local folder",
        )


def hub_problem(place: str) -> str | None:
    """Why it does not answer within PATIENCE_S; None where it does, whatever it says."""
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(place, method="HEAD")  # noqa: S310  (the user's own)
        with urllib.request.urlopen(request, timeout=PATIENCE_S):  # noqa: S310
            return None
    except urllib.error.HTTPError:  # an answer all the same
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return getattr(reason, "strerror", None) or str(reason)
