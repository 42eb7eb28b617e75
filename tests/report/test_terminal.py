"""Blocks on a terminal: nothing too wide, nothing obeyed, readable without colour."""

import io
import re
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console

from chunkscope import console as streams
from chunkscope.report import terminal
from chunkscope.report.blocks import (
    Block,
    Details,
    Fact,
    Facts,
    Flags,
    Heading,
    Headline,
    Notes,
    Text,
    table,
)
from chunkscope.report.charts import Bin, Histogram
from chunkscope.report.show import blocks
from chunkscope.vllm.footprint import memory
from tests.report import examples

ARTEFACTS: dict[str, Callable[[], object]] = {
    "profile": examples.profile,
    "plan": examples.plan,
    "broken plan": examples.limits_broken,
    "simulation": examples.simulation,
    "sweep": lambda: examples.simulation(sweep=True),
    "verification": examples.verification,
    "memory": lambda: memory("qwen3-8b", "h100", vllm_version="0.24"),
}


def shown(parts: Sequence[Block], width: int = 80, *, details: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    terminal.show(parts, console, details=details)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = text.replace(streams.NO_BREAK, " ").splitlines()
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.parametrize("name", ARTEFACTS)
@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = shown(blocks(ARTEFACTS[name]()), width, details=True)
    assert max(len(line) for line in text.splitlines()) <= width


def test_sentences_follow_each_other_and_tables_stand_apart() -> None:
    parts = [
        Headline("Keep it."),
        Text("It is fast."),
        table(("setting", "time"), [("plan", "1 s")]),
        Notes(("One.", "Two.")),
    ]
    assert shown(parts).split("\n") == [
        "Keep it.",
        "It is fast.",
        "",
        "setting  time",
        "plan      1 s",
        "",
        "note: One.",
        "note: Two.",
    ]


def test_a_heading_stands_on_what_it_is_about() -> None:
    assert shown([Text("a"), Heading("B"), Text("c")]).split("\n") == [
        "a",
        "",
        "B",
        "c",
    ]


def test_facts_are_aligned() -> None:
    facts = (
        Fact(label="time", value="1 s", remark="simulated"),
        Fact(label="concurrency", value="218"),
    )
    assert shown([Facts(facts)]).split("\n") == [
        "time         1 s  simulated",
        "concurrency  218",
    ]


def test_details_are_shown_only_when_they_are_asked_for() -> None:
    inner = Details("Deeper", (Text("below"),))
    parts = [Text("a"), Details("More", (Text("b"), inner))]
    assert shown(parts).split("\n") == ["a", "", "More: --details"]
    assert shown(parts, details=True).split("\n") == [
        "a",
        "",
        "More",
        "b",
        "",
        "Deeper",
        "below",
    ]


def test_empty_parts_leave_no_trace() -> None:
    parts = [Text("a"), Flags(""), Notes(()), table(("x",), []), Details("D", ())]
    assert shown(parts) == "a"


def test_a_table_that_is_too_wide_goes_on_below_with_its_first_column() -> None:
    headings = ["figure", *(f"setting number {place}" for place in range(6))]
    rows = [["time", *["1.00 s"] * 6]]
    lines = shown([table(headings, rows)], width=60).splitlines()
    assert [line.split()[0] for line in lines] == ["figure", "time", "figure", "time"]


def test_a_histogram_is_a_line_for_each_bin() -> None:
    bins = (Bin(low=0, high=64, count=3), Bin(low=64, high=128, count=1))
    chart = Histogram(title="Lengths", alternative="", bins=bins)
    title, first, second = shown([chart]).splitlines()
    assert title == "Lengths"
    assert first.split() == ["0", "to", "63", "█" * 40, "3", "75", "%"]
    assert second.split()[3] == "█" * 13 + "▍"


def test_names_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    parts = blocks(examples.hostile())
    streams.show(lambda out: terminal.show(parts, out, details=True))
    text = capsys.readouterr().out
    assert "\x1b[31m" not in text
    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert "[/b]" in text
