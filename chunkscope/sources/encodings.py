"""Text encodings: whatever a file is written in is read as UTF-8 without a byte order mark."""

import codecs
from collections.abc import Iterator

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import CHUNK_BYTES
from chunkscope.sources.byte_stream import ByteStream, DerivedStream

_TEXT_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BAD_BYTES = "chunkscope.bad-bytes"


def _mark_bad_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Put a byte that no UTF-8 has where text cannot be decoded, so that its row is found bad."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return b"\xff", error.end
    raise error


codecs.register_error(_BAD_BYTES, _mark_bad_bytes)


def as_utf8(raw: ByteStream, shown: str, encoding: str) -> ByteStream:
    codec = _codec(encoding)
    if codec.name not in ("utf-8", "utf-8-sig"):
        return DerivedStream(_recode(raw, codec, shown), raw)
    start = raw.peek(4)
    if start.startswith(codecs.BOM_UTF8):
        raw.read(len(codecs.BOM_UTF8))
        return raw
    for bom, name in _TEXT_BOMS:
        if start.startswith(bom):
            return DerivedStream(_recode(raw, codecs.lookup(name), shown), raw)
    return raw


def _codec(encoding: str) -> codecs.CodecInfo:
    try:
        codec = codecs.lookup(encoding)
    except (LookupError, ValueError):
        codec = None
    if codec is None or not getattr(codec, "_is_text_encoding", True):
        raise UsageError(
            f"unknown text encoding: {encoding}", hint="try utf-8, latin-1, cp1252 or utf-16"
        )
    return codec


def _recode(raw: ByteStream, codec: codecs.CodecInfo, shown: str) -> Iterator[bytes]:
    if codec.incrementaldecoder is None:
        raise UsageError(f"the encoding {codec.name} cannot be read", hint="try utf-8 or latin-1")
    decoder = codec.incrementaldecoder(errors=_BAD_BYTES)
    first = True
    while True:
        data = raw.read(CHUNK_BYTES)
        try:
            text = decoder.decode(data, final=not data)
        except (UnicodeError, ValueError) as error:
            raise InputError(
                f"{shown} is not {codec.name} text ({error})", hint="try another --encoding"
            ) from error
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        if text:
            yield text.encode("utf-8", errors=_BAD_BYTES)
        if not data:
            return


def looks_binary(start: bytes) -> bool:
    """Is this the start of something that is no text? A stray NUL in UTF-8 is still text."""
    if b"\0" not in start or start.startswith(tuple(bom for bom, _ in _TEXT_BOMS)):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return start.count(b"\0") * 20 > len(start)
