"""What the report says: the verdict, the bill, the figures, and where they come from."""

import ast
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from chunkscope.planning.policy import Tier
from rich.console import Console

from chunkscope.artefacts.figures import ACTIVATION, FIGURES, ITL_MAX, MAKESPAN
from chunkscope.artefacts.labels import Label
from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import recommend
from chunkscope.report import sentences
from chunkscope.report.answer import answer, verdict
from chunkscope.report.markdown import as_markdown
from chunkscope.report.memory_bill import bills
from chunkscope.report.page import render
from chunkscope.report.provenance import origins
from chunkscope.report.summary import summarize
from chunkscope.report.terminal.findings import show_findings
from chunkscope.report.terminal.plan import show_plan
from chunkscope.report.terminal.verification import show_verification
from chunkscope.report.tradeoff import setting_names, tradeoff
from chunkscope.report.words.verdicts import comparison as against
from chunkscope.report.words.verdicts import shown
from chunkscope.simulation.result import Backlog
from chunkscope.verification.result import Verification
from chunkscope.verification.verdict import Outcome, judge, spread
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.log.fate import Status
from tests.build import SHORT
from tests.report import examples
from tests.report.examples import repeated, run, worker

# -- the verdict ---------------------------------------------------------------------------------


def test_a_plan_that_nobody_ran_is_predicted(tmp_path: Path) -> None:
    summary = summarize(load_findings(examples.write(tmp_path, found=examples.profile())))
    assert summary.headline.startswith("Cap prefill chunks at ")
    assert summary.title == "llama-3.1-8b on NVIDIA H200"
    assert summary.basis is Label.PREDICTED
    assert (
        summary.refused
        == "No prompt is refused, cut or stopped early: the longest leaves room in 33,792 "
        "tokens for 256 output tokens (assumed)."
    )


def test_a_plan_that_was_run_is_measured(tmp_path: Path) -> None:
    summary = summarize(examples.everything(tmp_path))
    assert summary.basis is Label.MEASURED
    assert summary.basis_text == "on NVIDIA H200, vLLM 0.24.0, dummy weights, 6 requests x 3"
    assert any(
        "longest gap between tokens 400 ms instead of 620 ms (-35 %)" in g for g in summary.gains
    )
    assert "off: out of memory at 32,768 tokens." in summary.gains


def test_measurements_of_another_plan_do_not_count(tmp_path: Path) -> None:
    folder = examples.write(tmp_path, found=examples.profile())
    replace(examples.verification(), plan_digest="of another").save(folder / "verify.json")
    summary = summarize(load_findings(folder))
    assert summary.basis is Label.PREDICTED
    assert any("belong to another plan" in line for line in summary.mixed)


def test_a_plan_of_another_profile_is_called_out(tmp_path: Path) -> None:
    folder = examples.write(tmp_path, found=examples.profile())
    examples.profile(examples.dataset("other", examples.lengths(50, 10, 0.1, 1))).save(
        folder / "profile.json"
    )
    assert any("another profile" in line for line in summarize(load_findings(folder)).mixed)


def test_a_better_row_is_said_beside_the_verdict(tmp_path: Path) -> None:
    verified = examples.verification(better="default", verdict="default is better than the plan.")
    folder = examples.write(tmp_path, found=examples.profile(), verified=verified)
    summary = summarize(load_findings(folder))
    assert summary.headline == "Keep vLLM's default"
    assert summary.overruled is not None
    assert summary.overruled.startswith("The plan said: Cap prefill chunks at ")
    assert summary.overruled.endswith(
        "On the engine vLLM's default did better: use --max-model-len 23552"
    )
    assert "On the engine vLLM's default did better" in as_markdown(load_findings(folder))
    assert summary.arguments == "--max-model-len 23552"


def test_flags_that_can_go_are_said_beside_the_verdict(tmp_path: Path) -> None:
    said = "The flag can go: a tie. Against default, a tie in all else."
    verified = examples.verification(can_go=("max_num_batched_tokens",), verdict=said)
    folder = examples.write(tmp_path, found=examples.profile(), verified=verified)
    summary = summarize(load_findings(folder))
    assert summary.headline.startswith("Set max_model_len 33,792")
    assert summary.overruled is not None
    assert summary.overruled.endswith(
        "On the engine vLLM's default did as well: leave out max_num_batched_tokens."
    )
    assert [line for line in summary.gains if "Against default" in line] == [said]
    assert "On the engine vLLM's default did as well" in as_markdown(load_findings(folder))


def test_a_tie_is_no_gain_in_the_headline() -> None:
    """Measured by an older version, which did not say that the flags can go."""
    folder = REPORTS / "h200" / "llama-3.1-8b-mixed"
    plan, measured = Plan.load(folder / "plan.json"), Verification.load(folder / "verify.json")
    found = answer(plan, measured)
    assert found.headline == "Cap prefill chunks at 2,048 tokens"
    assert found.brings.startswith("A tie with vLLM's default, measured: time for all requests")


def test_measurements_alone_have_a_short_headline(tmp_path: Path) -> None:
    verified = examples.verification(verdict="Keep the plan: it took 41.00 s; off is a tie.")
    summary = summarize(load_findings(examples.write(tmp_path, verified=verified)))
    assert summary.headline == "Keep the plan"
    assert "Keep the plan: it took 41.00 s; off is a tie." in summary.gains


def test_the_headline_names_what_ends_a_chunk(tmp_path: Path) -> None:
    plan = Plan.load(examples.write(tmp_path, found=examples.profile()) / "plan.json")
    arguments = {a.name: a for a in plan.arguments}
    name = "long_prefill_token_threshold"

    def threshold(value: int, **more: object) -> Plan:
        changed = {**arguments, name: replace(arguments[name], value=value, **more)}
        return replace(plan, threshold=7_000, arguments=tuple(changed.values()))

    set_one, of_budget = threshold(7_000, set=True), threshold(0, set=False)
    assert verdict(set_one) == "Cap prefill chunks at 7,000 tokens"
    size = f"{plan.chunks.size:,}"
    assert verdict(of_budget) == f"Read prompts in chunks of up to {size} tokens"


def test_what_is_better_comes_before_what_is_worse() -> None:
    faster, leaner = examples.runs()[:2]
    leaner = replace(leaner, workers=(examples.worker(activation=0.2),))
    said = against(faster, leaner)
    assert said.index("longest gap") < said.index("; worse: activation peak 0.86 GiB instead")


def test_prompts_that_would_be_refused_are_counted(tmp_path: Path) -> None:
    long = examples.profile(
        examples.dataset("long", examples.lengths(200_000, 50, 0.1, 1)),
        examples.dataset("short", examples.lengths(200, 50, 0.1, 1)),
    )
    summary = summarize(load_findings(examples.write(tmp_path, found=long)))
    assert summary.refused is not None
    assert summary.refused.startswith("50 of 100 prompts (50 %) fill the context of 131,072")


def test_short_prompts_need_no_chunks(tmp_path: Path) -> None:
    short = examples.profile(examples.dataset("short", examples.LengthHistogram.of(SHORT)))
    summary = summarize(load_findings(examples.write(tmp_path, found=short)))
    assert summary.headline == "Chunking off"
    assert "No prompt has to be split." in summary.why


def test_without_a_model_nothing_is_said_of_memory(tmp_path: Path) -> None:
    folder = examples.write(tmp_path, found=examples.profile(), model=None, gpu=None)
    findings = load_findings(folder)
    assert any("not known" in gain for gain in summarize(findings).gains)
    assert bills(findings) is None


def test_bad_rows_and_failures_are_called_out(tmp_path: Path) -> None:
    found = examples.profile(
        examples.dataset(
            "cut", examples.lengths(90, 20, 0.1, 1), failure="gzip ended early", skipped=2
        )
    )
    cautions = summarize(load_findings(examples.write(tmp_path, found=found))).cautions
    assert "cut was not read to its end: gzip ended early" in cautions
    assert any("2 rows" in caution for caution in cautions)


REPORTS = Path(__file__).parents[2] / "reports"

# -- labels --------------------------------------------------------------------------------------


def test_every_label_is_explained_where_it_stands(tmp_path: Path) -> None:
    folder = examples.write(tmp_path, found=examples.profile())
    console = Console(file=io.StringIO(), width=80)
    show_plan(Plan.load(folder / "plan.json"), console)
    shown, page = console.file.getvalue(), render(load_findings(folder)).decode()
    assert "some: selective" in " ".join(shown.split())
    for text in (" ".join(shown.split()), " ".join(page.split())):
        assert "recommended under 8K, then required" in text
        for tier in Tier:
            assert tier in sentences.RULE_WORDS


def test_the_length_rule_answers_in_one_line() -> None:
    """As one would say it: who, where, what."""
    profile = REPORTS / "example" / "profile.json"
    plan = recommend(profile, model="llama-3.1-8b", gpu="h200", mode="aggressive")
    console = Console(file=io.StringIO(), width=80)
    show_plan(plan, console)
    first, *_ = console.file.getvalue().splitlines()
    assert first.rstrip() == "Llama-3.1-8B on H200: cap prefill chunks at 2,303 tokens"


# -- percentages ---------------------------------------------------------------------------------

TIGHT = re.compile(r"\d%(?!\w)")
OLD_WORDS = sorted({p.parent for p in REPORTS.rglob("*.json") if TIGHT.search(p.read_text())})


@pytest.mark.parametrize("folder", OLD_WORDS, ids=lambda path: path.name)
def test_percentages_of_older_artefacts_are_written_as_ours(folder: Path) -> None:
    findings = load_findings(folder)
    assert not TIGHT.findall(as_markdown(findings))
    page = re.sub(r"(?s)<(style|script)\b.*?</\1>|<[^>]*>", "", render(findings).decode())
    assert not TIGHT.findall(page)
    if findings.verification is not None:
        console = Console(file=io.StringIO(), width=80)
        show_verification(findings.verification, console)
        assert not TIGHT.findall(console.file.getvalue())


def test_a_percentage_has_a_space_wherever_one_is_written() -> None:
    """Only budget files have none, as people type them, and what others print."""
    package = REPORTS.parent / "chunkscope"
    typed = {"gating/limits.py", "gating/starting_file.py", "artefacts/units.py"}
    for path in package.rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        if path.relative_to(package).as_posix() in typed:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.JoinedStr):
                text = ast.get_source_segment(code, node) or ""
                tight = re.search(r":[^{}]*%\}", text)
                assert not tight or f"spaced({text})" in code, (path, text)
    pages = [*package.rglob("guide/*.md"), REPORTS.parent / "README.md", REPORTS / "h200/README.md"]
    for page in pages:
        prose = re.sub(r'"[^"\n]*"', "", page.read_text(encoding="utf-8"))
        assert not TIGHT.findall(prose), page


# -- figures -------------------------------------------------------------------------------------


def ran(scale: float, *, wobble: float = 0.01, **more: object):
    return run("x", **repeated(scale=scale, gap=0.02, wobble=wobble), **more)


@pytest.mark.parametrize(
    ("mine", "other", "outcome"),
    [
        pytest.param(ran(1.0), ran(1.2), Outcome.BETTER, id="clearly sooner"),
        pytest.param(ran(1.2), ran(1.0), Outcome.WORSE, id="clearly later"),
        pytest.param(ran(1.0), ran(1.015), Outcome.TIE, id="within the spread"),
        pytest.param(ran(1.0), ran(1.0), Outcome.TIE, id="the same"),
        pytest.param(ran(1.0), run("y", Status.TIMEOUT), Outcome.UNKNOWN, id="one did not run"),
    ],
)
def test_a_difference_counts_only_beyond_the_spread(mine, other, outcome) -> None:
    assert judge(MAKESPAN, mine, other) is outcome


def test_memory_has_no_spread_but_a_measure_of_nothing() -> None:
    small, same, more = (ran(1.0, workers=(worker(activation=a),)) for a in (0.86, 0.87, 1.3))
    assert judge(ACTIVATION, small, same) is Outcome.TIE
    assert judge(ACTIVATION, small, more) is Outcome.BETTER


def test_what_a_run_did_not_tell_is_not_measured() -> None:
    silent = run("silent", Status.DIED)
    assert {shown(figure, silent) for figure in FIGURES} == {"not measured"}
    assert spread(silent, ITL_MAX) is None


# -- memory --------------------------------------------------------------------------------------


def test_predicted_stands_beside_measured(tmp_path: Path) -> None:
    found = bills(examples.everything(tmp_path))
    assert found is not None
    assert found.limit_gib == 139.8
    rows = [(bill.setting, bill.label.value, bill.fate) for bill in found.bills]
    assert rows[:4] == [
        ("plan", "predicted", None),
        ("plan", "measured", None),
        ("default", "predicted", None),
        ("default", "measured", None),
    ]
    assert ("off", "measured", "out of memory") in rows
    assert all(bill.parts == {} for bill in found.bills if bill.fate)


def test_the_gpu_that_needs_most_is_the_one_shown(tmp_path: Path) -> None:
    two = (worker(activation=0.5), worker(activation=0.9, rank=1))
    verified = examples.verification(runs=(run("plan", workers=two),))
    found = bills(load_findings(examples.write(tmp_path, verified=verified)))
    assert found is not None
    assert found.bills[0].parts["activation"] == 0.9


# -- provenance ----------------------------------------------------------------------------------


def test_every_setting_has_the_whole_of_what_was_predicted_beside_what_was_measured(
    tmp_path: Path,
) -> None:
    found = bills(examples.everything(tmp_path))
    assert found is not None
    both = [b for b in found.bills if b.setting == "default"]
    assert [b.label for b in both] == [Label.PREDICTED, Label.MEASURED]
    assert all(
        set(b.parts) == {"weights", "activation", "CUDA graphs", "overhead", "KV cache"}
        for b in both
    )
    assert [b.peak_gib for b in both] == [None, 129.4]


def test_what_an_older_version_did_not_predict_is_left_out(tmp_path: Path) -> None:
    off = next(r for r in examples.runs() if r.setting == "off")
    found = bills(
        load_findings(examples.write(tmp_path, verified=examples.verification(runs=(off,))))
    )
    assert found is not None
    assert set(found.bills[0].parts) == {"weights", "activation"}


def test_a_setting_with_two_names_is_shown_by_both(tmp_path: Path) -> None:
    first, *others = examples.runs()
    verified = examples.verification(runs=(replace(first, same_as=("default",)), others[2]))
    found = bills(load_findings(examples.write(tmp_path, verified=verified)))
    assert found is not None
    assert found.bills[0].setting == "plan = default"
    assert "plan = default" in as_markdown(load_findings(tmp_path))


def test_every_input_has_its_digest(tmp_path: Path) -> None:
    findings = examples.everything(tmp_path)
    found = {origin.file: origin for origin in origins(findings)}
    assert {file: origin.sha256 for file, origin in found.items()} == findings.digests
    assert ("command", "chunkscope verify --model llama-3.1-8b") in found["verify.json"].facts
    assert ("GPU", "1 x NVIDIA H200, 139.8 GiB") in found["verify.json"].facts
    assert render(findings).decode().count(f"<code>{'ab' * 32}</code>") == 3


# -- the simulation ------------------------------------------------------------------------------


def test_simulated_settings_are_named_by_what_differs() -> None:
    runs = [
        examples.simulated(2_048, seqs=64),
        examples.simulated(2_048, seqs=128),
        examples.simulated(8_192, threshold=512),
        examples.simulated(8_192, policy=ChunkPolicy.ADAPTIVE),
        examples.simulated(8_192, setting="plan"),
    ]
    assert setting_names(runs) == [
        "2,048, 64 requests",
        "2,048, 128 requests",
        "8,192, threshold 512",
        "8,192, adaptive",
        "plan",
    ]


def test_the_simulation_is_read_with_its_best_points_and_its_timeline(tmp_path: Path) -> None:
    found = tradeoff(examples.everything(tmp_path))
    assert found is not None
    assert [point.best for point in found.points] == [True, True, True, True, False]
    assert found.knee is not None
    assert found.knee.setting == "2,048"
    console = Console(file=io.StringIO(), width=80)
    show_findings(load_findings(tmp_path), console)
    below = console.file.getvalue().partition("simulated, not measured")[2]
    assert " knee\n" in below  # and what it means, below the table in which it stands
    assert sentences.KNEE in below
    assert sentences.KNEE in as_markdown(load_findings(tmp_path))
    assert "The ring marks the knee (2,048): past it, " in render(load_findings(tmp_path)).decode()
    assert [point.experiment for point in found.points][-1] is True
    assert {piece.kind for piece in found.timeline} == {
        "decodes",
        "whole prompts",
        "prompt 0",
        "prompt 5",
    }


def test_a_few_settings_without_a_sweep_are_a_table_and_no_chart(tmp_path: Path) -> None:
    simulation = examples.simulation(pareto=(), knee=None)
    found = tradeoff(load_findings(examples.write(tmp_path, simulated=simulation)))
    assert found is not None
    assert len(found.points) > 2
    assert found.points_json() == []


def test_arrivals_of_their_own_are_weighed_by_latencies(tmp_path: Path) -> None:
    """The makespan is that of the arrivals, whatever the setting."""
    queue = Backlog(early=1.0, late=99.0)
    runs = tuple(examples.simulated(budget, backlog=queue) for budget in (512, 1_024, 2_048))
    simulation = examples.simulation(runs=runs, pareto=(0,), knee=None)
    found = tradeoff(load_findings(examples.write(tmp_path, simulated=simulation)))
    assert found is not None
    assert found.axes_json() == {"x": "p95 time to first token", "y": "p99 gap between tokens"}
    assert found.points_json()[0]["x"] == 9.0
    assert found.sentences[0].startswith("Overloaded: ")


def test_a_simulation_in_which_nobody_got_a_second_token_has_no_gap(tmp_path: Path) -> None:
    runs = tuple(
        examples.simulated(budget, figures=examples.simulated_figures(45.0, None))
        for budget in (512, 1_024, 2_048)
    )
    simulation = examples.simulation(runs=runs, pareto=(), knee=None)
    found = tradeoff(load_findings(examples.write(tmp_path, simulated=simulation)))
    assert found is not None
    assert not found.has_tradeoff
    assert all(found.up.value(point.run.figures) is None for point in found.points)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"runs": None}, id="no runs"),
        pytest.param({"runs": [{"itl_s": None, "makespan_s": "slow"}]}, id="other figures"),
        pytest.param({"cost_model": "x"}, id="no cost model"),
        pytest.param({"knee": 9}, id="a knee that is not there"),
        pytest.param({"label": "measured"}, id="it calls itself measured"),
        pytest.param({"more": 1}, id="a field nobody knows"),
    ],
)
def test_a_damaged_simulation_is_refused(tmp_path: Path, damage: dict) -> None:
    path = examples.write(tmp_path, simulated=examples.simulation()) / "simulation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(InputError, match=r"simulation\.json is damaged"):
        load_findings(tmp_path)


def test_each_artefact_tells_the_command_that_made_it(tmp_path: Path) -> None:
    command = ("chunkscope", "analyze", "data with a space")
    found = replace(examples.profile(), options={"command": list(command), "sample": 5})
    folder = examples.write(
        tmp_path, found=found, simulated=examples.simulation(command=("chunkscope", "simulate"))
    )
    plan = Plan.load(folder / "plan.json")
    asked = replace(plan.inputs, command=("chunkscope", "recommend", "--gpu", "h200"))
    replace(plan, inputs=asked).save(folder / "plan.json")
    said = {origin.file: dict(origin.facts) for origin in origins(load_findings(folder))}
    assert said["profile.json"]["command"] == "chunkscope analyze 'data with a space'"
    assert said["profile.json"]["option sample"] == "5"
    assert said["plan.json"]["command"] == "chunkscope recommend --gpu h200"
    assert said["simulation.json"]["command"] == "chunkscope simulate"


def test_a_plan_without_a_command_is_read_and_written_as_before(tmp_path: Path) -> None:
    path = examples.write(tmp_path, found=examples.profile()) / "plan.json"
    before = path.read_bytes()
    assert b'"command"' not in before
    Plan.load(path).save(path)
    assert path.read_bytes() == before
