"""All that is added up while the prompts of one dataset are counted; its result is the
profile.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from chunkscope.artefacts.note import Note, note
from chunkscope.console import printable
from chunkscope.lengths.content import Content
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, LongPrompt, Sample
from chunkscope.lengths.render import Counted, CountedBatch, Renderer
from chunkscope.lengths.session_tally import SessionTally
from chunkscope.lengths.sessions import Sessions, reuse_of_sessions
from chunkscope.lengths.trace_export import SentPrompt, TraceRows
from chunkscope.prefixes.comparison import (
    TextComparison,
    TraceComparison,
    WholeDataset,
    sent_ids,
)
from chunkscope.prefixes.near_misses import CHARS, TEXTS, misses_in, near_misses
from chunkscope.prefixes.reuse import PrefixReuse, Scoring
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.chat import Conversation, Message
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary, SentRequest
from chunkscope.prompts.prompt import (
    LogReader,
    PromptReader,
    TraceReader,
)
from chunkscope.sources.base import DataError, Problems, Source
from chunkscope.sources.reader import RecordReader
from chunkscope.tokenizers.check import Reservoir
from chunkscope.tokenizers.tokenizer import Tokenizer

_FEW_CHOICES = 32  # letters or words; more are sentences, and not looked at


class Scores:
    """How often the contexts of likelihood requests were read."""

    def __init__(self) -> None:
        self.requests = 0
        self.contexts: set[int] = set()  # a hash of each
        self.choices: set[str] = set()

    def add(self, request: SentRequest) -> None:
        text = request.prompt
        if isinstance(text, int):
            return
        if isinstance(text, Conversation):
            text = str(text.messages)
        self.contexts.add(hash(text))
        self.requests += 1
        if len(self.choices) <= _FEW_CHOICES:
            self.choices.add(request.continuation)

    def scoring(self, tokenizer: Tokenizer) -> Scoring | None:
        if not self.contexts:
            return None
        is_single = False
        if len(self.choices) <= _FEW_CHOICES:
            is_single = set(tokenizer.count(sorted(self.choices))) == {1}
        contexts = len(self.contexts)
        return Scoring(
            requests=self.requests, contexts=contexts, single_token=is_single
        )


class Tally:
    """Adds up the prompts of one dataset, in one thread."""

    def __init__(
        self,
        source: Source,
        options: AnalyzeOptions,
        renderer: Renderer,
        trace: TraceRows | None = None,
    ) -> None:
        self.source = source
        self.options = options
        self.renderer = renderer
        self.trace = trace  # where each prompt goes besides
        self.problems = Problems()
        self.records: RecordReader | None = None
        self.reader: PromptReader | None = None
        self.content = Content()
        self.sample: Sample | None = None
        self.failure: DataError | None = None
        self.digest: str | None = None  # of the file
        self.tokens = 0
        self.rows = 0
        self.chars = 0
        self.has_texts = False
        self.has_outputs = False
        self.lengths: Counter[int] = Counter()
        self.output_lengths: Counter[int] = Counter()
        self.request_kinds: Counter[str] = Counter()
        self.output_caps: Counter[int] = Counter()
        self.longest: list[LongPrompt] = []
        self.engines: set[str] = set()
        self.media_rows = 0
        self.ignored_tools = 0
        self.begun_twice = 0
        self.has_chats = False
        self.scores = Scores()
        self.texts: Reservoir[tuple[int, str]] = Reservoir(TEXTS)
        self.comparison: TextComparison | TraceComparison | None = None
        self.sessions = SessionTally()

    def begin(self, reader: PromptReader) -> None:
        """Before the first prompts: what they are is known."""
        self.reader = reader
        self.has_outputs = reader.output is not None
        if not self.options.prefixes:
            return
        if has_blocks(reader):
            self.comparison = TraceComparison()
        elif reader.kind != "lengths":
            self.comparison = TextComparison()

    def add(self, batch: CountedBatch) -> None:
        self.engines |= self.renderer.engines(batch)
        sent: list[SentPrompt] = []
        for counted in batch.prompts:
            self._note(counted)
            if counted.rendered.prompt.request is None:
                sent.append(_plain(counted))
            else:
                sent += self._requests(counted, counted.rendered.prompt.request)
        self._sample_texts(batch)
        if sent:
            self._add_up(sent)
            repeated = self._add_sessions(sent)
            self._compare(sent, batch, repeated)

    def _note(self, counted: Counted) -> None:
        rendered = counted.rendered
        if counted.ids is not None:
            self.has_texts = True
            self.chars += rendered.chars
        self.has_chats |= rendered.is_chat
        self.media_rows += rendered.has_media
        self.ignored_tools += rendered.ignores_tools
        if rendered.begins_twice and rendered.special_tokens:
            self.begun_twice += 1

    def _sample_texts(self, batch: CountedBatch) -> None:
        """Some texts of each batch, in which near misses are looked for."""
        texts = [counted.rendered for counted in batch.prompts if counted.ids]
        for rendered in texts[:: max(1, len(texts) // TEXTS)]:
            start = rendered.shown[:CHARS]
            self.texts.add([(rendered.prompt.position, start)])

    def _requests(self, counted: Counted, request: SentRequest) -> list[SentPrompt]:
        """A request as it was sent: the harness may have cut it, or sent several
        windows.
        """
        windows = request.sent(counted.tokens)
        special = counted.rendered.special_tokens + request.added
        reads = request.kind == "generate"
        ids: bytes | None = None
        if len(windows) == 1 and counted.ids is not None:
            is_cut = windows[0] < counted.tokens + request.added
            ids = sent_ids(
                counted.ids,
                special,
                windows[0] if is_cut else None,
                appended=counted.rendered.special_after,
            )
        self.request_kinds[request.kind] += len(windows)
        if request.output_cap is not None:
            self.output_caps[request.output_cap] += len(windows)
        if not reads:
            self.scores.add(request)
        self.has_outputs |= counted.output is not None
        sent = SentPrompt(
            position=counted.rendered.prompt.position,
            tokens=windows[0],
            ids=ids,
            output=counted.output,
            reads=reads,
            output_cap=request.output_cap,
            turn=request.session,
            blocks=request.blocks,
            text=(counted.rendered.text or "") if request.session else "",
            thoughts=thoughts_in(request.answer),
        )
        return [sent] * len(windows)

    def _add_up(self, sent: list[SentPrompt]) -> None:
        lengths = [prompt.tokens for prompt in sent]
        self.lengths.update(lengths)
        self.tokens += sum(lengths)
        self.rows += len(lengths)
        outputs = [prompt.output for prompt in sent if prompt.output is not None]
        self.output_lengths.update(outputs)
        self._keep_longest(sent)
        if self.trace is not None:
            self.trace.add(sent)

    def _add_sessions(self, sent: list[SentPrompt]) -> list[int]:
        """By prompt, how many tokens it repeats of the turn before it."""
        repeated = []
        for prompt in sent:
            tokens = 0
            if prompt.turn is not None:
                tokens = self.sessions.add(prompt, prompt.turn)
            repeated.append(tokens)
        return repeated

    def _keep_longest(self, sent: list[SentPrompt]) -> None:
        """Of equal ones those that come first."""
        most = self.options.keep_longest
        least = self.longest[-1].tokens if len(self.longest) >= most > 0 else -1
        longer = [prompt for prompt in sent if prompt.tokens > least]
        for prompt in longer:
            long = LongPrompt(tokens=prompt.tokens, position=prompt.position)
            self.longest.append(long)
        if longer:
            self.longest.sort(key=attrgetter("tokens"), reverse=True)
            del self.longest[most:]

    def _compare(
        self, sent: list[SentPrompt], batch: CountedBatch, repeated: list[int]
    ) -> None:
        if isinstance(self.comparison, TraceComparison):
            blocks = []
            for counted in batch.prompts:
                blocks.append(list(counted.rendered.prompt.blocks or ()))
            tokens = [prompt.tokens for prompt in sent]
            self.comparison.add(tokens, blocks, repeated)
        elif isinstance(self.comparison, TextComparison):
            ids = [prompt.ids for prompt in sent if prompt.ids is not None]
            if len(ids) == len(sent):
                reads = [prompt.reads for prompt in sent]
                self.comparison.add(ids, reads, repeated)
            else:
                self.comparison = None  # what some of them are made of is not known

    # -- the result --------------------------------------------------------------------

    def profile(self) -> DatasetProfile:
        source = self.source
        reader = self.reader
        log = self._log_summary()
        longest_first = log is not None and log.order == LONGEST_FIRST
        if self.trace is not None:
            self.trace.longest_first = longest_first
        prefixes, sharing = self._prefixes(longest_first=longest_first)
        sessions = self._sessions(sharing)
        prefixes = self._reuse(prefixes, sessions)
        failure = None if self.failure is None else self.failure.note
        return DatasetProfile(
            name=source.name,
            group=source.group,
            path=source.path,
            format=self.records.format if self.records else source.format,
            kind=reader.kind if reader else "text",
            field=self._label(),
            unit=self.records.unit if self.records else "row",
            lengths=LengthHistogram(dict(self.lengths)),
            skipped=self.problems.count,
            bytes=source.bytes,
            digest=self.digest,
            chars=self.chars if self.has_texts else None,
            output_field=reader.output_label if reader else None,
            output_lengths=self._output_lengths(),
            longest=tuple(self.longest),
            bad_rows=tuple(self.problems.rows),
            failure=failure,
            notes=tuple(self._notes(sharing)),
            uncounted=reader.uncounted if reader else (),
            sample=self.sample,
            engine=" + ".join(sorted(self.engines)) or None,
            log=with_sessions(log, sessions),
            content=self.content if failure is None else None,
            scored=set(self.request_kinds) == {"likelihood"},
            prefixes=prefixes,
            sharing=sharing,
            sessions=sessions,
        )

    def _reuse(
        self, compared: PrefixReuse | None, sessions: Sessions | None
    ) -> PrefixReuse | None:
        """By the prompts that were compared, else by what sessions repeat."""
        if compared is None and self.options.prefixes:
            return reuse_of_sessions(sessions)
        return compared

    def _sessions(self, sharing: Sharing | None) -> Sessions | None:
        system_tokens = 0
        at_once = None
        if isinstance(self.reader, LogReader):
            log = self.reader.log
            system_tokens = log.system_tokens
            at_once = log.at_once
            if self.sample is not None and not log.sessions_are_rows:
                return None  # turns are missing
        return self.sessions.result(
            sharing, system_tokens=system_tokens, at_once=at_once
        )

    def _output_lengths(self) -> LengthHistogram | None:
        if not self.has_outputs or not self.rows:
            return None
        return LengthHistogram(dict(self.output_lengths))

    def _label(self) -> str:
        if self.reader is None:
            return ""
        label = printable(self.reader.label)
        if self.reader.kind == "text" and self.options.apply_chat_template:
            return f"{label} (as chat)"
        return label

    def _log_summary(self) -> LogSummary | None:
        reader = self.reader
        if reader is None or reader.log is None:
            return None
        kinds = dict(sorted(self.request_kinds.items()))
        caps = {str(cap): count for cap, count in sorted(self.output_caps.items())}
        summary = reader.log.summary(kinds, caps)
        return replace(summary, rendered=self.source.rendered)

    def _prefixes(
        self, *, longest_first: bool
    ) -> tuple[PrefixReuse | None, Sharing | None]:
        if self.comparison is None:
            return None, None
        tokenizer = self.renderer.tokenizer
        scoring = None
        if self.request_kinds and self.engines:
            scoring = self.scores.scoring(tokenizer)
        misses = near_misses(
            misses_in(self.texts.items),
            compared=len(self.texts.items),
            prompts=self.rows,
            tokens=self.tokens,
            chars=self.chars or 1,
        )
        whole = WholeDataset(lengths=self.lengths, near_misses=misses, scoring=scoring)
        measured = self.comparison.measured(whole, longest_first=longest_first)
        if measured is None:
            return None, None
        return measured.reuse, measured.sharing

    def _notes(self, sharing: Sharing | None) -> Iterator[Note]:
        reader = self.reader
        tokenizer = self.renderer.tokenizer
        if reader is None:
            return
        yield from reader.notes
        if isinstance(reader, LogReader):
            yield from self._log_notes(reader)
        uses_date = any(chat.uses_date for chat in tokenizer.templates.values())
        if self.has_chats and uses_date:
            yield note("date_in_template", day=str(tokenizer.chat_day))
        if isinstance(self.comparison, TraceComparison) and sharing is None:
            yield note("blocks_unused", blocks="hash_ids", field="the lengths")
        if self.sessions.left_out:
            yield note("sessions_left_out", count=self.sessions.left_out)
        yield from self._counted_notes()

    def _log_notes(self, reader: LogReader) -> Iterator[Note]:
        """What a harness's log says of itself, and options that it leaves unused."""
        yield from reader.log.notes()
        if self.options.apply_chat_template and not self.source.rendered:
            yield note("unused_with_log", option="--apply-chat-template")

    def _counted_notes(self) -> Iterator[Note]:
        """Prompts in which something is odd."""
        if self.begun_twice:
            begin = self.renderer.tokenizer.facts.begin_text
            yield note("begun_twice", begin=begin, count=self.begun_twice)
        if self.ignored_tools:
            yield note("tools_ignored", count=self.ignored_tools)
        if self.media_rows:
            yield note("media_rows", count=self.media_rows)
        if self.lengths[0]:
            yield note("empty_prompts", count=self.lengths[0])


def has_blocks(reader: PromptReader) -> bool:
    """Whether the data names the blocks of each prompt."""
    if isinstance(reader, TraceReader):
        return reader.trace.blocks is not None
    return isinstance(reader, LogReader) and reader.log.has_blocks


def thoughts_in(answer: Sequence[Message]) -> str:
    """What a model thought before it answered, which a template may leave out later."""
    texts = [str(message.get("reasoning_content") or "") for message in answer]
    return "".join(texts).strip()


def with_sessions(
    log: LogSummary | None, sessions: Sessions | None
) -> LogSummary | None:
    if log is None or sessions is None:
        return log
    return replace(log, sessions=len(sessions.turns))


def _plain(counted: Counted) -> SentPrompt:
    rendered = counted.rendered
    ids = None
    if counted.ids is not None:
        special = rendered.special_tokens
        ids = sent_ids(counted.ids, special, appended=rendered.special_after)
    position = rendered.prompt.position
    return SentPrompt(position, counted.tokens, ids, counted.output)
