"""Which part of a record is the prompt: as the options say, or guessed from the first records."""

import difflib
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from chunkscope.artefacts.note import note
from chunkscope.console import printable
from chunkscope.errors import InputError, UsageError
from chunkscope.prompts import chat, paths
from chunkscope.prompts.harness import LOGS, SIGNS
from chunkscope.prompts.harness.inspect_log import FORMAT as INSPECT
from chunkscope.prompts.harness.inspect_log import InspectLog
from chunkscope.prompts.harness.log import HarnessLog, requests_of, scored
from chunkscope.prompts.paths import (
    RECORD,
    FieldPath,
    UnusableError,
    dotted,
    json_in,
    parse_path,
    quote_key,
)
from chunkscope.prompts.selection import (
    ChoiceList,
    Selection,
    SelectOptions,
    chat_of,
    each_of,
    find_choices,
    lengths_of,
    spread,
    template_of,
    text_of,
    trace_columns,
    with_choices,
)
from chunkscope.sources.reader import RecordReader

_SMALL_HEAD = 3  # records: too few to tell labels from prompts


def selected(
    reader: RecordReader,
    head: Sequence[Any],
    options: SelectOptions,
    *,
    prefix: str = "",
    earlier: dict[Any, Selection] | None = None,
) -> Selection:
    """What the prompts of a source are: the requests of a harness's log, or a part of each row.

    `earlier` keeps what was selected of small files, for others of the same folder and shape.
    """
    named = options.fields or options.each or options.template is not None
    if not named and (log := recognise(head, reader)):
        return requests_of(log, options, prefix)
    if earlier is None or len(head) > _SMALL_HEAD:
        selection = select(head, options, prefix=prefix, rows_at=reader.rows_at)
    else:
        key = (reader.source.group, reader.format, options, prefix, shape_of(head))
        if key not in earlier:
            earlier[key] = select(head, options, prefix=prefix, rows_at=reader.rows_at)
        selection = earlier[key]
    return scored(selection) if options.task == "loglikelihood" else selection


def recognise(head: Sequence[Any], reader: RecordReader) -> HarnessLog | None:
    """The reader of a harness's log, found by the keys of its first records."""
    if reader.format == INSPECT:
        return InspectLog(reader)
    keys = {key for record in head if isinstance(record, dict) for key in record}
    if SIGNS.isdisjoint(keys) and not any(k.isdecimal() or k.startswith("label: ") for k in keys):
        return None
    logs = (log.recognise(head, reader) for log in LOGS)
    return next(filter(None, logs), None)


def select(
    head: Sequence[Any], options: SelectOptions, *, prefix: str = "", rows_at: str | None = None
) -> Selection:
    """Decide what the prompt is, by the options or else by the first records.

    `prefix` is put before every text. Where the rows are what `examples` holds in a document
    (`rows_at`), the path `examples[].input` means `input`.
    """
    if options.fields and options.template is not None:
        raise UsageError("--field and --template exclude each other", hint="use one of them")
    if options.each:
        return _each(head, options, prefix, rows_at)
    resolve = partial(_resolve, head=head, rows_at=rows_at)
    output = resolve(options.output_field, "--output-field") if options.output_field else None
    given = [
        name.strip()
        for text in options.choices
        # `A,B,C,D` are four fields, unless one is called so.
        for name in ([text] if text in keys_of(head) else text.split(","))
    ]
    if not given and options.task == "loglikelihood":
        given = [*find_choices(head)]
    choices = ChoiceList(tuple(resolve(name, "--choices") for name in given))
    unasked = find_choices(head) if not given and options.template is None else ()
    columns = [path.column for path in (*choices.paths, output) if path] + [*unasked]
    selection = _chosen(head, options, resolve, [name for name in columns if name])
    unused = []
    if selection.kind == "text":
        selection = replace(selection, prefix=prefix)
        used = selection.columns
        if given:
            selection = with_choices(selection, choices)
        elif unasked and used is not None and not used & {*unasked}:
            lacking = note("choices_uncounted", fields=",".join(unasked))
            selection = replace(selection, uncounted=(*selection.uncounted, lacking))
    else:
        unused += [note("choices_unused")] if given else []
        unused += [note("prefix_unused")] if prefix else []
    return replace(selection, output=output or selection.output, notes=(*selection.notes, *unused))


Resolve = Callable[[str, str], FieldPath]


def _each(
    head: Sequence[Any], options: SelectOptions, prefix: str, rows_at: str | None
) -> Selection:
    """As the options say, of records in which a list has become one of its elements."""
    lists: list[FieldPath] = []
    records = list(head)
    for name in options.each:
        lists.append(_resolve(name, "--each", head=records, rows_at=rows_at))
        elements: list[Any] = []
        for record in records:
            if isinstance(lists[-1].find(record), list):
                elements += spread(record, lists[-1:])
        if records and not elements:
            raise UsageError(f"no record has a list at {name}", hint="--each takes a list")
        records = elements
    fields = options.fields if options.fields or options.template is not None else options.each[-1:]
    one = replace(options, each=(), fields=fields)
    return each_of(lists, select(records, one, prefix=prefix, rows_at=rows_at))


def _chosen(
    head: Sequence[Any], options: SelectOptions, resolve: Resolve, closed: Sequence[str]
) -> Selection:
    """By the template, by the fields, or by the first records; without prefix and output."""
    version = options.vllm_version
    select_chat = partial(chat_of, vllm=None if version is None else chat.release_of(version))
    if options.template is not None:
        parts = paths.parse_template(options.template, lambda name: resolve(name, "--template"))
        if all(isinstance(part, str) for part in parts):
            raise UsageError(
                "the template names no field", hint="write --template 'Question: {question}'"
            )
        return template_of(parts, "template", numbers=True)
    if not options.fields:
        return guess(head, closed, select_chat)
    fields = [resolve(text, "--field") for text in options.fields]
    if len(fields) == 1:
        path = fields[0]
        chats = sum(chat.looks_like_messages(json_in(path.find(record))) for record in head)
        if chats * 2 > len(head):
            return select_chat(path)
        columns = trace_columns(head)
        if columns and columns.prompt == path.key:
            return lengths_of(columns)
    return text_of(*fields)


# --- the paths that a user wrote ------------------------------------------------------------------


def _resolve(
    text: str, option: str, *, head: Sequence[Any], rows_at: str | None = None
) -> FieldPath:
    """A path, checked against the records there are; `a.b` may be one key, or begin with one."""
    keys = {str(key) for key in keys_of(head)}
    if rows_at and rows_at not in keys:
        text = text.removeprefix(f"{rows_at}[].")
    if text in keys:
        return FieldPath(text, (text,))
    path = parse_path(text)
    for length in range(len(path.steps), 1, -1):
        name = ".".join(map(str, path.steps[:length]))
        if name in keys:
            path = replace(path, steps=(name, *path.steps[length:]))
            break
    for record in head:
        with suppress(UnusableError):
            path.get(record)
            return path
    if head:
        raise _no_such_field(text, option, head)
    return path


def _no_such_field(text: str, option: str, head: Sequence[Any]) -> InputError:
    if not any(isinstance(record, dict) for record in head):
        return InputError(
            f'no field "{printable(text)}": the records are plain values, not objects with fields',
            hint=f"leave {option} out",
        )
    names = {path.lower(): printable(path) for path in leaves(head)}
    names |= {str(key).lower(): printable(paths.quote_key(str(key))) for key in keys_of(head)}
    close = difflib.get_close_matches(text.lower(), list(names), n=1)
    name = names[close[0]] if close else ""
    name = f"{{{name}}}" if option == "--template" else name
    return InputError(
        f'no record has a field "{printable(text)}"; there are:\n{field_table(head)}',
        hint=f"did you mean {option} {shlex.quote(name)}?"
        if close
        else f"name one of them with {option}",
    )


# --- what names and values say of a field ---------------------------------------------------------

# Surest first. Many sets spell them with a capital.
TEXT_FIELDS = (
    *("prompt", "question", "input", "inputs", "text", "instruction", "query", "problem"),
    *("problem_statement", "task", "content", "sentence", "turns", "prompts", "questions"),
    *("goal", "intent", "premise", "ctx", "passage", "document", "article", "context", "story"),
)
# These names often hold a label, or the name of a file, beside a prompt of another name.
_OFTEN_LABELS = {"task", "content", "goal", "text", "input", "document", "context", "intent"}
# A part of a longer name that says as much: `question_content`, `user_prompt`.
_PROMPT_WORDS = {
    *("prompt", "question", "instruction", "query", "problem", "task", "intent", "statement"),
}
# Inside an object called `question` or `prompt`, what is asked.
_TEXT_KEYS = ("text", "stem", "content", "question", "prompt", "value", "body")
# Lists of them stand for one prompt each where answers of the same number stand beside.
_ONE_BY_ONE = {"instructions", "questions", "queries", "prompts", "tasks"}
_QUESTIONS = ("question", "query", "prompt", "instruction", "problem")
# Messages under these names are a run, whatever stands beside them.
_RUNS = {"traj", "trajectory", "trajectories", "messages", "chat"}
# Parts of names of fields that hold what the model should say, or that no prompt is made of.
_NOT_PROMPT = re.compile(
    "(answer|output|target|response|solution|completion|label|reference|explanation|rationale"
    "|test|code|gold|golden|expected|chosen|rejected|generated|generation|prediction|canary"
    "|metadata|meta|id|uid|uuid|url|hash|canonical|cot|ideal|annotation"
    "|patch|diff|score|summary|highlight|critique|feedback|file|filename|path|uri|sha|md5|digest"
    "|date|timestamp|version|type|difficulty|title|tag|author|license|log|observation|concept"
    "|template|bot|assistant|gpt|truth)s?"
)
_WORD = re.compile(r"[\w./:@#~%&=+-]+", re.ASCII)
_MARK = re.compile(r"[\d_/]|::|\.\w{1,5}$", re.ASCII)
_MOMENT_OR_PLACE = re.compile(r"\d{4}-\d\d-\d\d[ T][\d:.+Z-]+|\w+://\S+")


def _name_parts(name: str) -> list[str]:
    """`"longAnswer_text"` -> `["long", "answer", "text"]`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z]+\d*", spaced.lower())


@lru_cache(4096)
def is_no_prompt(name: str) -> bool:
    """Whether a name speaks of an answer, an identifier or something about the row.

    >>> is_no_prompt("long_answer"), is_no_prompt("question_id"), is_no_prompt("question")
    (True, True, False)
    """
    return any(map(_NOT_PROMPT.fullmatch, _name_parts(name)))


def are_identifiers(values: Sequence[str]) -> bool:
    """Whether texts are ids, hashes, numbers, dates, addresses or names of files.

    >>> are_identifiers(["multi_turn_0", "9b1deb4d"]), are_identifiers(["Why?", "swe_main"])
    (True, False)
    """
    texts = [value.strip() for value in values if value.strip()]
    return bool(texts) and all(
        (_WORD.fullmatch(text) and _MARK.search(text)) or _MOMENT_OR_PLACE.fullmatch(text)
        for text in texts
    )


def are_labels(values: Sequence[str]) -> bool:
    """Whether texts are a few short words over and over, such as the name of a subtask."""
    short = all(len(value) <= 40 for value in values)
    return len(values) > 3 and short and len(set(values)) * 2 <= len(values)


def is_prose(text: str) -> bool:
    """More than one word, or a script that has no blanks between words."""
    return " " in text.strip() or not text.isascii()


# --- what there is in the records -----------------------------------------------------------------

_MOST_ELEMENTS = 50  # of a list, where it is only looked at
_CHATS = {"messages", "conversations", "conversation", "prompt", "input"}  # whatever their roles


@dataclass(slots=True)
class Leaf:
    """A path that leads to something simple or to a conversation, with what was seen there."""

    path: str
    example: Any = None
    records: int = 0
    chars: int = 0
    texts: list[str] = field(default_factory=list)
    prose: int = 0  # texts of more than one word
    chats: int = 0


def leaves(records: Sequence[Any]) -> dict[str, Leaf]:
    """Every path in the records, four levels deep.

    >>> list(leaves([{"id": 1, "ctxs": [{"text": "a"}]}]))
    ['id', 'ctxs[].text']
    """
    by_path: dict[str, Leaf] = {}
    for record in records:
        seen = set()
        for path, value, is_chat in _below("", record) if isinstance(record, dict) else ():
            leaf = by_path.get(path) or by_path.setdefault(path, Leaf(path))
            leaf.records += path not in seen
            seen.add(path)
            if leaf.example is None:
                leaf.example = value
            if is_chat:
                leaf.chats += 1
                leaf.chars += _chars(value)
            elif isinstance(value, str):
                leaf.texts.append(value)
                leaf.chars += len(value)
                leaf.prose += is_prose(value)
    return by_path


def _below(name: str, value: Any, levels: int = 4) -> Iterator[tuple[str, Any, bool]]:
    """The leaves of a value, and whether they are conversations. A list is opened where its first
    elements are of one kind; of a list of conversations it is the first.
    """
    elements = value[:_MOST_ELEMENTS] if isinstance(value, list) else []
    kinds = {type(element) for element in elements[:3]}
    may_be_chat = kinds == {dict} or (isinstance(value, str) and value.startswith("[{"))
    messages = json_in(value) if may_be_chat else None
    if messages and (
        chat.begins_a_chat(messages)
        or (name.rpartition(".")[2] in _CHATS and chat.looks_like_messages(messages))
    ):
        yield name, value, True
    elif kinds == {list} and chat.begins_a_chat(elements[0]):
        yield f"{name}[0]", elements[0], True
    elif levels and isinstance(value, dict) and value:
        for key, child in value.items():
            inner = f"{name}{dotted(str(key))}" if name else quote_key(str(key))
            yield from _below(inner, child, levels - 1)
    elif (levels and kinds in ({dict}, {list})) or kinds == {str}:
        for element in elements:
            yield from _below(f"{name}[]", element, levels - (kinds == {list}))
    else:
        yield name, value, False


def _chars(value: Any, depth: int = 0) -> int:
    if isinstance(value, str):
        return len(value)
    if depth > 8 or not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return sum(_chars(element, depth + 1) for element in inner)


def field_table(records: Sequence[Any], *, most: int = 30) -> str:
    """The fields of the records, one per line: path, kind, example."""
    fields = list(leaves(records).values())
    width = max((len(printable(leaf.path)) for leaf in fields[:most]), default=0)
    lines = [
        f"  {printable(leaf.path):<{width}}  {paths.json_type(leaf.example):<9}  "
        f"{paths.shorten(leaf.example)}".rstrip()
        for leaf in fields[:most]
    ]
    if len(fields) > most:
        lines.append(f"  ... and {len(fields) - most} more")
    return "\n".join(lines)


def keys_of(head: Sequence[Any]) -> list[str]:
    """The top-level keys, in order of appearance."""
    return list(dict.fromkeys(k for record in head if isinstance(record, dict) for k in record))


def shape_of(head: Sequence[Any]) -> tuple[Any, ...]:
    """What `guess` goes by: short heads of the same shape have their prompt in the same place.

    >>> shape_of([{"q": "Why so?"}]) == shape_of([{"q": "Who is it?"}]) != shape_of([{"q": "r2"}])
    True
    """
    sizes = [{k: _chars(v) for k, v in r.items()} if isinstance(r, dict) else {} for r in head]
    by_size = (tuple(sorted(size, key=size.__getitem__)) for size in sizes)
    return (*map(_shape, head), *by_size)


def _shape(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        # Of an object within a record, words such as "user" say what it is.
        is_word = depth > 1 and len(value) < 20
        return is_prose(value) or (
            value if is_word else (are_identifiers([value]), value.strip() == "")
        )
    if depth < 6 and isinstance(value, dict):
        return tuple((key, _shape(inner, depth + 1)) for key, inner in value.items())
    if depth < 6 and isinstance(value, list):
        return (len(value), *(_shape(element, depth + 1) for element in value))
    return type(value)


# --- candidates, the surest sign first: a name that makes it certain comes before a likely one ----

# A form that records may have: how many have it, and what is then selected.
Candidate = tuple[int, Callable[[], Selection]]


def guess(
    head: Sequence[Any], closed: Collection[str], chat_of: Callable[..., Selection]
) -> Selection:
    """The first candidate that fits most records, else the one that fits the most of them.

    `closed` are columns of answers and choices, which are not pointed at as text to include;
    `chat_of` selects the conversation at a path.
    """
    guesses, best, build = _Guess(head, closed, chat_of), 0, None
    for count, candidate in guesses.candidates():
        if count and count * 2 >= len(head):
            return candidate()
        if count > best:
            best, build = count, candidate
    if build:
        return build()
    table = field_table(head)
    if not table:
        message = "the records hold no fields" if head else "there are no records to look at"
        raise InputError(message, hint="expected objects with text in them")
    hint = "name it with --field, put it together with --template '{a} {b}', or see --each"
    for leaf in (guesses.likely or guesses.prose)[:1]:
        name = shlex.quote(printable(leaf.path))
        hint = f"is it --field {name}? Or put it together with --template '{{a}} {{b}}'"
    raise InputError(f"cannot tell which field is the prompt; there are:\n{table}", hint=hint)


class _Guess:
    def __init__(
        self, head: Sequence[Any], closed: Collection[str], chat_of: Callable[..., Selection]
    ) -> None:
        self.head, self.closed, self.chat_of = head, closed, chat_of
        self.keys = keys_of(head)
        self.leaves = leaves(head)
        # Paths at which most records have a text.
        self.common = {p for p, leaf in self.leaves.items() if len(leaf.texts) * 2 > len(head)}
        prose = (f for f in self.leaves.values() if f.chats or f.prose * 2 > len(f.texts))
        self.prose = sorted(prose, key=lambda leaf: -leaf.chars)
        # Fields of prose that no name speaks against, those with the most text first.
        self.likely = [leaf for leaf in self.prose if not is_no_prompt(leaf.path)]

    def candidates(self) -> Iterator[Candidate]:
        whole = "whole file" if len(self.head) == 1 else "line"
        lines = sum(isinstance(record, str) for record in self.head)
        yield lines, partial(text_of, RECORD, label=whole)
        # OpenAI's messages, and request bodies of its batch files.
        yield from self._chats("messages", "body.messages", "body.input")
        yield from self._texts("body.prompt", "body.input")
        yield from self._chats("conversations", "conversation", "prompt")
        lists = [record for record in self.head if isinstance(record, list)]
        yield sum(map(chat.looks_like_messages, lists)), partial(self._chat, RECORD)
        trace = trace_columns(self.head)
        counted = sum(isinstance(r, dict) and trace.prompt in r for r in self.head) if trace else 0
        if trace and trace.output:
            yield counted, partial(lengths_of, trace)
        chats = [f.path for f in self.likely if f.chats * 2 >= len(self.head)]
        chats.sort(key=lambda path: len(parse_path(path).steps))
        sure = [path for path in chats if self._is_the_request(path)]
        yield from self._chats(*sure)
        yield from self._one_by_one()
        spelled = {name: [key for key in self.keys if key.lower() == name] for name in TEXT_FIELDS}
        names = [quote_key(key) for keys in spelled.values() for key in keys]
        yield from self._texts(*names)
        yield from self._chats(*(path for path in chats if path not in sure))
        # `question.stem`, `row.prompt`: the text of an object, and the prompt in one.
        inner = [f"{name}.{key}" for name in names for key in _TEXT_KEYS]
        keys = [quote_key(key) for key in self.keys if not is_no_prompt(key)]
        inner += [f"{key}.{name}" for key in keys for name in TEXT_FIELDS]
        yield from (self._text(path) for path in inner if path in self.leaves)
        # A lone input_length beside a text prompt says little: then the text is counted.
        if trace and not trace.output:
            yield counted, partial(lengths_of, trace)
        # The longest column of a table without a header, whose columns readers call column0...
        if self.keys and all(re.fullmatch(r"column\d+", key) for key in self.keys):
            column = max(self.leaves.values(), key=lambda leaf: leaf.chars)
            notes = (note("no_header", field=column.path),)
            yield len(column.texts), partial(text_of, parse_path(column.path), notes=notes)
        # `question_content`, `user_prompt`: of names that sound like one, that with most text.
        texts = [leaf.path for leaf in self.likely if not leaf.chats and parse_path(leaf.path).key]
        yield from [self._text(path) for path in texts if _sounds_like_a_prompt(path)][:1]
        # The only field that holds text in most records, unless it is there to name them.
        most = [path for path in map(quote_key, self.keys) if path in self.common]
        most = [path for path in most if not are_identifiers(self.leaves[path].texts)]
        if len(most) != 1 or are_labels(self.leaves[most[0]].texts):
            return
        if not is_no_prompt(most[0]) or _sounds_like_a_prompt(most[0]):
            yield self._text(most[0])

    def _chats(self, *fields: str) -> Iterator[Candidate]:
        for path in fields:
            if path in self.leaves:
                yield self.leaves[path].chats, partial(self._chat, parse_path(path))

    def _chat(self, path: FieldPath) -> Selection:
        uncounted = []
        if path.steps and path.steps[-1] == 0:
            outer = FieldPath(path.text.removesuffix("[0]"), path.steps[:-1])
            lists = (outer.find(record) for record in self.head)
            count = max((len(chats) for chats in lists if isinstance(chats, list)), default=1)
            if count > 1:
                uncounted.append(note("first_conversation_counted", field=outer.text, count=count))
        if longer := self._longer_field(path, is_chat=True):
            uncounted.append(note("longer_field_beside_chat", field=path.text, longer=longer))
        return self.chat_of(path, uncounted=uncounted)

    def _is_the_request(self, path: str) -> bool:
        """Messages are what was sent, unless a question stands beside what went before it."""
        names = {str(step).lower() for step in parse_path(path).steps}
        asks = [quote_key(key) for key in self.keys if key.lower() in (*_QUESTIONS, "input")]
        return bool(names & _RUNS) or self.common.isdisjoint(asks)

    def _texts(self, *fields: str) -> Iterator[Candidate]:
        """Fields of likely names, apart from those that hold labels or ids."""
        by_name = {path.lower(): path for path in fields}
        for path in fields:
            values = self.leaves[path].texts if path in self.leaves else []
            labels = are_labels(values)
            is_a_word = (labels and not any(map(is_prose, values))) or are_identifiers(values)
            if (labels and path.lower() in _OFTEN_LABELS) or (is_a_word and self.likely):
                continue
            if path.lower() == "input" and (instruction := by_name.get("instruction")):
                both = parse_path(instruction), parse_path(path)
                if instruction in self.leaves:
                    yield (
                        len(self.leaves[instruction].texts),
                        partial(text_of, *both, is_last_optional=True),
                    )
            if values:
                yield self._text(path)
            if listed := self.leaves.get(f"{path}[]"):
                yield listed.records, partial(self._first_of_texts, parse_path(path))

    def _text(self, path: str) -> Candidate:
        return len(self.leaves[path].texts), partial(self._selected_text, parse_path(path))

    def _selected_text(self, path: FieldPath) -> Selection:
        tools = [
            name
            for name in chat.TOOL_FIELDS
            if name in self.keys
            and sum(chat.has_functions(name, record) for record in self.head) * 2 > len(self.head)
        ][:1]
        longer = self._longer_field(path, closed=tools)
        if not tools and not longer:
            return text_of(path)
        more = [*(f"{name}|json" for name in tools), *filter(None, [longer])]
        uncounted = note("more_to_count", field=path.text, longer=longer, more=more)
        return text_of(path, uncounted=(uncounted,))

    def _first_of_texts(self, path: FieldPath) -> Selection:
        longer = self._longer_field(path)
        uncounted = note("first_of_list_counted", field=path.text, longer=longer)
        return text_of(path.then(0), uncounted=(uncounted,))

    def _one_by_one(self) -> Iterator[Candidate]:
        """A document and questions about it: L-Eval's with as many answers, or objects with both.

        Only where there is no question of the row as a whole.
        """
        prose = [parse_path(leaf.path) for leaf in self.likely if not leaf.chats]
        prose = [path for path in prose if path.key]
        asks = [quote_key(key) for key in self.keys if key.lower() in _QUESTIONS]
        if not prose or not self.common.isdisjoint(asks):
            return
        for key in self.keys:
            listed = FieldPath.to(key)
            by_name = [listed] if key.lower() in _ONE_BY_ONE else []
            for path in (*by_name, *(FieldPath.to(key, name) for name in _QUESTIONS)):
                count = sum(_holds_questions(listed, path, record) for record in self.head)
                if count * 2 > len(self.head):
                    yield count, partial(each_of, [listed], text_of(prose[0], path))

    def _longer_field(
        self, path: FieldPath, *, is_chat: bool = False, closed: Collection[str] = ()
    ) -> str | None:
        """The likely field with the most text, if that is more than the chosen one has.

        A chat's tools are no such field, nor is what another list of steps says again.
        """
        texts = [self.leaves.get(text) for text in (path.text, f"{path.text}[]")]
        chars = sum(leaf.chars for leaf in texts if leaf)
        names = [*self.closed, *closed, *(chat.ROW_FIELDS if is_chat else ())]
        names += [path.column or ""] if is_chat else []
        for leaf in self.likely:
            if leaf.chars <= chars:
                return None
            if (
                leaf.path in (path.text, f"{path.text}[]")
                or parse_path(leaf.path).column in names
                or (is_chat and "[]." in leaf.path)
                or leaf.path.startswith(tuple(f"{name}[" for name in (*self.closed, *closed)))
            ):
                continue
            return printable(leaf.path)
        return None


def _sounds_like_a_prompt(path: str) -> bool:
    return not _PROMPT_WORDS.isdisjoint(_name_parts(path))


def _holds_questions(listed: FieldPath, path: FieldPath, record: Any) -> bool:
    """Whether a list holds questions as objects, or as texts with as many answers beside it."""
    value = listed.find(record)
    if not isinstance(value, list) or not value:
        return False
    if path is not listed:
        return all(isinstance(q, dict) and isinstance(q.get(path.steps[1]), str) for q in value)
    return all(isinstance(question, str) for question in value) and any(
        isinstance(answers, list) and len(answers) == len(value) and is_no_prompt(str(key))
        for key, answers in record.items()
    )
