"""Requests to send, what their prompts share, and when each of them arrives.

The same workload is sent to a real engine by `verify` and to the scheduler's twin by `simulate`.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from chunkscope.artefacts.schema import SchemaError
from chunkscope.errors import UsageError
from chunkscope.prefixes.sharing import NOTHING, Stretch, check_stretches, shared_by_neighbours
from chunkscope.vllm.choices import SendOrder, Task

BATCH, GIVEN = "batch", "given"
VERIFY_SCHEMA = "chunkscope/verify/2"  # the artefact that holds a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    stretch: int = NOTHING  # the last that its prompt shares with others


def with_shared_prefix(
    requests: Iterable[Request], tokens: int
) -> tuple[tuple[Request, ...], tuple[Stretch, ...]]:
    """All prompts begin with the same tokens: one stretch, as far as each of them goes."""
    stretches = (Stretch(parent=NOTHING, tokens=tokens),) if tokens else ()
    stretch = 0 if stretches else NOTHING
    return tuple(replace(request, stretch=stretch) for request in requests), stretches


def read_together(requests: Sequence[Request], stretches: Sequence[Stretch]) -> float:
    """The share of the context of decoding requests that the one beside them reads, too.

    Requests run beside those that were sent just before and after them.
    """
    if not stretches:
        return 0.0
    shared = shared_by_neighbours([request.stretch for request in requests], stretches)
    context = sum(request.prompt_tokens + request.output_tokens / 2 for request in requests)
    return min(1.0, shared / context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, in the order of arrival. Prompts over `long_over` tokens count as long.

    A prompt begins with its stretch and all before that, up to its own length. Where they are not
    the data's but one that was asked for, `shared_prefix` is its length.
    """

    requests: tuple[Request, ...]
    seed: int
    arrivals: str
    task: Task
    long_over: int
    shared_prefix: int = 0
    left_out: int = 0  # prompts of the profile that no engine would take at this length
    stretches: tuple[Stretch, ...] = ()
    order: SendOrder | None = None  # None where nobody wrote it down
    concurrency: int | None = None  # requests that the client keeps under way; None: all

    def __post_init__(self) -> None:
        check_stretches(self.stretches, (request.stretch for request in self.requests))

    @property
    def input_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.requests)

    @property
    def longest(self) -> int:
        return max(request.prompt_tokens for request in self.requests)

    def to_json(self) -> dict[str, Any]:
        """As verify.json holds it: the requests in columns, and what they share if it is more."""
        columns = {
            "stretch": [r.stretch for r in self.requests],
            "stretch_parents": [s.parent for s in self.stretches],
            "stretch_tokens": [s.tokens for s in self.stretches],
        }
        return {
            "seed": self.seed,
            "arrivals": self.arrivals,
            "task": self.task,
            "requests": len(self.requests),
            "input_tokens": self.input_tokens,
            "output_tokens_in_all": self.output_tokens,
            "shared_prefix": self.shared_prefix,
            "long_over": self.long_over,
            "left_out": self.left_out,
            "prompt_tokens": [r.prompt_tokens for r in self.requests],
            "output_tokens": [r.output_tokens for r in self.requests],
            "arrival_s": [round(r.arrival_s, 6) for r in self.requests],
            **({} if self.order is None else {"order": self.order}),
            **({} if self.concurrency is None else {"concurrency": self.concurrency}),
            **(columns if self.stretches and not self.shared_prefix else {}),
        }

    @classmethod
    def fields_of(cls, stored: dict[str, Any]) -> dict[str, Any]:
        """The reverse of `to_json`, of values that are not checked yet."""
        shared = stored["shared_prefix"]
        parents = stored.get("stretch_parents", [NOTHING] if shared else [])
        tokens = stored.get("stretch_tokens", [shared] if shared else [])
        stretch = stored.get("stretch", [0 if shared else NOTHING] * len(stored["prompt_tokens"]))
        columns = {name: stored[name] for name in _COLUMNS} | {"stretch": stretch}
        if {len(column) for column in columns.values()} != {stored["requests"]}:
            raise SchemaError("the columns of the workload differ in length")
        kept = {f.name: stored[f.name] for f in fields(cls) if f.name not in _MADE}
        kept |= {name: stored.get(name) for name in _NOT_IN_EVERY_FILE}
        rows = zip(*columns.values(), strict=True)
        pairs = zip(parents, tokens, strict=True)
        return {
            **kept,
            "requests": [dict(zip(columns, row, strict=True)) for row in rows],
            "stretches": [{"parent": parent, "tokens": n} for parent, n in pairs],
        }


_COLUMNS = ("prompt_tokens", "output_tokens", "arrival_s")
_NOT_IN_EVERY_FILE = ("order", "concurrency")
_MADE = ("requests", "stretches", *_NOT_IN_EVERY_FILE)  # the first two out of columns


def arrival_times(arrivals: str, count: int, chance: random.Random) -> list[float]:
    """All at once, or as a Poisson process: "4/s" is four a second on average."""
    rate = arrival_rate(arrivals)
    if rate is None:
        return [0.0] * count
    times, now = [], 0.0
    for _ in range(count):
        times.append(round(now, 6))  # as it is written down, so that it can be sent again
        now += chance.expovariate(rate)
    return times


def arrivals_in_words(arrivals: str) -> str:
    """
    >>> arrivals_in_words("batch"), arrivals_in_words("8/s"), arrivals_in_words("as in the trace")
    ('all at once', 'at 8/s', 'as in the trace')
    """
    known = {BATCH: "all at once", GIVEN: "as given"}.get(arrivals, arrivals)
    return f"at {known}" if known[:1].isdigit() else known


def arrival_rate(arrivals: str) -> float | None:
    """Requests a second; None when all come at once.

    >>> arrival_rate("4/s"), arrival_rate("90/min"), arrival_rate("batch")
    (4.0, 1.5, None)
    """
    if arrivals == BATCH:
        return None
    number, _, unit = arrivals.partition("/")
    per = {"s": 1.0, "min": 60.0}.get(unit.strip())
    try:
        rate = float(number) / per if per else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(
            f"--arrivals {arrivals!r} is neither batch nor a rate",
            hint="write `--arrivals batch`, `--arrivals 4/s` or `--arrivals 90/min`",
        )
    return rate
