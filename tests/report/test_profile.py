"""What is said of prompts: their lengths, what they share, what to doubt."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.artefact import Numbers
from chunkscope.artefacts.note import Note
from chunkscope.lengths.profile import DatasetProfile, Profile, Sample
from chunkscope.lengths.sessions import Sessions
from chunkscope.report.blocks import Headline, Text
from chunkscope.report.charts import Mark
from chunkscope.report.profile import (
    answer,
    bad_rows,
    cautions,
    corrected,
    length_histogram,
    lengths_sentence,
    lengths_table,
    meaning,
    session_text,
    uncounted,
)
from chunkscope.sources.base import BadRow
from tests import build

LEFT_OUT = Note(
    code="left_out",
    values={"counted": "input", "beside": ["text"], "use": ["--field=text"]},
)


def profile_of(*datasets: DatasetProfile) -> Profile:
    command = ("chunkscope", "analyze")
    return replace(build.profile(), datasets=datasets, command=command)


def test_the_lengths_are_one_sentence() -> None:
    sentence = lengths_sentence(build.profile(a=[100, 200, 3_000], empty=[]))
    assert sentence == (
        "3 prompts in 1 dataset: median 200 tokens, p95 2,720, longest 3,000."
    )


def test_a_sample_is_called_one() -> None:
    dataset = build.dataset("a", [1], sample=Sample(rows=1, out_of=9, seed=0))
    assert "(a sample)" in lengths_sentence(profile_of(dataset))


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        pytest.param([100], "hardly matters", id="short prompts"),
        pytest.param([100, 3_000], "50 % are longer than 2,048", id="a long one"),
    ],
)
def test_whether_chunked_prefill_matters(lengths: list[int], said: str) -> None:
    assert said in meaning(build.profile(a=lengths))


def test_what_was_probably_miscounted_is_the_headline() -> None:
    headline, text = answer(profile_of(build.dataset("a", [5], uncounted=(LEFT_OUT,))))
    assert isinstance(headline, Headline)
    assert headline.text.startswith('Probably miscounted: a: only "input" was counted')
    assert isinstance(text, Text)


# -- the list of datasets --------------------------------------------------------------


def test_few_datasets_are_listed_in_their_order() -> None:
    table = lengths_table([build.dataset(name, [1]) for name in "bac"])
    assert [row[0].text for row in table.rows] == ["b", "a", "c", "all together"]


def test_of_many_datasets_the_longest_are_listed() -> None:
    datasets = [build.dataset(f"set {place}", [place]) for place in range(1, 60)]
    names = [row[0].text for row in lengths_table(datasets).rows]
    assert names[0] == "set 59"
    assert names[-2:] == ["49 more datasets", "all together"]
    assert len(names) == 12


def test_every_prompt_is_in_a_line_of_the_table() -> None:
    datasets = [build.dataset(f"set {place}", [1, 2]) for place in range(60)]
    *rows, together = lengths_table(datasets).rows
    assert sum(int(row[1].text) for row in rows) == 120
    assert together[1].text == "120"


# -- pictures --------------------------------------------------------------------------


def test_bins_hold_every_prompt() -> None:
    profile = build.profile(short=build.SHORT, mixed=build.MIXED)
    (chart,) = length_histogram("Prompts", profile.overall)
    assert sum(bin_.count for bin_ in chart.bins) == profile.overall.count


def test_without_prompts_there_is_no_picture() -> None:
    assert length_histogram("Prompts", build.profile(empty=[]).overall) == []


def test_the_picture_reaches_to_a_setting_beside_it() -> None:
    lengths = build.profile(a=[50, 100]).overall
    mark = Mark(label="tokens per step", tokens=1_000)
    (chart,) = length_histogram("Prompts", lengths, [mark])
    assert chart.bins[-1].high == 1_024


# -- samples of several requests -------------------------------------------------------


def test_sessions_are_described_in_sentences() -> None:
    sessions = Sessions(
        turns=Numbers([1, 3]),
        prompt_tokens=Numbers([100, 100, 250, 400]),
        kept_tokens=Numbers([0, 0, 150, 300]),
        output_tokens=Numbers([50, 50, 50, 50]),
        think_ms=Numbers([0, 0, 500, 1_500]),
    )
    assert session_text(sessions.figures()) == (
        "2 samples of 1 to 3 requests each (median 2). The median prompt grows from "
        "100 tokens in the first request to 250 in the last; the longest context is "
        "450 tokens. A request adds 100 tokens to what the one before it had (median; "
        "p95 100), and 53 % of all prompt tokens repeat it. Answers have 50 tokens "
        "(median; p95 50). Between an answer and the next request pass 1.00 s (median; "
        "p95 1.45 s)."
    )


# -- what to doubt ---------------------------------------------------------------------


def test_a_note_on_several_datasets_is_said_once() -> None:
    chat = build.dataset("a", [9], notes=(Note(code="answers_counted"),))
    text, *_ = cautions(profile_of(chat, replace(chat, name="b")))
    assert text.startswith("a and b: most chats end with an answer")


def test_an_option_counts_what_all_datasets_lack() -> None:
    profile = profile_of(build.dataset("a", [5], uncounted=(LEFT_OUT,)))
    assert uncounted(profile, "left_out")[0].endswith("use --field text")
    assert corrected(profile) == "chunkscope analyze --field text"


def test_a_table_of_the_config_counts_what_one_dataset_lacks() -> None:
    lacking = build.dataset("a", [5], uncounted=(LEFT_OUT,))
    profile = profile_of(lacking, build.dataset("b", [5]))
    (text,) = uncounted(profile, "left_out")
    assert text.endswith('use field = "text" under [datasets."a"] in chunkscope.toml')
    assert corrected(profile).startswith("add that to chunkscope.toml, then")


def test_bad_rows_of_one_reason_are_one_line() -> None:
    reason = Note(code="nested_too_deeply")
    rows = tuple(BadRow(position=place, reason=reason) for place in (1, 2, 5, 7))
    dataset = build.dataset("a", [5], bad_rows=rows, skipped=4)
    assert list(bad_rows(profile_of(dataset))) == [
        "bad row: a.jsonl row 1, 2, 5, ...: nested too deeply",
        "4 bad rows were not counted (exit 0 with --skip-bad-rows)",
    ]
