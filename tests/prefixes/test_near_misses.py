"""What spoils reuse is found and shown; ordinary prompts raise no alarm."""

import random
from pathlib import Path

import pytest

import chunkscope
from chunkscope.artefacts.artefact import built, plain
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.prefixes.near_misses import CHARS, TEXTS, misses_in, near_misses
from chunkscope.prefixes.reuse import NearMiss
from chunkscope.tokenizers.check import Reservoir
from tests.benchmarks import corpora
from tests.commands.helpers import write_jsonl

chance = random.Random(5)
WORDS = [
    "question",
    "because",
    "the",
    "of",
    "model",
    "tree",
    "river",
    "seven",
    "under",
    "stone",
]


def said(words: int) -> str:
    return " ".join(
        f"{chance.choice(WORDS)}{chance.randint(0, 99)}" for _ in range(words)
    )


INSTRUCTION = said(150)
SHOTS = [said(60) for _ in range(8)]


def found(texts: list[str]) -> tuple[NearMiss, ...]:
    """With four characters to a token."""
    sample: Reservoir[tuple[int, str]] = Reservoir(TEXTS)
    sample.add(enumerate([text[:CHARS] for text in texts], start=1))
    chars = sum(map(len, texts))
    size = {"compared": len(sample.items), "prompts": len(texts), "chars": chars}
    return near_misses(misses_in(sample.items), tokens=chars // 4, **size)


def digits(count: int) -> str:
    return "".join(chance.choices("0123456789", k=count))


SPOILED = {
    "a time": lambda: (
        f"It is {digits(2)}:{digits(2)}:{digits(2)}. {INSTRUCTION} {said(20)}"
    ),
    "an id": lambda: f"[{digits(chance.randint(3, 9))}] {INSTRUCTION} {said(20)}",
    "a name of any length": lambda: (
        f"Dear {said(chance.randint(1, 5))}, {INSTRUCTION} {said(20)}"
    ),
    "the question before a long instruction": lambda: f"{said(20)} {INSTRUCTION}",
    "shots in another order": lambda: "\n\n".join([*chance.sample(SHOTS, 8), said(20)]),
}
FINE = {
    "the instruction first": lambda: f"{INSTRUCTION} {said(20)}",
    "one of two dates": lambda: (
        f"2026-11-1{chance.randint(1, 2)} {INSTRUCTION} {said(20)}"
    ),
    "nothing in common": lambda: said(chance.randint(1, 300)),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_spoils_reuse(what):
    texts = [SPOILED[what]() for _ in range(600)]
    (near,) = found(texts)
    assert near.prompts > 500
    same = sum(map(len, SHOTS)) if "shots" in what else len(INSTRUCTION)
    assert 0.5 < near.lost_tokens / (600 * same / 4) < 1.05
    one, other = texts[near.position - 1], texts[near.other_position - 1]
    assert near.text in one
    assert near.other_text in other
    assert near.text[: near.same_before] == near.other_text[: near.same_before]
    assert near.text[near.same_before] != near.other_text[near.same_before]


def numbers(seed: object, chars: int) -> str:
    """Numbers of five digits, the same for the same seed."""
    own = random.Random(str(seed))
    return "".join(f"{own.randrange(10**5):05d} " for _ in range(chars // 6 + 1))[
        :chars
    ]


@pytest.mark.parametrize(
    ("alike", "same", "before", "after", "others", "lost_tokens"),
    [
        pytest.param(10, 600, 6, 0, (0, 0), 1_350, id="an id before what is the same"),
        pytest.param(10, 400, 6, 0, (0, 0), 900, id="just enough is the same"),
        pytest.param(10, 399, 6, 0, (0, 0), None, id="too little is the same"),
        pytest.param(5, 600, 6, 0, (0, 0), 600, id="five texts"),
        pytest.param(4, 600, 6, 0, (0, 0), None, id="too few texts"),
        pytest.param(10, 600, 144, 0, (0, 0), 1_350, id="what differs is small"),
        pytest.param(10, 600, 156, 0, (0, 0), None, id="what differs is a document"),
        pytest.param(10, 600, 6, 1_660, (0, 0), 1_282, id="a quarter of each text"),
        pytest.param(10, 600, 6, 1_680, (0, 0), None, id="less than a quarter"),
        pytest.param(7, 450, 6, 0, (53, 200), 675, id="a tenth of the texts"),
        pytest.param(6, 450, 6, 0, (54, 200), None, id="too few of many"),
        pytest.param(10, 400, 6, 0, (30, 2_200), 900, id="a twentieth of all tokens"),
        pytest.param(10, 400, 6, 0, (30, 2_280), None, id="less of all tokens"),
    ],
)
def test_what_is_lost_is_named_from_a_limit_on(
    alike, same, before, after, others, lost_tokens
):
    both = numbers("same", same)
    texts = [
        f"{numbers(n, before)}{both}{numbers(-n - 1, after)}" for n in range(alike)
    ]
    texts += [numbers(n + 1_000, others[1]) for n in range(others[0])]
    near = found(texts)
    assert [one.lost_tokens for one in near] == (
        [] if lost_tokens is None else [lost_tokens]
    )
    assert [one.prompts for one in near] == ([] if lost_tokens is None else [alike])
    if lost_tokens == 1_350 and before == 6:
        (one,) = near
        assert (one.position, one.other_position, one.same_before) == (10, 1, 0)
        assert texts[9].startswith(f"{one.text} ")  # cut between words


@pytest.mark.parametrize("what", FINE)
def test_what_does_not(what):
    assert found([FINE[what]() for _ in range(600)]) == ()


@pytest.mark.parametrize(
    "as_chat", [False, True], ids=["text", "chats that are counted as such"]
)
def test_it_is_in_the_profile_with_rows_of_the_file(tmp_path, as_chat):
    texts = [SPOILED["a time"]() for _ in range(60)]
    chats = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    data = write_jsonl(
        tmp_path / "a.jsonl", chats if as_chat else [{"p": text} for text in texts]
    )
    (dataset,) = chunkscope.analyze(
        data, options=AnalyzeOptions(use_cache=False)
    ).datasets
    assert dataset.prefixes is not None
    (near,) = dataset.prefixes.near_misses
    assert "It is " in near.text
    assert near.text.removeprefix("user: ") in texts[near.position - 1]
    assert built(NearMiss, plain(near)) == near


@pytest.mark.parametrize(
    "place",
    ["gsm8k", "humaneval", "ifeval", "mt_bench", "mbpp", "arena_hard", "qmsum", "bbh"],
)
def test_real_sets_raise_no_alarm(shared: Path, place):
    options = AnalyzeOptions(use_cache=False, sample=400)
    for dataset in chunkscope.analyze(
        shared / "data" / place, options=options
    ).datasets:
        assert not dataset.prefixes or not dataset.prefixes.near_misses, dataset.path


def test_a_real_set_of_the_same_conversations_in_another_order(shared: Path):
    data = shared / "data" / "longchat" / "topics" / "10_topics.jsonl"
    (dataset,) = chunkscope.analyze(
        data, options=AnalyzeOptions(use_cache=False)
    ).datasets
    assert dataset.prefixes is not None
    (near,) = dataset.prefixes.near_misses
    assert near.text[: near.same_before] == near.other_text[: near.same_before] != ""


def test_real_few_shot_prompts_raise_no_alarm_and_a_date_before_them_does(shared: Path):
    texts = [*corpora.mmlu(shared / "data")][::7]
    assert found(texts) == ()
    assert found([f"Request {digits(10)}\n{text}" for text in texts])
