"""A stranger's tokenizer files, loaded on trial in a process with limits.

Libraries load under the interpreter's lock, so that nothing out here could stop one that takes for
ever or all memory. What went well there goes well here: it is the same content.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chunkscope.tokenizers.confined import Confined, Limits
from chunkscope.tokenizers.files import TokenizerFiles, TokenizerKind
from chunkscope.tokenizers.references import load_json, load_sentencepiece, load_tekken
from chunkscope.tokenizers.resolve import embedded_default

SECONDS = 30.0
BYTES_A_SECOND = 500_000  # a twentieth of what this takes
MEMORY = 1 << 30
MEMORY_PER_BYTE = 100
_SMALL_BYTES = 1 << 20


class _Trial(NamedTuple):
    found: TokenizerFiles
    written: bool


def prove_loadable(found: TokenizerFiles, *, written: bool = True) -> None:
    """OverLimit for files that take too much; what else is wrong with them is for later.

    `written`: whether what was loaded is to be written too.
    """
    if found.kind is TokenizerKind.TIKTOKEN or found.files == (embedded_default(),):
        return  # not a stranger's
    size = sum(file.stat().st_size for file in found.files)
    limits = Limits(SECONDS + size / BYTES_A_SECOND, MEMORY + MEMORY_PER_BYTE * size)
    _apart.ask(_Trial(found, written), lambda _: limits, f"the tokenizer {found.name}")
    if size > _SMALL_BYTES:
        _apart.end()  # it keeps the memory that it took


def loaded(trial: _Trial) -> None:
    for file in trial.found.files:
        try:
            _loader(trial, file)(file)
        except MemoryError:
            raise
        except BaseException:  # noqa: S112  (whoever loads it in earnest will say so)
            continue


def _loader(trial: _Trial, file: Path) -> Callable[[Path], object]:
    found = trial.found
    if found.kind is TokenizerKind.RAW or file.name == "tokenizer.json":
        # With one id of a thousand million, writing it takes all memory.
        return (lambda path: load_json(path).to_str()) if trial.written else load_json
    if found.kind is TokenizerKind.TEKKEN or file.name == "tekken.json":
        return load_tekken
    return load_sentencepiece if ".model" in file.name else Path.exists


_apart = Confined(f"{__name__}:{loaded.__name__}")
