"""`verify --endpoint` against real servers: `vllm serve` of a tiny model with dummy weights.

One server has no tokenizer, as one made from a config.json has none; the other has one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from chunkscope.console import VerifyProgress
from chunkscope.diagnosis.doctor import doctor
from chunkscope.errors import InputError, MissingError
from chunkscope.planning.recommend import recommend
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.endpoint import measure_endpoint
from chunkscope.verification.prompts import RealPrompts
from chunkscope.verification.result import Verification
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.fate import Status
from tests.build import profile

pytestmark = pytest.mark.real

KEY = "sk-only-for-this-test"
ROOM = 2_048
KV_BYTES = 64 << 20
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1_024,
    "max_position_embeddings": 4_096,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KV_BYTES_PER_TOKEN = 2 * 2 * 2 * 32 * 4  # keys and values, layers, heads, head_dim, float32


class Served:
    """A `vllm serve` in a process group of its own."""

    def __init__(self, python: str, model: Path, *more: str) -> None:
        self._words = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), *more]
        self._log = model / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> "Served":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = [
            *self._words,
            *("--host", "127.0.0.1", "--port", str(port), "--api-key", KEY),
            *("--served-model-name", "tiny", "--load-format", "dummy", "--enforce-eager"),
            *("--max-model-len", str(ROOM), "--max-num-batched-tokens", "256"),
            *("--max-num-seqs", "8", "--kv-cache-memory-bytes", str(KV_BYTES)),
            # bfloat16 needs instructions that not every sandbox lets through (SIGILL).
            *("--dtype", "float32"),
        ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                words,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )
        self._wait()
        return self

    def _wait(self, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.is_running:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        self.stop()
        pytest.fail(f"vllm serve did not start:\n{self._log.read_text()[-3_000:]}")

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self.signal(number)
                self.process.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


@pytest.fixture(scope="module")
def _bare(vllm_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    served = Served(vllm_python, folder, "--skip-tokenizer-init")
    yield served
    served.stop()


@pytest.fixture
def bare(_bare):
    """Without a tokenizer. A test may end it: the next one finds it started anew."""
    return _bare if _bare.is_running else _bare.start()


@pytest.fixture(scope="module")
def with_tokenizer(vllm_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("with_tokenizer")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tokenizer(folder)
    served = Served(vllm_python, folder).start()
    yield served
    served.stop()


def write_tokenizer(folder: Path) -> None:
    """A token for each byte and <s> before each prompt: far fewer than random ids are drawn of."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def workload(
    *lengths: int,
    output: int = 6,
    apart_s: float = 0.0,
    task: Task = Task.GENERATE,
    shared: int = 0,
) -> Workload:
    end = 0 if shared else -1
    return Workload(
        requests=tuple(
            Request(
                prompt_tokens=length, output_tokens=output, arrival_s=number * apart_s, stretch=end
            )
            for number, length in enumerate(lengths)
        ),
        stretches=(Stretch(parent=-1, tokens=shared),) if shared else (),
        seed=7,
        arrivals="batch",
        task=task,
        long_over=500,
        shared_prefix=shared,
    )


MIXED = (40, 300, 700, 1_500, 90, 40, 300, 700, 20, 1_000)


def measure(served: Served, sent: Workload, **changes):
    how = {
        "repeats": 2,
        "model": None,
        "key": KEY,
        "prompts": None,
        "timeout_s": 120.0,
        "listener": VerifyProgress(),
    }
    return measure_endpoint(served.url, sent, **{**how, **changes})


def notes(run) -> list[str]:
    """Without what is about the machine the tests run on, where the engine takes all cores."""
    return [note for note in run.notes if not note.startswith("this machine was busy")]


def tokens(figures) -> float:
    return figures.output_tokens_per_s * figures.makespan_s


def test_a_running_server_is_measured_from_end_to_end(bare, installed):
    machine, subject, run = measure(bare, workload(*MIXED, output=60, apart_s=0.02))
    assert (run.status, run.message, notes(run)) == (Status.OK, "", [])
    assert (machine.device, machine.endpoint, machine.vllm) == ("endpoint", bare.url, installed[0])
    assert subject.name.startswith("(not shown, for a key was sent; ")  # it is the server's word
    assert (run.setting, run.args) == ("endpoint", {})
    assert len(run.repeats) == 2
    for figures in run.repeats:
        assert tokens(figures) == pytest.approx(60 * len(MIXED))
        assert figures.ttft_s.long is not None
        # On a busy machine all tokens of an answer may be read at once: then there are no gaps.
        assert figures.itl_s is not None or len(run.notes) > len(notes(run))
        assert figures.e2e_s.all.max <= figures.makespan_s
        # Other prompts in every repeat: nothing is found in the prefix cache.
        assert (figures.preemptions, figures.prefix_hit_rate) == (0, 0)
        assert figures.steps is None


def test_the_kv_cache_is_what_the_server_says(bare):
    run = measure(bare, workload(40), repeats=1)[2]
    assert run.kv_cache_tokens == KV_BYTES // KV_BYTES_PER_TOKEN
    assert run.kv_concurrency == run.kv_cache_tokens / ROOM
    assert run.engine["num_gpu_blocks"] * run.engine["block_size"] == run.kv_cache_tokens
    assert run.engine["max_model_len"] == ROOM
    assert run.activation_peak_gib is None


def test_a_shared_prefix_is_found_in_the_cache_and_no_other_repeat_is(bare):
    run = measure(bare, workload(*[700] * 8, apart_s=0.2, shared=512))[2]
    # The first request computes what the other seven find.
    assert [f.prefix_hit_rate for f in run.repeats] == [pytest.approx(7 / 8 * 512 / 700)] * 2


def test_likelihoods_come_in_one_piece_and_are_compared(bare):
    """Forty prompts with their log-probabilities keep a server busy for longer than 5 s."""
    sent = workload(*MIXED, output=1, task=Task.LOGLIKELIHOOD)
    run = measure(bare, sent, repeats=1, check_outputs=True)[2]
    assert (run.status, run.message, notes(run)) == (Status.OK, "", [])
    again = run.outputs.again
    assert (again.prompts, run.outputs.tokens) == (len(MIXED), 8)
    assert again.flipped_choices == len(again.different)
    assert 0 <= again.mean_logprob_change <= again.largest_logprob_change < 1
    assert run.figures.itl_s is None
    assert tokens(run.figures) == pytest.approx(len(MIXED))


def test_requests_that_do_not_fit_are_not_sent(bare):
    with pytest.raises(InputError, match=r"1 of 2 requests do not fit.*2,053 .* room for 2,048"):
        measure(bare, workload(40, 2_047))


@pytest.mark.parametrize(
    ("key", "says"),
    [(None, "wants an API key"), ("sk-of-somebody-else", "does not take the API key")],
)
def test_a_key_that_is_missing_or_wrong(bare, key, says):
    with pytest.raises(MissingError, match=says) as raised:
        measure(bare, workload(40), key=key)
    assert "CHUNKSCOPE_API_KEY" in raised.value.hint
    assert "sk-of" not in raised.value.message + raised.value.hint


def test_token_ids_beyond_the_vocabulary_are_refused_and_lower_ones_sent(with_tokenizer):
    run = measure(with_tokenizer, workload(*MIXED), repeats=1, check_outputs=True)[2]
    assert (run.status, notes(run)) == (Status.OK, [])
    assert run.figures.prefix_hit_rate == 0
    again = run.outputs.again
    assert again.prompts == len(MIXED)
    assert 0 <= again.mean_logprob_change <= again.largest_logprob_change < 1


def test_real_texts_are_sent_as_text(with_tokenizer):
    texts = tuple(f"{number:03}".ljust(length, "x") for number, length in enumerate(MIXED))
    complete = (True,) * len(texts)  # as rendered chats are: the server adds no <s>
    prompts = RealPrompts(texts=texts, ids=(), source="made up", complete=complete)
    run = measure(with_tokenizer, workload(*MIXED), prompts=prompts)[2]
    assert (run.status, notes(run)) == (Status.OK, [])
    # The same texts again, yet each repeat is salted with another salt.
    assert [f.prefix_hit_rate for f in run.repeats] == [0, 0]


def test_texts_that_the_server_counts_otherwise_are_measured_by_its_count(with_tokenizer):
    prompts = RealPrompts(texts=("y" * 200, "z" * 100), ids=(), source="made up")
    run = measure(with_tokenizer, workload(100, 50), prompts=prompts, repeats=1)[2]
    assert run.figures.input_tokens_per_s * run.figures.makespan_s == pytest.approx(302)
    assert "counts 302 prompt tokens where the workload has 150" in notes(run)[0]


def test_texts_for_a_server_without_a_tokenizer_are_refused(bare):
    prompts = RealPrompts(texts=("y" * 40,), ids=(), source="made up")
    run = measure(bare, workload(40), prompts=prompts)[2]
    assert (run.status, run.phase) == (Status.REFUSED, "connecting")
    assert "400 Bad Request" in run.message
    assert "not shown, for a key was sent" in run.message


def test_a_server_that_hangs_is_a_timeout(bare):
    sent = workload(*[40] * 40, apart_s=0.2)
    hang = threading.Timer(3, bare.signal, [signal.SIGSTOP])
    hang.start()
    try:
        run = measure(bare, sent, timeout_s=6)[2]
    finally:
        hang.cancel()
        bare.signal(signal.SIGCONT)
    assert (run.status, run.phase) == (Status.TIMEOUT, "measuring")
    assert "no end after 6 s, after" in run.message
    assert run.figures is None


def test_a_server_that_dies_in_the_middle_is_a_result(bare):
    sent = workload(*[40] * 60, apart_s=0.2)
    end = threading.Timer(3, bare.signal, [signal.SIGKILL])
    end.start()
    run = measure(bare, sent)[2]
    end.join()
    assert (run.status, run.phase) == (Status.DIED, "measuring")
    assert "of 60 answers" in run.message
    bare.process.wait(15)


def test_the_doctor_watches_a_server_at_work(bare, installed, monkeypatch):
    monkeypatch.setenv("CHUNKSCOPE_API_KEY", KEY)
    sent = workload(*[200] * 40, output=200)
    at_work = threading.Thread(target=measure, args=(bare, sent), kwargs={"repeats": 1})
    at_work.start()
    seen = []
    while at_work.is_alive():
        seen += doctor(bare.url, seconds=1).engines
    at_work.join()
    assert {engine.facts.kv_cache_tokens for engine in seen} == {KV_BYTES // KV_BYTES_PER_TOKEN}
    assert {engine.facts.version for engine in seen} == {installed[0]}
    assert KEY not in repr(seen)
    assert not [engine for engine in seen if "tiny" in (engine.facts.model or "")]
    assert max(engine.peak_running for engine in seen) > 0
    assert sum(engine.output_tokens for engine in seen) > 0


def test_the_command_measures_a_server_and_keeps_no_key(bare, tmp_path):
    made = profile(data=[40, 60, 90, 700, 1_300])
    made.save(tmp_path / "reports" / "profile.json")
    recommend(made, max_output=8).save(tmp_path / "reports" / "plan.json")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "chunkscope", "verify", "--endpoint", bare.url),
            *("--requests", "5", "--repeats", "1", "--max-output", "8"),
        ],
        cwd=tmp_path,
        env={**os.environ, "CHUNKSCOPE_API_KEY": KEY},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    result = Verification.load(tmp_path / "reports" / "verify.json")
    assert result.machine.device == "endpoint"
    assert result.run("endpoint").kv_cache_tokens == KV_BYTES // KV_BYTES_PER_TOKEN
    assert (
        round(
            result.run("endpoint").figures.output_tokens_per_s
            * result.run("endpoint").figures.makespan_s
        )
        == 5 * 8
    )
    written = [path.read_text() for path in (tmp_path / "reports").iterdir()]
    assert KEY not in "".join([done.stdout, done.stderr, *written])
