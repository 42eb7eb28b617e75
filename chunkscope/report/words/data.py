"""Sentences about data: files, prompts, harness logs, lengths, shared prefixes."""

import json
import shlex
from collections.abc import Iterator, Sequence

from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.lengths.profile import Profile, guessed_fields
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.report.words import Template, named, sentence
from chunkscope.sources.problems import hint_of

LONG = 2_048  # tokens: shorter prompts fit a step of every setting people use
MOST_NOTES = 20

SENTENCES: dict[str, Template] = {
    "counted_again": "all counted again with {reference}: the fast engine differed on a sample",
    "no_tokenizer_config": "the local cache has no tokenizer_config.json: special tokens and "
    "the chat template may be missing; a run with a network downloads it",
    "lines_together": "{count} lines counted as one prompt (per_line in chunkscope.toml: each)",
    "nothing_to_score": "counted as generation: there are no choices to score",
    "unused_with_chat": "{what} was ignored: it is for text prompts",
    "choices_uncounted": "answer choices were not counted, but an evaluation sends them: use {use}",
    "first_counted": 'only "{counted}" was counted, not the rest of that list: use {use}',
    "left_out": 'probably miscounted: only "{counted}" was counted, not "{beside}": use {use}',
    "answers_counted": "most chats end with an assistant's message, counted with the prompt",
    "empty_prompts": "{count:prompt} without tokens, which vLLM refuses",
    "not_counted": 'counted without "{field}"[is_text? (--field chooses)|: only text is counted]',
    "media_rows": "images, audio or video in {count:row}: only the text is counted",
    "tools_ignored": "the chat template ignores the tools of {count:row}: they are not counted",
    "begun_twice": "{count:prompt} start with {begin} twice (special_tokens = false adds none)",
    "date_in_template": "the chat template prints the date ({day}); chat_date sets another",
    "blocks_unused": "{blocks} were not used: no block size fits them and {field}",
    "unused_with_log": "{option} was ignored: a log has the prompts and answers",
    "rolling_texts_whole": "{count:text} of loglikelihood_rolling counted whole, not in windows",
    "other_models": "requests to other models were not counted: {models}",
    "counted_by_mock": "lengths from Inspect's mock model: name --model, and messages are counted",
    "sharing_not_counted": "lengths are the server's own counts; what prompts share is not known: "
    "name --model, and messages are counted",
    "first_requests_only": "an agent: only the first request of each sample is known before a run; "
    "analyze a log of one",
}


def lengths(profile: Profile) -> Iterator[str]:
    overall, doubts = profile.overall, list(uncounted(profile, "left_out"))
    yield from doubts
    p50, p95 = (number(overall.percentile(p)) for p in (50, 95))
    sampled = (
        " (a sample)" if any(dataset.sample for dataset in profile.datasets) else ""
    )
    sets = sum(dataset.rows > 0 for dataset in profile.datasets)
    prompts = f"{plural(overall.count, 'prompt')} in {plural(sets, 'dataset')}"
    yield f"{prompts}{sampled}: median {p50} tokens, p95 {p95}, longest {number(overall.max)}."
    if doubts:
        return
    long = overall.share_over(LONG)
    matters = (
        f"{share(long)} are longer than {LONG:,} tokens, where chunked prefill matters."
    )
    if not long:
        matters = f"No prompt is longer than {LONG:,} tokens, so chunked prefill hardly matters."
    measured = [dataset.prefixes for dataset in profile.datasets if dataset.prefixes]
    yield f"{matters} {shared(reuse_together(measured))}" if measured else matters


def shared(reuse: PrefixReuse) -> str:
    """How many tokens the prefix cache can serve."""
    of = (
        f" (judged by {reuse.prompts:,} of {reuse.out_of_prompts:,} prompts)"
        * reuse.is_partial
    )
    if not reuse.cached_tokens + reuse.unread_tokens:
        one = "one" if reuse.common_tokens is not None else "one in its dataset"
        return f"No prompt repeats the first {reuse.block_size} tokens of an earlier {one}{of}."
    tokens = reuse.cached_tokens
    use = "so vLLM's prefix cache can serve them"
    if reuse.unread_tokens > tokens:
        served = f": it serves {share(tokens / reuse.tokens)}" if tokens else ""
        use = f"but likelihood requests do not read vLLM's prefix cache{served}"
        tokens += reuse.unread_tokens
    part = f"{share(tokens / reuse.tokens)} of the prompt tokens"
    return f"{part} repeat the start of an earlier prompt{of}, {use}."


def counted_with(profile: Profile) -> str:
    if profile.tokenizer.kind == "none":
        return "The lengths came with the data; no tokenizer was needed."
    hint = (
        "" if profile.options.tokenizer else "; --model NAME counts with your model's"
    )
    return f"Tokenizer: {profile.tokenizer.name}{hint}."


def counted_fields(profile: Profile) -> Iterator[str]:
    """The fields that nobody named, with their datasets."""
    for field, names in guessed_fields(profile).items():
        yield f'{named(names)}: counted "{field}" (guessed; --field names another)'


def _missing(profile: Profile, *codes: str) -> Iterator[tuple[Note, list[str]]]:
    """Each note with the names of its datasets."""
    missing: dict[str, tuple[Note, list[str]]] = {}
    for dataset in profile.datasets:
        for one in (one for one in dataset.uncounted if one.code in codes):
            missing.setdefault(repr(one), (one, []))[1].append(dataset.name)
    yield from list(missing.values())[:MOST_NOTES]


def _options(one: Note) -> list[tuple[str, str]]:
    """The options that count what was left out, each with its value."""
    words = one.values.get("use") or [f"--choices={one.values['fields']}"]
    options = []
    for word in words:  # type: ignore[union-attr]
        option, _, value = str(word).partition("=")
        options.append((option, value))
    return options


def _typed(one: Note) -> str:
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in _options(one))


def _in_the_config(one: Note, names: Sequence[str]) -> str:
    """The same for some of the datasets, as chunkscope.toml has it."""
    values: dict[str, list[str]] = {}
    for option, value in _options(one):
        values.setdefault(option.removeprefix("--"), []).append(value)
    lines = []
    for option, texts in values.items():
        setting: list[str] | str = texts
        if len(texts) == 1:
            setting = texts[0]
        lines.append(f"{option} = {json.dumps(setting, ensure_ascii=False)}")
    table = f'[datasets."{names[0]}"]' if len(names) == 1 else '[datasets."NAME"]'
    return f"{', '.join(lines)} under {table} in chunkscope.toml"


def uncounted(profile: Profile, *codes: str) -> Iterator[str]:
    for one, names in _missing(profile, *codes):
        is_for_all = len(names) == len(profile.datasets)
        use = _typed(one) if is_for_all else _in_the_config(one, names)
        yield f"{named(names)}: {sentence(note(one.code, **one.values | {'use': use}))}"


def corrected(profile: Profile) -> str:
    """What to do next to count what was left out; "" if nothing was."""
    command = shlex.join(profile.command)
    options = []
    for one, names in _missing(profile, "left_out"):
        if len(names) < len(profile.datasets):  # an option would be for all of them
            return f"add that to chunkscope.toml, then {command}"
        options.append(_typed(one))
    return " ".join((command, *options)) if options else ""


def cautions(profile: Profile) -> Iterator[str]:
    """Notes on what may be wrong, most important first."""
    yield from uncounted(profile, "first_counted", "choices_uncounted")
    yield from map(sentence, profile.tokenizer.notes)
    notes: dict[str, list[str]] = {}
    for dataset, one in ((d, one) for d in profile.datasets for one in d.notes):
        notes.setdefault(sentence(one), []).append(dataset.name)
    yield from (
        f"{named(names)}: {text}" for text, names in list(notes.items())[:MOST_NOTES]
    )
    if len(notes) > MOST_NOTES:
        yield f"{len(notes) - MOST_NOTES:,} more notes are in the profile"
    yield from counted_fields(profile)


def bad_rows(profile: Profile) -> Iterator[str]:
    """Bad rows by reason, how many there are, and the datasets that failed."""
    alike: dict[tuple[str, str], list[object]] = {}
    for one, row in ((d, row) for d in profile.datasets for row in d.bad_rows):
        alike.setdefault((f"{one.path} {one.unit}", sentence(row.reason)), []).append(
            row.position
        )
    for (where, reason), places in list(alike.items())[:MOST_NOTES]:
        rows = ", ".join(map(str, places[:3])) + ", ..." * (len(places) > 3)
        yield f"bad row: {where} {rows}: {reason}"
    if profile.skipped:
        yield f"{plural(profile.skipped, 'bad row')} not counted (exit 0 with --skip-bad-rows)"
    for dataset in profile.datasets:
        if failure := dataset.failure:
            hint = hint_of(failure)
            yield f"error: {dataset.name}: {sentence(failure)}" + (
                f"\nhint: {hint}" * bool(hint)
            )
