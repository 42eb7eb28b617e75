"""Real prompts for a workload: rows of the data, each where one of its length is asked for.

The data is read again as the profile says it was read. Of a sample of the rows each request gets
the one that comes nearest in length, and its true length.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from chunkscope.console import Progress
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.analyze import discovered
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import Profile
from chunkscope.lengths.scan import draw
from chunkscope.prefixes.sharing import MOST_PROMPTS
from chunkscope.prefixes.tree import tree_of_prompts
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.options import SelectOptions, selected
from chunkscope.simulation.workload import Workload, single
from chunkscope.sources.base import Chunk, Problems, Source
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.streams import close_archives
from chunkscope.tokenizers.foreign import TemplateRefused
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.verification.result import PromptSource

ROWS, ROWS_PER_REQUEST = 1_000, 5  # drawn at least
RANDOM_INSTEAD = "leave --data out: random token ids of the same lengths are sent then"


class RealPrompt(NamedTuple):
    """`is_complete`: the text has its special tokens in it, as a rendered chat has."""

    text: str
    ids: Sequence[int]
    is_complete: bool


Sent = str | Conversation | SentRequest  # a prompt as the data has it


def real_prompts(
    paths: Sequence[str],
    profile: Profile,
    workload: Workload,
    *,
    tokenizer: str | None,
    trust_remote_code: bool,
    seed: int,
    listener: Progress,
) -> tuple[Workload, list[RealPrompt], PromptSource]:
    """The workload with the lengths of real rows, and those rows: one for each request.

    A row is used again only when all have been used; the longest request of the workload is the
    room there is: answers are cut down before it is exceeded.
    """
    if len(workload.requests) > MOST_PROMPTS:
        raise UsageError(
            f"--data takes at most {MOST_PROMPTS:,} --requests", hint=RANDOM_INSTEAD
        )
    options = _repeatable(profile)
    encoder = Tokenizer(
        tokenizer or options.tokenizer,
        chat_date=options.chat_date,
        trust_remote_code=trust_remote_code,
    )
    if encoder.digest != profile.tokenizer.digest:
        raise InputError(
            f"the profile was counted with another tokenizer ({profile.tokenizer.name}) than "
            f"{encoder.name} here",
            hint="set tokenizer in chunkscope.toml ([verify]), or analyze again with this one",
        )
    count = max(ROWS, ROWS_PER_REQUEST * len(workload.requests))
    # Names of datasets are not checked: there may be fewer.
    some = replace(options, names=(), prefix_files=(), select=SelectOptions())
    with discovered(paths, some, listener) as sources:
        # Under the names of the profile: a prefix may be for one of them.
        names = {dataset.path: dataset.name for dataset in profile.datasets}
        sources = [replace(one, name=names.get(one.path, one.name)) for one in sources]
        drawn = _encoded(_sampled(sources, options, count, seed), encoder, options)
    lengths = [len(prompt.ids) for prompt in drawn]
    _refuse_other_data(lengths, profile)
    room = max(r.prompt_tokens + r.output_tokens for r in workload.requests)
    rows = nearest([r.prompt_tokens for r in workload.requests], lengths, room=room)
    repeated = len(rows) - len(set(rows))
    source = PromptSource(
        datasets=tuple(one.name for one in sources), repeated=repeated
    )
    prompts = [drawn[row] for row in rows]
    return _with_prompts(workload, prompts, room), prompts, source


def _with_prompts(
    workload: Workload, prompts: Sequence[RealPrompt], room: int
) -> Workload:
    """As long as these prompts, which share what they share."""
    packed = [np.array(prompt.ids, "<u4").tobytes() for prompt in prompts]
    sharing = tree_of_prompts(packed, [True] * len(prompts)).sharing()
    sessions = tuple(
        single(
            length,
            max(1, min(request.output_tokens, room - length)),
            request.arrival_s,
            stretch,
        )
        for request, length, stretch in zip(
            workload.requests, sharing.lengths, sharing.ends, strict=True
        )
    )
    return replace(
        workload, sessions=sessions, stretches=sharing.stretches, shared_prefix=0
    )


# -- as the profile was made ---------------------------------------------------------------------


def _repeatable(profile: Profile) -> AnalyzeOptions:
    if profile.tokenizer.kind == "none":
        raise InputError(
            "the profile was made from traces, which have lengths and no texts",
            hint=RANDOM_INSTEAD,
        )
    if profile.tokenizer.chat_template:
        raise InputError(
            "the profile was made with --chat-template, which it does not keep",
            hint=f"put it into the tokenizer's folder and analyze again, or {RANDOM_INSTEAD}",
        )
    options = profile.options
    return replace(
        options, select=replace(options.select, output_field=None)
    )  # are not sent


def _refuse_other_data(lengths: Sequence[int], profile: Profile) -> None:
    if any(dataset.sample for dataset in profile.datasets):
        return  # a sample need not have every length
    strange = sum(length not in profile.overall.counts for length in lengths)
    if strange * 2 > len(lengths):
        raise InputError(
            f"{strange:,} of {len(lengths):,} prompts have lengths that are not in the profile: "
            "the data is another, or was read differently",
            hint="analyze this data, then recommend and verify with the same profile",
        )


# -- rows ----------------------------------------------------------------------------------------


def _sampled(
    sources: Sequence[Source], options: AnalyzeOptions, count: int, seed: int
) -> list[Sent]:
    """A seeded sample over all datasets, each row as likely as any other."""
    rows = chain.from_iterable(_prompts(source, options) for source in sources)
    try:
        sample, seen = draw(rows, count, seed)
    finally:
        close_archives()
    if not seen:
        names = ", ".join(source.path for source in sources[:3])
        raise InputError(
            f"there are no texts in {names}: only lengths, or rows that cannot be used",
            hint=RANDOM_INSTEAD,
        )
    return sample.records


def _prompts(source: Source, options: AnalyzeOptions) -> Iterator[Chunk]:
    problems, (prefix, paths) = Problems(), options.for_dataset(source.name)
    with RecordReader(source, options.read, problems) as reader:
        head = reader.head()
        selection = selected(reader, head, paths, {}, prefix=prefix) if head else None
        if selection is None or selection.kind == "lengths":
            return
        columns = sorted(selection.columns) if selection.columns is not None else None
        for chunk in reader.chunks(columns):
            prompts = selection.extract(chunk, problems)
            rows = zip(prompts.positions, prompts.items, strict=True)
            # A log may have the length of a request alone.
            texts = [
                (n, p) for n, p in rows if not isinstance(getattr(p, "prompt", ""), int)
            ]
            yield Chunk(
                [position for position, _ in texts], [prompt for _, prompt in texts]
            )


def _encoded(
    prompts: Iterable[Sent], tokenizer: Tokenizer, options: AnalyzeOptions
) -> list[RealPrompt]:
    """As they are sent. What the chat template refuses is left out, as it was in the profile."""
    encoded = []
    for prompt in prompts:
        adds = options.special_tokens
        text: Any = prompt
        if isinstance(prompt, SentRequest):
            text, adds = prompt.prompt, adds and prompt.special_tokens
        elif isinstance(prompt, str) and options.apply_chat_template:
            text = Conversation([{"role": "user", "content": prompt}])
        with suppress(TemplateRefused):
            if not isinstance(text, Conversation):
                text += prompt.continuation if isinstance(prompt, SentRequest) else ""
            elif tokenizer.counts_chats_itself:
                ids, text = tokenizer.mistral_chat.encode(text)
                encoded.append(RealPrompt(text, ids, is_complete=True))
                continue
            else:
                text, adds = tokenizer.chat_text(text), False
            ids = tokenizer.encode([text], special_tokens=adds)[0]
            encoded.append(RealPrompt(text, ids, is_complete=not adds))
    return encoded


# -- which row for which request -----------------------------------------------------------------


def nearest(wanted: Sequence[int], lengths: Sequence[int], *, room: int) -> list[int]:
    """For each length the index of a row near it; no row again before all have been used.

    >>> nearest([10, 90], [88, 12, 11], room=100)
    [2, 0]
    """
    usable = sorted((n, row) for row, n in enumerate(lengths) if 0 < n < room)
    if not usable:
        raise InputError(
            f"no prompt of this data fits: the longest request of the workload has {room:,} "
            f"tokens with its answer, the shortest prompt {min(lengths, default=0):,}",
            hint=RANDOM_INSTEAD,
        )
    chosen = [0] * len(wanted)
    left: list[tuple[int, int]] = []
    # The longest first: there are few like them, and they decide what is measured.
    for place in sorted(range(len(wanted)), key=lambda i: -wanted[i]):
        left = left or list(usable)
        at = bisect_left(left, (wanted[place], -1))
        if at == len(left) or (
            at and wanted[place] - left[at - 1][0] <= left[at][0] - wanted[place]
        ):
            at -= 1
        chosen[place] = left.pop(at)[1]
    return chosen
