"""Every kind of tokenizer one can name counts as the library it comes from."""

import json
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
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prompts.chat import Conversation
from chunkscope.tokenizers import resolve as hub
from chunkscope.tokenizers.resolve import embedded_default, resolve
from chunkscope.tokenizers.strings import sentences
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import write_jsonl
from tests.tokenizers.helpers import WORDS, lengths, save, splitting
from tests.tokenizers.test_chat_template import CASES

MISTRAL = embedded_default().parent
TEXTS = [
    "",
    " ",
    "Hello world",
    "naïve  東京 🙂\n\n\tx",
    "<s>[INST] hi [/INST]</s>",
    "1234567" * 9,
]


@pytest.mark.parametrize("file", [embedded_default(), MISTRAL / "tekken_240718.json"])
def test_a_tekken_file_counts_as_mistral_common_does_with_its_beginning(
    tmp_path, file
) -> None:
    (tmp_path / "tekken.json").symlink_to(file)
    texts, tekken = [*TEXTS, *sentences()], Tekkenizer.from_file(file)
    right = [len(tekken.encode(text, bos=True, eos=False)) for text in texts]
    assert lengths(str(tmp_path), texts) == right
    assert file != embedded_default() or lengths(None, texts) == right


CALLED = CASES["a tool called and its result"]
CHATS = [
    CASES["one question"],
    CASES["a system prompt"],
    CASES["tools offered"],
    CASES["content parts"],
    CALLED,
]


def by_mistral(chat: dict[str, Any]) -> list[int]:
    tokenizer = MistralTokenizer.from_file(str(embedded_default()))
    request = ChatCompletionRequest.from_openai(**chat)
    return tokenizer.encode_chat_completion(request).tokens


def profiled(place: Path, *chats: dict[str, Any]) -> DatasetProfile:
    rows = write_jsonl(place / "chats.jsonl", list(chats))
    (dataset,) = chunkscope.analyze(rows).datasets
    return dataset


def test_chats_are_encoded_by_mistral_common(tmp_path) -> None:
    right = [by_mistral(chat) for chat in CHATS]
    dataset = profiled(tmp_path, *CHATS)
    assert dataset.lengths == chunkscope.LengthHistogram.of(map(len, right))
    assert (dataset.engine or "").startswith("mistral-common ")
    mistral_chat = Tokenizer().mistral_chat
    for chat, ids in zip(CHATS, right, strict=True):
        found, text = mistral_chat.encode(
            Conversation(chat["messages"], tools=chat.get("tools"))
        )
        assert found == ids
        assert text.startswith("<s>")


def changed(chat: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return json.loads(json.dumps(chat).replace(before, after))


def test_long_ids_of_calls_are_cut_as_vllm_cuts_them(tmp_path) -> None:
    longer = changed(CALLED, "abcdef123", "call_abcdef123")
    assert profiled(tmp_path, longer).lengths.max == len(by_mistral(CALLED))


def test_an_answer_at_the_end_of_a_chat_is_counted(tmp_path) -> None:
    answer = {"role": "assistant", "content": "yo"}
    answered = {"messages": [*CHATS[0]["messages"], answer]}
    assert profiled(tmp_path, answered).lengths.max == len(by_mistral(CHATS[0])) + 2


def test_a_chat_that_mistral_common_refuses_is_a_bad_row(tmp_path) -> None:
    answer = {"role": "assistant", "content": "a"}
    order = {"messages": [answer, {"role": "system", "content": "b"}]}
    numbered = changed(CALLED, '"abcdef123"', "123")  # no ids to a server
    bad = profiled(tmp_path, CHATS[0], order, numbered).bad_rows
    assert [(row.position, row.reason.code) for row in bad] == [
        (2, "template_refused"),
        (3, "template_refused"),
    ]
    assert "validation error" in bad[1].reason.values["why"]


def test_mistral_common_is_loaded_as_it_is() -> None:
    """With a stand-in for a module, other threads could import that."""
    script = (
        "import sys; from chunkscope.tokenizers.tokenizer import Tokenizer\n"
        "chat = Tokenizer().mistral_chat\n"
        "print(getattr(sys.modules.get('requests'), '__file__', 'none') != 'none')"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


# -- tiktoken


@pytest.mark.parametrize("name", ["r50k_base", "tiktoken:r50k_base"])
def test_a_tiktoken_encoding_counts_as_tiktoken(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With an encoding of bytes and one merge in the place of one that tiktoken
    downloads."""
    tiny = tiktoken.Encoding(
        "r50k_base",
        pat_str=WORDS,
        mergeable_ranks={bytes([n]): n for n in range(256)} | {b"th": 256},
        special_tokens={"<|endoftext|>": 257},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "r50k_base", tiny)
    texts = [*TEXTS, "<|endoftext|> is plain text here"]
    assert lengths(name, texts) == [len(tiny.encode_ordinary(text)) for text in texts]


def test_a_tiktoken_encoding_that_cannot_be_had_or_does_not_exist_is_missing(
    tmp_path, monkeypatch
):
    def no_network(_: str) -> bytes:
        raise ConnectionError("no network")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.load.read_file", no_network)
    for name, hint in (
        ("p50k_base", "TIKTOKEN_CACHE_DIR"),
        ("tiktoken:k9", "o200k_base"),
    ):
        with pytest.raises(MissingError, match=name.rpartition(":")[2]) as raised:
            lengths(name, ["text"])
        assert hint in (raised.value.hint or "")


# -- the hub


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where org/small is in the hub's local cache, laid out as huggingface_hub leaves
    it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--org--small"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("c0ffee")
    return model / "snapshots" / "c0ffee"


@pytest.mark.parametrize("name", ["org/small", "org/small@main"])
def test_a_hub_id_is_found_in_the_local_cache(snapshot: Path, name: str) -> None:
    tokenizer = splitting(WORDS, "t h", "th e")
    save(tokenizer, snapshot, tokenizer_class="PreTrainedTokenizerFast")
    assert Tokenizer(name).name == name
    assert lengths(name, ["the other the"]) == [len(tokenizer.encode("the other the"))]


NOWHERE = (
    "org/absent org/small@other ./nowhere /no/such/folder ~/nowhere a/b/c lost.json "
    "x.model"
)


@pytest.mark.usefixtures("snapshot")
@pytest.mark.parametrize("name", ["not a name", *NOWHERE.split()])
def test_a_name_that_leads_nowhere_is_missing(name: str) -> None:
    with pytest.raises(MissingError, match=name.partition("@")[0]) as raised:
        resolve(name)
    assert raised.value.hint


def test_a_cache_with_only_a_tokenizer_json_is_completed_from_the_hub(
    snapshot, monkeypatch
):
    """Another tool left it so; the chat template is in tokenizer_config.json."""
    save(splitting(WORDS), snapshot)
    config = snapshot / "tokenizer_config.json"
    config.unlink()
    assert [file.name for file in resolve("org/small").files] == [
        "tokenizer.json"
    ]  # no network
    assert [one.code for one in Tokenizer("org/small").notes] == ["no_tokenizer_config"]
    downloads: list[str] = []

    def download(repo: str, **_: object) -> str:
        downloads.append(repo)
        config.write_text('{"chat_template": "x"}')
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr(hub, "expect_hub", lambda: None)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for _ in ("completed", "complete"):
        names = [file.name for file in resolve("org/small").files]
        assert names == ["tokenizer.json", "tokenizer_config.json"]
    assert downloads == ["org/small"]


# -- names


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("tokenizer.json", b"{", id="not JSON"),
        pytest.param("tokenizer.json", b"[]", id="a list"),
        pytest.param("tokenizer.json", b'{"a": 1}', id="no model in it"),
        pytest.param(
            "tokenizer.json", b'{"model": {"type": "BPE"}}', id="half a model"
        ),
        pytest.param("tekken.json", b'{"config": {}, "vocab": []}', id="half a tekken"),
        pytest.param("lost.model", b"a model", id="a vocabulary without its config"),
        pytest.param("tokenizer.model", b"a model", id="the same with the usual name"),
        pytest.param("", b"", id="a folder without a tokenizer"),
    ],
)
def test_what_is_no_tokenizer_is_an_input_error(
    tmp_path: Path, file: str, content: bytes
) -> None:
    (tmp_path / (file or "model.safetensors")).write_bytes(content)
    with pytest.raises(InputError, match=file or str(tmp_path)):
        lengths(str(tmp_path / file), ["text"])


def test_the_file_of_a_folder_that_is_damaged_or_missing_is_named(
    tmp_path: Path,
) -> None:
    """Of a config alone transformers makes a tokenizer that finds 0 tokens in any
    text."""
    alone = ('{"tokenizer_class": "Qwen2Tokenizer"}', f"no vocabulary in {tmp_path}")
    for content, said in (alone, ("{", f"{tmp_path}/tokenizer_config.json: ")):
        (tmp_path / "tokenizer_config.json").write_text(content)
        with pytest.raises(InputError, match=said):
            lengths(str(tmp_path), ["text"])


@pytest.mark.parametrize(
    ("present", "kind", "first"),
    [
        ("spiece.model config.json", "hf", "spiece.model"),
        ("tokenizer_config.json tokenizer.model", "hf", "tokenizer_config.json"),
        ("tokenizer.json code.py merges.txt readme.md", "hf", "tokenizer.json"),
        ("tekken_2.json tekken_1.json config.json", "tekken", "tekken_1.json"),
    ],
)
def test_what_is_in_a_folder_says_what_it_is(tmp_path, present, kind, first) -> None:
    for name in present.split():
        (tmp_path / name).touch()
    found = resolve(str(tmp_path))
    assert (found.kind, found.files[0].name) == (kind, first)
    assert kind != "hf" or {file.name for file in found.files} == {*present.split()} - {
        "readme.md"
    }


# -- a folder with nothing but a vocabulary

SEA = "All the rivers run to the sea, and yet the sea is not full; the sun also rises. "


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary as small as they come: a large one takes a while to be made
    ready."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "text").write_text(SEA * 9)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "small"), vocab_size=330,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    return folder / "small.model"


LLAMA = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>"}


def test_a_sentencepiece_model_and_its_configuration_are_a_tokenizer(
    tmp_path: Path, model_file: Path
) -> None:
    (tmp_path / "tokenizer.model").symlink_to(model_file)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(LLAMA))
    model = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    assert lengths(str(tmp_path), [SEA]) == [1 + len(model.encode(SEA))]  # one <s>
