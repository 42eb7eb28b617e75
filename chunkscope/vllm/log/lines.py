"""Bytes of a log -> its lines, whatever was put before them and in whatever form.

vLLM writes `(EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] text`, with colours or without.
Docker, Kubernetes, journald and loggers of one's own write something before it, or put all of it
into JSON: what is vLLM's is looked for anywhere in the line.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

CUT = 1 << 20  # a line longer than that is no line of a log; what is behind is not looked at
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STAMP = re.compile(
    r"(?:\(([A-Za-z]\w*)(?: pid=\d+)?\) )?[A-Z]{4,8} "
    r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)? \[[\w./\\-]+:\d+\] ?"
)
# What `docker compose logs` and `kubectl logs --prefix` put before the lines of each server.
_REPLICA = re.compile(r"\[pod/([\w./-]{1,120})\] |([\w.-]{1,80}) +\| ")
_ISO = re.compile(r"\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_MESSAGE_KEYS = ("message", "msg", "log", "MESSAGE", "textPayload")
_TRACE_KEYS = ("exc_info", "exc_text", "exception", "stack_trace")  # what else it says of an error
_TIME_KEYS = ("timestamp", "time", "asctime", "ts", "@timestamp", "date")
_MILLISECONDS, _LATEST = 1e11, 1e10  # a number above the first is no time in seconds
_YEAR_S = 366 * 86_400.0


class LogLine(NamedTuple):
    """`text` is the message alone where vLLM's stamp is there; all else may be unknown."""

    number: int
    text: str
    at: float | None = None  # seconds of a year that nobody named
    process: str = ""  # "EngineCore_DP0"
    replica: str = ""  # which server of several wrote it, where a collector says so


def peeled(raw: bytes, number: int) -> LogLine:
    """What vLLM wrote, out of what the line has become.

    >>> line = peeled(b"vllm-1 | (EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] Hello", 1)
    >>> line.process, line.replica, line.text
    ('EngineCore', 'vllm-1', 'Hello')
    """
    text, when = raw[:CUT].decode("utf-8", "replace").rstrip("\r"), None
    if "{" in text[:200]:
        text, when = _out_of_json(text)
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    server = _REPLICA.match(text)
    replica = (server[1] or server[2]) if server else ""
    stamp = _STAMP.search(text)
    if stamp is None:
        return LogLine(number, text, _time(when or text[:64]), replica=replica)
    name, *when = stamp.groups()
    return LogLine(number, text[stamp.end() :], _seconds(when), name or "", replica)


def _out_of_json(text: str) -> tuple[str, Any]:
    """Message and time of a record; any other line as it is."""
    with suppress(ValueError, AttributeError):
        record = orjson.loads(text[text.index("{") :])
        texts = {key: value for key, value in record.items() if isinstance(value, str)}
        message = next((texts[key] for key in _MESSAGE_KEYS if key in texts), None)
        trace = next((texts[key] for key in _TRACE_KEYS if key in texts), None)
        when = next((record[key] for key in _TIME_KEYS if key in record), None)
        if message is not None:
            return f"{message}\n{trace}" if trace is not None else message, when
    return text, None


def _time(when: Any) -> float | None:
    """Of a text with a date, or of seconds or milliseconds since 1970."""
    if isinstance(when, int | float):
        seconds = when / 1000 if when > _MILLISECONDS else when
        if not 0 < seconds < _LATEST:
            return None
        return datetime.fromtimestamp(seconds, UTC).replace(year=2000).timestamp()
    date = _ISO.search(str(when))
    return _seconds(date.groups()) if date else None


def _seconds(parts: Sequence[str]) -> float | None:
    with suppress(ValueError):
        month, day, hour, minute, second = map(int, parts)
        return datetime(2000, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    return None


def seconds_between(first: float, at: float) -> float:
    """Less than half a year, for lines have no year: before New Year to after it is forward."""
    return (at - first + _YEAR_S / 2) % _YEAR_S - _YEAR_S / 2
