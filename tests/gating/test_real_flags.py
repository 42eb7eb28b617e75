"""The table of options, and how words are read, against a real vLLM's parser."""

import csv
import shlex

import pytest

from chunkscope.gating.read_arguments import from_words
from chunkscope.vllm.flags import release
from tests.vllm.serve_flag_rows import TABLE, rows_of

pytestmark = pytest.mark.real


def test_the_options_are_the_installed_vllms(installed):
    version = release(installed[0]).version
    with TABLE.open(encoding="utf-8", newline="") as text:
        table = {row["name"]: row for row in csv.DictReader(text) if _holds(row, version)}
    when = ("since", "until")
    assert rows_of(installed[1]) == {
        name: {part: text for part, text in row.items() if part not in when}
        for name, row in table.items()
    }


def _holds(row, version):
    since, until = (
        release(row[part]).version if row[part] else None for part in ("since", "until")
    )
    return since <= version and (until is None or version < until)


WORDS = (
    *("--max-num-b 256", "--no-enable-ch --port 8000 --api-key a b", "--max-num 64"),
    *("--Max-Num-Seqs 2", "--bogus-flag-xyz 3", "--scheduling-policy bogus", "--block-size x"),
    *("--max-num-seqs 1K", "--max-model-len 25.6k", "--enable-chunked-prefill false"),
    "-tp 2 -pp 8 --hf-overrides.num_hidden_layers 1",
)


def test_what_is_a_fault_here_is_refused_there_and_nothing_else(installed, probe):
    """Asked all at once: vLLM takes long to import."""
    version = release(installed[0]).version
    answers = probe("serve_probe", [["serve", "m", *shlex.split(words)] for words in WORDS])
    for words, answer in zip(WORDS, answers, strict=True):
        assert (answer is None) is bool(from_words(words, version).refusals), words
