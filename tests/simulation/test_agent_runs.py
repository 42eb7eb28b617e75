"""Agents on an H200, as they were measured: at loads below and beyond the knee.

The runs of Llama-3.1-8B are in the reference data, those of Qwen3-8B, which were
predicted before they were measured, in reports/h200/agents. Each row of a recorded run
is a request; the load generator kept so many sessions under way in their order, and was
cut off at a time limit.
"""

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chunkscope.hardware.gpus import find_gpu
from chunkscope.lengths.histogram import Ranked
from chunkscope.models import find_model
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.result import Judged, RequestRows
from chunkscope.simulation.run import simulate
from chunkscope.simulation.workload import Session, Turn, Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.conftest import REPOSITORY

LLAMA_LOADS = ("a-c16", "a-c64", "a-c160")
QWEN_LOADS = ("c16-n60-90s", "c40-n120-130s", "c110-n120-160s")
LOADS = (*LLAMA_LOADS, *QWEN_LOADS)
QWEN_FOLDER = REPOSITORY / "reports" / "h200" / "agents"
# What some of the runs with Qwen3-8B had and is not simulated here.
OTHER_ENGINES = ("kv_offloading_size", "kv_cache_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run came to by its time limit."""

    requests_per_s: float
    served_from_cache: float
    ttft_p50_s: float
    ttft_p95_s: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """The run as it was recorded, and its sessions."""

    run: dict[str, Any]
    sessions: list[dict[str, Any]]

    @property
    def limit_s(self) -> float:
        return float(self.run["run"]["limit"])

    @property
    def at_once(self) -> int:
        return int(self.run["run"]["concurrency"])

    def seen(self) -> Seen:
        rows = self.run["rows"]
        return seen(
            self.limit_s,
            prompt_tokens=[row[2] for row in rows],
            cached_tokens=[row[3] for row in rows],
            ttft_s=[row[6] for row in rows],
        )


def seen(
    limit_s: float,
    *,
    prompt_tokens: list[int],
    cached_tokens: list[int],
    ttft_s: list[float],
) -> Seen:
    first_tokens = Ranked(ttft_s)
    return Seen(
        requests_per_s=len(ttft_s) / limit_s,
        served_from_cache=sum(cached_tokens) / sum(prompt_tokens),
        ttft_p50_s=first_tokens.percentile(50),
        ttft_p95_s=first_tokens.percentile(95),
    )


@cache
def recorded(folder: Path) -> dict[str, Recorded]:
    text = (folder / "sessions.jsonl").read_text()
    sessions = [json.loads(line) for line in text.splitlines()]
    runs = {}
    (file_of_runs,) = folder.glob("*.jsonl.gz")
    with gzip.open(file_of_runs, "rt") as file:
        for line in file:
            run = json.loads(line)
            if any(name in run["args"] for name in OTHER_ENGINES):
                continue
            count = run["run"].get("n", len(sessions))
            runs[run["run"]["name"]] = Recorded(run, sessions[:count])
    return runs


def workload_of(record: Recorded) -> Workload:
    sessions = []
    for session in record.sessions:
        sessions.append(Session(turns=tuple(turns_of(session)), stretch=0))
    return Workload(
        sessions=tuple(sessions),
        stretches=(Stretch(parent=-1, tokens=record.sessions[0]["system_tokens"]),),
        seed=0,
        arrivals="given",
        task=Task.GENERATE,
        samples_at_once=record.at_once,
    )


def turns_of(session: dict[str, Any]) -> list[Turn]:
    """`think_s` of a row is what comes after its answer."""
    turns = []
    said = session["system_tokens"]
    kept = 0
    think_s = 0.0
    for turn in session["turns"]:
        prompt_tokens = said + turn["new_tokens"]
        turns.append(
            Turn(
                prompt_tokens=prompt_tokens,
                output_tokens=turn["output_tokens"],
                kept_tokens=kept,
                think_s=think_s,
            )
        )
        said = kept = prompt_tokens + turn["output_tokens"]
        think_s = turn["think_s"]
    return turns


@cache
def simulated_rows(folder: Path, name: str) -> RequestRows:
    record = recorded(folder)[name]
    logged = record.run["engine"]
    engine = Engine(
        release=release("0.24"),
        entry=Entry.SERVE if folder == QWEN_FOLDER else Entry.OTHER,
        shape=find_model("qwen3-8b" if folder == QWEN_FOLDER else "llama-3.1-8b"),
        gpu=find_gpu("h200"),
    )
    settings = engine.complete(
        Settings(
            max_num_batched_tokens=logged["max_num_batched_tokens"],
            max_num_seqs=logged["max_num_seqs"],
            max_model_len=logged["max_model_len"],
        )
    )
    run = simulate(
        workload_of(record),
        settings,
        engine,
        judged=Judged(keeps_rows=True),
        kv_pool=engine.kv_pool(
            settings, logged["num_gpu_blocks"] * logged["block_size"]
        ),
    )
    if run.rows is None:
        raise AssertionError("the rows were asked for")
    return run.rows


def simulated(folder: Path, name: str) -> Seen:
    """What had ended when the recorded run was cut off."""
    limit_s = recorded(folder)[name].limit_s
    prompt_tokens, cached_tokens, ttft_s = [], [], []
    for row in simulated_rows(folder, name).frame_rows():
        if row["end_s"] <= limit_s:
            prompt_tokens.append(int(row["prompt_tokens"]))
            cached_tokens.append(int(row["cached_tokens"]))
            ttft_s.append(row["first_token_s"] - row["start_s"])
    return seen(
        limit_s,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        ttft_s=ttft_s,
    )


@pytest.fixture
def folder(request: pytest.FixtureRequest, name: str) -> Path:
    """Where the run of that name is; the reference data may not be here."""
    if name in QWEN_LOADS:
        return QWEN_FOLDER
    return Path(request.getfixturevalue("shared")) / "data" / "agent_runs"


@pytest.mark.parametrize("name", LOADS)
def test_what_was_sent_is_what_the_sessions_say(folder: Path, name: str) -> None:
    record = recorded(folder)[name]
    sent = workload_of(record)

    for session, turn, prompt_tokens, _, output_tokens, *_ in record.run["rows"]:
        of_session = sent.sessions[session].turns[turn]
        assert of_session.prompt_tokens == prompt_tokens
        assert of_session.output_tokens == output_tokens


@pytest.mark.parametrize("name", LOADS)
def test_requests_per_second_are_within_8_percent(folder: Path, name: str) -> None:
    measured = recorded(folder)[name].seen().requests_per_s

    assert simulated(folder, name).requests_per_s == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize("name", LOADS)
def test_what_the_cache_serves_is_within_3_points(folder: Path, name: str) -> None:
    measured = recorded(folder)[name].seen().served_from_cache

    served = simulated(folder, name).served_from_cache
    assert served == pytest.approx(measured, abs=0.03)


@pytest.mark.parametrize("name", LOADS)
def test_first_tokens_come_when_they_did(folder: Path, name: str) -> None:
    measured = recorded(folder)[name].seen()
    predicted = simulated(folder, name)

    assert predicted.ttft_p50_s == pytest.approx(measured.ttft_p50_s, rel=0.25)
    assert predicted.ttft_p95_s == pytest.approx(measured.ttft_p95_s, rel=0.40)


@pytest.mark.parametrize(
    ("name", "loads"),
    [
        pytest.param("a-c16", LLAMA_LOADS, id="Llama-3.1-8B"),
        pytest.param("c16-n60-90s", QWEN_LOADS, id="Qwen3-8B"),
    ],
)
def test_the_order_of_the_loads_is_right(folder: Path, loads: tuple[str, ...]) -> None:
    measured = [recorded(folder)[load].seen().requests_per_s for load in loads]
    predicted = [simulated(folder, load).requests_per_s for load in loads]

    assert order_of(predicted) == order_of(measured)


def order_of(values: list[float]) -> list[int]:
    return sorted(range(len(values)), key=values.__getitem__)
