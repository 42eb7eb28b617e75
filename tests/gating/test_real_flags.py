"""The table of options, and how words are read, against a real vLLM's parser."""

import csv
import os
import shlex

import pytest

from chunkscope.gating.read_arguments import from_words
from chunkscope.vllm.flags import release
from tests.vllm.serve_flag_rows import TABLE, known_flags, rows_of

PYTHON = os.environ.get("CHUNKSCOPE_VLLM_PYTHON")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(PYTHON is None, reason="no CHUNKSCOPE_VLLM_PYTHON"),
]


@pytest.fixture(scope="module")
def installed():
    version, described = known_flags(PYTHON)
    return release(version), rows_of(described)


def test_the_options_are_the_installed_vllms(installed):
    running, rows = installed
    with TABLE.open(encoding="utf-8", newline="") as text:
        table = [row for row in csv.DictReader(text) if _holds(row, running.version)]
    assert {row["name"]: row for row in table} == {
        name: row | {part: _of(table, name, part) for part in ("since", "until")}
        for name, row in rows.items()
    }


def _of(table, name, part):
    return next((row[part] for row in table if row["name"] == name), None)


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
    running, _ = installed
    answers = probe("serve_probe", [["serve", "m", *shlex.split(words)] for words in WORDS])
    for words, answer in zip(WORDS, answers, strict=True):
        assert (answer is None) is bool(from_words(words, running.version).refusals), words
