"""The libraries that are right by definition: those that vLLM itself feeds a model
with."""

import os
import sys
from array import array
from binascii import a2b_base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError, MissingError
from chunkscope.tokenizers.resolve import TokenizerFiles, TokenizerKind, read_json

ID_BYTES = 4  # of a token id, where a text's ids are bytes


class Reference:
    """One loaded tokenizer. A kind of it has `ids` or `encode` of its own."""

    package = ""
    special_added = 0  # tokens before or after each prompt
    begin: tuple[int, ...] = ()  # the ids before each prompt
    # The first of the library's numbers; a model may have special tokens before them.
    first_id = 0

    def ids(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens, numbered as the library
        does."""
        return self.encode(texts, special_tokens=False)

    def id_bytes(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, ID_BYTES each."""
        return [array("I", ids).tobytes() for ids in self.ids(texts)]

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        """The ids that the model is fed, with (or without) what a prompt begins and
        ends with."""
        begin = self.begin if special_tokens else ()
        encoded = []
        for ids in self.ids(texts):
            encoded.append([*begin, *(number + self.first_id for number in ids)])
        return encoded


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


class TransformersReference(Reference):
    """What AutoTokenizer makes of a folder: what vLLM serves. Its own Python runs if
    trusted."""

    package = "transformers"

    def __init__(self, folder: Path, *, trust_remote_code: bool) -> None:
        with quiet_transformers():
            self.tokenizer = _loaded(folder, trust_remote_code=trust_remote_code)
            _check_vocabulary(self.tokenizer, folder)
            # One whose special tokens are not there panics now.
            self.tokenizer(["a"])
            self.special_added = int(self.tokenizer.num_special_tokens_to_add())

    def encode(self, texts: list[str], *, special_tokens: bool) -> list[list[int]]:
        with quiet_transformers():
            encoded = self.tokenizer(texts, add_special_tokens=special_tokens)
        return list(encoded["input_ids"])


def _loaded(folder: Path, *, trust_remote_code: bool) -> Any:
    """A tokenizer of transformers, from local files alone."""
    try:
        return auto_tokenizer().from_pretrained(
            str(folder), trust_remote_code=trust_remote_code, local_files_only=True
        )
    except ImportError as error:
        raise MissingError(
            f"the tokenizer in {folder} needs a package: {error}"
        ) from error
    except Exception as error:  # whatever a damaged file provokes
        if "trust_remote_code" in str(error):
            raise InputError(
                f"the tokenizer in {folder} is Python code, which is not run by "
                "default",
                hint="if you trust it, pass --trust-remote-code",
            ) from error
        for file in folder.glob("*.json"):  # it does not say which is damaged
            read_json(file)
        raise


def _check_vocabulary(tokenizer: Any, folder: Path) -> None:
    """InputError for one that transformers made up from a configuration alone."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    words = sys.maxsize
    if backend:
        words = backend.get_vocab_size(with_added_tokens=False)
    if words <= len(tokenizer.all_special_tokens):
        raise InputError(
            f"there is no vocabulary in {folder}",
            hint="is its tokenizer.json missing? Download it again",
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
        encoding = tiktoken.Encoding(
            "tekken",
            pat_str=config["pattern"],
            mergeable_ranks=ranks,
            special_tokens={},
        )
        reference = cls(encoding)
        reference.first_id = special
        reference.special_added = 1
        reference.begin = (1,)  # <s>
        return reference

    @classmethod
    def of_name(cls, name: str) -> "TiktokenReference":
        import tiktoken

        try:
            return cls(tiktoken.get_encoding(name))
        except Exception as error:  # no such name, no network, a file of another hash
            names = ", ".join(tiktoken.list_encoding_names())
            raise MissingError(
                f"tiktoken cannot load {name}",
                hint=f"it knows {names}, and downloads each once, into "
                "TIKTOKEN_CACHE_DIR",
            ) from error

    def ids(self, texts: list[str]) -> list[list[int]]:
        # One by one: batches come in threads.
        return [self._encoding.encode_ordinary(text) for text in texts]


def load_source(files: TokenizerFiles, *, trust_remote_code: bool = False) -> Reference:
    """The tokenizer by its own files, and nothing that was made of them before."""
    match files.kind:
        case TokenizerKind.HF:
            folder = files.files[0].parent
            return TransformersReference(folder, trust_remote_code=trust_remote_code)
        case TokenizerKind.RAW:
            return TokenizersReference.of_file(files.files[0])
        case TokenizerKind.TIKTOKEN:
            return TiktokenReference.of_name(files.encoding)
        case TokenizerKind.TEKKEN:
            return TiktokenReference.of_tekken(files.files[0])


NO_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from printing advice; afterwards all is as its user has it."""
    before = os.environ.get(NO_ADVICE)
    os.environ[NO_ADVICE] = "1"  # it is read when transformers is imported
    try:
        from transformers.utils import logging

        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
    finally:
        if before is None:
            os.environ.pop(NO_ADVICE, None)
        else:
            os.environ[NO_ADVICE] = before


def auto_tokenizer() -> Any:
    """transformers' AutoTokenizer, which takes a second to import."""
    import transformers

    return transformers.AutoTokenizer
