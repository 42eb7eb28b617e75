"""Inspect logs made for tests: `.eval` with any compression, whole, in chunks, cut; and `.json`."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import zstandard

DEFLATE, ZSTD = 8, 93
HEADER = {
    "version": 2,
    "status": "success",
    "eval": {"task": "sums", "model": "vllm/m", "packages": {"inspect_ai": "0.3.285"}},
}


def event(*words: str, at: int = 0, usage: int | None = None, **more: Any) -> dict[str, Any]:
    """A model event: a user's message for each word, sent at second `at`."""
    output: dict[str, Any] = {"completion": "yes"}
    if usage is not None:
        output["usage"] = {"input_tokens": usage, "output_tokens": 2, "total_tokens": usage + 2}
    return {
        "event": "model",
        "timestamp": f"2026-11-15T12:00:{at:02}+00:00",
        "model": "vllm/m",
        "input": [{"role": "user", "content": word} for word in words],
        "tools": [],
        "config": {"max_tokens": 64},
        "output": output,
    } | more


def sample(number: int | str, *events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": number, "epoch": 1, "events": list(events), "attachments": {}} | more


def packed(data: bytes, method: int) -> bytes:
    if method == DEFLATE:
        machine = zlib.compressobj(9, wbits=-15)
        return machine.compress(data) + machine.flush()
    return zstandard.compress(data) if method == ZSTD else data


def zipped(members: dict[str, bytes], method: int = ZSTD) -> bytes:
    """A zip, written by hand: Python's `zipfile` cannot write zstd before 3.14."""
    body, listing = b"", b""
    for name, data in members.items():
        inside, crc = packed(data, method), zlib.crc32(data)
        known = struct.pack("<5HL2L2H", 45, 0x800, method, 0, 0, crc, len(inside), len(data),
                            len(name.encode()), 0)  # fmt: skip
        listing += b"PK\x01\x02\x2d\x00" + known + struct.pack("<3H2L", 0, 0, 0, 0, len(body))
        listing += name.encode()
        body += b"PK\x03\x04" + known + name.encode() + inside
    count = len(members)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(listing), len(body), 0)
    return body + listing + end


def members(*samples: dict[str, Any], header: bool = True) -> dict[str, bytes]:
    """What a `.eval` holds; without its header it is of a run that died."""
    start = {key: HEADER[key] for key in ("version", "eval")}
    held = {"_journal/start.json": start}
    held |= {f"samples/{s['id']}_epoch_{s['epoch']}.json": s for s in samples}
    if header:
        held |= {"summaries.json": [], "header.json": HEADER}
    return {name: json.dumps(content).encode() for name, content in held.items()}


def write_eval(path: Path, *samples: dict[str, Any], method: int = ZSTD, **how: Any) -> Path:
    path.write_bytes(zipped(members(*samples, **how), method))
    return path


def write_json(path: Path, *samples: dict[str, Any]) -> Path:
    path.write_text(json.dumps(HEADER | {"samples": samples, "reductions": [{"scorer": "s"}]}))
    return path
