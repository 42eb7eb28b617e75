"""The table of options, and how words are read, against a real vLLM's parser."""

import csv
import os

import pytest

from chunkscope.gating.read_arguments import from_model_args, from_words
from chunkscope.vllm.check import check_many, read_by_vllm
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
PAIRS = "pretrained=m,dtype=auto,max_num_seqs=8,enforce_eager=True,async_scheduling=False"


def test_what_is_a_fault_here_is_refused_there_and_nothing_else(installed):
    """Asked all at once: vLLM takes long to import."""
    running, _ = installed
    found = [from_words(words, running.version) for words in WORDS]
    found.append(from_model_args(PAIRS, running.version))
    cases = [{"words": one.words, "only_read": True} for one in found]
    answers = check_many(cases, python=PYTHON)
    assert [
        (text, answer.accepted, answer.message)
        for text, one, answer in zip((*WORDS, PAIRS), found, answers, strict=True)
        if answer.accepted is bool(one.refusals)
    ] == []


def test_only_that_version_is_asked(installed):
    running, _ = installed
    assert read_by_vllm(release("0.11.2"), ()) is None
    refused = read_by_vllm(running, ("--bogus-flag-xyz", "3"))
    assert "unrecognized arguments" in refused.message
