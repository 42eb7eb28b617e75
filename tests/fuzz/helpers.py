"""What every target shares: how it is explored, how things are damaged, and what counts
as fine."""

import faulthandler
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from chunkscope.errors import EXIT_BUG, ChunkscopeError
from tests.commands.helpers import Run
from tests.processes import PATIENCE_S

SEED = int(os.environ.get("CHUNKSCOPE_FUZZ_SEED", "14"))


def explore(
    check: Callable[..., None],
    *strategies: st.SearchStrategy[Any],
    past: Iterable[tuple[Any, ...]] = (),
) -> None:
    """Check what went wrong in the past, then examples of the strategies."""
    for case in past:
        check(*case)
    # A run depends on its seed and on nothing else.
    how = settings(database=None, suppress_health_check=[*HealthCheck])
    seed(SEED)(how(given(*strategies)(check)))()


@contextmanager
def fine() -> Iterator[None]:
    """What is done inside succeeds or is refused in a sentence that can be shown; it
    ends."""
    faulthandler.dump_traceback_later(
        PATIENCE_S, exit=True
    )  # native code takes no other limit
    try:
        yield
    except ChunkscopeError as error:
        assert error.exit_code != EXIT_BUG and error.message.strip()  # noqa: PT017, PT018
        f"{error.message} {error.hint}".encode()
    finally:
        faulthandler.cancel_dump_traceback_later()


def assert_fine(run: Run) -> None:
    """The same of a command."""
    assert run.code in {0, 1, 2, 3, 4, 5}, run.err
    assert "Traceback" not in run.err
    if run.code > 1:
        assert "rror: " in run.err or "bad row: " in run.err, run.err


# --- damage -------------------------------------------------------------------------

texts = st.text(max_size=40) | st.sampled_from(
    ["", "\0", "\u2028", "[/b]", "{x}", "\ud800"]
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=10,
)


GONE = object()
INSTEAD = (
    GONE,
    None,
    True,
    0,
    -1,
    10**15 + 1,
    math.nan,
    math.inf,
    "",
    "x",
    "5%",
    [],
    {},
    [None],
)


def changed(document: Any) -> st.SearchStrategy[Any]:
    """The document with up to three of its parts gone or something else."""

    @st.composite
    def change(draw: st.DrawFn) -> Any:
        new = document
        for _ in range(draw(st.integers(1, 3))):
            new = _changed(draw, new)
        return None if new is GONE else new

    return change()


def _changed(draw: st.DrawFn, value: Any) -> Any:
    """A copy with one change somewhere in it; all else is shared."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 4)):
        copy: Any = value.copy()
        places = list(value) if isinstance(value, dict) else range(len(value))
        place = draw(st.sampled_from(places))
        copy[place] = _changed(draw, value[place])
        if copy[place] is GONE:
            del copy[place]
        return copy
    return draw(anything) if draw(st.booleans()) else draw(st.sampled_from(INSTEAD))


@st.composite
def damaged(draw: st.DrawFn, data: bytes | st.SearchStrategy[bytes]) -> bytes:
    """The bytes as they are, or cut, overwritten, doubled or grown in up to four
    places."""
    whole = data if isinstance(data, bytes) else draw(data)
    for _ in range(draw(st.integers(0, 4))):
        at, noise = draw(st.integers(0, len(whole))), draw(st.binary(max_size=8))
        # Cut off, overwritten, grown, a part dropped, a part doubled.
        goes_on = draw(
            st.sampled_from([len(whole), at + len(noise), at, at + 9, max(0, at - 50)])
        )
        whole = whole[:at] + noise + whole[goes_on:]
    return whole
