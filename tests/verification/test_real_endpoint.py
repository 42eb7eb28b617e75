"""`verify --endpoint` against a real `vllm serve`: a tiny model with dummy weights."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chunkscope.console import Progress
from chunkscope.diagnosis.doctor import doctor
from chunkscope.planning.recommend import recommend
from chunkscope.simulation.workload import Session, Turn, Workload
from chunkscope.verification.endpoint.client import (
    EndpointJob,
    MeasuredEndpoint,
    measure_endpoint,
)
from chunkscope.verification.result import EngineKind, Verification
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import profile, workload
from tests.processes import PATIENCE_S, members, named, started, wait_until
from tests.tokenizers.helpers import bpe, save
from tests.verification.test_real_verify import TINY

pytestmark = pytest.mark.real

KEY = "sk-only-for-this-test"
ROOM = 2_048
KV_BYTES = 64 << 20
KV_BYTES_PER_TOKEN = (
    2 * 2 * 1 * 32 * 4
)  # keys and values, layers, heads, head_dim, float32


@pytest.fixture(scope="module")
def served(vllm_python, tmp_path_factory):
    """A `vllm serve` in a process group of its own."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "config.json").write_text(json.dumps(TINY))
    write_tokenizer(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    url, log = f"http://127.0.0.1:{port}", folder / "serve.log"
    words = [
        *(vllm_python, "-m", "vllm.entrypoints.cli.main", "serve", str(folder)),
        *("--host", "127.0.0.1", "--port", port, "--api-key", KEY),
        *("--served-model-name", "tiny", "--load-format", "dummy", "--enforce-eager"),
        *("--max-model-len", str(ROOM), "--max-num-batched-tokens", "256"),
        *("--max-num-seqs", "8", "--kv-cache-memory-bytes", str(KV_BYTES)),
        # bfloat16 needs instructions that not every sandbox lets through (SIGILL).
        *("--dtype", "float32"),
        "--enable-prompt-tokens-details",
    ]

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()[-3_000:]
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
        return False

    with log.open("ab") as text, started(words, stdout=text, stderr=text) as process:
        wait_until(is_ready)
        yield SimpleNamespace(url=url, log=log, process=process)


def write_tokenizer(folder: Path) -> None:
    """A token for each byte, and <s> before each prompt."""
    from tokenizers import decoders, processors

    tokenizer = bpe()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    first = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[first]
    )
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    save(tokenizer, folder, **names, chat_template=template)


MIXED = (40, 300, 700, 1_500, 90, 40, 300, 700, 20, 1_000)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("CHUNKSCOPE_API_KEY", KEY)


def measure(
    served, sent: Workload, listener: Progress | None = None, **changes
) -> MeasuredEndpoint:
    job = EndpointJob(workload=sent, **{"repeats": 2, "timeout_s": 120.0, **changes})
    return measure_endpoint(served.url, job, None, listener or Progress())


class WhenMeasured(Progress):
    """Sends a signal while the first requests that are measured are on their way."""

    def __init__(
        self, send: Callable[[int, int], None], process: int, number: int
    ) -> None:
        self.timer = threading.Timer(1, send, [process, number])

    def phase(self, phase: str, *_: str) -> None:
        if phase == "measuring" and self.timer.ident is None:
            self.timer.start()


def tokens(figures) -> float:
    return figures.output_tokens_per_s * figures.makespan_s


def test_a_running_server_is_measured_from_end_to_end(served, installed):
    sent = workload(*MIXED, output=60, apart_s=0.02, long_over=500)
    measured = measure(served, sent)
    machine, run = measured.machine, measured.run
    assert (run.status, run.failure, run.notes) == (Status.OK, None, ())
    assert (machine.endpoint, machine.vllm) == (served.url, installed[0])
    assert measured.model.name == "tiny"
    assert (run.setting, run.settings) == ("endpoint", Settings())
    assert len(run.repeats) == 2
    for figures in run.repeats:
        assert tokens(figures) == pytest.approx(60 * len(MIXED))
        assert figures.long is not None
        assert figures.e2e_s.max <= figures.makespan_s
        # Other prompts in every repeat: nothing is found in the prefix cache.
        assert (figures.preemptions, figures.prefix_hit_rate) == (0, 0)
        assert figures.steps is None
    assert run.kv_cache_tokens == KV_BYTES // KV_BYTES_PER_TOKEN
    assert run.kv_concurrency == run.kv_cache_tokens / ROOM
    assert (
        run.engine["num_gpu_blocks"] * run.engine["block_size"] == run.kv_cache_tokens
    )
    assert run.engine["max_model_len"] == ROOM


def test_a_shared_prefix_is_found_in_the_cache_and_no_other_repeat_is(served):
    run = measure(served, workload(*[700] * 8, apart_s=0.2, shared=512)).run
    # The first request computes what the other seven find.
    assert [f.prefix_hit_rate for f in run.repeats] == [
        pytest.approx(7 / 8 * 512 / 700)
    ] * 2


def test_a_turn_goes_on_from_the_servers_own_answer(served):
    turns = (
        Turn(prompt_tokens=700, output_tokens=20),
        Turn(prompt_tokens=1_000, output_tokens=30, kept_tokens=720, think_s=0.1),
        Turn(prompt_tokens=1_500, output_tokens=5, kept_tokens=1_030),
    )
    sent = replace(workload(1), sessions=(Session(turns=turns),) * 2, samples_at_once=1)
    run = measure(served, sent).run
    assert (run.status, run.notes) == (Status.OK, ())
    for rows in run.requests:
        assert list(rows.prompt_tokens) == [700, 1_000, 1_500] * 2
        # Full blocks of 128 tokens; the last token of an answer is never computed.
        assert list(rows.cached_tokens) == [0, 640, 1_024] * 2
        assert list(rows.output_tokens) == [20, 30, 5] * 2


def test_likelihoods_come_in_one_piece(served):
    sent = workload(*MIXED, output=1, task=Task.LOGLIKELIHOOD)
    run = measure(served, sent, repeats=1).run
    assert (run.status, run.failure, run.notes) == (Status.OK, None, ())
    assert run.figures.itl_s is None
    assert tokens(run.figures) == pytest.approx(len(MIXED))


def test_real_prompts_are_sent_again_and_each_repeat_has_an_empty_cache(served):
    prompts = [[100 + number] * length for number, length in enumerate(MIXED)]
    run = measure(served, workload(*MIXED), prompts=prompts).run
    assert (run.status, run.notes) == (Status.OK, ())
    # Each repeat is salted with another salt.
    assert [f.prefix_hit_rate for f in run.repeats] == [0, 0]


def test_the_doctor_watches_a_server_at_work(served, installed):
    sent = workload(*[200] * 100, output=200)
    at_work = threading.Thread(
        target=measure, args=(served, sent), kwargs={"repeats": 1}
    )
    at_work.start()
    seen = []
    while at_work.is_alive():
        seen += doctor(served.url, seconds=1).engines
    at_work.join()
    assert {engine.facts.kv_cache_tokens for engine in seen} == {
        KV_BYTES // KV_BYTES_PER_TOKEN
    }
    assert {engine.facts.version for engine in seen} == {installed[0]}
    assert KEY not in repr(seen)
    changes = {symptom.change.code for engine in seen for symptom in engine.symptoms}
    assert "change_queue" not in changes, "/metrics does not tell the small budget"
    assert max(engine.peak_running for engine in seen) > 0
    assert sum(engine.output_tokens for engine in seen) > 0


def test_the_command_measures_a_server_and_keeps_no_key(served, tmp_path):
    lengths = profile(data=[40, 60, 90, 700, 1_300])
    lengths.save(tmp_path / "reports" / "profile.json")
    recommend(lengths, max_output=8).save(tmp_path / "reports" / "plan.json")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "chunkscope", "verify", "--endpoint", served.url),
            *("--requests", "5", "--repeats", "1", "--max-output", "8"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    result = Verification.load(tmp_path / "reports" / "verify.json")
    run = result.run("endpoint")
    assert result.measured is EngineKind.SERVER
    assert run.kv_cache_tokens == KV_BYTES // KV_BYTES_PER_TOKEN
    assert round(tokens(run.figures)) == 5 * 8
    written = [path.read_text() for path in (tmp_path / "reports").iterdir()]
    assert KEY not in "".join([done.stdout, done.stderr, *written])


def test_a_server_that_hangs_is_a_timeout_and_one_that_dies_a_result(served, installed):
    """The last test of this server."""
    sent = workload(*[40] * 60, apart_s=0.2)
    group = served.process.pid
    hang = WhenMeasured(os.killpg, group, signal.SIGSTOP)
    try:
        run = measure(served, sent, timeout_s=12, listener=hang).run
    finally:
        hang.timer.join()
        os.killpg(group, signal.SIGCONT)
    assert (run.status, run.failure.values["phase"]) == (Status.TIMEOUT, "measuring")
    assert run.figures is None
    (core,) = named("EngineCore") & {*members(group)}
    run = measure(
        served, sent, listener=WhenMeasured(os.kill, core, signal.SIGKILL)
    ).run
    assert (run.status, run.failure.values["phase"]) == (Status.DIED, "measuring")
    assert run.failure.values["sent"] == 60
    served.process.wait(PATIENCE_S)
    (engine,) = doctor(served.log).engines
    assert engine.symptoms[0].title.code == "ended_killed"
    assert (engine.facts.version, engine.arguments["max_num_seqs"]) == (installed[0], 8)
