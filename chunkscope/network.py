"""Whether the Hugging Face hub answers: its own client tries again and again, for minutes."""

import os
import threading
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
    problem = ["it does not answer"]
    asking = threading.Thread(target=_ask, args=(place, problem), daemon=True)
    asking.start()
    asking.join(PATIENCE_S)  # looking up a name would take longer than any time limit
    return problem[-1] if problem else None


def _ask(place: str, problem: list[str]) -> None:
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(place, method="HEAD")  # noqa: S310  (the user's own)
        with urllib.request.urlopen(request, timeout=PATIENCE_S):  # noqa: S310
            problem.clear()
    except urllib.error.HTTPError:  # an answer all the same
        problem.clear()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        problem.append(getattr(reason, "strerror", None) or str(reason))
