"""Whether the Hugging Face hub answers, whose client would try for minutes."""

import os
from urllib.parse import urlsplit

from chunkscope.errors import MissingError

PATIENCE_S = 5.0


def expect_hub() -> None:
    """Raise MissingError unless the hub answers within PATIENCE_S."""
    place = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    problem = hub_problem(place)
    if problem is not None:
        host = urlsplit(place).netloc or place
        raise MissingError(
            f"the hub ({host}) cannot be reached: {problem}",
            hint="check the network and HF_ENDPOINT, or name a local folder",
        )


def hub_problem(place: str) -> str | None:
    """Why the hub does not answer within PATIENCE_S; None: it does."""
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(place, method="HEAD")  # noqa: S310  (the user's own)
        with urllib.request.urlopen(request, timeout=PATIENCE_S):  # noqa: S310
            return None
    except urllib.error.HTTPError:  # a refusal is an answer, too
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return getattr(reason, "strerror", None) or str(reason)
