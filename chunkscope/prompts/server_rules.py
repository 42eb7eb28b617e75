"""What vLLM's chat server makes of tools and tool calls, by version: data, read in its sources."""

import re
from dataclasses import dataclass
from functools import cache

from chunkscope.errors import UsageError

# The first vLLM that does it, in the sources of 0.16 to 0.32.
_SINCE = {
    "knows_defer_loading": (0, 21),
    "null_arguments_are_empty": (0, 23),
    "knows_strict": (0, 24),
    "drops_unknown_keys": (0, 27),
    "only_object_arguments": (0, 29),
    "mends_broken_arguments": (0, 29),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRules:
    """How one version writes a request before the chat template sees it."""

    knows_defer_loading: bool = True  # and leaves it out where it is null
    knows_strict: bool = True  # likewise
    drops_unknown_keys: bool = True  # of a tool and of its function
    null_arguments_are_empty: bool = True  # "null" becomes {}
    only_object_arguments: bool = True  # a list or a number becomes {}
    # Those before refuse the request, which nobody should find out during a run: so does a version
    # that is not known.
    mends_broken_arguments: bool = False


NEWEST = ServerRules()


@cache
def rules_of(version: str | None) -> ServerRules:
    """The rules of a vLLM; of the newest where none is named.

    >>> rules_of("0.26").drops_unknown_keys, rules_of("0.27.1").drops_unknown_keys
    (False, True)
    """
    if version is None:
        return NEWEST
    found = re.match(r"v?(\d+)\.(\d+)", version.strip())
    if found is None:
        raise UsageError(f"{version!r} is no vLLM version", hint="write it like 0.24 or 0.24.0")
    release = (int(found[1]), int(found[2]))
    return ServerRules(**{rule: release >= since for rule, since in _SINCE.items()})
