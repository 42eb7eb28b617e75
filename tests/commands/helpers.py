"""Running `chunkscope` as a user does, in this process or in another."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chunkscope import cli
from tests.processes import PATIENCE_S


@dataclass(frozen=True)
class Run:
    """What a command said, and what it left behind."""

    code: int
    out: str
    err: str
    written: bytes | None  # reports/profile.json, as this run left it

    @property
    def profile(self) -> dict[str, Any]:
        """As it is written, with the figures of each dataset beside its name."""
        assert self.written is not None, self.err
        document = json.loads(self.written)
        for dataset in document["datasets"]:
            tokens = document["figures"]["datasets"][dataset["name"]]["tokens"]
            counts = dataset["lengths"]["counts"]
            dataset |= {"rows": tokens["count"], "tokens": tokens, "histogram": counts}
        return {**document, "overall": document["figures"]["overall"]}

    @property
    def dataset(self) -> dict[str, Any]:
        (only,) = self.profile["datasets"]
        return only


def analyze(place: Path, *words: str | Path, stdin: bytes = b"") -> Run:
    return chunkscope(place, "analyze", *words, stdin=stdin)


def chunkscope(place: Path, *words: str | Path, stdin: bytes = b"") -> Run:
    """`cd place; chunkscope WORDS` in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    given = io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), encoding="utf-8")
    argv = ["chunkscope", *map(str, words)]
    with (
        chdir(place),
        patch.multiple(sys, argv=argv, stdin=given, stdout=out, stderr=err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Run(code, _text(out), _text(err), written(place))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()


def written(place: Path) -> bytes | None:
    file = place / "reports" / "profile.json"
    return file.read_bytes() if file.exists() else None


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "chunkscope", "analyze", *map(str, words)]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **changes}


def analyze_apart(
    place: Path, *words: str | Path, env: Mapping[str, str] | None = None, **how: Any
) -> Run:
    """The same in a process of its own."""
    how |= {"cwd": place, "env": environment(**(env or {})), "timeout": PATIENCE_S}
    done = subprocess.run(command(*words), capture_output=True, check=False, **how)
    return Run(
        done.returncode, done.stdout.decode(), done.stderr.decode(), written(place)
    )


def write_jsonl(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8"
    )
    return path


def prompts(count: int = 3, field: str = "prompt") -> list[dict[str, str]]:
    """Rows whose lengths differ: the n-th is n words longer than the first."""
    return [{field: "How far is it" + " and back" * n + "?"} for n in range(count)]
