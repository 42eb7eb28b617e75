"""What changed between two runs."""

from dataclasses import replace
from pathlib import Path

from chunkscope.findings import Findings, load_findings
from chunkscope.report.comparison import Comparison, Part, compare
from chunkscope.verification.verdict import Outcome
from chunkscope.vllm.log.fate import Status
from tests.build import TOKENIZER
from tests.report import examples
from tests.report.examples import dataset, lengths, repeated, run, worker


def found(folder: Path, **parts: object) -> Findings:
    return load_findings(examples.write(folder, **{"found": examples.profile(), **parts}))


def said(comparison: Comparison, part: Part) -> list[tuple[str, str, str, str]]:
    return [(c.subject, c.figure, c.old, c.new) for c in comparison.of(part)]


def test_a_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    findings = examples.everything(tmp_path)
    comparison = compare(findings, findings)
    assert comparison.changes == ()
    assert comparison.notes == ()


def test_lengths_mode_and_arguments_are_told(tmp_path: Path) -> None:
    shorter = examples.profile(
        dataset("gsm8k", lengths(100, 1_319, 0.3, 1), field="question"),
        dataset("mmlu", lengths(90, 200, 0.2, 9)),
    )
    comparison = compare(found(tmp_path / "old"), found(tmp_path / "new", found=shorter))
    changes = said(comparison, Part.LENGTHS)
    assert ("mmlu", "prompts", "not there", "200") in changes
    assert ("qmsum", "prompts", "200", "not there") in changes
    assert ("all together", "longest", "32,683", "300") in changes
    assert not [change for change in changes if change[0] == "gsm8k"]
    assert ("plan", "mode", "aggressive", "off") in said(comparison, Part.MODE)
    assert ("plan", "threshold", "7,289", "none") in said(comparison, Part.MODE)
    assert ("plan", "enable_chunked_prefill", "default", "False") in said(
        comparison, Part.ARGUMENTS
    )


def test_lengths_of_another_tokenizer_are_not_compared(tmp_path: Path) -> None:
    other = replace(examples.profile(), tokenizer=replace(TOKENIZER, name="b", digest="1"))
    comparison = compare(found(tmp_path / "old"), found(tmp_path / "new", found=other))
    assert comparison.of(Part.LENGTHS) == ()
    assert Part.LENGTHS not in comparison.compared
    assert comparison.comparable_profile is None
    assert any("lengths are not comparable" in note for note in comparison.notes)


def test_measured_figures_are_better_worse_or_a_tie(tmp_path: Path) -> None:
    def verified(scale: float, activation: float) -> object:
        runs = (
            run(
                "plan", workers=(worker(activation=activation),), **repeated(scale=scale, gap=0.02)
            ),
        )
        return examples.verification(runs=runs)

    old = found(tmp_path / "old", verified=verified(1.0, 0.9))
    comparison = compare(old, found(tmp_path / "new", verified=verified(0.8, 1.3)))
    outcomes = {change.figure: change.outcome for change in comparison.of(Part.MEASURED)}
    assert outcomes["time for all requests"] is Outcome.BETTER
    assert outcomes["output tokens per second"] is Outcome.BETTER
    assert outcomes["activation peak"] is Outcome.WORSE
    noise = compare(old, found(tmp_path / "noise", verified=verified(1.005, 0.9)))
    assert noise.of(Part.MEASURED) == ()
    assert noise.ties > 5


def test_a_setting_that_fails_now_is_told(tmp_path: Path) -> None:
    good = examples.verification(runs=(run("plan", **repeated(scale=1, gap=0.02)),))
    bad = examples.verification(runs=(run("plan", Status.OUT_OF_MEMORY), run("extra")))
    old, new = found(tmp_path / "old", verified=good), found(tmp_path / "new", verified=bad)
    assert said(compare(old, new), Part.MEASURED) == [
        ("plan", "status", "ok", "out of memory"),
        ("extra", "status", "not measured", "ok"),
    ]


def test_another_machine_or_model_is_noted(tmp_path: Path) -> None:
    first = examples.verification()
    assert first.machine is not None
    other = replace(first, machine=replace(first.machine, vllm="0.32.0"))
    comparison = compare(
        found(tmp_path / "old", verified=first), found(tmp_path / "new", verified=other)
    )
    assert any("differences may come from that" in note for note in comparison.notes)


def test_an_artefact_of_one_side_only_is_noted(tmp_path: Path) -> None:
    old = found(tmp_path / "old")
    new = found(tmp_path / "new", verified=examples.verification())
    assert f"verify.json is only in {tmp_path / 'new'}." in compare(old, new).notes
