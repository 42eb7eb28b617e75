"""A hub that does not answer costs seconds and one sentence, not minutes of retries."""

import socket

import pytest

from chunkscope import network
from tests.commands.helpers import chunkscope
from tests.conftest import REPOSITORY
from tests.remote_servers import web_server

PROFILE = REPOSITORY / "reports" / "example" / "profile.json"


def test_a_hub_that_says_nothing_is_waited_for_once(monkeypatch) -> None:
    assert network.PATIENCE_S == 5
    monkeypatch.setattr(network, "PATIENCE_S", 0.05)
    with socket.socket() as silent:  # takes connections
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert network.hub_problem(f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_any_answer_is_an_answer() -> None:
    with web_server({}) as address:  # 404, whatever is asked
        assert network.hub_problem(address) is None


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:9", "https://no-such-host.invalid", "nonsense"]
)
def test_a_place_where_nobody_is_has_a_reason(place: str) -> None:
    assert network.hub_problem(place)


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "a.jsonl", "--tokenizer", "nobody/nothing"),
        ("recommend", PROFILE, "--model", "nobody/nothing", "--gpu", "h100"),
    ],
    ids=["a tokenizer", "a model"],
)
def test_a_command_says_it_in_one_sentence(tmp_path, monkeypatch, words) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "one"}\n')
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    run = chunkscope(tmp_path, *words)
    assert run.code == 4
    assert run.err.splitlines()[0].count("127.0.0.1:9")
    assert "Retry" not in run.err
