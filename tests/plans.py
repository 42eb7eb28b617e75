"""Profiles and plans for the tests of `recommend`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile, TokenizerInfo
from chunkscope.models import find_model
from chunkscope.planning.plan import Plan
from chunkscope.planning.problem import round_up
from chunkscope.planning.recommend import recommend
from chunkscope.vllm.choices import Basis

MODEL = "llama-3.1-8b"
TOKENIZER = TokenizerInfo(
    name="test", digest="0", kind="test", engine="test", reference="test", special_tokens_added=0
)
SHORT = [*range(20, 420)]
MIXED = [*range(50, 1_550), *[2_500] * 20, 4_000]
# As MIXED, but few enough for the KV cache of an H200: vLLM's own budget is kept.
FITTING = [*range(50, 850), 2_500, 4_000]
LONG = [*range(4_000, 14_000, 50)]


def dataset(name: str, lengths: Iterable[int], **more: Any) -> DatasetProfile:
    return DatasetProfile(
        name=name,
        path=f"{name}.jsonl",
        format="jsonl",
        field="prompt",
        lengths=LengthHistogram.of(lengths),
        **more,
    )


def profile(**datasets: Sequence[int]) -> Profile:
    made = tuple(dataset(name, lengths) for name, lengths in datasets.items())
    return Profile(tokenizer=TOKENIZER, datasets=made, created="2025-01-01T00:00:00+00:00")


def plan(lengths: Sequence[int] = MIXED, **options: Any) -> Plan:
    """By the length rule, with a context for these lengths: nothing depends on a prediction."""
    asked = round_up(max(lengths, default=1) + (options.get("max_output") or 256))
    limit = _limit(options.get("model", MODEL))
    fixed = {"policy": Basis.LENGTHS, "max_model_len": min(asked, limit or asked)}
    return advised(lengths, **{**fixed, **options})


def _limit(model: Any) -> int | None:
    found = find_model(model) if isinstance(model, str) else model
    return found.limit if found else None


def advised(lengths: Sequence[int] = MIXED, **options: Any) -> Plan:
    """By evidence, as `recommend` decides unless told otherwise."""
    chosen = {"model": MODEL, "gpu": "h200", "vllm_version": "0.24.0", **options}
    return recommend(profile(data=lengths), **chosen)


@cache
def _made(lengths: tuple[int, ...], options: tuple[tuple[str, Any], ...]) -> Plan:
    return plan(lengths, **dict(options))


def plan_that_sets(
    lengths: Sequence[int] = SHORT, *, given: dict[str, Any], **options: Any
) -> Plan:
    """A plan with these engine arguments, whatever `recommend` would advise."""
    made = _made(tuple(lengths), tuple(options.items()))
    arguments = tuple(
        replace(a, value=given.get(a.name, a.default), set=a.name in given) for a in made.arguments
    )
    assert set(given) <= {a.name for a in arguments}
    return replace(made, arguments=arguments)
