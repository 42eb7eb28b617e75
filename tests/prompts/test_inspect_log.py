"""Inspect's logs: the requests that were sent, no more and no fewer, whatever the log's
form.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

import chunkscope
from chunkscope.prompts.chat import conversation
from chunkscope.prompts.harness import inspect_file
from chunkscope.sources.base import DataError
from tests.prompts.helpers import ReadLog, read_log
from tests.prompts.inspect_logs import (
    DEFLATE,
    ZSTD,
    event,
    members,
    sample,
    write_eval,
    write_json,
    zipped,
)
from tests.sources.helpers import Read, read

REAL = "data/harness_logs/inspect_ai-0.3.285"


def said(log: Read) -> list[list[Any]]:
    return [[message["content"] for message in row["messages"]] for row in log.records]


# --- real logs ------------------------------------------------------------------------


LOGS = ["gsm8k-fewshot", "mmlu-choice", "21*gsm8k-agent", "23*gsm8k-a"]


def real_log(shared: Path, name: str) -> Path:
    (path,) = (shared / REAL).glob(f"*{name}*")
    return path


def truth_of(path: Path) -> list[dict[str, Any]]:
    """What the mock server that a log was written with was sent."""
    lines = (path.parent / "truth.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["log"] == path.name]


@pytest.mark.parametrize("name", LOGS)
def test_a_real_log_gives_what_was_sent_in_that_order(shared, name) -> None:
    path = real_log(shared, name)
    log, truth = read(path), truth_of(path)
    assert (log.error, log.bad, log.format, log.unit) == (None, [], "inspect", "sample")
    assert len(log.records) == len(truth) > 0
    for row, sent in zip(log.records, truth, strict=True):
        assert (row["id"], row["epoch"]) == (sent["doc_id"], sent["epoch"])
        chat = conversation(as_sent(sent), {})
        assert conversation(row["messages"], {}).messages == chat.messages
        assert row["functions"] == sent["tools"]
        assert row["max_tokens"] == sent["gen_kwargs"].get("max_tokens")
        # The mock server counted words.
        words = [len(message["content"].split()) for message in sent["messages"]]
        assert row["input_tokens"] == sum(words)


@pytest.mark.parametrize("name", LOGS)
def test_the_messages_of_a_real_log_are_counted_as_the_reference_does(shared, name):
    path = real_log(shared, name)
    folder = str(shared / "tokenizers" / "qwen3")
    reference = AutoTokenizer.from_pretrained(folder)
    lengths = Counter[int]()
    for sent in truth_of(path):
        text = reference.apply_chat_template(
            as_sent(sent),
            tools=[{"type": "function", "function": tool} for tool in sent["tools"]],
            add_generation_prompt=True,
            tokenize=False,
        )
        lengths[len(reference.encode(text, add_special_tokens=False))] += 1
    for options in ({}, {"field": "messages"}):
        (dataset,) = chunkscope.analyze(path, tokenizer=folder, **options).datasets
        assert dict(dataset.lengths.counts) == lengths


def as_sent(sent: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request in truth.jsonl in the words of OpenAI's API."""
    return [openai_message(message) for message in sent["messages"]]


def openai_message(message: dict[str, Any]) -> dict[str, Any]:
    names = ("role", "content", "tool_call_id")
    written = {name: message[name] for name in names if name in message}
    calls = []
    for call in message.get("tool_calls") or ():
        function = {"name": call["function"], "arguments": call["arguments"]}
        calls.append({"id": call["id"], "type": "function", "function": function})
    if calls:
        written["tool_calls"] = calls
    return written


# --- forms ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [0, DEFLATE, ZSTD])
@pytest.mark.parametrize("header", [True, False], ids=["finished", "died"])
def test_any_compression_and_a_run_that_died(
    tmp_path: Path, method: int, header: bool
) -> None:
    samples = [sample(n, event(f"{n}")) for n in (1, 2, "group/3")]
    log = read(write_eval(tmp_path / "a.eval", *samples, method=method, header=header))
    assert (log.error, log.bad) == (None, [])
    assert said(log) == [["1"], ["2"], ["group/3"]]
    assert log.positions == [1, 2, 3]


def test_a_log_is_known_by_what_is_in_it_not_by_its_name(tmp_path: Path) -> None:
    write_eval(tmp_path / "log.zip", sample(1, event("hi")), method=DEFLATE)
    assert read(tmp_path / "log.zip").format == "inspect"
    (tmp_path / "other.json").write_text(
        json.dumps({"version": 2, "samples": [{"input": "x"}]})
    )
    assert read(tmp_path / "other.json").format == "json"


# --- what counts ----------------------------------------------------------------------


def test_every_call_counts_but_those_that_inspect_had_in_its_cache(
    tmp_path: Path,
) -> None:
    retry = {"message": "timed out", "events": [event("attachment://abc", at=1)]}
    log = read(
        write_eval(
            tmp_path / "a.eval",
            sample(
                1,
                event("asked again", at=5),
                event("known", at=6, cache="read"),
                event("kept", at=7, cache="write"),
                {"event": "tool", "events": [event("inside a tool", at=8)]},
                event("graded", at=9, role="grader", error="refused"),
                error_retries=[retry],
                attachments={"abc": "the first try"},
            ),
            sample(2, event("meanwhile", at=6)),
        )
    )
    assert log.bad == []
    assert [words for (words,) in said(log)] == [
        *(
            "the first try",
            "asked again",
            "meanwhile",
            "kept",
            "inside a tool",
            "graded",
        )
    ]
    assert log.positions == [1, 1, 2, 1, 1, 1]


def test_messages_become_what_a_server_is_sent(tmp_path: Path) -> None:
    said = [
        {"role": "assistant", "content": [
            {"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "attachment://t"}],
         "tool_calls": [{"id": "c1", "function": "calc", "arguments": {"x": "attachment://t"}}]},
        {"role": "tool", "content": "", "tool_call_id": "c1", "function": "calc",
         "error": {"type": "timeout", "message": "too slow"}},
    ]  # fmt: skip
    tool = {
        "name": "calc",
        "description": "attachment://t",
        "parameters": {},
        "options": 1,
    }
    asked = event(input=said, tools=[tool])
    (row,) = read(
        write_eval(tmp_path / "a.eval", sample(1, asked, attachments={"t": "long"}))
    ).records
    call = {"name": "calc", "arguments": {"x": "long"}}
    assert conversation(row["messages"], {}).messages == [
        {
            "thinking": "hm",
            "role": "assistant",
            "content": [{"type": "text", "text": "long"}],
            "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            "reasoning": "hm",
            "reasoning_content": "hm",
        },
        {"role": "tool", "content": "Error: too slow", "tool_call_id": "c1"},
    ]
    function = {"name": "calc", "description": "long", "parameters": {}}
    assert row["functions"] == [function]


@pytest.mark.parametrize(
    ("output", "tokens"),
    [
        ({"usage": {"input_tokens": 9, "output_tokens": 2}}, 9),
        ({"usage": {"input_tokens": 9, "input_tokens_cache_read": 0}}, 9),
        ({"usage": {"input_tokens": 1, "input_tokens_cache_read": 8}}, 9),
        ({"usage": {"input_tokens": 9, "input_tokens_cache_read": 8, "output_tokens": 2,
                    "total_tokens": 11}}, 9),  # in older versions they are in it
        ({"usage": {"input_tokens": 50}, "input_context_tokens": 9}, 9),
        ({"usage": {"input_tokens": -1}}, None),
        ({"usage": None}, None),
    ],
)  # fmt: skip
def test_the_servers_own_count_holds_what_it_had_cached(
    tmp_path, output, tokens
) -> None:
    (row,) = read(
        write_eval(tmp_path / "a.eval", sample(1, event("x", output=output)))
    ).records
    assert row["input_tokens"] == tokens


def test_what_a_server_counted_needs_no_tokenizer_and_the_rest_is_counted_here(
    tmp_path,
) -> None:
    logged = write_eval(
        tmp_path / "a.eval", *[sample(n, event("hi", usage=n)) for n in (10, 20)]
    )
    document = write_json(
        tmp_path / "b.json", sample(1, event("hi", usage=30, config={}))
    )
    profile = chunkscope.analyze([logged, document])
    assert profile.tokenizer.kind == "none"
    first, second = profile.datasets
    assert [dict(one.lengths.counts) for one in (first, second)] == [
        {10: 1, 20: 1},
        {30: 1},
    ]
    assert dict(first.output_lengths.counts) == {2: 2}
    refused = sample(1, event("hi", usage=500), event("hi", error="refused"))
    short, long = sorted(chunkscope.analyze(write_eval(logged, refused)).overall.counts)
    assert 0 < short < 20 < long == 500


def test_requests_come_in_the_order_of_sending_for_so_much_log_at_a_time(
    tmp_path, monkeypatch
):
    samples = [
        sample(n, event(f"{n}a", at=n), event(f"{n}b", at=n + 10)) for n in range(4)
    ]
    path = write_eval(tmp_path / "a.eval", *samples)
    assert "".join(words for (words,) in said(read(path))) == "0a1a2a3a0b1b2b3b"
    monkeypatch.setattr(inspect_file, "SORTED_BYTES", 1)
    assert "".join(words for (words,) in said(read(path))) == "0a0b1a1b2a2b3a3b"


# --- sessions -------------------------------------------------------------------------


def pauses(log: ReadLog) -> list[tuple[str, float | None]]:
    sessions = [request.session for request in log.requests]
    return [(turn.session, turn.pause_s) for turn in sessions]


def test_the_turns_of_a_sample_are_a_session_with_the_time_between_them(tmp_path):
    """Ends are logged as `completed`; a pause is the time of a tool."""
    first = event("a", at=1, completed="2026-11-15T12:00:03+00:00")
    second = event("a", "b", at=7, completed="2026-11-15T12:00:09+00:00")
    third = event("a", "b", "c", at=9)
    meanwhile = sample("x", event("else", at=5))
    log = read_log(
        write_eval(tmp_path / "a.eval", sample(1, first, second, third), meanwhile)
    )
    assert pauses(log) == [
        ("1 epoch 1", None),
        ("x epoch 1", None),
        ("1 epoch 1", 4.0),
        ("1 epoch 1", 0.0),
    ]


def test_what_a_sample_waited_for_a_connection_is_no_pause(tmp_path) -> None:
    first = event("a", at=1, working_start=1.0, working_time=2.0)
    second = event("b", at=50, working_start=4.5, working_time=1.0)
    log = read_log(write_eval(tmp_path / "a.eval", sample(1, first, second)))
    assert [pause for _, pause in pauses(log)] == [None, 1.5]


def test_requests_that_overlap_have_no_pause(tmp_path) -> None:
    first = event("a", at=1, working_start=1.0, working_time=2.0)
    second = event("b", at=2, working_start=2.0, working_time=1.0)
    log = read_log(write_eval(tmp_path / "a.eval", sample(1, first, second)))
    assert [pause for _, pause in pauses(log)] == [None, 0.0]


def test_a_log_without_times_of_its_answers_has_no_pauses(tmp_path) -> None:
    log = read_log(
        write_eval(tmp_path / "a.eval", sample(1, event("a"), event("b", at=1)))
    )
    assert pauses(log) == [("1 epoch 1", None), ("1 epoch 1", None)]


def test_each_try_of_a_sample_is_a_session(tmp_path) -> None:
    retry = {"message": "timed out", "events": [event("a"), event("b", at=1)]}
    tried = sample(1, event("a", at=2), error_retries=[retry])
    log = read_log(write_eval(tmp_path / "a.eval", tried))
    assert [name for name, _ in pauses(log)] == [
        "1 epoch 1",
        "1 epoch 1",
        "1 epoch 1 try 2",
    ]


def test_the_turns_of_a_real_agent_are_its_sessions(shared) -> None:
    """Ten samples of three requests; its calculator answers in well under a second."""
    log = read_log(real_log(shared, "21*gsm8k-agent"))
    sessions = Counter(request.session.session for request in log.requests)
    assert list(sessions.values()) == [3] * 10
    seconds = [pause for _, pause in pauses(log) if pause is not None]
    assert len(seconds) == 20
    assert all(0 < pause < 1 for pause in seconds)


# An agent that waits twice and answers; its model is a list of outputs.
AGENT = """import asyncio, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

@tool
def wait():
    async def execute(seconds: float) -> str:
        \'\'\'Wait.\n\n        Args:\n            seconds: How long.\n        \'\'\'
        await asyncio.sleep(seconds)
        return "You waited."
    return execute

name = "mockllm/model"
calls = [ModelOutput.for_tool_call(name, "wait", {"seconds": 0.3})] * 2
turns = [*calls, ModelOutput.from_content(name, "Done.")]
for turn in turns:  # without it, the model would load a tokenizer to count
    turn.usage = ModelUsage(output_tokens=2, total_tokens=2)
task = Task(
    dataset=[Sample(input="Wait twice."), Sample(input="Wait, then wait again.")],
    solver=[use_tools(wait()), generate()],
)
eval(task, model=get_model(name, custom_outputs=turns * 2), max_samples=1,
     log_dir=sys.argv[1], display="none")
"""


@pytest.mark.real
def test_inspects_own_log_of_an_agent_has_its_sessions(
    harness_python, tmp_path, shared
) -> None:
    subprocess.run([str(harness_python), "-c", AGENT, str(tmp_path)], check=True)
    (path,) = tmp_path.glob("*.eval")
    tokenizer = str(shared / "tokenizers" / "qwen3")
    (dataset,) = chunkscope.analyze(path, tokenizer=tokenizer).datasets
    sessions = dataset.sessions
    assert (sessions.turns, sessions.at_once) == ((3, 3), 1)
    for place in sessions.later_turns:
        before = sessions.prompt_tokens[place - 1]
        assert before < sessions.kept_tokens[place] < sessions.prompt_tokens[place]
        assert sessions.think_ms[place] >= 300


def test_messages_are_counted_for_a_tokenizer_and_usage_is_there_too(tmp_path) -> None:
    path = write_eval(tmp_path / "a.eval", sample(1, event("hi", usage=10)))
    (counted,) = read_log(path, counts_texts=True).requests
    assert counted.prompt.messages == [{"role": "user", "content": "hi"}]
    assert counted.output == 2
    (logged,) = read_log(path).requests
    assert (logged.prompt, logged.output) == (10, 2)


# --- several models -------------------------------------------------------------------


def graded(folder: Path) -> Path:
    """A log of an agent and its grader."""
    agent = event("asked", at=1, completed="2026-11-15T12:00:02+00:00")
    grader = event("graded", at=3, model="openai/gpt", role="grader")
    again = event("again", at=6)
    return write_eval(folder / "a.eval", sample(1, agent, grader, again))


def prompts_of(log: ReadLog) -> list[str]:
    return [request.prompt.messages[-1]["content"] for request in log.requests]


def test_a_log_of_several_models_asks_for_one(tmp_path) -> None:
    with pytest.raises(DataError, match="vllm/m, openai/gpt") as raised:
        read_log(graded(tmp_path))
    assert "--log-model NAME" in raised.value.hint


def test_the_model_is_an_option_of_analyze(tmp_path) -> None:
    path = graded(tmp_path)
    with pytest.raises(DataError, match="several models"):
        chunkscope.analyze(path)
    (counted,) = chunkscope.analyze(path, log_model="vllm/m").datasets
    assert (counted.log.requests, counted.log.documents) == (2, 1)


@pytest.mark.parametrize("name", ["openai/gpt", "gpt"])
def test_the_model_that_is_named_is_counted(tmp_path, name) -> None:
    log = read_log(graded(tmp_path), log_model=name)
    assert prompts_of(log) == ["graded"]
    (note,) = log.log.notes()
    assert (note.code, note.values["models"]) == ("other_models", ["vllm/m (2)"])


def test_a_pause_holds_what_other_models_did(tmp_path) -> None:
    log = read_log(graded(tmp_path), log_model="vllm/m")
    assert prompts_of(log) == ["asked", "again"]
    assert pauses(log) == [("1 epoch 1", None), ("1 epoch 1", 4.0)]


def test_a_model_that_is_not_in_the_log_is_an_error(tmp_path) -> None:
    with pytest.raises(DataError, match=r"other/model.*vllm/m, openai/gpt"):
        read_log(graded(tmp_path), log_model="other/model")


# --- bad input ------------------------------------------------------------------------

GOOD = sample("good", event("fine"))


@pytest.mark.parametrize(
    "bad",
    [
        sample("x", event("attachment://gone")),
        sample("x", event("attachment://gone"), attachments=None),
        sample("x", {"event": "state"}),
        sample("x"),
        sample("x", event(input=None)),
        sample("x", event(input=[3])),
        sample("x", event(input_refs=[[0, 2]]), events_data={"messages": [{}]}),
        sample("x", event(input_refs=[[0]])),
        sample("x", event(input_refs=[3])),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("write", [write_eval, write_json])
def test_what_is_wrong_names_its_sample_and_the_rest_counts(
    tmp_path, bad, write
) -> None:
    path = tmp_path / ("a.eval" if write is write_eval else "a.json")
    log = read(write(path, GOOD, bad, sample("last", event("too"))))
    assert said(log) == [["fine"], ["too"]]
    ((number, reason),) = log.bad
    assert (log.error, number) == (None, 2)
    assert "sample x epoch 1" in reason


def test_damage_inside_a_sample_names_it(tmp_path: Path) -> None:
    path = write_eval(tmp_path / "a.eval", GOOD, sample("x", event("y" * 99)), method=0)
    path.write_bytes(path.read_bytes().replace(b"y" * 99, b"y" * 98 + b"z"))
    assert "samples/x_epoch_1.json" in read(path).bad[0][1]
    path.write_bytes(zipped(members(GOOD) | {"samples/x_epoch_1.json": b"{"}))
    assert "samples/x_epoch_1.json" in read(path).bad[0][1]


def test_what_is_no_log_or_has_no_samples_is_an_error(tmp_path: Path) -> None:
    logs = {"empty": zipped(members()), "text": b"an evaluation of mine"}
    for name, data in logs.items():
        (tmp_path / f"{name}.eval").write_bytes(data)
        error = read(tmp_path / f"{name}.eval").error
        assert error is not None
        assert f"{name}.eval" in error.message
