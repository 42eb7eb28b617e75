"""What changed between two folders, and what cannot be compared."""

from dataclasses import replace

from chunkscope.lengths.content import Content
from chunkscope.report.folder import compare
from chunkscope.report.markdown import markdown
from chunkscope.report.section import Cell, sections
from tests import build
from tests.report import examples


def test_a_folder_does_not_differ_from_itself(tmp_path) -> None:
    findings = examples.folder(tmp_path)
    comparison = compare(findings, findings)
    assert not comparison.moved
    assert not comparison.to_json()["notes"]
    assert markdown(comparison)


def moved(comparison) -> dict[tuple[str, str], object]:
    return {(c.name.removeprefix("drift."), c.subject): c.value for c in comparison.moved}


def test_lengths_and_settings_that_changed_are_listed(tmp_path) -> None:
    old = examples.folder(tmp_path, "profile", "plan")
    grown = build.profile(short=build.SHORT, mixed=(*build.MIXED, 9_000), new=[5])
    plan = replace(old.plan, settings=replace(old.plan.settings, max_num_seqs=7))
    comparison = compare(old, replace(old, profile=grown, plan=plan))
    changes = moved(comparison)
    assert changes["max", "mixed"] == 1.25
    assert changes["new_datasets", "new"] == 1
    assert not [subject for _, subject in changes if subject == "short"]
    assert "max_num_seqs 7" in str(sections(comparison)[1].table.rows)


def profile_of(**rows):
    """Datasets of these records."""
    datasets = []
    for name, records in rows.items():
        lengths = [len(str(record)) for record in records]
        datasets.append(build.dataset(name, lengths, content=Content.of(records)))
    return replace(build.profile(), datasets=tuple(datasets))


def compared(old, new, place):
    findings = replace(examples.folder(place, "profile"), profile=old)
    return compare(findings, replace(findings, profile=new))


def test_rows_that_changed_are_counted_whatever_their_lengths(tmp_path) -> None:
    before = profile_of(same=["a", "b"], edited=["a", "b"], grown=["a"], gone=["a", "b"])
    now = profile_of(same=["b", "a"], edited=["a", "c"], grown=["a", "b", "c"], fresh=["a"])
    comparison = compared(before, now, tmp_path)
    changed = {c.subject: c.reason.values for c in comparison.moved if c.name == "drift.content"}
    assert {name: (v["added"], v["removed"]) for name, v in changed.items()} == {
        "edited": (1, 1),
        "grown": (2, 0),
    }
    assert {("new_datasets", "fresh"), ("vanished_datasets", "gone")} <= moved(comparison).keys()
    assert comparison.to_json()["data"]


def test_data_that_is_the_same_is_called_so_only_where_that_is_known(tmp_path) -> None:
    known, unknown = profile_of(same=["a"]), build.profile(same=[1])
    assert compared(known, known, tmp_path).data == ()
    same = compared(unknown, unknown, tmp_path)
    assert same.data
    assert not same.moved


def test_lengths_of_another_tokenizer_are_not_compared(tmp_path) -> None:
    tokenizer = replace(build.TOKENIZER, digest="1", name="other")
    other = replace(build.profile(short=[1]), tokenizer=tokenizer)
    comparison = compared(build.profile(short=[2]), other, tmp_path)
    assert not comparison.moved
    assert comparison.to_json()["notes"]


def test_measured_figures_are_better_worse_or_a_tie(tmp_path) -> None:
    old = examples.folder(tmp_path, "verify")
    runs = (build.run("plan", 5.0, 5.1), build.run("default", 12.05, 12.1, gap_s=0.1))
    new = replace(old, verification=build.verification(*runs, build.run("off", 9.0, 9.1)))
    plan, default, off = sections(compare(old, new))[1:]
    _, now = plan.table.rows
    assert now[1].look == "good"
    assert "worse" in [cell.look for cell in default.table.rows[1] if isinstance(cell, Cell)]
    assert "tie" in default.table.rows[1]
    assert off.sentences
    assert len(off.table.rows) == 1


def test_another_machine_and_a_missing_result_are_noted(tmp_path) -> None:
    old = examples.folder(tmp_path, "profile", "verify")
    moved = replace(old.verification, machine=replace(old.verification.machine, vllm="0.30.0"))
    for new in (replace(old, verification=moved), replace(old, profile=None)):
        assert compare(old, new).to_json()["notes"]
