"""The libraries that are right by definition: those that vLLM itself feeds a model with."""

import os
import sys
from array import array
from binascii import a2b_base64
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock
from typing import Any, ClassVar

import orjson

from chunkscope.artefacts.files import cache_folder
from chunkscope.errors import InputError, MissingError
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind, read_json

ID_BYTES = 4  # of a token id, where a text's ids are bytes
RANKS_PAY = (
    1 << 22
)  # from so many characters on: of ranks an engine is made by the reference


class Reference:
    """One loaded tokenizer. A kind of it has `ids` or `encode` of its own."""

    package = ""
    special_added = 0  # tokens before or after each prompt
    begin: tuple[int, ...] = ()  # the ids before each prompt
    first_id = (
        0  # of the library's numbers; a model may have special tokens before them
    )

    def ids(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens, numbered as the library does."""
        return self.encode(texts, special_tokens=False)

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, ID_BYTES each."""
        return [array("I", ids).tobytes() for ids in self.ids(texts)]

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """The ids that the model is fed, with (or without) what a prompt begins and ends with."""
        begin = self.begin if special_tokens else ()
        return [[*begin, *(n + self.first_id for n in ids)] for ids in self.ids(texts)]


class TokenizersReference(Reference):
    """A tokenizer.json: by `tokenizers`."""

    package = "tokenizers"

    def __init__(self, backend: Any) -> None:
        # Truncation and padding baked into an export would silently cap every length.
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.special_added = int(backend.num_special_tokens_to_add(is_pair=False))

    @classmethod
    def of_file(cls, path: Path) -> "TokenizersReference":
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(path)))

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        encodings = self.backend.encode_batch_fast(
            texts, add_special_tokens=special_tokens
        )
        return [encoding.ids for encoding in encodings]


def beside(function: Callable[..., None], *arguments: object) -> Any:
    """Another process that calls a function. Where nothing can be kept, they share one folder."""
    code = f"from {function.__module__} import *; {function.__name__}{arguments}"
    command = [sys.executable, "-P", "-c", code]  # -P: no module of the data's folder
    env = {**os.environ, "CHUNKSCOPE_CACHE_DIR": str(cache_folder())}
    return Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env)  # noqa: S603


class LoadedBeside(Reference):
    """One in another process: while a tokenizer is loaded, all threads of a process stand."""

    # For so many characters; fewer are counted before it is loaded.
    pays: ClassVar = {
        "tokenizer.json": range(10**6, 10**18),
        "tekken": range(2**18, RANKS_PAY),
    }

    def __init__(
        self, package: str, files: TokenizerFiles, otherwise: Callable[[], Any]
    ) -> None:
        self._process = beside(answer, files.kind.value, str(files.files[0]))
        self.package, self._lock, self._otherwise = package, Lock(), otherwise

    def ids(self, texts: list[str]) -> list[list[int]]:
        with self._lock, suppress(OSError, ValueError):  # where that process failed
            self._process.stdin.write(orjson.dumps(texts) + b"\n")
            self._process.stdin.flush()
            return list(orjson.loads(self._process.stdout.readline()))
        return list(self._otherwise().ids(texts))

    def __del__(self) -> None:
        with suppress(OSError), self._process as process:
            process.kill()


def answer(kind: str, path: str) -> None:
    """What the other process does, as long as it is asked. Who counts goes first."""
    getattr(os, "nice", int)(9)  # Windows has none
    reference = load_source(TokenizerFiles("", TokenizerKind(kind), (Path(path),)))
    for texts in sys.stdin.buffer:
        print(orjson.dumps(reference.ids(orjson.loads(texts))).decode(), flush=True)  # noqa: T201


class TransformersReference(Reference):
    """What AutoTokenizer makes of a folder: what vLLM serves. Its own Python runs if trusted."""

    package = "transformers"

    def __init__(self, folder: Path, *, trust_remote_code: bool) -> None:
        known = {"trust_remote_code": trust_remote_code, "local_files_only": True}
        try:
            self.tokenizer = auto_tokenizer().from_pretrained(str(folder), **known)
        except ImportError as error:
            raise MissingError(
                f"the tokenizer in {folder} needs a package: {error}"
            ) from error
        except (
            Exception
        ) as error:  # from_pretrained raises whatever a damaged file provokes
            if "trust_remote_code" in str(error):
                raise InputError(
                    f"the tokenizer in {folder} is Python code, which is not run by default",
                    hint="if you trust it, pass --trust-remote-code",
                ) from error
            for file in folder.glob("*.json"):  # it does not say which is damaged
                read_json(file)
            raise
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        words = (
            backend.get_vocab_size(with_added_tokens=False) if backend else sys.maxsize
        )
        if words <= len(
            self.tokenizer.all_special_tokens
        ):  # all it makes up without a vocabulary
            hint = "is its tokenizer.json missing? Download it again"
            raise InputError(f"there is no vocabulary in {folder}", hint=hint)
        self.tokenizer(["a"])  # one whose special tokens are not there panics now
        self.special_added = int(self.tokenizer.num_special_tokens_to_add())

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        return list(
            self.tokenizer(texts, add_special_tokens=special_tokens)["input_ids"]
        )


class TiktokenReference(Reference):
    """Ranks and a pattern: one of tiktoken's encodings, or Mistral's tekken format."""

    package = "tiktoken"

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.pattern: str = encoding._pat_str
        self.ranks: dict[bytes, int] = encoding._mergeable_ranks

    @classmethod
    def of_tekken(cls, path: Path) -> "TiktokenReference":
        import tiktoken

        document = read_json(path)
        config = document["config"]
        special = int(config["default_num_special_tokens"])
        entries = document["vocab"][: config["default_vocab_size"] - special]
        ranks = {a2b_base64(entry["token_bytes"]): entry["rank"] for entry in entries}
        known = {
            "pat_str": config["pattern"],
            "mergeable_ranks": ranks,
            "special_tokens": {},
        }
        reference = cls(tiktoken.Encoding("tekken", **known))
        reference.first_id, reference.special_added, reference.begin = (
            special,
            1,
            (1,),
        )  # <s>
        return reference

    @classmethod
    def of_name(cls, name: str) -> "TiktokenReference":
        import tiktoken

        try:
            return cls(tiktoken.get_encoding(name))
        except (
            Exception
        ) as error:  # no such name, requests' errors, a file with another hash
            names = ", ".join(tiktoken.list_encoding_names())
            hint = f"it knows {names}, and downloads each once, into TIKTOKEN_CACHE_DIR"
            raise MissingError(f"tiktoken cannot load {name}", hint=hint) from error

    def ids(self, texts: list[str]) -> list[list[int]]:
        return list(
            map(self._encoding.encode_ordinary, texts)
        )  # batches come in threads


class SentencePieceReference(Reference):
    package = "sentencepiece"

    def __init__(self, path: Path) -> None:
        import sentencepiece

        self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.begin = (self._model.bos_id(),) if self._model.bos_id() >= 0 else ()
        self.special_added = len(self.begin)

    def ids(self, texts: list[str]) -> list[list[int]]:
        return list(self._model.encode(texts, out_type=int))


def load_source(files: TokenizerFiles, trust_remote_code: bool = False) -> Reference:
    """The tokenizer by its own files, and nothing that was made of them before."""
    match files.kind:
        case TokenizerKind.HF:
            folder = files.files[0].parent
            return TransformersReference(folder, trust_remote_code=trust_remote_code)
        case TokenizerKind.RAW:
            return TokenizersReference.of_file(files.files[0])
        case TokenizerKind.SENTENCEPIECE:
            return SentencePieceReference(files.files[0])
        case TokenizerKind.TIKTOKEN:
            return TiktokenReference.of_name(files.encoding)
        case TokenizerKind.TEKKEN:
            return TiktokenReference.of_tekken(files.files[0])


@lru_cache
def auto_tokenizer() -> Any:
    """transformers' AutoTokenizer, which takes a second to import."""
    # Of a local folder: no request may leave the machine, and no advice be printed.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers
    from transformers.utils import import_utils

    with suppress(
        AttributeError
    ):  # it looks through the files of all models twice: once will do
        scan = import_utils.create_import_structure_from_path
        models = Path(transformers.__file__).with_name("models")
        own = {str(models / "__init__.py"): models}
        import_utils.create_import_structure_from_path = lambda path: scan(
            own.get(path, path)
        )
    return transformers.AutoTokenizer
