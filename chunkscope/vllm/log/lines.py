"""Bytes of a log -> its lines, whatever was put before them and in whatever form.

vLLM writes `(EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] text`, with colours or without.
Docker, Kubernetes, journald and loggers of one's own write something before it, or put all of it
into JSON: what is vLLM's is looked for anywhere in the line.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

CUT = (
    1 << 20
)  # a line longer than that is no line of a log; what is behind is not looked at
_NOISE = re.compile(
    r"\x1b\[[0-9;]*[A-Za-z]|(?<![\w.-])\d[\d,]{15,}\b"
)  # colours, no sane number
_STAMP = re.compile(
    r"[A-Z]{4,8} (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)? \[[\w./\\-]+:\d+\] ?"
)
_PROCESS = re.compile(
    r"\(([A-Za-z]\w*)(?: pid=(\d+))?\) "
)  # also in front of a traceback
# What `docker compose logs` and `kubectl logs --prefix` put before the lines of each server.
_SERVER = re.compile(
    r"\[pod/([\w./-]{1,120})\] |((?!INFO|WARN|ERR|DEBUG)[\w.-]{1,80}) +\| "
)
_ISO = re.compile(r"\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_YEAR_S = 366 * 86_400.0


class LogLine(NamedTuple):
    """`text` is the message alone where vLLM's stamp is there; all else may be unknown."""

    number: int
    text: str
    at: float | None = None  # seconds of a year that nobody named
    process: str = ""  # "EngineCore_DP0"
    pid: str = ""
    server: str = ""  # which of several wrote it, where a collector says so


def peeled(raw: bytes, number: int) -> LogLine:
    """What vLLM wrote, out of what the line has become.

    >>> line = peeled(b"vllm-1 | (EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] Hello", 1)
    >>> line.process, line.server, line.text
    ('EngineCore', 'vllm-1', 'Hello')
    """
    text = raw[:CUT].decode("utf-8", "replace").rstrip("\r")
    if (
        "{" in text[:200]
    ):  # a record: its message, its time and the traceback of an error
        with suppress(ValueError, AttributeError):
            record = orjson.loads(text[text.index("{") :])
            text = (
                "\n".join(value for value in record.values() if isinstance(value, str))
                or text
            )
    text = _NOISE.sub("", text)
    prefix = _SERVER.match(text)
    server = (prefix[1] or prefix[2]) if prefix else ""
    process = _PROCESS.search(text[:200])
    wrote = *(process.groups("") if process else ("", "")), server
    if stamp := _STAMP.search(text):
        return LogLine(number, text[stamp.end() :], _seconds(stamp.groups()), *wrote)
    date = _ISO.search(text)
    return LogLine(number, text, _seconds(date.groups()) if date else None, *wrote)


def _seconds(parts: Sequence[str]) -> float | None:
    with suppress(ValueError):
        month, day, hour, minute, second = map(int, parts)
        return datetime(2000, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    return None


def seconds_between(first: float, at: float) -> float:
    """Less than half a year, for lines have no year: before New Year to after it is forward."""
    return (at - first + _YEAR_S / 2) % _YEAR_S - _YEAR_S / 2
