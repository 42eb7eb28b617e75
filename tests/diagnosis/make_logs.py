"""Make the logs beside this file with a real vLLM: a tiny model with dummy weights under each load.

    python -m tests.diagnosis.make_logs PYTHON_WITH_VLLM FOLDER [CASE...]

Paths and addresses are shortened, progress bars left out; nothing else is changed.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1_024,
    "max_position_embeddings": 4_096,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KV_BYTES_PER_TOKEN = 2 * 4 * 4 * 32 * 4  # keys and values, layers, heads, head_dim, float32


@dataclass(frozen=True, kw_only=True)
class LoggedCase:
    """What the server is given, and what is sent: requests at once, of how many tokens."""

    args: tuple[str, ...] = ()
    kv_tokens: int = 65_536
    seqs: int = 64
    sent: int = 0
    at_once: int = 1
    prompt: int = 256
    output: int = 64
    longer: int = 0  # by so many tokens each prompt is longer than the one before
    pause_s: float = 0.0  # after each `at_once`
    more: tuple[tuple[str, Any], ...] = ()  # fields of a request
    kill_after: int = 0  # so many seconds after they are sent the engine is killed


CASES = {
    "client-bound": LoggedCase(sent=12, at_once=1, output=96),
    "kv-bound": LoggedCase(kv_tokens=4_096, sent=48, at_once=48, prompt=200, output=400),
    "max-num-seqs": LoggedCase(seqs=4, sent=40, at_once=40, prompt=64, output=128),
    "refused": LoggedCase(sent=3, prompt=2_100, at_once=1, output=8),
    "loglikelihood": LoggedCase(
        sent=24, at_once=24, prompt=512, output=1, more=(("prompt_logprobs", 1),)
    ),
    # 0.32 sets a block aside and does not start with that: its kv-bound preempts, too.
    "preemptions": LoggedCase(kv_tokens=2_048, sent=24, at_once=24, prompt=100, output=500),
    "steps": LoggedCase(
        args=("--enable-logging-iteration-details", "--enable-log-requests"),
        sent=12,
        at_once=4,
        prompt=300,
        output=12,
        longer=50,
        pause_s=5.0,
    ),
    "does-not-fit": LoggedCase(kv_tokens=512),
    "killed": LoggedCase(sent=24, at_once=24, output=400, kill_after=8),
    "small-step": LoggedCase(
        args=("--max-num-batched-tokens", "128", "--long-prefill-token-threshold", "32"),
        sent=32,
        at_once=32,
        prompt=600,
        output=4,
    ),
    "blocks-override": LoggedCase(
        args=("--num-gpu-blocks-override", "40"), sent=24, at_once=24, prompt=300, output=200
    ),
    "bad-arguments": LoggedCase(args=("--max-num-batched-tokens", "50")),
    "unknown-argument": LoggedCase(args=("--foo", "3")),
}
STARTED_S = 900  # a machine may be busy


class LoggedServer:
    """`vllm serve` in a process group of its own, writing to a log."""

    def __init__(self, python: str, case: LoggedCase, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        self.log, self.metrics = folder / "serve.log", ""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = [
            *(python, "-m", "vllm.entrypoints.cli.main", "serve", str(folder)),
            *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"),
            *("--load-format", "dummy", "--enforce-eager", "--skip-tokenizer-init"),
            *("--max-model-len", "2048", "--max-num-seqs", str(case.seqs), "--dtype", "float32"),
            *("--kv-cache-memory-bytes", str(case.kv_tokens * KV_BYTES_PER_TOKEN)),
            *case.args,
        ]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_LOG_STATS_INTERVAL": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def __enter__(self) -> "LoggedServer":
        return self

    def __exit__(self, *ignored: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def wait(self) -> bool:
        """Whether it got ready; False when it ended."""
        deadline = time.monotonic() + STARTED_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return True
            except OSError:
                time.sleep(0.5)
        return False

    def kill_engine(self) -> None:
        """As the system does that has run out of memory."""
        listed = subprocess.run(
            ["ps", "-eo", "pid,pgid,args"], capture_output=True, text=True, check=True
        ).stdout
        for line in listed.splitlines()[1:]:
            pid, group, args = line.split(None, 2)
            if int(group) == self.process.pid and "EngineCore" in args:
                os.kill(int(pid), signal.SIGKILL)

    def counted(self) -> str:
        """What /metrics says of the engine, in small: counters and gauges, no histograms."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        kept = re.compile(r"vllm:(?!.*_(?:bucket|sum|count|created))")
        return "".join(f"{line}\n" for line in text.splitlines() if kept.match(line))

    def send(self, prompt: list[int], output: int, more: dict[str, Any]) -> int:
        """The HTTP status."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": output, "ignore_eos": True, **more}
        body |= {"detokenize": False, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0  # the server is gone


def run(python: str, case: LoggedCase, folder: Path) -> tuple[str, str]:
    """The log of one case, as it was written, and the server's metrics at its end."""
    with LoggedServer(python, case, folder) as server:
        if server.wait() and case.sent:
            prompts = [
                [
                    (7 * place + 13 * at) % 1_000 + 10
                    for at in range(case.prompt + place * case.longer)
                ]
                for place in range(case.sent)
            ]
            with ThreadPoolExecutor(case.at_once) as pool:
                sent = []
                for place, prompt in enumerate(prompts):
                    if case.pause_s and place and place % case.at_once == 0:
                        time.sleep(case.pause_s)
                    sent.append(pool.submit(server.send, prompt, case.output, dict(case.more)))
                if case.kill_after:
                    time.sleep(case.kill_after)
                    server.kill_engine()
            codes = [one.result() for one in sent]
            print(sorted(set(codes)), flush=True)
            if not case.kill_after:
                _wait_for_idle(server.log)
                server.metrics = server.counted()
    return server.log.read_text(encoding="utf-8", errors="replace"), server.metrics


def _wait_for_idle(log: Path) -> None:
    """Until the last of the work stands in the log: a line that says so, or no line any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = [
            line for line in log.read_text(errors="replace").splitlines() if "Running: " in line
        ]
        if lines and "Running: 0 reqs, Waiting: 0 reqs" in lines[-1]:
            return
        time.sleep(0.5)


def small(log: str, folder: Path) -> str:
    """Without what belongs to this machine, and without progress bars and routes."""
    log = log.replace(str(folder), "models/tiny")
    log = re.sub(r"(tcp|file)://[\w./:-]+", r"\1://...", log)
    log = re.sub(r"(?:/[\w.+-]+){2,}/(?=[\w.+-]+)", ".../", log)
    kept = [
        line
        for line in log.splitlines()
        if not re.search(r"\d+%\||Route: |it/s\]|HTTP/1\.1\" 200", line)
    ]
    return "\n".join(kept) + "\n"


def main() -> None:
    python, target = sys.argv[1], Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[3:] or CASES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "tiny"
            folder.mkdir()
            raw, metrics = run(python, CASES[name], folder)
        log = small(raw, folder)
        (target / f"{name}.log").write_text(log, encoding="utf-8")
        (target / f"{name}.metrics").write_text(metrics, encoding="utf-8")
        print(name, len(log), flush=True)


if __name__ == "__main__":
    main()
