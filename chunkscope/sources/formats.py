"""Which format a name or the first bytes speak of."""

from posixpath import basename, splitext

from chunkscope.sources.archives import is_tar, is_zip
from chunkscope.sources.recognisers import CLAIMED_SUFFIXES
from chunkscope.sources.streams import COMPRESSED_SUFFIXES, looks_binary

START_BYTES = 4096
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonlines": "jsonl",
    ".json": "json",
    ".traj": "json",  # SWE-agent's
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "text",
    ".md": "text",
}


def formats() -> frozenset[str]:
    """What `input_format` may be; "saved" and "hub" show by themselves."""
    return frozenset((*_SUFFIXES.values(), *CLAIMED_SUFFIXES.values()))


def known_suffix(name: str) -> str:
    """The part of a name that says how to read it: "a/x.v2.jsonl.gz" -> ".jsonl.gz"."""
    stem, suffix = splitext(basename(name))  # pathlib takes ten times as long: files are many
    compression = suffix if suffix.lower() in COMPRESSED_SUFFIXES else ""
    inner = splitext(stem)[1] if compression else suffix
    is_known = inner.lower() in _SUFFIXES or inner.lower() in CLAIMED_SUFFIXES
    return (inner if is_known else "") + compression


def format_of_name(name: str) -> str | None:
    """ "x.jsonl.gz" -> "jsonl"; None when the suffix says nothing."""
    suffix = "." + known_suffix(name.lower()).partition(".")[2].partition(".")[0]
    return _SUFFIXES.get(suffix) or CLAIMED_SUFFIXES.get(suffix)


def kind_of_bytes(start: bytes) -> str | None:
    """What data that starts like this is: a format, "zip", "tar", or None for who knows."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if is_zip(start):
        return "zip"
    if is_tar(start):
        return "tar"
    if looks_binary(start):
        return None
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return "json"  # its reader finds out whether it is one document or a value per line
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the sample; anywhere else it is not UTF-8.
        return "text" if error.start >= len(start) - 3 else None
    return "text"
