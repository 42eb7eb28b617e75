"""Bytes of a log -> its lines, whatever was put before them and in whatever form.

vLLM writes `(EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] text`, with colours or without.
Docker, Kubernetes, journald and loggers of one's own write something before it, or put all of it
into JSON: what is vLLM's is looked for anywhere in the line.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

CUT = 1 << 20  # a line longer than that is no line of a log; what is behind is not looked at
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STAMP = re.compile(
    r"([A-Z]{4,8}) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)? "
    r"\[([\w./\\-]+:\d+)\] ?"
)
# What `docker compose logs` and `kubectl logs --prefix` put before the lines of each server.
_REPLICA = re.compile(r"\[pod/([\w./-]{1,120})\] |([\w.-]{1,80}) +\| ")
_PROCESS = re.compile(r"\(([A-Za-z]\w*)(?: pid=\d+)?\) ?$")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
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
    level: str = ""
    place: str = ""  # "core.py:114"
    replica: str = ""  # which server of several wrote it, where a collector says so


def blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines. A line that never ends is cut, so memory stays what it is."""
    rest = b""
    for chunk in chunks:
        whole, end, last = chunk.rpartition(b"\n")
        if end:
            yield rest + whole + end
            rest = last[:CUT]
        else:
            rest = (rest + last)[:CUT]
    if rest:
        yield rest + b"\n"


def peeled(raw: bytes, number: int) -> LogLine:
    """What vLLM wrote, out of what the line has become.

    >>> line = peeled(b"vllm-1 | (EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] Hello", 1)
    >>> line.process, line.place, line.text
    ('EngineCore', 'core.py:114', 'Hello')
    """
    text, when = raw[:CUT].decode("utf-8", "replace").rstrip("\r"), None
    if "{" in text[:200] and (found := _of_json(text[text.index("{") :])):
        text, when = found
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    server = _REPLICA.match(text)
    replica = (server[1] or server[2]) if server else ""
    stamp = _STAMP.search(text)
    if stamp is None:
        at = _iso(when or text[:64])
        return LogLine(number=number, text=text, at=at, replica=replica)
    level, month, day, hour, minute, second, place = stamp.groups()
    begin = stamp.start()
    process = _PROCESS.search(text[:begin]) if ")" in text[max(0, begin - 2) : begin] else None
    return LogLine(
        number=number,
        text=text[stamp.end() :],
        at=_seconds(int(month), int(day), int(hour), int(minute), int(second)),
        process=process[1] if process else "",
        level=level,
        place=place,
        replica=replica,
    )


def _of_json(text: str) -> tuple[str, str | None] | None:
    try:
        found = orjson.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    message = next((found[key] for key in _MESSAGE_KEYS if isinstance(found.get(key), str)), None)
    trace = next((found[key] for key in _TRACE_KEYS if isinstance(found.get(key), str)), None)
    if message is not None and trace is not None:
        message = f"{message}\n{trace}"
    when = next((found[key] for key in _TIME_KEYS if key in found), None)
    return (message, _written_out(when)) if message is not None else None


def _written_out(when: object) -> str | None:
    """A time in JSON: text, or seconds or milliseconds since 1970.

    >>> _written_out(1792752000.5), _written_out(1792752000500)
    ('2026-10-23T10:40:00.500000+00:00', '2026-10-23T10:40:00.500000+00:00')
    """
    if not isinstance(when, int | float):
        return None if when is None else str(when)
    seconds = when / 1000 if when > _MILLISECONDS else when
    return datetime.fromtimestamp(seconds, UTC).isoformat() if 0 < seconds < _LATEST else None


def _iso(text: str) -> float | None:
    found = _ISO.search(text)
    return _seconds(*map(int, found.groups()[1:])) if found else None


def _seconds(month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    try:
        return datetime(2000, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


class LogClock:
    """Seconds since the first line. Lines have no year: a jump back by half a one is New Year."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._years = 0.0

    def since_first(self, at: float | None) -> float | None:
        if at is None:
            return None
        if self._first is None:
            self._first = self._last = at
        at += self._years
        if at < self._last - _YEAR_S / 2:
            self._years += _YEAR_S
            at += _YEAR_S
        self._last = at
        return at - self._first
