"""What spoils reuse is found and shown; ordinary prompts raise no alarm."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

import chunkscope
from chunkscope.artefacts.artefact import built, plain
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.prefixes.near_misses import CHARS, TEXTS, misses_in, near_misses
from chunkscope.prefixes.reuse import NearMiss
from chunkscope.tokenizers.check import Reservoir
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
    "a time": lambda: f"It is {digits(2)}:{digits(2)}.\n{INSTRUCTION}\n{said(20)}",
    "an id": lambda: f"[{digits(chance.randint(3, 9))}]\n{INSTRUCTION}\n{said(20)}",
    "a name of any length": lambda: (
        f"Dear {said(chance.randint(1, 5))},\n{INSTRUCTION}\n{said(20)}"
    ),
    "the question before a long instruction": lambda: f"{said(20)}\n{INSTRUCTION}",
    "shots in another order": lambda: "\n\n".join([*chance.sample(SHOTS, 8), said(20)]),
}
FINE = {
    "the instruction first": lambda: f"{INSTRUCTION}\n{said(20)}",
    "one of two dates": lambda: (
        f"2026-11-1{chance.randint(1, 2)}\n{INSTRUCTION}\n{said(20)}"
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
    """A line of numbers of five digits, the same for the same seed."""
    own = random.Random(str(seed))
    line = "".join(f"{own.randrange(10**5):05d} " for _ in range(chars // 6 + 1))
    return f"{line[: chars - 1]}\n"


@dataclass(frozen=True)
class Texts:
    """`alike` texts have a line of `same` characters in common, between two of their
    own; there are `others` of `other_chars`."""

    alike: int
    same: int
    before: int = 6
    after: int = 0
    others: int = 0
    other_chars: int = 200

    def all(self) -> list[str]:
        both = numbers("same", self.same)
        texts = []
        for n in range(self.alike):
            after = numbers(-n - 1, self.after) if self.after else ""
            texts.append(f"{numbers(n, self.before)}{both}{after}")
        for n in range(self.others):
            texts.append(numbers(n + 1_000, self.other_chars))
        return texts


@pytest.mark.parametrize(
    ("texts", "lost_tokens"),
    [
        pytest.param(Texts(10, 600), 1_350, id="an id before what is the same"),
        pytest.param(Texts(10, 400), 900, id="just enough is the same"),
        pytest.param(Texts(10, 399), None, id="too little is the same"),
        pytest.param(Texts(5, 600), 600, id="five texts"),
        pytest.param(Texts(4, 600), None, id="too few texts"),
        pytest.param(Texts(10, 600, before=144), 1_350, id="what differs is small"),
        pytest.param(Texts(10, 600, before=156), None, id="it is a document"),
        pytest.param(Texts(10, 600, after=1_660), 1_350, id="a quarter of each text"),
        pytest.param(Texts(10, 600, after=1_800), None, id="less than a quarter"),
        pytest.param(Texts(8, 450, others=53), 788, id="a tenth of the texts"),
        pytest.param(Texts(6, 450, others=54), None, id="too few of many"),
        pytest.param(
            Texts(10, 400, others=30, other_chars=2_200), 900, id="enough of all tokens"
        ),
        pytest.param(
            Texts(10, 400, others=30, other_chars=2_280), None, id="less of all tokens"
        ),
    ],
)
def test_what_is_lost_is_named_from_a_limit_on(texts, lost_tokens):
    near = found(texts.all())
    if lost_tokens is None:
        assert near == ()
    else:
        (one,) = near
        assert one.lost_tokens == pytest.approx(lost_tokens, abs=5)
        assert one.prompts == texts.alike


def test_the_two_texts_are_shown_up_to_the_end_of_a_word():
    texts = Texts(10, 600).all()
    (near,) = found(texts)
    position, other = near.position - 1, near.other_position - 1
    assert (near.same_before, other) == (0, 0)
    assert texts[position].startswith(f"{near.text} ")


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
    (dataset,) = chunkscope.analyze(data, options=AnalyzeOptions()).datasets
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
    options = AnalyzeOptions(sample=400)
    for dataset in chunkscope.analyze(
        shared / "data" / place, options=options
    ).datasets:
        assert not dataset.prefixes or not dataset.prefixes.near_misses, dataset.path
