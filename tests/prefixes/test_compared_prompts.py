"""Prefix reuse in the pass of `analyze`: as the ids of the reference have it, whoever
counts."""

import random
import re
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

import chunkscope
from chunkscope.artefacts.note import note
from chunkscope.lengths.render import Batch, Renderer
from chunkscope.lengths.tally import Tally
from chunkscope.prefixes import comparison
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.prompt import Prompt
from chunkscope.sources.base import Problems, Source
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import chunkscope as command
from tests.commands.helpers import write_jsonl
from tests.prefixes.test_reuse import brute_ideal, reuse

WORDS = [
    *[
        "the",
        "of",
        "naïve",
        "Größe",
        "東京",
        "x9",
        "1234",
        "<s>",
        "<|im_end|>",
        "é",
        "🙂",
    ],
    "def\treturn\n\n",
]


def few_shot_texts(count: int = 400) -> list[str]:
    """Shots of three subjects, cut anywhere, before questions of any length."""
    chance = random.Random(3)
    say = lambda n: " ".join(chance.choice(WORDS) for _ in range(n))  # noqa: E731
    shots = ["You are given questions. " * 9 + say(n) for n in (90, 300, 700)]
    return [
        f"{chance.choice(shots)}\n\nQ: {say(chance.randint(0, 40))}"
        for _ in range(count)
    ]


def options(**changes: object) -> chunkscope.AnalyzeOptions:
    return replace(chunkscope.AnalyzeOptions(), **changes)


def measured(
    place: Path, rows: list[dict], tokenizer: str | None, **changes: object
) -> PrefixReuse:
    data = write_jsonl(place / "data.jsonl", rows)
    (dataset,) = chunkscope.analyze(
        data, options=options(tokenizer=tokenizer, **changes)
    ).datasets
    assert dataset.prefixes is not None
    assert dataset.prefixes.tokens == dataset.lengths.total
    return dataset.prefixes


@pytest.mark.parametrize("name", [None, "gpt2", "llama3.1", "qwen3"])
def test_texts(name, tmp_path, request):
    folder = (
        str(request.getfixturevalue("shared") / "tokenizers" / name) if name else None
    )
    texts = few_shot_texts()
    right = reuse(Tokenizer(folder).encode(texts, special_tokens=True))
    found = measured(tmp_path, [{"prompt": text} for text in texts], folder)
    assert found == right
    assert found.cached_tokens > found.tokens / 2


@pytest.mark.parametrize("name", [None, "qwen3"], ids=["mistral-common", "template"])
def test_chats(name, tmp_path, request):
    folder = (
        str(request.getfixturevalue("shared") / "tokenizers" / name) if name else None
    )
    chats = [
        [
            {"role": "system", "content": "Be brief. " * 40},
            {"role": "user", "content": text},
        ]
        for text in few_shot_texts(60)
    ]
    tokenizer = Tokenizer(folder)
    if tokenizer.counts_chats_itself:
        ids = [tokenizer.mistral_chat.encode(Conversation(chat))[0] for chat in chats]
    else:
        texts = [tokenizer.chat_text(Conversation(chat)) for chat in chats]
        ids = tokenizer.encode(texts, special_tokens=False)
    assert measured(tmp_path, [{"messages": chat} for chat in chats], folder) == reuse(
        ids
    )


def test_every_command_gives_one_figure_and_says_how_many_prompts_it_is_of(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(comparison, "MOST_PROMPTS", 100)
    rows = [{"prompt": f"{'Shots. ' * 200}Q {n}?"} for n in range(300)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    rows = [{"prompt": f"{n} is what? {'so ' * 40}"} for n in range(90)]
    write_jsonl(tmp_path / "b.jsonl", rows)
    model = ("--model", "llama-3.1-8b", "--gpu", "h100")
    for words in (
        ("analyze", "a.jsonl", "b.jsonl"),
        ("prefixes",),
        ("recommend", *model, "--details"),
        ("report", "--format", "md"),
    ):
        run = command(tmp_path, *words)
        shown = re.findall(r"[\d,]+", run.out + run.err)
        assert run.code == 0
        assert {"94", "190"} <= {*shown}, words


def test_requests_of_a_log():
    """Likelihood requests write and do not read; what was cut from the left is compared
    as sent."""
    texts = few_shot_texts(60)
    requests = [
        SentRequest(
            prompt=text[:-9], continuation=text[-9:], kind=kind, special_tokens=True
        )
        for text, kind in zip(
            texts, cycle(["likelihood", "generate", "generate"]), strict=False
        )
    ]
    requests[7] = replace(requests[7], most_tokens=50)
    tokenizer = Tokenizer()
    ids = tokenizer.encode(texts, special_tokens=True)
    ids[7] = ids[7][-50:]
    reads = [request.kind == "generate" for request in requests]
    tally = counted(tokenizer, requests)
    assert tally.comparison is not None
    measured = tally.comparison.measured()
    assert measured is not None
    found = measured.reuse
    assert found.cached_tokens == sum(brute_ideal(ids, reads))
    assert found.cached_tokens + found.unread_tokens == sum(
        brute_ideal(ids, [True] * 60)
    )
    assert found.tokens == tally.tokens == sum(map(len, ids))


def test_how_often_a_context_is_read():
    contexts = few_shot_texts(9)
    choices = [" A", " B", " C", " D"]
    requests = [
        SentRequest(prompt=context, continuation=choice, kind="likelihood")
        for context in contexts
        for choice in choices
    ]
    tokenizer = Tokenizer()
    tally = counted(tokenizer, requests)
    scoring = tally.scores.scoring(tokenizer)
    assert scoring is not None
    assert (scoring.requests, scoring.contexts, scoring.reads) == (36, 9, 4.0)
    assert scoring.single_token
    longer = [replace(requests[0], continuation=" a whole sentence"), *requests]
    sentences = counted(tokenizer, longer).scores.scoring(tokenizer)
    assert sentences is not None
    assert not sentences.single_token
    generated = counted(tokenizer, [SentRequest(prompt="Why?")])
    assert generated.scores.scoring(tokenizer) is None


def test_a_first_token_that_comes_twice_is_said(tmp_path, shared):
    llama = str(shared / "tokenizers" / "llama3.1")
    texts = few_shot_texts(8)
    rows = [
        {"prompt": f"<|begin_of_text|>{text}" if n < 5 else text}
        for n, text in enumerate(texts)
    ]
    data = write_jsonl(tmp_path / "a.jsonl", rows)
    (dataset,) = chunkscope.analyze(data, options=options(tokenizer=llama)).datasets
    assert dataset.notes == (note("begun_twice", begin="<|begin_of_text|>", count=5),)
    assert dataset.prefixes is not None
    assert dataset.prefixes.common_tokens == 1
    (without,) = chunkscope.analyze(
        data, options=options(tokenizer=llama, special_tokens=False)
    ).datasets
    assert without.notes == ()


def test_a_log_with_requests_whose_tokens_are_not_known_is_not_compared():
    tally = counted(
        Tokenizer(), [SentRequest(prompt="What is it?"), SentRequest(prompt=17)]
    )
    assert tally.rows == 2
    assert tally.comparison is None


def counted(tokenizer: Tokenizer, requests: list[SentRequest]) -> Tally:
    renderer = Renderer(tokenizer, options())
    tally = Tally(Source(path="log.jsonl"), options(), renderer)
    tally.comparison = comparison.TextComparison()
    prompts = []
    for position, request in enumerate(requests, start=1):
        prompts.append(Prompt(position, request.prompt, request.output, request))
    batch = Batch(renderer.render(prompts, Problems()))
    tally.add(renderer.count(batch))
    return tally
