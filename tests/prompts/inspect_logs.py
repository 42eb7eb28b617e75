"""Inspect logs made for tests: `.eval` with any compression, whole, in chunks, cut; and
`.json`.
"""

import io
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DEFLATE, ZSTD = 8, 93
HEADER = {
    "version": 2,
    "status": "success",
    "eval": {"task": "sums", "model": "vllm/m", "packages": {"inspect_ai": "0.3.285"}},
}


def event(
    *words: str, at: int = 0, usage: int | None = None, **more: Any
) -> dict[str, Any]:
    """A model event: a user's message for each word, sent at second `at`."""
    said = {"role": "assistant", "content": "yes"}
    output: dict[str, Any] = {"choices": [{"message": said}], "completion": "yes"}
    if usage is not None:
        output["usage"] = {
            "input_tokens": usage,
            "output_tokens": 2,
            "total_tokens": usage + 2,
        }
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


def zipped(members: dict[str, bytes], method: int = ZSTD) -> bytes:
    """A zip; Python's own `zipfile` cannot write zstd before 3.14."""
    own = sys.version_info >= (3, 14)
    zipfile: Any = import_module("zipfile" if own else "backports.zstd.zipfile")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def members(*samples: dict[str, Any], header: bool = True) -> dict[str, bytes]:
    """What a `.eval` holds; without its header it is of a run that died."""
    start = {key: HEADER[key] for key in ("version", "eval")}
    held = {"_journal/start.json": start}
    held |= {f"samples/{s['id']}_epoch_{s['epoch']}.json": s for s in samples}
    if header:
        held |= {"summaries.json": [], "header.json": HEADER}
    return {name: json.dumps(content).encode() for name, content in held.items()}


def write_eval(
    path: Path, *samples: dict[str, Any], method: int = ZSTD, **how: Any
) -> Path:
    path.write_bytes(zipped(members(*samples, **how), method))
    return path


def write_json(path: Path, *samples: dict[str, Any]) -> Path:
    path.write_text(
        json.dumps(HEADER | {"samples": samples, "reductions": [{"scorer": "s"}]})
    )
    return path
