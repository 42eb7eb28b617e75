"""`recommend`, `simulate`, `verify`, `memory` and `prefixes`; the mistakes of all commands."""

import json
import shlex
import sys
from pathlib import Path

import pytest

import chunkscope as python
from chunkscope.vllm import check
from chunkscope.vllm.enums import Target
from tests import build
from tests.commands.helpers import analyze, chunkscope, write_jsonl
from tests.conftest import REPOSITORY

MACHINE = ("--model", "qwen2.5-1.5b", "--gpu", "l4", "--vllm-version", "0.24")


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("planned")
    build.profile(short=build.SHORT, mixed=build.MIXED).save(
        place / "reports" / "profile.json"
    )
    write_jsonl(place / "data.jsonl", [{"prompt": "one two three"}])
    (place / "latin.txt").write_bytes(b"\xe9t\xe9")
    run = chunkscope(place, "recommend", *MACHINE)
    assert run.code == 0, run.err
    return place


# -- recommend -----------------------------------------------------------------------------------


def test_several_profiles_are_planned_for_together(tmp_path) -> None:
    for name, lengths in (("a", [10] * 20), ("b", [5_000] * 20)):
        build.profile(**{name: lengths}).save(tmp_path / f"{name}.json")
    words = ("a.json", "b.json", *MACHINE)
    assert chunkscope(tmp_path, "recommend", *words).code == 0
    plan = python.Plan.load(tmp_path / "reports" / "plan.json")
    assert plan.refused.of == 40
    assert chunkscope(tmp_path, "simulate").code == 0
    assert python.recommend([tmp_path / "a.json", tmp_path / "b.json"]).refused.of == 40


def test_a_price_in_the_config_file_is_part_of_the_answer(
    planned, tmp_path, monkeypatch
) -> None:
    (tmp_path / "prices.toml").write_text("[recommend]\nprice_per_hour = 2.5\n")
    monkeypatch.setenv("CHUNKSCOPE_CONFIG", str(tmp_path / "prices.toml"))
    run = chunkscope(planned, "recommend", *MACHINE, "-o", tmp_path / "plan.json")
    assert run.code == 0, run.err
    assert python.Plan.load(tmp_path / "plan.json").request.price_per_hour == 2.5


@pytest.mark.parametrize(
    ("words", "version"), [((), "0.24.0"), (("--vllm-version", "0.30"), "0.30")]
)
def test_with_check_the_installed_vllm_is_planned_for(
    planned, tmp_path, monkeypatch, words, version
) -> None:
    monkeypatch.setattr(check, "vllm_python", lambda: "python")
    monkeypatch.setattr(check, "version_in", lambda _: "0.24.0")
    monkeypatch.setattr(check, "check", lambda *_, **__: "0.24.0")
    words = ("recommend", *MACHINE[:4], "--check", *words, "-o", tmp_path / "plan.json")
    assert chunkscope(planned, *words).code == 0
    assert python.Plan.load(tmp_path / "plan.json").deployment.release.text == version


@pytest.mark.parametrize(
    ("log", "entry"),
    [
        ("reports/example/lm_eval", "llm"),
        ("../shared/data/harness_logs/lm-eval-0.4.13/mock__api", "serve"),
    ],
)
def test_a_harness_log_is_planned_for_how_that_starts_vllm_and_its_default_is_no_flag(
    tmp_path, log, entry
) -> None:
    """The LLM class takes 16,384 tokens a step by itself, a server 8,192."""
    if not (REPOSITORY / log).is_dir():
        pytest.skip("no harness logs beside the checkout")
    assert analyze(tmp_path, REPOSITORY / log).code == 0
    words = ("recommend", "--model", "llama-3.1-8b", "--gpu", "h100")
    run = chunkscope(tmp_path, *words)
    assert run.out.startswith("Keep vLLM's defaults"), run.err
    assert (
        python.Plan.load(tmp_path / "reports" / "plan.json").deployment.entry == entry
    )
    for target in Target:
        form = chunkscope(tmp_path, *words, "--entry", entry, "--emit", target)
        own = target is Target.JSON or target.entry == entry
        assert form.code == (0 if own else 2), form.err
        assert "16384" not in form.out
        assert "8192" not in form.out
        assert ("leave the server idle" in form.err) == (own and entry == "serve")


# -- simulate ------------------------------------------------------------------------------------


def test_python_simulates_what_the_command_does(planned) -> None:
    run = chunkscope(planned, "simulate", "--max-num-batched-tokens", "512", "--json")
    assert run.code == 0, run.err
    reports = planned / "reports"
    files = reports / "plan.json", reports / "profile.json"
    simulated = python.simulate(*files, max_num_batched_tokens=512)
    saved = python.Simulation.load(reports / "simulation.json")
    assert simulated.runs[0].figures == saved.runs[0].figures
    assert json.loads(run.out)["runs"][0]["setting"] == simulated.runs[0].setting
    assert (
        python.simulate(files[0], max_num_batched_tokens=512) == simulated
    )  # its own profile


def test_a_plan_is_never_simulated_with_other_data(planned, tmp_path) -> None:
    """A profile that was counted anew beside the plan was taken for the plan's own."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/plan.json").write_bytes(
        (planned / "reports/plan.json").read_bytes()
    )
    build.profile(other=[7]).save(tmp_path / "reports" / "profile.json")
    run = chunkscope(tmp_path, "simulate")
    assert (run.code, "--profile" in run.err) == (3, True)
    named = ("--profile", planned / "reports" / "profile.json")
    assert chunkscope(tmp_path, "simulate", *named).code == 0


# -- memory and prefixes -------------------------------------------------------------------------


def test_prefixes_say_how_much_is_served(tmp_path) -> None:
    rows = [
        {"prompt": "the same long beginning of it all " * 20 + str(n)}
        for n in range(30)
    ]
    write_jsonl(tmp_path / "data.jsonl", rows)
    analyze(tmp_path, "data.jsonl")
    shown = json.loads(chunkscope(tmp_path, "prefixes", "--json").out)
    assert shown["together"]["hit_rate"] > 0.5


PREFIX = "analyze data.jsonl --prefix-file "
NAMING = ("memory --gpu h100 --model", "analyze data.jsonl -t", "doctor", "report")


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("analyze", 2, "PATH"),
        ("analyze nowhere.jsonl", 3, "nowhere.jsonl"),
        *((f"analyze {path}", 3, "error: ") for path in ("'*.none'", "''", "a/" * 800)),
        *(
            (f"analyze hf:{at}", 2, "hf:")
            for at in ("", "/etc/passwd", "a/b/c", "o/n:", "../x/y")
        ),
        ("analyze hf:org/nowhere@test", 4, "hf:org/nowhere"),
        ("analyze s4://evals/few.csv", 2, "s4://evals/few.csv"),
        ("analyze data.jsonl --output-field nothing", 3, "nothing"),
        ("analyze data.jsonl --tokenizer ''", 2, "--tokenizer is empty"),
        ("analyze data.jsonl --tokenizer nowhere/at/all", 4, "nowhere/at/all"),
        ("analyze data.jsonl --model a --tokenizer b", 2, "leave one out"),
        ("analyze data.jsonl -o data.jsonl/x.json", 3, "Not a directory"),
        ("analyze data.jsonl -o .", 3, "error: "),
        ("analyze data.jsonl -o ''", 3, "error: "),
        (f"analyze data.jsonl -o {'x' * 300}", 3, "error: "),
        ("analyze data.jsonl --limit 5", 2, "--sample"),  # all rows were counted
        ("analyze data.jsonl --json --format csv", 2, "--format"),
        ("analyze data.jsonl --export-trace data.jsonl", 2, "data.jsonl"),
        ("analyze data.jsonl --ray --export-trace x.jsonl", 2, "--ray"),
        *((f"{PREFIX}{file}", 3, file) for file in ("gone.txt", "latin.txt", ".")),
        ("analyze lm-eval:", 2, "lm-eval:"),
        ("analyze lm-eval:a --apply-chat-template", 2, "--apply-chat-template"),
        ("analyze lm-eval:a --limit 0", 2, "limit"),
        ("analyze inspect:a.py --shots 3", 2, "--shots"),
        ("recommend --rate 5", 2, "--arrivals"),
        ("recommend nowhere.json", 3, "nowhere.json"),
        ("recommend --model qwen3-8b --gpu nothing", 2, "nothing"),
        ("recommend --model qwen3-8b --gpu 2xa100", 2, "--gpu a100 --tp 2"),
        ("recommend --model llama-3.1-70b --gpu l4", 3, "--tp"),
        ("recommend --slo itl=5", 2, "--slo"),
        ("recommend --emit python --entry serve", 2, "--entry"),
        ("recommend --concurrency 99999999999999999999", 2, "--concurrency"),
        ("simulate --requests 99999999", 2, "--requests"),  # they were all drawn
        ("memory --model qwen3-8b --gpu h100 --gpu-memory-utilization nan", 2, "nan"),
        ("simulate --trace nowhere.jsonl", 3, "nowhere.jsonl"),
        ("simulate --calibration nowhere.json", 3, "nowhere.json"),
        ("memory --gpu h100", 2, "--model"),
        ("memory --gpu h100 --model acme/rocket-8b", 4, "config.json"),
        ("memory --gpu h100 --model llama-3.1-9b", 4, "llama-3.1-8b"),
        *(
            ("memory --model qwen3-8b --gpu h20O", 2, offered)
            for offered in ("h200", "80GiB")
        ),
        ("prefixes nowhere.json", 3, "nowhere.json"),
        ("verify", 4, "vLLM"),
        ("verify --repeats 0", 2, "--repeats"),
        ("verify --engine-arg dtype", 2, "dtype"),
        ("verify --against of", 2, "default, off, length-rule"),
        ("verify --also max-num-seqs=few", 2, "max_num_seqs has no such value"),
        (
            "verify --also max-num-seqs=0",
            2,
            "at least 1",
        ),  # as a vLLM would say, minutes later
        ("verify --also max-num-seqs=8 --endpoint http://127.0.0.1:9", 2, "--also"),
        ("verify --endpoint http://127.0.0.1:9 --check-outputs", 2, "--check-outputs"),
        *((f"{line} {'n' * 300}", 3, "nnn: File name too long") for line in NAMING),
        ("gate", 3, "gate --init"),
        ("gate --config nowhere.toml", 3, "nowhere.toml"),
        ("gate nowhere --init", 3, "nowhere"),
        *(
            (f"gate {how}", 2, "--init")
            for how in ("--force", "--init --json", "--init --format md")
        ),
        ("report nowhere", 3, "nowhere"),
        ("report --json --format md", 2, "--format"),
        ("report --format text -o x", 2, "--output"),
        ("report -o x.txt", 2, "--output"),  # it was a page of HTML
        ("report reports nowhere", 3, "nowhere"),
        ("doctor nowhere.log", 3, "nowhere.log"),
        ("doctor reports/plan.json", 3, "plan.json"),
        ("doctor http://127.0.0.1:9 --seconds 0", 2, "--seconds"),
        ("doctor reports", 3, "reports"),
        ("doctor", 2, "LOG"),
        *(
            (f"demo --chunk={sizes}", 2, "--chunk")
            for sizes in ("0", "-5", "9" * 20, "32,,none")
        ),
        *((f"demo --chunk={sizes}", 2, "--chunk") for sizes in ("x", "1.5")),
    ],
)
def test_a_mistake_gets_a_sentence_and_its_code(
    planned, monkeypatch, line, code, named
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", sys.executable)  # which has none
    kept = (planned / "reports" / "profile.json").read_bytes()
    run = chunkscope(planned, *shlex.split(line))
    assert (run.code, run.out, run.written) == (code, "", kept), run.err
    assert named in run.err
    assert "Traceback" not in run.err
    assert code == 2 or "hint: " in run.err
