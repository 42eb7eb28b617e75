"""What changed between two folders, and what cannot be compared."""

from dataclasses import replace

from chunkscope.lengths.content import ContentDigest
from chunkscope.report.comparison import compare, data_changes
from chunkscope.report.markdown import markdown
from chunkscope.report.section import Cell, sections
from tests import build
from tests.report import examples


def test_a_folder_does_not_differ_from_itself(tmp_path) -> None:
    findings = examples.folder(tmp_path)
    comparison = compare(findings, findings)
    assert not comparison.data
    assert not comparison.notes
    assert markdown(comparison)


def test_lengths_and_settings_that_changed_are_listed(tmp_path) -> None:
    old = examples.folder(tmp_path, "profile", "plan")
    grown = build.profile(short=build.SHORT, mixed=(*build.MIXED, 9_000), new=[5])
    plan = replace(old.plan, settings=replace(old.plan.settings, max_num_seqs=7))
    comparison = compare(old, replace(old, profile=grown, plan=plan))
    changes = {one.dataset: one for one in comparison.data}
    assert (changes["mixed"].before["longest"], changes["mixed"].now["longest"]) == (4_000, 9_000)
    assert changes["new"].before is None
    assert changes["new"].now["rows"] == 1
    assert "short" not in changes
    assert comparison.to_json()["new"]["settings"]["max_num_seqs"] == 7
    assert any(
        "max_num_seqs 7" in str(cell) for row in sections(comparison)[1].table.rows for cell in row
    )


def profile_of(**rows):
    """Datasets of these records."""
    datasets = []
    for name, records in rows.items():
        digest = ContentDigest()
        digest.add(records)
        lengths = [len(str(record)) for record in records]
        datasets.append(build.dataset(name, lengths, content=digest.content()))
    return replace(build.profile(), datasets=tuple(datasets))


def test_what_changed_in_the_data_comes_first(tmp_path) -> None:
    before = profile_of(same=["a", "b"], edited=["a", "b"], grown=["a"], gone=["a", "b"])
    now = profile_of(same=["b", "a"], edited=["a", "c"], grown=["a", "b", "c"], fresh=["a"])
    changes = {one.dataset: one for one in data_changes(before, now)}
    counts = {name: (one.added, one.removed, one.changed) for name, one in changes.items()}
    assert counts == {
        "edited": (0, 0, 1),
        "grown": (2, 0, 0),
        "gone": (0, 2, 0),
        "fresh": (1, 0, 0),
    }
    old = replace(examples.folder(tmp_path, "profile"), profile=before)
    comparison = compare(old, replace(old, profile=now))
    first, *_ = sections(comparison)
    assert first.table is not None
    assert len(first.table.rows) == 4
    assert comparison.to_json()["data"][0]["dataset"] == "edited"


def test_data_that_is_the_same_is_called_so_only_where_that_is_known() -> None:
    known = profile_of(same=["a"])
    assert data_changes(known, known) == ()
    unknown = build.profile(same=[1])
    assert data_changes(unknown, unknown) is None
    (change,) = data_changes(unknown, build.profile(same=[2])) or ()
    assert change.added is None


def test_lengths_of_another_tokenizer_are_not_compared(tmp_path) -> None:
    old = examples.folder(tmp_path, "profile")
    other = replace(
        build.profile(short=[1]), tokenizer=replace(build.TOKENIZER, digest="1", name="other")
    )
    comparison = compare(old, replace(old, profile=other))
    assert all(one.now is None or one.now["p95"] is None for one in comparison.data)
    assert comparison.notes


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
    assert compare(old, replace(old, verification=moved)).notes
    assert compare(old, replace(old, profile=None)).notes
