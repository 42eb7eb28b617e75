"""Every kind of tokenizer one can name counts as the library it comes from."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import chunkscope
from chunkscope.errors import InputError, MissingError
from chunkscope.tokenizers import resolve as hub
from chunkscope.tokenizers.resolve import embedded_default, resolve
from chunkscope.tokenizers.strings import sentences
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.tokenizers.helpers import WORDS, lengths, save, splitting

MISTRAL = embedded_default().parent
MODELS = sorted(path.name for path in MISTRAL.glob("*.model.v*"))
TEXTS = ["", " ", "Hello world", "naïve  東京 🙂\n\n\tx", "<s>[INST] hi [/INST]</s>", "1234567" * 9]


# --- mistral-common -------------------------------------------------------------------------


def test_the_embedded_default_counts_as_tekken_does_with_its_beginning() -> None:
    texts = [*TEXTS, *sentences()]
    tekken = Tekkenizer.from_file(embedded_default())
    assert lengths(None, texts) == [len(tekken.encode(text, bos=True, eos=False)) for text in texts]


def test_a_tekken_file_is_taken_from_its_folder(tmp_path: Path) -> None:
    other = MISTRAL / "tekken_240718.json"
    (tmp_path / "tekken.json").symlink_to(other)
    tekken = Tekkenizer.from_file(other)
    right = [len(tekken.encode(text, bos=True, eos=False)) for text in TEXTS]
    assert lengths(str(tmp_path), TEXTS) == right


def test_the_embedded_default_can_also_be_named_by_its_path() -> None:
    named = Tokenizer(str(embedded_default()))
    assert (named.kind, named.digest) == ("tekken", Tokenizer().digest)


CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Hi"}]},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who are you?\n"},
            {"role": "assistant", "content": "A model."},
            {"role": "user", "content": "naïve 東京 [INST]"},
        ]
    },
    {
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                },
            }
        ],
    },
]


def test_chats_are_encoded_by_mistral_common(tmp_path: Path) -> None:
    rows = tmp_path / "chats.jsonl"
    rows.write_text("".join(json.dumps(chat) + "\n" for chat in CHATS))
    (dataset,) = chunkscope.analyze(rows).datasets
    encode = MistralTokenizer.from_file(str(embedded_default())).encode_chat_completion
    right = [len(encode(ChatCompletionRequest.from_openai(**chat)).tokens) for chat in CHATS]
    assert dataset.lengths == chunkscope.LengthHistogram.of(right)
    assert (dataset.engine or "").startswith("mistral-common ")


def test_a_chat_that_mistral_common_refuses_is_a_bad_row(tmp_path: Path) -> None:
    rows = tmp_path / "chats.jsonl"
    two = {"messages": [{"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}]}
    rows.write_text(json.dumps(CHATS[0]) + "\n" + json.dumps(two) + "\n")
    (dataset,) = chunkscope.analyze(rows).datasets
    assert (dataset.rows, dataset.skipped) == (1, 1)
    assert "mistral-common" in dataset.bad_rows[0].reason


@pytest.mark.parametrize("file", MODELS)
def test_sentencepiece_models_count_as_the_sentencepiece_library(file: str) -> None:
    path = MISTRAL / file
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    right = [1 + len(model.encode(text)) for text in TEXTS]  # prompts begin with one <s>
    assert lengths(str(path), TEXTS) == right


# --- tiktoken -------------------------------------------------------------------------------

R50K = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"


@pytest.fixture
def r50k_cache(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken's download of r50k_base, made from GPT-2's vocabulary; it checks the hash itself."""
    vocabulary = json.loads((shared / "tokenizers/gpt2/tokenizer.json").read_bytes())["model"]
    as_bytes = {character: byte for byte, character in enumerate(_byte_alphabet())}
    lines = [
        base64.b64encode(bytes(as_bytes[c] for c in token)) + b" %d\n" % rank
        for token, rank in sorted(vocabulary["vocab"].items(), key=lambda item: item[1])
        if token != "<|endoftext|>"
    ]
    name = hashlib.sha1(R50K.encode()).hexdigest()
    (tmp_path / name).write_bytes(b"".join(lines))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


def _byte_alphabet() -> list[str]:
    """GPT-2's: bytes that print stand for themselves, the others come after, in order."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


@pytest.mark.usefixtures("r50k_cache")
@pytest.mark.parametrize("name", ["r50k_base", "tiktoken:r50k_base"])
def test_a_tiktoken_encoding_counts_as_tiktoken(name: str) -> None:
    texts = [*TEXTS, "<|endoftext|> is plain text here"]
    encoding = tiktoken.get_encoding("r50k_base")
    assert lengths(name, texts) == [len(encoding.encode_ordinary(text)) for text in texts]


def test_a_tiktoken_encoding_that_cannot_be_had_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(_: str) -> bytes:
        raise ConnectionError("no network")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.load.read_file", no_network)
    with pytest.raises(MissingError, match="p50k_base") as raised:
        lengths("p50k_base", ["text"])
    assert raised.value.exit_code == 4
    assert "TIKTOKEN_CACHE_DIR" in (raised.value.hint or "")


def test_a_tiktoken_encoding_that_does_not_exist_is_missing() -> None:
    with pytest.raises(MissingError, match="k9") as raised:
        lengths("tiktoken:k9", ["text"])
    assert "o200k_base" in (raised.value.hint or "")


# --- the hub --------------------------------------------------------------------------------


def run(rows: Path, tokenizer: str, hub: Path) -> "subprocess.CompletedProcess[str]":
    """The whole command, as the hub's client reads its settings when it is imported."""
    env = {**os.environ, "HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "chunkscope", "analyze", str(rows), "--tokenizer", tokenizer]
    command += ["--json", "--output", str(rows.with_name("profile.json"))]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "the other the"}\n')
    return path


def cached_model(hub: Path, commit: str = "c0ffee", branch: str = "main") -> Path:
    """A model in the hub's local cache, laid out as huggingface_hub leaves it."""
    model = hub / "models--org--small"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / branch).write_text(commit)
    return model / "snapshots" / commit


@pytest.mark.parametrize("name", ["org/small", "org/small@main"])
def test_a_hub_id_is_found_in_the_local_cache(tmp_path: Path, rows: Path, name: str) -> None:
    tokenizer = splitting(WORDS, "t h", "th e")
    save(tokenizer, cached_model(tmp_path / "hub"), tokenizer_class="PreTrainedTokenizerFast")
    done = run(rows, name, tmp_path / "hub")
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)
    assert profile["tokenizer"]["name"] == name
    assert profile["overall"]["tokens"]["total"] == len(tokenizer.encode("the other the"))


def test_a_hub_model_with_only_tekken_is_found(tmp_path: Path, rows: Path) -> None:
    snapshot = cached_model(tmp_path / "hub")
    snapshot.mkdir(parents=True)
    (snapshot / "tekken.json").symlink_to(embedded_default())
    done = run(rows, "org/small", tmp_path / "hub")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokenizer"]["kind"] == "tekken"


def test_a_hub_id_that_is_not_there_is_missing(tmp_path: Path, rows: Path) -> None:
    done = run(rows, "org/absent", tmp_path / "hub")
    assert done.returncode == 4
    assert done.stdout == ""
    assert "org/absent" in done.stderr
    assert "\nhint: " in done.stderr


def test_a_cache_with_only_a_tokenizer_json_is_completed_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tool left it so; the chat template is in tokenizer_config.json."""
    snapshot = save(splitting(WORDS), cached_model(tmp_path), chat_template="{{ messages }}")
    config = (snapshot / "tokenizer_config.json").read_text()
    (snapshot / "tokenizer_config.json").unlink()
    downloads: list[str] = []

    def download(repo: str, **_: object) -> str:
        downloads.append(repo)
        (snapshot / "tokenizer_config.json").write_text(config)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr(hub, "expect_hub", lambda: None)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for _ in ("completed", "complete"):
        names = [file.name for file in resolve("org/small").files]
        assert names == ["tokenizer.json", "tokenizer_config.json"]
    assert downloads == ["org/small"]


def test_a_cache_with_only_a_tokenizer_json_is_used_with_a_word_where_there_is_no_network(
    tmp_path: Path, rows: Path
) -> None:
    snapshot = save(splitting(WORDS), cached_model(tmp_path / "hub"))
    (snapshot / "tokenizer_config.json").unlink()
    (snapshot / "config.json").write_text('{"model_type": "llama"}')
    done = run(rows, "org/small", tmp_path / "hub")
    assert done.returncode == 0, done.stderr
    assert "tokenizer_config.json" in done.stderr


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["./nowhere", "/no/such/folder", "~/nowhere", "a/b/c", "lost.json", "lost.model"]
)
def test_a_path_that_is_not_there_is_missing(name: str) -> None:
    with pytest.raises(MissingError, match=name):
        resolve(name)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("tokenizer.json", b"{", id="not JSON"),
        pytest.param("tokenizer.json", b"[]", id="a list"),
        pytest.param("tokenizer.json", b'{"a": 1}', id="no model in it"),
        pytest.param("tokenizer.json", b'{"model": {"type": "BPE"}}', id="half a model"),
        pytest.param("tekken.json", b'{"config": {}, "vocab": []}', id="half a tekken"),
        pytest.param("lost.model", b"not a model", id="no SentencePiece model"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_an_input_error(
    tmp_path: Path, file: str, content: bytes
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=file):
        lengths(str(tmp_path / file), ["text"])


def test_a_folder_without_a_tokenizer_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(InputError, match=str(tmp_path)) as raised:
        resolve(str(tmp_path))
    assert "--tokenizer" in (raised.value.hint or "")


# --- a folder with nothing but a vocabulary ------------------------------------------------------

SEA = "All the rivers run to the sea, and yet the sea is not full; the sun also rises. "


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary as small as they come: a large one takes a while to be made ready."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "text").write_text(SEA * 9)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "small"), vocab_size=330,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    return folder / "small.model"


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "sentencepiece.bpe.model"])
def test_a_folder_with_only_a_sentencepiece_model_loads(
    tmp_path: Path, model_file: Path, name: str
) -> None:
    (tmp_path / name).symlink_to(model_file)
    (counted,) = Tokenizer(str(tmp_path)).counter.count([SEA])
    model = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    assert counted == len(model.encode(SEA))


def test_a_sentencepiece_model_with_its_configuration_is_what_transformers_makes_of_it(
    tmp_path: Path, model_file: Path
) -> None:
    (tmp_path / "tokenizer.model").symlink_to(model_file)
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    model = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    assert lengths(str(tmp_path), [SEA]) == [1 + len(model.encode(SEA))]
