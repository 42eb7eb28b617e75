"""Real prompts for a workload: rows of the data, each where one of its length is asked for.

The data is read again as the profile says it was read. Lengths are known of a sample of the rows;
each request gets the row that comes nearest, and its true length.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from chunkscope import console
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import Profile
from chunkscope.lengths.scan import draw
from chunkscope.prefixes.blocks import hash_blocks, numbered
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prefixes.tree import MOST_PROMPTS, sharing_of
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.select import selected
from chunkscope.prompts.selection import Prompts
from chunkscope.simulation.workload import Workload
from chunkscope.sources.archives import close_archives
from chunkscope.sources.base import Chunk, Problems, Source
from chunkscope.sources.discovery import discover
from chunkscope.sources.readers import open_reader
from chunkscope.tokenizers.chat_template import TemplateRefused
from chunkscope.tokenizers.mistral import ChatRefused
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.verification.result import PromptSource

FEWEST_ROWS = 2_000
ROWS_PER_REQUEST = 10
RANDOM_INSTEAD = "leave --data out: random token ids of the same lengths are sent then"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealPrompts:
    """One prompt for each request, as text and as ids.

    `complete` says of each text whether it has its special tokens in it, as a rendered chat has,
    so that nobody must add them.
    """

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    source: PromptSource
    complete: tuple[bool, ...] = ()

    def is_complete(self, index: int) -> bool:
        return bool(self.complete) and self.complete[index]


class Row(NamedTuple):
    """A prompt as it is sent. Chats that mistral-common encodes come with their ids."""

    text: str
    complete: bool
    ids: tuple[int, ...] | None = None


def real_prompts(
    paths: Sequence[str],
    profile: Profile,
    workload: Workload,
    *,
    tokenizer: str | None,
    seed: int,
) -> tuple[Workload, RealPrompts]:
    """The workload with the lengths of real rows, and those rows.

    A row is used again only when all have been used; the longest request of the workload is the
    room there is: answers are cut down before it is exceeded.
    """
    if len(workload.requests) > MOST_PROMPTS:
        raise UsageError(f"--data takes at most {MOST_PROMPTS:,} --requests", hint=RANDOM_INSTEAD)
    options = _repeatable(profile)
    counter = _same_tokenizer(profile, tokenizer, options)
    most = max(FEWEST_ROWS, ROWS_PER_REQUEST * len(workload.requests))
    with options.rendering(console.say) as rendering:
        sources, _ = discover(
            list(paths),
            include=options.include,
            exclude=options.exclude,
            options=options.read,
            tasks=rendering,
        )
        sources = _as_named(sources, profile)
        rows = list(_rows(_sampled(sources, options, most, seed), counter, options))
    lengths = _lengths(rows, counter)
    _refuse_other_data(lengths, profile)
    room = max(r.prompt_tokens + r.output_tokens for r in workload.requests)
    chosen = nearest([r.prompt_tokens for r in workload.requests], lengths, room=room)
    ids = _ids([rows[row] for row in chosen], counter)
    real = RealPrompts(
        texts=tuple(rows[row].text for row in chosen),
        ids=ids,
        source=PromptSource(
            datasets=tuple(source.name for source in sources),
            repeated=len(chosen) - len(set(chosen)),
        ),
        complete=tuple(rows[row].complete for row in chosen),
    )
    return _with_prompts(workload, ids, room), real


def _as_named(sources: Sequence[Source], profile: Profile) -> list[Source]:
    """Under the names that the profile has for them: a prefix may be for one of them."""
    names = {dataset.path: dataset.name for dataset in profile.datasets}
    return [replace(source, name=names.get(source.path, source.name)) for source in sources]


def _with_prompts(workload: Workload, ids: Sequence[Sequence[int]], room: int) -> Workload:
    """As long as these prompts, which share what they share."""
    sharing = _sharing(ids)
    requests = tuple(
        replace(
            request,
            prompt_tokens=length,
            output_tokens=max(1, min(request.output_tokens, room - length)),
            stretch=stretch,
        )
        for request, length, stretch in zip(
            workload.requests, sharing.lengths, sharing.ends, strict=True
        )
    )
    return replace(workload, requests=requests, stretches=sharing.stretches, shared_prefix=0)


def _sharing(ids: Sequence[Sequence[int]]) -> Sharing:
    rows = [np.array(prompt, "<u4").tobytes() for prompt in ids]
    hashes, full = hash_blocks(rows)
    tokens = np.array([len(prompt) for prompt in ids])
    return sharing_of(numbered(hashes, full, tokens, [True] * len(ids)))


# -- as the profile was made ---------------------------------------------------------------------


def _repeatable(profile: Profile) -> AnalyzeOptions:
    if profile.tokenizer.kind == "none":
        raise InputError(
            "the profile was made of traces, which hold only lengths: there are no texts to send",
            hint=RANDOM_INSTEAD,
        )
    if profile.tokenizer.chat_template:
        raise InputError(
            "the profile was made with --chat-template, which it does not keep",
            hint=f"put it into the tokenizer's folder and analyze again, or {RANDOM_INSTEAD}",
        )
    options = profile.options
    return replace(options, select=replace(options.select, output_field=None))  # are not sent


def _same_tokenizer(profile: Profile, name: str | None, options: AnalyzeOptions) -> Tokenizer:
    tokenizer = Tokenizer(name or options.tokenizer, chat_date=options.chat_date)
    if tokenizer.digest != profile.tokenizer.digest:
        raise InputError(
            f"the profile was counted with {profile.tokenizer.name}, which is not "
            f"{tokenizer.name} as it is here",
            hint="name that tokenizer with --tokenizer, or analyze again with this one",
        )
    return tokenizer


def _refuse_other_data(lengths: Sequence[int], profile: Profile) -> None:
    """Options that an older profile does not keep (an encoding) show in the lengths."""
    if any(dataset.sample for dataset in profile.datasets):
        return  # a sample need not have every length
    known = profile.overall.counts
    strange = sum(length not in known for length in lengths)
    if strange * 2 > len(lengths):
        raise InputError(
            f"{strange:,} of {len(lengths):,} prompts have lengths that the profile does not know: "
            "this is other data, or it was read otherwise",
            hint="analyze this data, then recommend and verify, with one and the same profile",
        )


# -- rows ----------------------------------------------------------------------------------------


Drawn = str | Conversation | SentRequest


def _sampled(
    sources: Sequence[Source], options: AnalyzeOptions, most: int, seed: int
) -> list[Drawn]:
    """A seeded sample over all datasets, each row as likely as any other."""
    try:
        sample, seen = draw(
            chain.from_iterable(_prompts(source, options) for source in sources), most, seed
        )
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
    problems, options = Problems(), options.of_dataset(source.name)
    with open_reader(source, options.read, problems) as reader:
        head = reader.head()
        if not head:
            return
        selection = selected(reader, head, options.select)
        if selection.kind == "lengths":
            return
        columns = sorted(selection.columns) if selection.columns is not None else None
        for chunk in reader.chunks(columns):
            prompts = selection.extract(chunk, problems)
            yield _with_text(prompts) if selection.kind == "requests" else Chunk(*prompts[:2])


def _with_text(prompts: Prompts) -> Chunk:
    """The texts and chats in a log, apart from requests of which it has only the length."""
    rows = zip(prompts.positions, prompts.items, strict=True)
    kept = [(at, request) for at, request in rows if not isinstance(request.prompt, int)]
    chats = [isinstance(request.prompt, Conversation) for _, request in kept]
    sent = [r.prompt if chat else r for (_, r), chat in zip(kept, chats, strict=True)]
    return Chunk([at for at, _ in kept], sent)


def _rows(drawn: Iterable[Drawn], tokenizer: Tokenizer, options: AnalyzeOptions) -> Iterator[Row]:
    """As they are sent. What the chat template refuses is left out, as it was in the profile."""
    for item in drawn:
        if isinstance(item, SentRequest):
            adds = item.special_tokens and options.special_tokens
            yield Row(f"{item.prompt}{item.continuation}", complete=not adds)
            continue
        if isinstance(item, str):
            if not options.apply_chat_template:
                yield Row(item, complete=not options.special_tokens)
                continue
            item = Conversation([{"role": "user", "content": item}])
        with suppress(TemplateRefused, ChatRefused):
            yield _chat_row(item, tokenizer)


def _chat_row(chat: Conversation, tokenizer: Tokenizer) -> Row:
    if not tokenizer.counts_chats_itself:
        return Row(tokenizer.chat_text(chat), complete=True)
    ids, text = tokenizer.encode_chat(chat)
    return Row(text, complete=True, ids=tuple(ids))


def _lengths(rows: Sequence[Row], tokenizer: Tokenizer) -> list[int]:
    """As `analyze` counts them: with the fastest engine that is proved right."""
    texts = [row.text for row in rows if row.ids is None]
    counts = iter(tokenizer.counter.count(texts) if texts else [])
    added = tokenizer.facts.special_added
    return [
        len(row.ids) if row.ids is not None else next(counts) + (0 if row.complete else added)
        for row in rows
    ]


def _ids(rows: Sequence[Row], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    made: dict[Row, tuple[int, ...]] = {row: row.ids for row in rows if row.ids is not None}
    for complete in (False, True):
        left = list({row: None for row in rows if row not in made and row.complete is complete})
        encoded = tokenizer.encode([row.text for row in left], special_tokens=not complete)
        made |= {row: tuple(ids) for row, ids in zip(left, encoded, strict=True)}
    return tuple(made[row] for row in rows)


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
