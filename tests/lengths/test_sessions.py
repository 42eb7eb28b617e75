"""Sessions: requests put together, what each repeats, and the figures of them all."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope import DatasetProfile, Profile
from chunkscope.lengths import session_tally
from chunkscope.lengths.session_tally import SessionTally
from chunkscope.lengths.sessions import Sessions, reuse_of_sessions
from chunkscope.lengths.trace_export import SentPrompt
from chunkscope.prefixes.sharing import Sharing, served
from chunkscope.prompts.harness.log import SessionTurn
from chunkscope.tokenizers.reference import ID_BYTES
from tests.prompts.inspect_logs import event, sample, write_eval


def ids_of(text: str) -> bytes:
    """A token for each letter."""
    return b"".join(ord(letter).to_bytes(ID_BYTES, "little") for letter in text)


def sent(tokens: int, output: int | None = None, **more: Any) -> SentPrompt:
    return SentPrompt(position=1, tokens=tokens, output=output, **more)


def said(text: str, output: int | None = None, **more: Any) -> SentPrompt:
    return sent(len(text), output, ids=ids_of(text), text=text, **more)


def turn(session: str = "a", **more: Any) -> SessionTurn:
    return SessionTurn(session=session, **more)


def sessions_of(
    *prompts: SentPrompt, turns: list[SessionTurn] | None = None
) -> Sessions | None:
    tally = SessionTally()
    for number, prompt in enumerate(prompts):
        tally.add(prompt, turns[number] if turns else turn())
    return tally.result(None, system_tokens=0, at_once=None)


# --- what a turn repeats --------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "tokens", "kept"),
    [
        pytest.param(sent(100, 20), 150, 120, id="goes on"),
        pytest.param(sent(100, 20), 120, 120, id="adds nothing"),
        pytest.param(sent(100, 20), 110, 100, id="lost the answer's thoughts"),
        pytest.param(sent(100, 20), 90, 0, id="written anew"),
        pytest.param(sent(100), 150, 100, id="answer not known"),
    ],
)
def test_lengths_alone_say_what_a_turn_repeats(before, tokens, kept) -> None:
    sessions = sessions_of(before, sent(tokens))
    assert sessions.kept_tokens == (0, kept)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        pytest.param(said("abcd", 2), said("abcdxyz!"), 6, id="goes on"),
        pytest.param(said("abcd", 2), said("abXYxyz!"), 2, id="changed in the middle"),
        pytest.param(said("abcd", 2), said("ab"), 2, id="cut short"),
        pytest.param(
            said("abcd", 2, thoughts="hm"), said("abcd!!!!"), 4, id="thoughts left out"
        ),
        pytest.param(
            said("abcd", 2, thoughts="hm"), said("abcdhm!!"), 6, id="thoughts left in"
        ),
    ],
)
def test_texts_are_compared_token_by_token(before, after, kept) -> None:
    sessions = sessions_of(before, after)
    assert sessions.kept_tokens == (0, kept)


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        pytest.param([1, 2, 9, 8], 60, id="all full blocks: the answer follows"),
        pytest.param([1, 9, 8, 7], 16, id="changed in the second block"),
        pytest.param([9], 0, id="another conversation"),
    ],
)
def test_blocks_are_compared_by_their_names(blocks, kept) -> None:
    before = sent(40, 20, blocks=[1, 2, 3])
    assert sessions_of(before, sent(64, blocks=blocks)).kept_tokens == (0, kept)


def test_what_the_data_says_goes_before_what_lengths_say() -> None:
    turns = [turn(), turn(kept_tokens=7)]
    assert sessions_of(sent(100, 20), sent(150), turns=turns).kept_tokens == (0, 7)


def test_a_prompt_that_was_let_go_is_compared_by_its_length(monkeypatch) -> None:
    monkeypatch.setattr(session_tally, "MOST_HELD_BYTES", 8 * ID_BYTES)
    turns = [turn("a"), turn("b"), turn("a")]
    sessions = sessions_of(
        said("abcd"), said("abcdefgh"), said("abXXabcd"), turns=turns
    )
    assert sessions.kept_tokens == (0, 4, 0)  # by its letters it would be 2


def test_sessions_that_begin_after_very_many_turns_are_left_out(monkeypatch) -> None:
    monkeypatch.setattr(session_tally, "MOST_TURNS", 2)
    tally = SessionTally()
    for name in ("a", "b", "a", "c", "c"):
        tally.add(sent(10), turn(name))
    sessions = tally.result(None, system_tokens=0, at_once=None)
    assert (sessions.turns, tally.left_out) == ((2, 1), 2)


# --- put together ---------------------------------------------------------------------


def test_requests_that_do_not_follow_each_other_are_no_sessions() -> None:
    assert sessions_of(sent(5), sent(6), turns=[turn("a"), turn("b")]) is None


def test_sessions_are_in_the_order_in_which_they_began() -> None:
    turns = [turn("b"), turn("a"), turn("b"), turn("a"), turn("b")]
    sessions = sessions_of(*map(sent, (10, 20, 30, 40, 50)), turns=turns)
    assert sessions.turns == (3, 2)
    assert sessions.prompt_tokens == (10, 30, 50, 20, 40)


def test_a_time_that_is_missing_is_as_long_as_the_others_in_the_middle() -> None:
    turns = [turn(), turn(pause_s=1.0), turn(pause_s=3.0), turn()]
    sessions = sessions_of(*map(sent, (10, 20, 30, 40)), turns=turns)
    assert sessions.think_ms == (0, 1_000, 3_000, 2_000)


def test_what_is_not_known_of_any_turn_is_empty() -> None:
    sessions = sessions_of(sent(10), sent(20))
    assert (sessions.output_tokens, sessions.think_ms, sessions.stretches) == (
        (),
        (),
        (),
    )


def test_a_session_that_was_not_compared_begins_as_one_that_was() -> None:
    tally = SessionTally()
    for name in ("a", "a", "b", "c", "d"):
        tally.add(sent(10), turn(name))
    compared = Sharing(ends=(4, 4, 7))
    sessions = tally.result(compared, system_tokens=0, at_once=None)
    assert sessions.stretches == (4, 7, 4, 7)


# --- figures --------------------------------------------------------------------------

TWO = Sessions(
    turns=(3, 1),
    prompt_tokens=(100, 150, 260, 80),
    kept_tokens=(0, 110, 160, 0),
    output_tokens=(10, 20, 30, 40),
    think_ms=(0, 500, 1_500, 0),
)


def test_the_figures_of_sessions() -> None:
    figures = TWO.figures()
    assert (figures.sessions, figures.turns_min, figures.turns_max) == (2, 1, 3)
    assert (figures.first_prompt_p50, figures.first_prompt_max) == (90, 100)
    assert (figures.last_prompt_p50, figures.last_prompt_max) == (170, 260)
    assert figures.longest_context == 290
    assert figures.added_p50 == 70  # 40 and 100
    assert (figures.answer_p50, figures.answer_mean) == (25, 25)
    assert figures.think_p50_s == 1.0
    assert figures.repeated_share == pytest.approx(270 / 590)


def test_what_is_not_known_has_no_figure() -> None:
    figures = Sessions(
        turns=(1,), prompt_tokens=(9,), kept_tokens=(0,), system_tokens=4
    ).figures()
    assert (figures.added_p50, figures.answer_p50, figures.think_p50_s) == (
        None,
        None,
        None,
    )
    assert figures.longest_context == 9


def test_the_share_that_is_repeated_is_that_of_full_blocks() -> None:
    sessions = Sessions(
        turns=(2, 1),
        prompt_tokens=(100, 150, 80),
        kept_tokens=(0, 110, 0),
        system_tokens=40,
    )
    reuse = reuse_of_sessions(sessions)
    assert reuse.cached_tokens == 96 + 32  # of 110, and of the 40 that all begin with
    assert (reuse.tokens, reuse.common_tokens) == (330, 40)


# --- datasets -------------------------------------------------------------------------


def analyzed(path: Path, **options: Any) -> DatasetProfile:
    (dataset,) = chunkscope.analyze(path, **options).datasets
    return dataset


def test_sessions_by_their_tokens_need_no_tokenizer(shared) -> None:
    profile = chunkscope.analyze(shared / "data" / "agent_runs" / "sessions.jsonl")
    (dataset,) = profile.datasets
    figures = dataset.sessions.figures()
    assert profile.tokenizer.kind == "none"
    assert (figures.sessions, figures.turns_min, figures.turns_max) == (160, 6, 30)
    assert (dataset.rows, figures.longest_context) == (2_850, 29_846)
    assert dataset.sessions.system_tokens == 2_000
    assert dataset.prefixes.hit_rate == pytest.approx(0.943, abs=0.001)
    assert dataset.log.is_agent


def test_what_is_repeated_is_what_vllm_found_in_its_cache(shared) -> None:
    """On an H200, while the contexts of all sessions fitted its KV cache."""
    folder = shared / "data" / "agent_runs"
    sessions = analyzed(folder / "sessions.jsonl").sessions
    starts = sessions.first_turns
    with gzip.open(folder / "h200-llama-3.1-8b.jsonl.gz") as lines:
        runs = {run["run"]["name"]: run["rows"] for run in map(json.loads, lines)}
    for name in ("a-c16", "a-c64"):
        found = predicted = 0
        for session, number, prompt_tokens, cached_tokens, *_ in runs[name]:
            place = starts[session] + number
            assert sessions.prompt_tokens[place] == prompt_tokens
            kept = sessions.kept_tokens[place] if number else sessions.system_tokens
            predicted += served(kept, prompt_tokens)
            found += cached_tokens
        assert found == pytest.approx(predicted, rel=0.001)


def test_an_agents_log_has_sessions_with_and_without_a_tokenizer(shared) -> None:
    folder = shared / "data" / "harness_logs" / "inspect_ai-0.3.285"
    (path,) = folder.glob("*21*gsm8k-agent*")
    counted = analyzed(path, tokenizer=str(shared / "tokenizers" / "qwen3"))
    logged = analyzed(path)
    for dataset in (counted, logged):
        assert dataset.sessions.turns == (3,) * 10
        assert dataset.sessions.at_once == 4
        assert dataset.log.is_agent
        assert sorted(dataset.sessions.prompt_tokens) == sorted(
            tokens for tokens, n in dataset.lengths.counts.items() for _ in range(n)
        )
    assert counted.sessions.output_tokens != ()
    assert counted.sessions.think_ms == logged.sessions.think_ms
    assert len(counted.sessions.stretches) == 10
    assert logged.sessions.stretches == ()


def test_a_log_of_single_requests_has_no_sessions(tmp_path) -> None:
    path = write_eval(tmp_path / "a.eval", sample(1, event("a")), sample(2, event("b")))
    dataset = analyzed(path)
    assert dataset.sessions is None
    assert not dataset.log.is_agent


def test_a_sample_of_an_agents_requests_has_no_sessions(tmp_path) -> None:
    turns = [event("a" * number, at=number) for number in range(1, 9)]
    path = write_eval(tmp_path / "a.eval", sample(1, *turns))
    assert analyzed(path).sessions.turns == (8,)
    assert analyzed(path, sample=4).sessions is None


def test_the_share_of_texts_counts_the_answers_that_a_turn_repeats(
    tmp_path, shared
) -> None:
    """What a model wrote is in its cache, as what it read is."""
    words = "one " * 200
    turns = [
        {"messages": [{"role": "user", "content": words}], "output": words},
        {"messages": [{"role": "user", "content": "more"}], "output": "no"},
    ]
    path = tmp_path / "sessions.jsonl"
    path.write_text(json.dumps({"id": 1, "turns": turns}))
    dataset = analyzed(path, tokenizer=str(shared / "tokenizers" / "qwen3"))
    first, second = dataset.sessions.prompt_tokens
    kept = dataset.sessions.kept_tokens[1]
    assert kept > first + 190
    assert dataset.prefixes.cached_tokens == min(kept, second - 1) // 16 * 16


def test_sessions_survive_the_round_trip(tmp_path) -> None:
    row = {"turns": [{"new_tokens": 5, "output_tokens": 2}] * 3, "system_tokens": 7}
    path = tmp_path / "sessions.jsonl"
    path.write_text(json.dumps(row))
    profile = chunkscope.analyze(path)
    profile.save(tmp_path / "profile.json")
    (dataset,) = Profile.load(tmp_path / "profile.json").datasets
    assert dataset.sessions == profile.datasets[0].sessions
    assert dataset.sessions.prompt_tokens == (12, 19, 26)
