"""Logs of harnesses and engines, and traces: requests, bad rows or a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chunkscope.simulation.traces import read_trace
from chunkscope.vllm.log.failures import cause_in, doing_in
from chunkscope.vllm.log.reader import facts_in
from tests.fuzz.helpers import changed, damaged, explore, fine
from tests.fuzz.test_formats import survives
from tests.prompts.inspect_logs import HEADER, event, members, sample, zipped
from tests.prompts.test_other_harnesses import LOGS
from tests.vllm.log_lines import SAID, TROUBLES

INSPECT = sample(
    1,
    event("hi", "there", usage=5),
    event(input_refs=[[0, 1]], at=1),
    messages=[{"role": "user", "content": "attachment://a"}],
    attachments={"a": "long"},
)
ENGINE = "\n".join(
    [text for text, _ in SAID] + [text for _, text, _ in TROUBLES]
).encode()
TRACE = [
    {"timestamp": n, "input_length": 5 + n, "output_length": 2, "hash_ids": [0, n]}
    for n in range(4)
]


def in_lines(rows: Any) -> bytes:
    lines = rows if isinstance(rows, list) else [rows]
    return b"\n".join(json.dumps(row).encode() for row in lines)


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_a_harness_log(tmp_path: Path, log: Any) -> None:
    def check(document: Any) -> None:
        for name, data in (
            ("x.json", json.dumps(document).encode()),
            ("x.jsonl", in_lines(document)),
        ):
            (tmp_path / name).write_bytes(data)
            survives(tmp_path / name)

    explore(check, changed(log))


def test_a_log_of_inspect(tmp_path: Path) -> None:
    def check(header: Any, one: Any) -> None:
        held = members(sample(2, event("yes"))) | {
            "header.json": json.dumps(header).encode(),
            "samples/1_epoch_1.json": json.dumps(one).encode(),
        }
        (tmp_path / "x.eval").write_bytes(zipped(held))
        survives(tmp_path / "x.eval")
        if isinstance(header, dict):
            (tmp_path / "x.json").write_text(json.dumps({**header, "samples": [one]}))
            survives(tmp_path / "x.json")

    headers = st.just(HEADER) | changed(HEADER)
    explore(
        check,
        headers,
        changed(INSPECT),
        past=[(5, INSPECT), (HEADER, []), (HEADER, {**INSPECT, "epoch": "\ud800"})],
    )


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.json"])
def test_a_trace(tmp_path: Path, name: str) -> None:
    table = b"timestamp,input_length,output_length\n2026-01-01 00:00:00,5,2\n1,6,2\n"

    def check(data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        with fine():
            read_trace(tmp_path / name)

    some = damaged(table) | changed(TRACE).map(in_lines) | damaged(in_lines(TRACE))
    past = [
        (b'{"input_length": NaN, "output_length": 1}',),
        (b'{"input_length": 1e400}',),
    ]
    explore(check, some, past=past)


def test_the_log_of_an_engine() -> None:
    def check(data: bytes) -> None:
        text = data.decode(errors="replace")
        with fine():
            facts_in(text)
            doing_in(text)
            for started in (True, False):
                cause_in(text, started=started)

    explore(check, damaged(ENGINE))
