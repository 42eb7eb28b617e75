"""`prefixes`, the simulator and a direct count say the same of what prompts share."""

import random
from pathlib import Path

import pytest

import chunkscope
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prefixes import comparison
from chunkscope.simulation.draw import draw_workload
from chunkscope.simulation.outputs import dataset_output, read_output
from chunkscope.simulation.run import simulate
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import SendOrder, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import KvPool, Settings
from tests.commands.helpers import write_jsonl
from tests.prefixes.test_reuse import brute_ideal
from tests.simulation.common import STEP

WORDS = ["tree", "river", "seven", "under", "stone", "because", "of", "the"]


def said(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def few_shot(count: int) -> list[str]:
    """Shots of three subjects before questions."""
    chance = random.Random(1)
    shots = [said(chance, words) for words in (100, 300, 700)]
    return [f"{chance.choice(shots)}\nQ: {said(chance, 30)}" for _ in range(count)]


def repeated(count: int) -> list[str]:
    """Each prompt four times in a row, as with four samples."""
    chance = random.Random(2)
    texts = [said(chance, 60) for _ in range(count // 4)]
    return [text for text in texts for _ in range(4)]


def growing(count: int) -> list[str]:
    """Conversations of an agent: each step begins with all before it."""
    chance = random.Random(3)
    texts: list[str] = []
    for _ in range(count // 10):
        text = said(chance, 20)
        for _ in range(10):
            text += f"\n{said(chance, 40)}"
            texts.append(text)
    return texts


def different(count: int) -> list[str]:
    chance = random.Random(4)
    return [said(chance, chance.randint(1, 80)) for _ in range(count)]


SETS = [few_shot, repeated, growing, different]


def analyzed(folder: Path, texts: list[str]) -> DatasetProfile:
    rows = [{"prompt": text} for text in texts]
    data = write_jsonl(folder / "data.jsonl", rows)
    options = AnalyzeOptions()
    (dataset,) = chunkscope.analyze(data, options=options).datasets
    return dataset


def directly(texts: list[str]) -> float:
    prompts = Tokenizer().encode(texts, special_tokens=True)
    cached = sum(brute_ideal(prompts, [True] * len(prompts)))
    return cached / sum(map(len, prompts))


def simulated(dataset: DatasetProfile) -> float:
    """Of all prompts, in a KV cache that has room for everything."""
    output = dataset_output(dataset, Task.GENERATE, read_output(1))
    workload = draw_workload([dataset], [output], room=1 << 20, order=SendOrder.DATA)
    assert workload.input_tokens == dataset.lengths.total
    settings = Settings(
        max_num_batched_tokens=8_192,
        max_num_seqs=64,
        max_model_len=1 << 20,
        enable_chunked_prefill=True,
        enable_prefix_caching=True,
    )
    run = simulate(
        workload,
        settings,
        Engine(release=release("0.28.0")),
        STEP,
        kv_pool=KvPool(tokens=1 << 26),
    )
    return run.cached_tokens / run.input_tokens


@pytest.mark.parametrize("texts_of", SETS)
def test_all_three_say_the_same(tmp_path, texts_of):
    texts = texts_of(400)
    dataset = analyzed(tmp_path, texts)
    assert dataset.prefixes is not None
    share = dataset.prefixes.hit_rate
    assert share == pytest.approx(directly(texts))
    assert share == pytest.approx(simulated(dataset))


@pytest.mark.parametrize("texts_of", SETS)
def test_where_the_first_prompts_were_compared_all_three_say_about_the_same(
    tmp_path, monkeypatch, texts_of
):
    monkeypatch.setattr(comparison, "MOST_PROMPTS", 100)
    texts = texts_of(600)
    dataset = analyzed(tmp_path, texts)
    assert dataset.prefixes is not None
    assert dataset.prefixes.prompts == 100
    share = dataset.prefixes.hit_rate
    assert share == pytest.approx(directly(texts), abs=0.06)
    assert share == pytest.approx(simulated(dataset))
