"""One line of a log as vLLM wrote it, whatever was put before it.

vLLM writes `(EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] text`, with colours or
without. Docker, Kubernetes and journald write something before it, so what is vLLM's is
looked for anywhere in the line.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

# Bytes. A longer line is no line of vLLM's, and what is behind is not looked at.
CUT = 1 << 20
_PREFIX = 200  # characters in which a process is named

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# No size of an engine has 16 digits: 9999999999999999
_HUGE_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]{15,}\b")
# INFO 11-15 12:18:31 [core.py:114]
_STAMP = re.compile(
    r"[A-Z]{4,8} (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)? \[[\w./\\-]+:\d+\] ?"
)
# 2026-11-15T12:18:31
_ISO_TIME = re.compile(r"\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
# (EngineCore_DP0 pid=7), and not the workers, which are many
_PROCESS = re.compile(r"\(((?:APIServer|EngineCore)\w*) pid=(\d+)\) ")
# [pod/vllm-1/server] of `kubectl logs --prefix`, or vllm-1  | of `docker compose logs`
_COLLECTED = re.compile(r"\[pod/[\w./-]+\] |(?!INFO|WARN|ERR|DEBUG)[\w.-]+ +\| ")
_YEAR_S = 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """`text` is the message alone where vLLM's stamp stands before it.

    `process` is one of those that a server has once ("EngineCore_DP0"), and `writer`
    tells it from the process of another server. Both are empty where the line does not
    say.
    """

    number: int
    text: str
    at: float | None = None  # seconds since the beginning of a year that is not named
    process: str = ""
    writer: str = ""


def peeled(raw: bytes, number: int) -> LogLine:
    """What vLLM wrote, out of what the line has become.

    >>> raw = b"vllm-1 | (EngineCore pid=7) INFO 11-15 12:18:31 [core.py:114] Hi"
    >>> line = peeled(raw, 1)
    >>> line.process, line.writer, line.text
    ('EngineCore', 'vllm-1 | 7', 'Hi')
    """
    text = raw[:CUT].decode("utf-8", "replace").rstrip("\r")
    text = _COLOUR.sub("", text)
    text = _HUGE_NUMBER.sub("", text)
    process = writer = ""
    named = _PROCESS.search(text[:_PREFIX])
    if named:
        collected = _COLLECTED.match(text)
        process = named[1]
        writer = (collected[0] if collected else "") + named[2]
    message = text
    time = stamp = _STAMP.search(text)
    if stamp:
        message = text[stamp.end() :]
    else:
        time = _ISO_TIME.search(text)
    at = _second_of_year(time) if time else None
    return LogLine(number=number, text=message, at=at, process=process, writer=writer)


def _second_of_year(time: re.Match[str]) -> float | None:
    month, day, hour, minute, second = map(int, time.groups())
    with suppress(ValueError):  # there is no such day
        moment = datetime(2000, month, day, hour, minute, second, tzinfo=UTC)
        return moment.timestamp()
    return None


def seconds_between(first: float, at: float) -> float:
    """Less than half a year: no year is named, and January comes after December."""
    return (at - first + _YEAR_S / 2) % _YEAR_S - _YEAR_S / 2
