"""Blocks as Markdown: for pull requests and job summaries."""

import re

from chunkscope.report.blocks import Details, Fact, Facts, Flags, Headline, Notes, Text
from chunkscope.report.blocks import table as table_of
from chunkscope.report.markdown import markdown
from chunkscope.report.show import blocks
from tests.report import examples


def test_every_kind_of_block_has_a_form() -> None:
    parts = [
        Headline("Keep it."),
        Facts((Fact(label="time", value="1 s", remark="simulated"),)),
        Flags("--max-num-seqs 8"),
        table_of(("setting", "time"), [("plan", "1 s")]),
        Details("More", (Text("b"),)),
        Notes(("One.",)),
    ]
    assert markdown(parts) == (
        "**Keep it.**\n\n"
        "- time: **1 s** simulated\n\n"
        "    --max-num-seqs 8\n\n"
        "| setting | time |\n| --- | ---: |\n| plan | 1 s |\n\n"
        "<details><summary>More</summary>\n\nb\n\n</details>\n\n"
        "- One.\n"
    )


def test_names_are_shown_and_not_obeyed() -> None:
    text = markdown(blocks(examples.hostile()))
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert not re.search(r"(?<!\\)@team", text)


def test_a_bar_in_a_name_ends_no_cell() -> None:
    text = markdown(blocks(examples.hostile()))
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) > 2


def test_each_fold_is_closed() -> None:
    folds = re.findall("</?details>", markdown(blocks(examples.profile())))
    assert folds == ["<details>", "</details>"] * (len(folds) // 2)
    assert folds
