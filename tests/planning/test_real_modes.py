"""From real evaluation sets, through analyze and recommend, to the mode they should have."""

from pathlib import Path

import pytest

import chunkscope
from chunkscope.vllm.enums import Mode


@pytest.mark.shared
@pytest.mark.parametrize(
    ("files", "mode"),
    [
        pytest.param("gsm8k/test.jsonl", Mode.OFF, id="gsm8k is short"),
        pytest.param("arena_hard/*.jsonl", Mode.CONSERVATIVE, id="arena_hard has a tail"),
        pytest.param("longchat/topics/*.jsonl", Mode.AGGRESSIVE, id="longchat is long"),
        pytest.param("qmsum/test_prompts.jsonl.gz", Mode.AGGRESSIVE, id="qmsum is long"),
    ],
)
def test_real_sets_get_the_mode_that_fits(shared: Path, files: str, mode: Mode) -> None:
    tokenizer = str(shared / "tokenizers" / "qwen3")
    profile = chunkscope.analyze(str(shared / "data" / files), tokenizer=tokenizer)
    plan = chunkscope.recommend(profile, model="qwen3-8b", gpu="h200")
    assert plan.decision.mode is mode
