"""`chunkscope prefixes`: what a profile says of shared beginnings, for people and for jq."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chunkscope.cli import app
from chunkscope.errors import InputError
from tests.commands.helpers import analyze, write_jsonl


@pytest.fixture
def place(tmp_path: Path) -> Path:
    shots = "The same examples come before every question. " * 40
    rows = [{"prompt": f"{shots} Question {n}: {'why ' * n}?"} for n in range(20)]
    write_jsonl(tmp_path / "shots.jsonl", rows)
    write_jsonl(tmp_path / "alone.jsonl", [{"prompt": f"{n} things differ"} for n in range(5)])
    return tmp_path


def prefixes(place: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["prefixes", str(place / "reports/profile.json"), *words])
    if done.exception:
        raise done.exception
    return done.stdout


def test_it_says_what_is_shared_and_what_is_found(place):
    assert analyze(place, ".").code == 0
    shown = prefixes(place)
    assert "vLLM's prefix cache would find" in shown
    assert "shots" in shown
    assert "full blocks of 16 tokens" in shown
    assert "all together" in shown


def test_as_json_it_has_the_figures_of_each_dataset(place):
    written = analyze(place, ".").profile["datasets"]
    figures = json.loads(prefixes(place, "--json"))["datasets"]
    assert [one["name"] for one in figures] == [dataset["name"] for dataset in written]
    shots = next(one for one in figures if one["name"] == "shots")
    assert shots["prompts"] == 20
    assert shots["common_tokens"] > 300
    assert shots["hit_rate"] == shots["cached_tokens"] / shots["tokens"] > 0.8
    # The first prompt writes what the others read.
    assert shots["cached_tokens"] == 19 * (shots["common_tokens"] // 16 * 16)


def test_all_together_counts_what_datasets_begin_with_in_common(place):
    shots = "The same examples come before every question. " * 40
    rows = [{"prompt": f"{shots} Riddle {n}: {'how ' * n}?"} for n in range(20)]
    write_jsonl(place / "riddles.jsonl", rows)
    analyze(place, ".")
    figures = json.loads(prefixes(place, "--json"))
    alone = sum(one["cached_tokens"] for one in figures["datasets"])
    found = figures["together"]["cached_tokens"] - alone
    assert found > 300
    assert figures["together"]["hit_rate"] > alone / figures["together"]["tokens"]
    assert f"at least {found:,} tokens are found because an earlier one begins alike" in (
        " ".join(prefixes(place).split())
    )


def shuffled_subjects(place: Path) -> None:
    """300 subjects in turn: more than a cache of 64K tokens keeps."""
    rows = [
        {"prompt": f"Subject {n % 300}: {f'it is about {n % 300} things. ' * 40} Question {n}"}
        for n in range(900)
    ]
    write_jsonl(place / "subjects.jsonl", rows)


def test_where_sorting_matters_it_is_said(place):
    shuffled_subjects(place)
    analyze(place, "subjects.jsonl")
    shown = " ".join(prefixes(place).split())
    assert "Sorting subjects by prefix lifts what a KV cache of" in shown
    assert "best order" in shown
    (figures,) = json.loads(prefixes(place, "--json"))["datasets"]
    flat = figures["flat_at"]
    assert f"A KV cache of {flat:,} tokens finds nearly all of it" in shown
    assert flat == figures["capacities"][-1]["kv_tokens"] > figures["capacities"][0]["kv_tokens"]
    analyze(place, "shots.jsonl")
    assert "Sorting" not in prefixes(place)


def test_the_kv_cache_of_a_plan_is_marked(place):
    shuffled_subjects(place)
    analyze(place, "subjects.jsonl")
    made = CliRunner().invoke(
        app,
        [
            *("recommend", str(place / "reports/profile.json"), "--model", "llama-3.1-8b"),
            *("--gpu", "l4", "-o", str(place / "reports/plan.json")),
        ],
    )
    assert made.exit_code == 0, made.output
    planned = json.loads(prefixes(place, "--json"))["plan"]
    plan = json.loads((place / "reports/plan.json").read_text())
    assert planned["kv_tokens"] == plan["memory"]["kv_cache_tokens"]["value"]
    (figures,) = json.loads(prefixes(place, "--json"))["datasets"]
    assert planned["kv_tokens"] < figures["capacities"][-2]["kv_tokens"]
    assert planned["cached_tokens"] == figures["capacities"][0]["cached_tokens"] == 0  # all in turn
    assert figures["capacities"][-1]["cached_tokens"] > 100_000
    assert f"The plan's KV cache of {planned['kv_tokens']:,} tokens" in " ".join(
        prefixes(place).split()
    )
    elsewhere = (place / "reports/plan.json").rename(place / "other.json")
    assert json.loads(prefixes(place, "--json"))["plan"] is None
    assert json.loads(prefixes(place, "--json", "--plan", str(elsewhere)))["plan"] == planned


def test_what_spoils_reuse_is_shown_with_both_rows(place):
    same = "the same instruction to all " * 40
    rows = [{"prompt": f"[{n * 7919}] {same} {n}"} for n in range(60)]
    write_jsonl(place / "ids.jsonl", rows)
    analyze(place, "ids.jsonl")
    shown = prefixes(place)
    assert "go on alike after an early difference" in " ".join(shown.split())
    assert shown.count("ids.jsonl line") >= 2
    assert "→" in shown


@pytest.mark.parametrize("width", ["80", "140"])
def test_no_figure_is_cut_and_no_line_is_too_long(place, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    shuffled_subjects(place)
    (place / "subjects.jsonl").rename(place / f"{'long-name-' * 9}.jsonl")
    analyze(place, ".")
    lines = prefixes(place).splitlines()
    assert max(map(len, lines)) <= int(width)
    assert not any("…" in word for line in lines for word in line.split()[1:])


def test_the_data_itself_is_no_profile(place):
    with pytest.raises(InputError, match=r"shots\.jsonl is data, not a profile"):
        raise CliRunner().invoke(app, ["prefixes", str(place / "shots.jsonl")]).exception


def test_a_profile_without_it_says_how_to_get_it(place):
    run = analyze(place, ".", "--no-prefixes")
    assert not any("prefixes" in dataset for dataset in run.profile["datasets"])
    with pytest.raises(InputError, match="does not say what its prompts share"):
        prefixes(place)


def test_analyze_says_in_a_sentence_how_much_is_shared(place):
    done = analyze(place, "shots.jsonl")
    reuse = done.profile["datasets"][0]["prefixes"]
    found = f"{reuse['cached_tokens'] / reuse['tokens']:.0%}".replace("%", " %")
    said = " ".join(done.out.split())
    assert f"{found} of the tokens begin a prompt as an earlier one began" in said
    assert "prefix cache" not in analyze(place, "shots.jsonl", "--no-prefixes").out
    (place / "two.jsonl").write_text('{"prompt": "one"}\n{"prompt": "another"}\n')
    assert "prefix cache has nothing to spare" in " ".join(analyze(place, "two.jsonl").out.split())


def test_of_likelihoods_a_plan_finds_nothing_in_its_cache(place):
    analyze(place, "shots.jsonl")
    words = ("recommend", str(place / "reports/profile.json"), "--model", "qwen3-8b")
    more = ("--gpu", "h200", "--task", "loglikelihood", "-o", str(place / "reports/plan.json"))
    assert CliRunner().invoke(app, [*words, *more]).exit_code == 0
    assert json.loads(prefixes(place, "--json"))["plan"] is None


def lm_eval_row(number: int, text: str) -> dict[str, Any]:
    """A generation as lm-eval 0.4.13 logs it."""
    return {
        "doc_id": number,
        "doc": {"question": text},
        "target": "4",
        "arguments": {"gen_args_0": {"arg_0": text, "arg_1": {"until": ["\n"], "max_gen_toks": 9}}},
        "resps": [["4"]],
        "filtered_resps": ["4"],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
        "doc_hash": "a",
        "prompt_hash": "b",
        "target_hash": "c",
    }


def test_a_harness_that_sends_the_longest_first_is_compared_in_its_order(place):
    """Subject by subject in the file; by length they alternate, and a small cache forgets each."""
    rows = [
        lm_eval_row(3 * s + n, f"Subject {s}: {f'it is about {s} things. ' * 40} {'why ' * n * 9}")
        for s in range(300)
        for n in range(3)
    ]
    stamp = "2026-11-15T12-48-36.519903"
    log = write_jsonl(place / f"samples_sums_{stamp}.jsonl", rows)
    results = {"results": {}, "configs": {}, "n-shot": {}, "lm_eval_version": "0.4.13"}
    results |= {"versions": {}, "config": {"model": "vllm", "model_args": {}}}
    (place / f"results_{stamp}.json").write_text(json.dumps(results))
    analyze(place, log.name)
    (figures,) = json.loads(prefixes(place, "--json"))["datasets"]
    small = figures["capacities"][0]
    assert small["sent_order_cached_tokens"] < 0.5 * small["cached_tokens"]
    shown = " ".join(prefixes(place).split())
    assert "(longest first, as the harness sends them)" in shown
    assert "--order" not in shown
    assert "longest first, as sent" in shown
