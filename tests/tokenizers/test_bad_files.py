"""Tokenizer files that are not what they should be: a sentence and exit 3, never a
traceback."""

import base64
import json
from pathlib import Path

import pytest

from tests.commands.helpers import Run, analyze, write_jsonl
from tests.tokenizers.helpers import WORDS, save, splitting

CATASTROPHIC = r"(a+)+$|(x+x+)+y|[^a]+"


def refused(
    place: Path, *words: str | Path, row: dict[str, object] | None = None
) -> Run:
    write_jsonl(place / "a.jsonl", [row or {"prompt": "the one"}])
    run = analyze(place, "a.jsonl", *words)
    assert run.code == 3, (run.out, run.err)
    assert "Traceback" not in run.err
    assert "hint: " in run.err
    return run


def test_a_tokenizer_that_panics_when_it_is_loaded_is_a_sentence(
    tmp_path: Path,
) -> None:
    """Rust's panics are no Exceptions: Python would end with the gate's 1."""
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}]  # which is not there
    processor = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [],
        "special_tokens": {},
    }
    content = {**json.loads(splitting(WORDS).to_str()), "post_processor": processor}
    folder = save(
        splitting(WORDS), tmp_path / "t", tokenizer_class="PreTrainedTokenizerFast"
    )
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert str(folder) in refused(tmp_path, "--tokenizer", folder).err
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    (folder / "tokenizer_config.json").unlink()  # which says whose vocabulary it is
    assert "missing" in refused(tmp_path, "--tokenizer", folder).err


def test_a_tokenizer_that_panics_while_it_counts_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    splitting(CATASTROPHIC).save(str(file))
    text = "x" * 60 + "!" + "a" * 60 + "b"
    assert str(file) in refused(tmp_path, "--tokenizer", file, row={"prompt": text}).err


@pytest.mark.parametrize(
    ("vocabulary", "pattern"), [(256, "(("), (10, "."), (256, None)]
)
def test_a_tekken_file_that_cannot_be_used_is_a_sentence(
    tmp_path, vocabulary, pattern
) -> None:
    config = {
        "pattern": pattern,
        "default_vocab_size": 300,
        "default_num_special_tokens": 10,
    }
    entries = [
        {"rank": n, "token_bytes": base64.b64encode(bytes([n])).decode()}
        for n in range(vocabulary)
    ]
    file = tmp_path / "tekken.json"
    file.write_text(json.dumps({"config": config, "vocab": entries}))
    assert "tekken.json" in refused(tmp_path, "--tokenizer", file).err


@pytest.mark.parametrize(
    "template",
    [
        r'{{ "\ud800" }}{{ messages[0].content }}',
        "{{ raise_exception('no') }}",
        "{% endfor %}",
    ],
)
def test_a_template_that_cannot_be_rendered_is_a_sentence(
    tmp_path: Path, template: str
) -> None:
    (tmp_path / "t.jinja").write_text(template)
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    run = refused(tmp_path, "--chat-template", "t.jinja", row=chat)
    assert ("line 1" in run.err, "order of its roles" in run.err) == (
        True,
        "{{" in template,
    )
