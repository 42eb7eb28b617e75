"""What is shown: the answer first, short, the same in every form, and safe whatever names hold."""

import csv
import io
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from chunkscope.report.runs import runs_table
from chunkscope.report.section import sections
from chunkscope.report.words import MODULES, data, plan
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chunkscope import console as streams
from chunkscope.artefacts.note import Note
from chunkscope.gating.check import Check, GateResult, Relation
from chunkscope.report import gate, terminal
from chunkscope.report.folder import arguments, first_screen
from chunkscope.report.markdown import markdown
from chunkscope.report.profile import as_csv, lengths_chart, shortened
from chunkscope.sources import problems
from chunkscope.vllm.footprint import memory
from chunkscope.vllm.settings import Settings
from tests import build
from tests.report import examples
from tests.test_architecture import modules

ARTEFACTS = {
    "profile": examples.profile,
    "plan": examples.plan,
    "broken plan": examples.limits_broken,
    "simulation": examples.simulation,
    "sweep": lambda: examples.simulation(sweep=True),
    "verification": examples.verification,
    "memory": lambda: memory("qwen3-8b", "h100", vllm_version="0.24"),
}
EACH = pytest.mark.parametrize("name", ARTEFACTS)


def shown(artefact: object, width: int = 80, *, details: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    terminal.show(artefact, console, details=details)
    return console.file.getvalue().replace(streams.NO_BREAK, " ")  # type: ignore[attr-defined]


@EACH
@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    for line in shown(ARTEFACTS[name](), width, details=True).splitlines():
        assert len(line.rstrip()) <= width


@EACH
def test_every_form_says_the_same_sentences(name: str) -> None:
    artefact = ARTEFACTS[name]()
    text = markdown(artefact).replace("\\", "")
    on_screen = " ".join(shown(artefact, 500, details=True).split())
    for section in sections(artefact):
        for words in section.sentences:
            assert words in text
            assert " ".join(words.split()) in on_screen


def test_of_many_datasets_the_longest_are_listed_and_folders_are_one_line() -> None:
    small = [
        replace(build.dataset(f"mmlu/{n}", [10, 20]), group="mmlu") for n in range(57)
    ]
    long = build.dataset("long_context", [30_000])
    *lines, (_, everything) = shortened([*small, long])
    assert lines[0] == ("long_context", [long])
    assert len(lines) <= 20
    assert sum(len(members) for _, members in lines) == len(everything) == 58
    assert [name for name, members in lines if len(members) > 1] == ["mmlu/ (57 sets)"]
    *lines, _ = shortened(small)  # the longest is listed even where none stands out
    assert [len(members) for _, members in lines] == [1, 56]
    few = shortened([build.dataset(name, [1]) for name in "bac"])
    assert [name for name, _ in few][:3] == ["b", "a", "c"]


def test_what_holds_for_several_datasets_is_said_once() -> None:
    chats = replace(build.dataset("a", [9]), notes=(Note(code="answers_counted"),))
    profile = replace(build.profile(), datasets=(chats, replace(chats, name="b")))
    assert [note.partition(":")[0] for note in data.cautions(profile)] == ["a and b"]
    scored = examples.plan(task="loglikelihood")
    assert "1 output token each (scored)" in plan.setup(scored)
    run = examples.simulate(scored, examples.profile(), slo="itl_p99=50ms")
    assert "itl_p99 does not apply" in sections(run)[0].sentences[0]
    asked = examples.plan(max_output="short=5,mixed=9")
    assert "5 to 9 output tokens each (--max-output)" in plan.setup(asked)
    outputs = [replace(output, origin="task") for output in examples.plan().outputs]
    capped = replace(
        examples.plan(), outputs=outputs
    )  # 256 tokens are assumed below the cap
    notes = ["".join(plan.cautions(one)) for one in (examples.plan(), capped)]
    assert ["--max-output" in one for one in notes] == [False, True]


def test_what_did_better_on_an_engine_is_the_plan_to_use(tmp_path) -> None:
    findings = examples.folder(tmp_path, "profile", "plan", "verify")
    assert arguments(findings)
    default = build.run("default", 10.0, 10.1, settings=build.Settings())
    runs = build.run("plan", 20.0, 20.1), default
    worse = examples.judged(
        build.verification(*runs, plan_digest=findings.plan.digest())
    )
    other = replace(findings, verification=worse)
    assert not arguments(other)
    tiles = [
        {row[0] for row in first_screen(one).table.rows} for one in (findings, other)
    ]
    assert tiles[0] - tiles[1] == {"time", "chunked"}, "they are of the plan's settings"


def test_a_peak_that_was_not_measured_is_left_out(tmp_path) -> None:
    """As on a CPU."""
    findings = examples.folder(tmp_path, "profile", "plan", "verify")
    v = findings.verification
    runs = tuple(replace(run, workers=()) for run in v.runs)
    for one, part in (
        (v, "tokens; activations "),
        (replace(v, runs=runs), "tokens; measured"),
    ):
        rows = first_screen(replace(findings, verification=one)).table.rows
        (meaning,) = (row[2] for row in rows if row[0] == "KV cache")
        assert meaning.startswith(part)


def test_what_another_plan_did_is_no_answer_of_this_one(tmp_path) -> None:
    findings = examples.folder(tmp_path, "profile", "plan", "verify")
    other = replace(
        findings, verification=replace(findings.verification, plan_digest="other")
    )
    told = {s.title: s.details for s in sections(other) if "measured" in s.title}
    assert told == {"What was measured, of another plan": True}


def test_a_simulation_names_all_of_its_gpus_and_a_limit_that_breaks_by_little() -> None:
    simulation = examples.simulate(examples.plan(tp=2), examples.profile())
    assert "2 x L4 (never measured)" in sections(simulation)[0].sentences[1]
    limit = f"ttft_p95={simulation.runs[0].figures.ttft_s.p95 - 1e-6:.9f}s"
    broken = examples.simulate(examples.plan(tp=2), examples.profile(), slo=limit)
    assert len({*re.findall(r"[\d.]+(?= m?s)", sections(broken)[0].sentences[0])}) > 1


@pytest.mark.parametrize(
    ("times", "said"), [(1.029, "within 3 % of"), (1.0301, "+3 % throughput")]
)
def test_a_simulation_calls_a_gain_what_the_plan_calls_it(times, said) -> None:
    simulation = examples.simulation()
    ours = replace(simulation.runs[0], same_as=())
    slower = replace(ours.figures, makespan_s=times * ours.figures.makespan_s)
    default = replace(ours, setting="default", figures=slower)
    changed = replace(simulation, runs=(ours, default))
    assert said in sections(changed)[0].sentences[0]


def test_long_times_of_a_column_have_one_unit() -> None:
    runs = [
        (name, build.run(name, took, took))
        for name, took in (("plan", 125.0), ("off", 115.0))
    ]
    table = runs_table(runs)
    assert table is not None
    assert [str(row[1]) for row in table.rows] == ["2.08 min", "1.92 min"]


# -- strangers -----------------------------------------------------------------------------------


def test_of_a_model_that_does_not_fit_no_requests_are_counted() -> None:
    assert "requests that fit" in shown(memory("qwen3-8b", "h100"))
    assert "requests that fit" not in shown(memory("llama-3.3-70b", "l4"))
    sizes = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
    text = shown(
        memory("qwen3-8b", "h100", task="loglikelihood", **dict.fromkeys(sizes, 1))
    )
    assert " 1 token " in text
    assert not re.search(r"\b(?<![.,])1 (tokens|requests)\b", text)


def test_no_limit_is_no_number_that_a_setting_replaces() -> None:
    """vLLM's default threshold is 0, which is no limit."""
    settings, default = (Settings(long_prefill_token_threshold=n) for n in (512, 0))
    assert plan.listed(settings, default) == "long_prefill_token_threshold 512"


def test_a_terminal_shows_names_and_does_not_obey(capsys) -> None:
    streams.show(lambda out: terminal.show(examples.hostile(), out, details=True))
    text = capsys.readouterr().out
    assert "\x1b[31m" not in text
    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert "[/b]" in text


def test_markdown_shows_names_and_does_not_obey() -> None:
    text = markdown(examples.hostile())
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert not re.search(r"(?<!\\)@team", text)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) > 2 for line in table)


def test_markdown_folds_details_and_closes_each_fold() -> None:
    for artefact in (examples.profile(), examples.hostile()):
        folds = re.findall("</?details>", markdown(artefact))
        assert folds == ["<details>", "</details>"] * (len(folds) // 2)
        assert folds


def test_a_spreadsheet_finds_no_formula() -> None:
    profile = build.profile(**{"=1+1": [5]})
    (row,) = list(csv.DictReader(io.StringIO(as_csv(profile))))
    assert row["dataset"] == "'=1+1"
    assert row["p50"] == "5.0" or row["p50"] == "5"


def test_bins_hold_every_prompt() -> None:
    profile = examples.profile()
    chart = lengths_chart(profile)
    lengths = {dataset.name: dataset.rows for dataset in profile.datasets}
    drawn = {
        s["name"]: sum(count for *_, count in s["bins"]) for s in chart.data["sets"]
    }
    assert drawn == {"all together": profile.overall.count, **lengths}
    assert lengths_chart(build.profile(empty=[])) is None
    assert shown(build.profile(empty=[]))


def test_every_note_of_the_package_has_a_sentence() -> None:
    """Codes are found by how they are written: Note(code="...")."""
    written = re.compile(
        r'(?:Note\(\s*code=|(?:\bnote|DataError|Refused)\(\s*)"([a-z0-9_-]+)"'
    )
    used = {
        code for path in modules() for code in written.findall(path.read_text("utf-8"))
    }
    words = [
        import_module(f"chunkscope.report.words.{module}").SENTENCES
        for module in MODULES
    ]
    words.append(problems.SENTENCES)
    codes = [code for sentences in words for code in sentences]
    assert used
    assert not used - {*codes}
    assert len(codes) == len({*codes})  # each has one sentence
    below = "".join(
        p.read_text("utf-8")
        for p in modules()
        if "/chunkscope/report/" not in str(p) and p.name != "problems.py"
    )
    assert not [c for c in problems.SENTENCES | problems.HINTS if f'"{c}"' not in below]


# -- the gate's verdicts in CI ---------------------------------------------------------------------


@given(st.text())
def test_junit_is_xml_and_an_annotation_one_line_whatever_a_dataset_is_called(
    name: str,
) -> None:
    sizes = {"relation": Relation.AT_MOST, "limit": 1, "value": 2, "unit": "count"}
    check = Check(name="data.p95", subject=name, passed=False, **sizes)
    result = GateResult(
        budget=Path("chunkscope.toml"), folder=Path("reports"), checks=(check,)
    )
    assert ElementTree.fromstring(gate.junit(result)) is not None
    line, end = gate.annotations(result).split("\n")
    assert line.startswith("::error ")
    assert "\r" not in line
    assert not end
