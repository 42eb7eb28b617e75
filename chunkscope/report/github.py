"""Verdicts for GitHub Actions: an annotation per broken promise, and a job summary."""

import os
from pathlib import Path

from chunkscope.errors import ChunkscopeError
from chunkscope.gating.verdict import GateResult, Verdict
from chunkscope.report.markdown import table, text

MOST_ROWS = 500  # a summary over 1 MiB is thrown away as a whole


def annotations(result: GateResult) -> str:
    """Workflow commands, one per line."""
    lines = [_annotation(verdict, result) for verdict in result.broken]
    if result.kept:
        lines = [f"::notice title=chunkscope gate::{escaped(result.headline)}"]
    return "\n".join(lines) + "\n"


def error_annotation(error: ChunkscopeError, budget: Path | None) -> str:
    """Of a gate that could not judge; the summary says it, too."""
    hint = f"hint: {error.hint}" if error.hint else ""
    told = "\n".join(filter(None, (error.message, hint)))
    _append(f"### chunkscope gate: cannot be judged\n\n{text(error.message)}\n\n{text(hint)}\n")
    return _error("chunkscope gate cannot judge", told, budget) + "\n"


def _annotation(verdict: Verdict, result: GateResult) -> str:
    line = _line_of(verdict.key, result.lines)
    told = "\n".join(filter(None, (verdict.told, verdict.because, verdict.advice)))
    return _error(verdict.title, told, result.budget, line)


def _error(title: str, message: str, budget: Path | None, line: int | None = None) -> str:
    properties = {
        **({"file": _in_repository(budget)} if budget else {}),
        **({"line": str(line)} if line else {}),
        "title": title,
    }
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {told}::{escaped(message)}"


def _line_of(key: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> int | None:
    """Where the promise stands; else where its table begins."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key)


def _in_repository(path: Path) -> str:
    """As GitHub wants it: seen from the top of the checkout."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    whole = path.resolve()
    return whole.relative_to(top).as_posix() if whole.is_relative_to(top) else path.as_posix()


def escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return escaped(text).replace(":", "%3A").replace(",", "%2C")


def summary(result: GateResult) -> str:
    """Markdown: what is broken first."""
    ordered = [*result.broken, *(verdict for verdict in result.verdicts if verdict.kept)]
    rows = [_row(verdict) for verdict in ordered[:MOST_ROWS]]
    left = len(ordered) - len(rows)
    return "\n".join(
        [
            f"### chunkscope gate: {result.headline}",
            "",
            table(["", "promise", "of", "promised", "found"], rows, left=5),
            *([f"\n... and {left:,} more."] if left else []),
            "",
            *dict.fromkeys(text(" ".join((v.because, v.advice)).strip()) for v in result.broken),
            "",
            f"Budget: {text(str(result.budget))}. Artefacts: {text(str(result.folder))}.",
            "",
        ]
    )


def _row(verdict: Verdict) -> list[str]:
    mark = "kept" if verdict.kept else "**broken**"
    found = verdict.found + (f" ({verdict.note})" if verdict.note else "")
    cells = (verdict.promise, verdict.subject, verdict.promised, found)
    return [mark, *map(text, cells)]


def append_summary(result: GateResult) -> str | None:
    """Add to the job's summary where there is one; what went wrong, if something did."""
    return _append(summary(result))


def _append(markdown: str) -> str | None:
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return None
    try:
        with Path(place).open("a", encoding="utf-8", errors="replace") as file:
            file.write(markdown + "\n")
    except OSError as error:
        return f"cannot write the job summary: {error.strerror}"
    return None
