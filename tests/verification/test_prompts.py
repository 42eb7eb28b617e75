"""Real prompts: read again as they were analyzed, sent where their length is asked."""

import datetime
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chunkscope
from chunkscope import AnalyzeOptions
from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.lengths.options import DatasetOptions
from chunkscope.lengths.profile import Profile
from chunkscope.prefixes.sharing import depths
from chunkscope.prompts.options import SelectOptions
from chunkscope.prompts.prefix_files import PrefixFile
from chunkscope.simulation.draw import draw_workload
from chunkscope.simulation.outputs import OutputLengths, dataset_output
from chunkscope.simulation.workload import Workload
from chunkscope.sources.base import ReadOptions
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.verification.options import VerifyOptions
from chunkscope.verification.prompts import (
    Ids,
    Sent,
    is_near,
    real_prompts,
    rows_for,
)
from chunkscope.verification.result import PromptSource
from tests.build import workload
from tests.commands.helpers import write_jsonl
from tests.prompts.helpers import lm_eval_sample
from tests.tokenizers.helpers import bpe, save

SAMPLE = Path(__file__).parents[2] / "sample_data"


def every_prompt(profile: Profile) -> Workload:
    asked = OutputLengths(p50=16, p95=16)
    outputs = [dataset_output(dataset, asked=asked) for dataset in profile.datasets]
    return draw_workload(profile.datasets, outputs, room=200_000)


def again(paths, profile, sent, **options) -> Sent:
    data = [str(path) for path in paths]
    options = VerifyOptions(data=data, **options)
    return real_prompts(sent, profile, options, Progress())


def assert_as_analyzed(paths, options: AnalyzeOptions | None = None):
    """Every row once: the lengths are the profile's, one by one."""
    profile = chunkscope.analyze([str(path) for path in paths], options=options)
    sent = again(paths, profile, every_prompt(profile))
    names = sorted(dataset.name for dataset in profile.datasets)
    assert sorted(sent.source.datasets) == names
    requests = sent.workload.requests
    lengths = [request.prompt_tokens for request in requests]
    assert Counter(lengths) == Counter(profile.overall.counts)
    assert [len(prompt) for prompt in sent.prompts] == lengths
    assert {request.output_tokens for request in requests} == {16}
    return sent.prompts


def ids_of(*texts: str, tokenizer: str | None = None, special: bool = True) -> list:
    """What they are encoded to, in order."""
    encoded = Tokenizer(tokenizer).encode(texts, special_tokens=special)
    return sorted(tuple(ids) for ids in encoded)


def in_order(prompts: list[Ids]) -> list:
    return sorted(tuple(ids) for ids in prompts)


def counted(path: Path, tokenizer: str, **options) -> Profile:
    asked = AnalyzeOptions(tokenizer=tokenizer, **options)
    return chunkscope.analyze(path, options=asked)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    """A tokenizer that is loaded in no time: a token for each byte."""
    folder = tmp_path_factory.mktemp("small")
    return str(save(bpe(), folder, tokenizer_class="PreTrainedTokenizerFast"))


@pytest.fixture
def data(tmp_path):
    rows = [{"prompt": "one"}, {"prompt": "and another"}]
    return write_jsonl(tmp_path / "d.jsonl", rows)


def test_several_datasets_and_options_of_the_profile_hold(small):
    repair = next(SAMPLE.glob("code_repair.*"))
    quiz = next(SAMPLE.glob("knowledge_quiz.*"))
    assert_as_analyzed([repair, quiz], AnalyzeOptions(tokenizer=small))
    select = SelectOptions(template="Q: {{ question }}\nA:")
    options = AnalyzeOptions(special_tokens=False, select=select, tokenizer=small)
    assert_as_analyzed([quiz], options)


def test_chats_are_rendered_as_they_were(data):
    rendered = assert_as_analyzed([SAMPLE / "reasoning" / "tool_use.jsonl"])
    begin_and_user = ids_of("[INST]", special=True)[0][:1]
    assert tuple(rendered[0][:1]) == begin_and_user  # <s>, once
    assert rendered[0][1] != rendered[0][0]
    assert_as_analyzed([data], AnalyzeOptions(apply_chat_template=True))


def test_what_a_harness_sent_is_sent_again(tmp_path):
    messages = json.dumps([{"role": "user", "content": "How far?"}])
    choices = lm_eval_sample(0, ["Q: 1", " A"], ["Q: 1", " B"])
    written = lm_eval_sample(1, [[messages], {"until": []}], resps=[["far"]])
    log = write_jsonl(tmp_path / "samples.jsonl", [choices, written])
    sent = in_order(assert_as_analyzed([log]))
    assert set(ids_of("Q: 1 A", "Q: 1 B")) < set(sent)


def test_rows_without_fields_and_tables_are_read_as_they_were(tmp_path, small):
    """An encoding, delimiter and header can all be wrong by themselves."""
    rows = write_jsonl(tmp_path / "rows.jsonl", ["one", "and another"])
    real = assert_as_analyzed([rows], AnalyzeOptions(tokenizer=small))
    assert in_order(real) == ids_of("and another", "one", tokenizer=small)
    file = tmp_path / "data.csv"
    lines = [
        "how many?, said the café; yes",
        "the naïve one; no, it is not",
        "häh?; no",
    ]
    file.write_text("\n".join(lines), encoding="latin-1")
    read = ReadOptions(encoding="latin-1", delimiter=";", header=False)
    real = assert_as_analyzed([file], AnalyzeOptions(read=read, tokenizer=small))
    first_column = [line.split(";")[0] for line in lines]
    assert in_order(real) == ids_of(*first_column, tokenizer=small)


def test_a_prefix_file_is_read_again_for_the_dataset_it_was_given_for(
    data, tmp_path, small
):
    rows = [{"prompt": "three"}, {"prompt": "and the fourth"}]
    other = write_jsonl(tmp_path / "other.jsonl", rows)
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"Examples of {name}:\n\n")
    options = AnalyzeOptions(
        prefix_file=PrefixFile.read(tmp_path / "one"),
        datasets={
            "other": DatasetOptions(prefix_file=PrefixFile.read(tmp_path / "two"))
        },
        tokenizer=small,
    )
    profile = chunkscope.analyze([data, other], options=options)
    sent = again([data, other], profile, every_prompt(profile))
    assert in_order(sent.prompts) == ids_of(
        "Examples of one:\n\none",
        "Examples of one:\n\nand another",
        "Examples of two:\n\nthree",
        "Examples of two:\n\nand the fourth",
        tokenizer=small,
    )
    assert "Examples" not in json.dumps(profile.to_json())  # the text is not kept
    (tmp_path / "two").write_text("Other examples:\n\n")
    with pytest.raises(InputError, match="two"):
        again([data, other], profile, every_prompt(profile))


@pytest.mark.real
@pytest.mark.shared
def test_real_chats_have_the_ids_that_transformers_gives(shared):
    from transformers import AutoTokenizer

    folder = shared / "tokenizers" / "llama3.1"
    options = AnalyzeOptions(
        tokenizer=str(folder), chat_date=datetime.date(2024, 7, 26)
    )
    chats = shared / "data" / "mt_bench_101" / "mtbench101_messages.jsonl"
    real = assert_as_analyzed([chats], options)
    theirs = AutoTokenizer.from_pretrained(folder)
    encoded = theirs(theirs.batch_decode(real), add_special_tokens=False)
    assert [list(ids) for ids in real] == encoded["input_ids"]


# -- which row for which request -------------------------------------------------------


def test_rows_are_used_again_where_no_other_has_the_length(data, small):
    profile = counted(data, small)
    short, long = sorted(profile.overall.counts)
    sent = again([data], profile, workload(*[short] * 3, *[long] * 2))
    lengths = Counter(len(ids) for ids in sent.prompts)
    assert lengths == {short: 3, long: 2}
    assert sent.source == PromptSource(datasets=("d",), repeated=3)


def test_an_answer_is_cut_down_before_the_room_is_exceeded(tmp_path, small):
    rows = [{"prompt": "x" * (95 + number)} for number in range(10)]
    data = write_jsonl(tmp_path / "d.jsonl", rows)
    # The longest request takes 102 tokens, and there is no row of 100.
    wanted = workload(100, output=2)
    sent = again([data], counted(data, small), wanted).workload
    for request in sent.requests:
        assert request.prompt_tokens + request.output_tokens <= 102
        assert request.output_tokens >= 1


def test_no_row_is_used_again_while_another_is_within_5_percent():
    lengths = [105, 100, 95, 106, 94]
    assert sorted(rows_for([100] * 3, lengths, room=1_000)) == [0, 1, 2]
    assert Counter(rows_for([100] * 6, lengths, room=1_000)) == {0: 2, 1: 2, 2: 2}


def any_near(lengths: list[int], wanted: int) -> bool:
    return any(is_near(length, wanted) for length in lengths)


LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(LENGTHS, st.lists(st.integers(0, 80), min_size=1, max_size=40))
def test_each_row_fits_and_is_near_or_the_nearest(wanted, lengths):
    room = max(wanted) + 1
    usable = [length for length in lengths if 0 < length < room]
    try:
        places = rows_for(wanted, lengths, room=room)
    except InputError:
        lacking = [length for length in wanted if not any_near(usable, length)]
        assert len(lacking) * 2 > len(wanted)
        return
    for length, place in zip(wanted, places, strict=True):
        row = lengths[place]
        assert 0 < row < room
        nearest = min(abs(other - length) for other in usable)
        assert is_near(row, length) or abs(row - length) == nearest


APART = st.sampled_from([20, 30, 40, 50, 60])  # by more than 5 %


@given(st.lists(APART, min_size=1, max_size=40), st.integers(1, 3))
def test_rows_of_the_same_lengths_are_used_evenly(lengths, times):
    places = rows_for(lengths * times, lengths, room=100)
    assert [lengths[place] for place in places] == lengths * times
    assert set(Counter(places).values()) == {times}


def test_data_that_fits_nowhere_is_refused():
    with pytest.raises(InputError, match="the shortest prompt 50"):
        rows_for([10], [50, 60], room=20)


def test_real_prompts_share_what_they_share(tmp_path, small):
    """Shots of two kinds before each question."""
    shots = ["One and one is two. " * 20, "A cube has six sides. " * 20]
    rows = [{"prompt": f"{shots[n % 2]}Question {n}?"} for n in range(8)]
    rows.append({"prompt": "Nothing in common?"})
    file = write_jsonl(tmp_path / "few.jsonl", rows)
    profile = counted(file, small)
    sent = again([file], profile, every_prompt(profile))
    kinds = set()
    for request, prompt in zip(sent.workload.requests, sent.prompts, strict=True):
        kinds.add((request.stretch, tuple(prompt[:5])))
    assert len(kinds) == len(dict(kinds)) == 3  # each kind has a stretch of its own
    depths_of = sorted(depths(sent.workload.stretches))
    assert depths_of == [400, 448]  # in blocks of 16 tokens


# -- what is refused -------------------------------------------------------------------


def test_a_chat_template_that_the_profile_does_not_keep_is_refused(
    data, tmp_path, small
):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    profile = counted(data, small, chat_template=template, apply_chat_template=True)
    with pytest.raises(InputError, match="--chat-template"):
        again([data], profile, workload(5))


def test_a_trace_has_no_texts(data, tmp_path, small):
    rows = [{"input_length": 9, "output_length": 2}] * 3
    trace = write_jsonl(tmp_path / "t.jsonl", rows)
    for profile in (chunkscope.analyze(trace), counted(data, small)):
        with pytest.raises(InputError) as raised:
            again([trace], profile, workload(9))
        assert "--data" in raised.value.hint


def test_a_tokenizer_that_is_another_by_now_is_refused(data, tmp_path):
    folder = tmp_path / "changing"
    save(bpe(), folder, tokenizer_class="PreTrainedTokenizerFast")
    profile = counted(data, str(folder))
    save(bpe("o n"), folder, tokenizer_class="PreTrainedTokenizerFast")
    with pytest.raises(InputError, match="another tokenizer"):
        again([data], profile, workload(5))


def test_data_of_other_lengths_is_refused(data, tmp_path, small):
    profile = counted(data, small)
    rows = [{"prompt": "far longer " * 9}, {"prompt": "and " * 40}]
    other = write_jsonl(tmp_path / "o.jsonl", rows)
    wanted = workload(*profile.overall.counts, output=500)
    with pytest.raises(InputError, match="for 2 of 2 requests"):
        again([other], profile, wanted)


def test_a_tokenizer_that_is_python_code_runs_where_it_is_trusted(
    data, tmp_path, monkeypatch
):
    """On another machine than the one that analyzed the data."""
    mine = {
        "tokenizer_class": "Mine",
        "auto_map": {"AutoTokenizer": [None, "mine.Mine"]},
    }
    folder = str(save(bpe(), tmp_path / "code", **mine))
    code = "from transformers import PreTrainedTokenizerFast\n"
    code += "class Mine(PreTrainedTokenizerFast): pass\n"
    (tmp_path / "code" / "mine.py").write_text(code)
    profile = counted(data, folder, read=ReadOptions(trust_remote_code=True))
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    sent = every_prompt(profile)
    with pytest.raises(InputError, match="Python code"):
        again([data], profile, sent)
    assert again([data], profile, sent, trust_remote_code=True).prompts
