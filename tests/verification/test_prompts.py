"""Real prompts: read again as they were analyzed, and sent where one of their length is asked."""

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
from chunkscope.lengths.profile import Profile
from chunkscope.prefixes.sharing import depths
from chunkscope.prompts.options import SelectOptions
from chunkscope.prompts.prefix_files import PrefixFile
from chunkscope.simulation.workload import Workload, dataset_output, draw_workload
from chunkscope.sources.base import ReadOptions
from chunkscope.verification.prompts import RealPrompt, nearest, real_prompts
from chunkscope.verification.result import PromptSource
from tests.build import workload
from tests.commands.helpers import write_jsonl
from tests.prompts.helpers import lm_eval_sample
from tests.tokenizers.helpers import bpe, save

SAMPLE = Path(__file__).parents[2] / "sample_data"


def every_prompt(profile: Profile) -> Workload:
    outputs = [dataset_output(one, asked=16) for one in profile.datasets]
    return draw_workload(profile.datasets, outputs, room=200_000)


def again(paths, profile, sent, **how):
    return real_prompts(
        [str(path) for path in paths],
        *(profile, sent),
        **{
            "tokenizer": None,
            "trust_remote_code": False,
            "seed": 0,
            "listener": Progress(),
            **how,
        },
    )


def assert_as_analyzed(paths, options: AnalyzeOptions | None = None):
    """Every row once: the lengths are the profile's, one by one."""
    profile = chunkscope.analyze([str(path) for path in paths], options=options)
    sent, real, source = again(paths, profile, every_prompt(profile))
    assert sorted(source.datasets) == sorted(one.name for one in profile.datasets)
    assert Counter(r.prompt_tokens for r in sent.requests) == Counter(
        profile.overall.counts
    )
    assert [len(prompt.ids) for prompt in real] == [
        r.prompt_tokens for r in sent.requests
    ]
    assert [r.output_tokens for r in sent.requests] == [16] * len(sent.requests)
    return real


def texts(prompts: list[RealPrompt]) -> list[str]:
    return [prompt.text for prompt in prompts]


def counted(path: Path, tokenizer: str, **options) -> Profile:
    return chunkscope.analyze(
        path, options=AnalyzeOptions(tokenizer=tokenizer, **options)
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    """A tokenizer that is loaded in no time: a token for each byte."""
    return str(
        save(
            bpe(),
            tmp_path_factory.mktemp("small"),
            tokenizer_class="PreTrainedTokenizerFast",
        )
    )


@pytest.fixture
def data(tmp_path):
    return write_jsonl(
        tmp_path / "d.jsonl", [{"prompt": "one"}, {"prompt": "and another"}]
    )


def test_several_datasets_and_options_of_the_profile_hold(small):
    names = ("code_repair", "knowledge_quiz")
    files = [
        path for path in sorted(SAMPLE.iterdir()) if path.name.split(".")[0] in names
    ]
    assert_as_analyzed(files, AnalyzeOptions(tokenizer=small))
    select = SelectOptions(template="Q: {question}\nA:")
    assert_as_analyzed(
        files[1:], AnalyzeOptions(special_tokens=False, select=select, tokenizer=small)
    )


def test_chats_are_rendered_as_they_were(data):
    rendered = assert_as_analyzed([SAMPLE / "reasoning" / "tool_use.jsonl"])
    assert rendered[0].text.startswith("<s>")
    as_user = assert_as_analyzed([data], AnalyzeOptions(apply_chat_template=True))
    assert all(prompt.is_complete for prompt in rendered + as_user)


def test_what_a_harness_sent_is_sent_again(tmp_path):
    messages = json.dumps([{"role": "user", "content": "How far?"}])
    choices = lm_eval_sample(0, ["Q: 1", " A"], ["Q: 1", " B"])
    written = lm_eval_sample(1, [[messages], {"until": []}], resps=[["far"]])
    log = write_jsonl(tmp_path / "samples.jsonl", [choices, written])
    assert sorted(texts(assert_as_analyzed([log])))[1:] == ["Q: 1 A", "Q: 1 B"]


def test_rows_without_fields_and_tables_are_read_as_they_were(tmp_path, small):
    """An encoding, delimiter and header can all be wrong by themselves."""
    rows = write_jsonl(tmp_path / "rows.jsonl", ["one", "and another"])
    real = assert_as_analyzed([rows], AnalyzeOptions(tokenizer=small))
    assert sorted(texts(real)) == ["and another", "one"]
    file = tmp_path / "data.csv"
    lines = [
        "how many?, said the café; yes",
        "the naïve one; no, it is not",
        "häh?; no",
    ]
    file.write_text("\n".join(lines), encoding="latin-1")
    read = ReadOptions(encoding="latin-1", delimiter=";", header=False)
    real = assert_as_analyzed([file], AnalyzeOptions(read=read, tokenizer=small))
    assert sorted(texts(real)) == sorted(line.split(";")[0] for line in lines)


def test_a_prefix_file_is_read_again_for_the_dataset_it_was_given_for(
    data, tmp_path, small
):
    rows = [{"prompt": "three"}, {"prompt": "and the fourth"}]
    other = write_jsonl(tmp_path / "other.jsonl", rows)
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"Examples of {name}:\n\n")
    files = (
        PrefixFile.given(f"d={tmp_path}/one"),
        PrefixFile.given(f"mine={tmp_path}/two"),
    )
    options = AnalyzeOptions(prefix_files=files, names=("d", "mine"), tokenizer=small)
    profile = chunkscope.analyze([data, other], options=options)
    _, prompts, _ = again([data, other], profile, workload(40, 40, 40, 40))
    assert {*texts(prompts)} == {
        *("Examples of one:\n\none", "Examples of one:\n\nand another"),
        *("Examples of two:\n\nthree", "Examples of two:\n\nand the fourth"),
    }
    assert "Examples" not in json.dumps(profile.to_json())  # the text is not kept
    (tmp_path / "two").write_text("Other examples:\n\n")
    with pytest.raises(InputError, match="two"):
        again([data, other], profile, workload(40))


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
    encoded = AutoTokenizer.from_pretrained(folder)(
        texts(real), add_special_tokens=False
    )
    assert [list(prompt.ids) for prompt in real] == encoded["input_ids"]


def test_rows_are_used_again_only_when_all_were_used(data, small):
    _, real, source = again([data], counted(data, small), workload(*[30] * 5))
    assert sorted(Counter(texts(real)).values()) == [2, 3]
    assert source == PromptSource(datasets=("d",), repeated=3)


def test_the_room_is_never_exceeded(tmp_path, small):
    data = write_jsonl(
        tmp_path / "d.jsonl", ({"prompt": "x y" * n} for n in range(1, 40))
    )
    sent = again([data], counted(data, small), workload(*[20] * 39))[0]
    assert all(r.prompt_tokens + r.output_tokens <= 28 for r in sent.requests)
    assert min(r.output_tokens for r in sent.requests) >= 1


@pytest.mark.parametrize(
    ("wanted", "row"), [(5, 0), (10, 0), (11, 1), (13, 1), (14, 2), (99, 2)]
)
def test_of_two_rows_as_near_the_shorter_is_taken(wanted, row):
    assert nearest([wanted], [8, 12, 15], room=100) == [row]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.lists(st.integers(0, 80), min_size=1, max_size=40),
)
def test_rows_are_spread_evenly_and_fit(wanted, lengths):
    room = max(wanted) + 1
    usable = [n for n in lengths if 0 < n < room]
    if not usable:
        with pytest.raises(InputError):
            nearest(wanted, lengths, room=room)
        return
    chosen = nearest(wanted, lengths, room=room)
    assert all(0 < lengths[row] < room for row in chosen)
    used = Counter(chosen)
    assert max(used.values()) - min(used.values()) <= 1
    assert len(used) == min(len(usable), len(wanted))
    longest = max(range(len(wanted)), key=lambda i: wanted[i])
    best = min(abs(n - wanted[longest]) for n in usable)
    assert abs(lengths[chosen[longest]] - wanted[longest]) == best


def test_real_prompts_share_what_they_share(tmp_path, small) -> None:
    """Shots of two kinds before each question: what is predicted of them is of these very rows."""
    shots = ["One and one is two. " * 20, "A cube has six sides. " * 20]
    rows = [{"prompt": f"{shots[n % 2]}Question {n}?"} for n in range(8)]
    file = write_jsonl(
        tmp_path / "few.jsonl", [*rows, {"prompt": "Nothing in common?"}]
    )
    profile = counted(file, small)
    sent, real, _ = again([file], profile, every_prompt(profile))
    pairs = zip(sent.requests, real, strict=True)
    kinds = {(request.stretch, prompt.text[:5]) for request, prompt in pairs}
    assert len(kinds) == len(dict(kinds)) == 3  # each kind has a stretch of its own
    assert sorted(depths(sent.stretches)) == [400, 448]  # in blocks of 16 tokens


def test_what_the_profile_does_not_keep_is_refused(data, tmp_path, small):
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    templated = counted(data, small, chat_template=template, apply_chat_template=True)
    with pytest.raises(InputError, match="--chat-template"):
        again([data], templated, workload(5))
    trace = write_jsonl(
        tmp_path / "t.jsonl", [{"input_length": 9, "output_length": 2}] * 3
    )
    for profile in (chunkscope.analyze(trace), counted(data, small)):
        with pytest.raises(InputError) as raised:
            again([trace], profile, workload(9))
        assert "--data" in raised.value.hint


def test_another_tokenizer_or_other_data_is_refused(data, tmp_path, small):
    mine = save(
        bpe("o n"), tmp_path / "other", tokenizer_class="PreTrainedTokenizerFast"
    )
    with pytest.raises(InputError) as raised:
        again([data], counted(data, small), workload(5), tokenizer=str(mine))
    assert "tokenizer" in raised.value.hint
    rows = [{"prompt": "far longer " * 9}, {"prompt": "and " * 40}]
    other = write_jsonl(tmp_path / "o.jsonl", rows)
    with pytest.raises(InputError, match="2 of 2"):
        again([other], counted(data, small), workload(5, 99))
    assert again([other], counted(data, small, sample=1), workload(5, 99))[1]


def test_a_tokenizer_that_is_python_code_runs_where_it_is_trusted(
    data, tmp_path, monkeypatch
):
    """On another machine than the one that analyzed the data."""
    mine = {
        "tokenizer_class": "Mine",
        "auto_map": {"AutoTokenizer": [None, "mine.Mine"]},
    }
    folder = str(save(bpe(), tmp_path / "code", **mine))
    code = "from transformers import PreTrainedTokenizerFast as Fast\nclass Mine(Fast): pass\n"
    (tmp_path / "code" / "mine.py").write_text(code)
    profile = counted(data, folder, read=ReadOptions(trust_remote_code=True))
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(InputError, match="Python code"):
        again([data], profile, workload(5))
    assert again([data], profile, workload(5), trust_remote_code=True)[1]
