"""Strangers' programs in a process of their own: limits hold, and nothing else is lost."""

from pathlib import Path

import pytest

from chunkscope.errors import InputError, OverLimit
from chunkscope.prompts.chat import Conversation
from chunkscope.tokenizers import rendering
from chunkscope.tokenizers.confined import Confined, Limits
from chunkscope.tokenizers.rendering import Renderer
from tests.commands.helpers import analyze, analyze_apart, write_jsonl

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
FOR_EVER = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "one native step": "{% set n = 10 ** 8 %}{{ 7 ** n % 3 }}",
}
TOO_LARGE = {
    "a product": "{{ 'a' * 10**10 }}",
    "a width": "{{ '%9999999999d' % 1 }}",
    "a filter": "{{ 'a' | center(10**10) }}",
    "a method": "{{ messages[0].content.zfill(10**10) }}",
    "a format": "{{ '{:9999999999}'.format(1) }}",
    "a list": "{{ [1] * 10**10 }}",
    "doubling": "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}{{ n.x }}",
}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "SECONDS", 0.5)


def texts(source: str) -> list[object]:
    chat = Conversation([{"role": "user", "content": "hi"}])
    return list(Renderer(source, special_tokens={}).texts([chat]))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("source", FOR_EVER.values(), ids=FOR_EVER)
def test_a_template_that_never_ends_is_ended(source: str) -> None:
    with pytest.raises(OverLimit, match="the chat template takes longer than 1 s"):
        texts(source)


@pytest.mark.parametrize("source", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_template_that_takes_all_memory_does_not_get_it(source: str) -> None:
    with pytest.raises(OverLimit, match=r"takes more than 1\.0 GiB of memory"):
        texts(source)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("source", [FOR_EVER["loops"], TOO_LARGE["a width"]])
def test_it_is_a_sentence_and_exit_3(tmp_path: Path, source: str) -> None:
    (tmp_path / "t.jinja").write_text(source)
    write_jsonl(tmp_path / "a.jsonl", [CHAT] * 3)
    run = analyze(tmp_path, "a.jsonl", "--chat-template", "t.jinja")
    assert run.code == 3
    assert "error: the chat template takes" in run.err
    assert "--no-chat-template" in run.err
    assert "Traceback" not in run.err


@pytest.mark.usefixtures("soon")
def test_it_is_not_asked_again_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [Conversation([{"role": "user", "content": "hi"}])]
    endless = Renderer(FOR_EVER["loops"], special_tokens={})
    for _ in range(2):
        with pytest.raises(OverLimit):
            endless.texts(chats)
        monkeypatch.setattr(rendering, "SECONDS", 1e9)
    assert texts("{{ messages[0].content }}") == ["hi"]


def test_a_folder_of_data_brings_no_modules_along(tmp_path: Path) -> None:
    for module in ("jinja2", "orjson"):
        (tmp_path / f"{module}.py").write_text("open('was-run', 'w'); raise SystemExit(9)")
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    write_jsonl(tmp_path / "a.jsonl", [CHAT])
    safe = {"PYTHONSAFEPATH": "1"}  # as for the script that pip installs
    run = analyze_apart(tmp_path, "a.jsonl", "--chat-template", "t.jinja", env=safe)
    assert run.code == 0, run.err
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(("function", "says"), [("abort", "takes more than"), ("_exit", "code 7")])
def test_a_process_that_dies_is_a_sentence(function: str, says: str) -> None:
    asked: object = () if function == "abort" else 7
    work = f"{__name__}:{function}"
    with pytest.raises(InputError, match=says):
        Confined(work).ask(asked, lambda _: Limits(60, 1 << 30), "it")


def abort(_: object) -> None:
    import os

    os.abort()


def _exit(code: int) -> None:
    import os

    os._exit(code)
