"""A log as bytes: a file, compressed or not, one that still grows, or standard input."""

import codecs
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.sources.streams import Stream, as_utf8, decompressed, open_path, open_stdin
from chunkscope.vllm.log.lines import CUT, blocks
from chunkscope.vllm.log.reader import LogReader

STDIN = "-"
_PIECE = 1 << 20
_OTHERS = {  # words that only other servers write
    "SGLang": (b"sglang", b"#running-req"),
    "TGI": (b"text_generation_launcher", b"text-generation-router"),
    "llama.cpp": (b"llama_model_loader", b"llama_context"),
    "TensorRT-LLM": (b"[TRT-LLM]", b"tensorrt_llm"),
}


def read_log(name: str, reader: LogReader) -> tuple[Note, ...]:
    """Feed a whole log to the reader; what is to be said about it. InputError if it is none."""
    shown = "standard input" if name == STDIN else name
    if name != STDIN and Path(name).is_dir():
        raise InputError(f"{name} is a folder", hint="name the log itself, such as vllm.log")
    if name != STDIN and not Path(name).exists():
        raise InputError(
            f"no such log: {name}", hint="give what `vllm serve` wrote, such as vllm.log"
        )
    raw = open_stdin() if name == STDIN else open_path(Path(name), shown)
    plain = decompressed(raw, shown)
    wide = plain.peek(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as PowerShell writes
    with closing(as_utf8(plain, shown, "utf-8") if wide else plain) as stream:
        start, cut = stream.peek(1 << 16), list[Note]()
        for block in blocks(_pieces(stream, cut)):
            reader.feed(block)
    if not reader.understood:
        raise _no_log(shown, start, reader)
    return tuple(cut)


def _pieces(stream: Stream, cut: list[Note]) -> Iterator[bytes]:
    try:
        while data := stream.read(_PIECE):
            yield data
    except InputError as error:  # what came before it counts
        cut.append(note("log_cut", why=error.message))


def _no_log(shown: str, start: bytes, reader: LogReader) -> InputError:
    if b"\0" in start:  # a few may be in a log: copytruncate leaves them at its start
        return InputError(f"{shown} is no log: it is binary")
    if not reader.lines:
        return InputError(f"{shown} is empty")
    other = next((n for n, words in _OTHERS.items() if any(w in start for w in words)), None)
    if other:
        return InputError(f"{shown} looks like a log of {other}, not of vLLM")
    return InputError(
        f"{shown} is no log of vLLM: none of its {reader.lines:,} lines is one that vLLM writes",
        hint="give what `vllm serve` wrote to stdout and stderr, at level INFO",
    )


def growing(path: Path, *, every_s: float = 1.0) -> Iterator[bytes]:
    """The lines of a file as they come, and nothing where none came for a while.

    One that is begun anew is read from its start, and so is another that gets its name.
    """
    rest, file = b"", path.open("rb")
    try:
        while True:
            if data := file.read(_PIECE):
                whole, end, last = (rest + data).rpartition(b"\n")
                rest = last[:CUT]
                yield whole + end
                continue
            yield b""
            time.sleep(every_s)
            mine, named = os.fstat(file.fileno()), path.stat() if path.exists() else None
            if named is None or mine.st_size > file.tell():
                continue
            if not os.path.samestat(mine, named):  # moved away, as collectors do
                file.close()
                rest, file = b"", path.open("rb")
            elif mine.st_size < file.tell():  # truncated, as logrotate does
                file.seek(0)
                rest = b""
    finally:
        file.close()
