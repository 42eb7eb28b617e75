"""Real prompts for a workload: rows of the data, each of about the length asked.

The data is read again as the profile says it was read. Of a sample of the rows each
request gets one that is within 5 % of its length, and then has the row's true length.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from chunkscope.console import Progress
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.analyze import discovered
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import Profile
from chunkscope.lengths.scan import draw
from chunkscope.prefixes.tree import tree_of_prompts
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.choose import choose_prompt
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.prompt import Content as PromptContent
from chunkscope.prompts.prompt import read_prompts
from chunkscope.simulation.workload import Workload, single
from chunkscope.sources.archive import close_archives
from chunkscope.sources.base import Chunk, Problems, Source
from chunkscope.sources.reader import RecordReader
from chunkscope.tokenizers.foreign import TemplateRefused
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.verification.options import VerifyOptions
from chunkscope.verification.result import PromptSource

# Rows that are drawn: so many for each request, and so many at least.
MOST_PROMPTS = 20_000  # that --data sends
ROWS_PER_REQUEST = 5
ROWS = 1_000
NEAR = 0.05  # share of a request's length by which its row may be longer or shorter
RANDOM_INSTEAD = "leave --data out: random token ids of the same lengths are sent then"

Content = str | Conversation | SentRequest  # a prompt as the data has it
Ids = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What is sent: real prompts as token ids, or random ids where there are none."""

    workload: Workload
    prompts: Sequence[Ids] = ()
    source: PromptSource = field(default_factory=PromptSource)


def real_prompts(
    workload: Workload, profile: Profile, options: VerifyOptions, listener: Progress
) -> Sent:
    """The workload with the lengths of real rows, and those rows: one for each request.

    The longest request of the workload is the room there is: answers are cut down
    before it is exceeded.
    """
    if workload.has_turns:
        raise UsageError(
            "--data sends single prompts, and these are sessions of several turns",
            hint=RANDOM_INSTEAD,
        )
    requests = workload.requests
    if len(requests) > MOST_PROMPTS:
        raise UsageError(
            f"--data takes at most {MOST_PROMPTS:,} --requests", hint=RANDOM_INSTEAD
        )
    as_analyzed = options_of(profile)
    tokenizer = Tokenizer(
        as_analyzed.tokenizer,
        chat_date=as_analyzed.chat_date,
        trust_remote_code=options.trust_remote_code,
    )
    if tokenizer.digest != profile.tokenizer.digest:
        raise InputError(
            "the profile was counted with another tokenizer "
            f"({profile.tokenizer.name}) than {tokenizer.name} here",
            hint="analyze again with this one",
        )
    # The tables of datasets are not checked: there may be fewer datasets.
    unnamed = replace(as_analyzed, prefix_file=None, datasets={})
    with discovered(options.data, unnamed, listener) as found:
        sources = _named(found, profile)
        count = max(ROWS, ROWS_PER_REQUEST * len(requests))
        contents = _sample(sources, as_analyzed, count, workload.seed)
        rows = _encoded(contents, tokenizer, as_analyzed)
    wanted = [request.prompt_tokens for request in requests]
    lengths = [len(ids) for ids in rows]
    room = max(session.longest for session in workload.sessions)
    places = rows_for(wanted, lengths, room=room)
    prompts = [rows[place] for place in places]
    return Sent(
        workload=_with_prompts(workload, prompts, room),
        prompts=prompts,
        source=PromptSource(
            datasets=tuple(source.name for source in sources),
            repeated=len(places) - len(set(places)),
        ),
    )


def _with_prompts(workload: Workload, prompts: Sequence[Ids], room: int) -> Workload:
    """As long as these prompts, which share what they share."""
    packed = [np.array(ids, "<u4").tobytes() for ids in prompts]
    tree = tree_of_prompts(packed, [True] * len(prompts))
    sharing = tree.sharing(range(len(prompts)))
    sessions = []
    for place, request in enumerate(workload.requests):
        length = sharing.lengths[place]
        output = max(1, min(request.output_tokens, room - length))
        sessions.append(single(length, output, request.arrival_s, sharing.ends[place]))
    return replace(
        workload,
        sessions=tuple(sessions),
        stretches=sharing.stretches,
        shared_prefix=0,
    )


# -- as the profile was made -----------------------------------------------------------


def options_of(profile: Profile) -> AnalyzeOptions:
    """How the profile's data was read; answers are not sent."""
    if profile.tokenizer.kind == "none":
        raise InputError(
            "the profile was made from traces, which have lengths and no texts",
            hint=RANDOM_INSTEAD,
        )
    if profile.tokenizer.chat_template:
        raise InputError(
            "the profile was made with --chat-template, which it does not keep",
            hint="put it into the tokenizer's folder and analyze again, or "
            f"{RANDOM_INSTEAD}",
        )
    select = replace(profile.options.select, output_field=None)
    return replace(profile.options, select=select)


def _named(sources: Sequence[Source], profile: Profile) -> list[Source]:
    """Under the names of the profile: a prefix may be for one of them."""
    names = {dataset.path: dataset.name for dataset in profile.datasets}
    named = []
    for source in sources:
        name = names.get(source.path, source.name)
        named.append(replace(source, name=name))
    return named


# -- rows ------------------------------------------------------------------------------


def _sample(
    sources: Sequence[Source], options: AnalyzeOptions, count: int, seed: int
) -> list[Content]:
    """A seeded sample over all datasets, each row as likely as any other."""
    rows = chain.from_iterable(_contents(source, options) for source in sources)
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


def _contents(source: Source, options: AnalyzeOptions) -> Iterator[Chunk]:
    """The prompts of a source, without those of which only the length is known."""
    problems = Problems()
    prefix = options.prefix_for(source.name)
    select = options.for_dataset(source.name)
    with RecordReader(source, options.read, problems) as reader:
        head = reader.head()
        if not head:
            return
        prompt_reader = choose_prompt(reader, head, select, prefix=prefix)
        if prompt_reader.kind == "lengths":
            return
        needed = prompt_reader.columns
        columns = None if needed is None else sorted(needed)
        for chunk in reader.chunks(columns):
            positions: list[int] = []
            contents: list[PromptContent | SentRequest] = []
            for prompt in read_prompts(prompt_reader, chunk, problems):
                if not isinstance(prompt.content, int):
                    positions.append(prompt.position)
                    contents.append(prompt.request or prompt.content)
            yield Chunk(positions, contents)


def _encoded(
    contents: Sequence[Content], tokenizer: Tokenizer, options: AnalyzeOptions
) -> list[Ids]:
    """The prompts as they are sent.

    What the chat template refuses is left out, as in the profile.
    """
    prompts = []
    for content in contents:
        with suppress(TemplateRefused):
            prompts.append(_ids(content, tokenizer, options))
    return prompts


def _ids(content: Content, tokenizer: Tokenizer, options: AnalyzeOptions) -> Ids:
    special_tokens = options.special_tokens
    if isinstance(content, SentRequest):
        if isinstance(content.prompt, Conversation):
            return _chat_ids(content.prompt, tokenizer)
        special_tokens = special_tokens and content.special_tokens
        text = f"{content.prompt}{content.continuation}"
    elif isinstance(content, Conversation):
        return _chat_ids(content, tokenizer)
    elif options.apply_chat_template:
        message = {"role": "user", "content": content}
        return _chat_ids(Conversation([message]), tokenizer)
    else:
        text = content
    return tokenizer.encode([text], special_tokens=special_tokens)[0]


def _chat_ids(chat: Conversation, tokenizer: Tokenizer) -> Ids:
    if tokenizer.counts_chats_itself:
        return tokenizer.mistral_chat.encode(chat)[0]
    text = tokenizer.chat_text(chat)
    return tokenizer.encode([text], special_tokens=False)[0]


# -- which row for which request -------------------------------------------------------


def rows_for(wanted: Sequence[int], lengths: Sequence[int], *, room: int) -> list[int]:
    """For each length that is wanted a row within 5 %, or else the nearest.

    Rows that do are taken in turn. Where most requests get none within 5 %, the data is
    not that of the profile.

    >>> rows_for([100, 100, 100, 900], [880, 101, 98], room=1_000)
    [1, 2, 1, 0]
    """
    rows = Rows(lengths, room)
    places = [rows.take(length) for length in wanted]
    far = 0
    for length, place in zip(wanted, places, strict=True):
        if not is_near(lengths[place], length):
            far += 1
    if far * 2 > len(wanted):
        raise InputError(
            f"for {far:,} of {len(wanted):,} requests there is no prompt within 5 % of "
            "their length: the data is another than the profile's, or was read "
            "differently",
            hint="analyze this data, then recommend and verify with the same profile",
        )
    return places


def is_near(length: int, wanted: int) -> bool:
    return abs(length - wanted) <= NEAR * wanted


class Rows:
    """The places of rows by their length, and how many of each were taken."""

    def __init__(self, lengths: Sequence[int], room: int) -> None:
        self._places: dict[int, list[int]] = {}
        self._taken: Counter[int] = Counter()
        for place, length in enumerate(lengths):
            if 0 < length < room:
                self._places.setdefault(length, []).append(place)
        if not self._places:
            shortest = min(lengths, default=0)
            raise InputError(
                "no prompt of this data fits: the longest request of the workload has "
                f"{room:,} tokens with its answer, the shortest prompt {shortest:,}",
                hint=RANDOM_INSTEAD,
            )
        self._lengths = sorted(self._places)

    def take(self, wanted: int) -> int:
        """The place of a row for a request of this length."""
        low = bisect_left(self._lengths, wanted * (1 - NEAR))
        high = bisect_right(self._lengths, wanted * (1 + NEAR))
        best = None
        for length in self._lengths[low:high]:
            # Of those that were used least, the nearest.
            times_used = self._taken[length] // len(self._places[length])
            rank = (times_used, abs(length - wanted), length)
            if best is None or rank < best:
                best = rank
        if best is not None:
            length = best[-1]
        else:
            length = min(self._lengths, key=lambda length: abs(length - wanted))
        places = self._places[length]
        place = places[self._taken[length] % len(places)]
        self._taken[length] += 1
        return place
