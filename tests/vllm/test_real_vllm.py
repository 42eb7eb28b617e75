"""Every emitted line goes through vLLM's own parser and validation. One process per test."""

import json
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chunkscope.choices import Mode, Objective, Task
from chunkscope.errors import ChunkscopeError
from chunkscope.vllm_check import check, check_many, config_of, known_flags
from chunkscope.vllm_flags import BY_NAME, release
from tests.plans import LONG, MIXED, SHORT, plan

pytestmark = pytest.mark.vllm

MODELS = ["llama-3.1-8b", "qwen2.5-7b-instruct", "mistral-7b-v0.3", "qwen3-30b-a3b"]
PROFILES = {"short": SHORT, "mixed": MIXED, "long": LONG, "one": [1], "edge": [999, 1_000, 2_048]}


@pytest.fixture(scope="session")
def installed(vllm_python):
    return known_flags(python=vllm_python)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    made = {}
    for model in MODELS:
        made[model] = tmp_path_factory.mktemp(model)
        (made[model] / "config.json").write_text(json.dumps(config_of(model)))
    return made


def agree(made, verdict):
    """vLLM took the line, and runs with what the plan says."""
    assert verdict.accepted, f"{made.cli_args()}: {verdict.message}"
    for name, value in made.args.items():
        if name in verdict.seen:
            assert verdict.seen[name] == value, name


def test_the_flag_table_is_the_installed_vllms(installed):
    version, flags = installed
    known = release(version).version
    for flag in BY_NAME.values():
        for spelling in filter(None, (flag.spelling, flag.off_spelling)):
            assert (spelling in flags) == flag.known_to(known), spelling


def test_every_mode_model_and_profile_is_accepted(vllm_python, installed, folders):
    plans, cases = [], []
    for model in MODELS:
        for lengths in PROFILES.values():
            for mode in (None, *Mode):
                made = plan(lengths, model=model, mode=mode, vllm_version=installed[0])
                plans.append(made)
                cases.append((folders[model], made.cli_args()))
    for made, verdict in zip(plans, check_many(cases, python=vllm_python), strict=True):
        agree(made, verdict)


def test_any_profile_gives_a_line_that_is_accepted(vllm_python, installed, folders):
    """Hypothesis draws the profiles; vLLM is asked once about all of them."""
    plans: list = []

    @settings(max_examples=120, database=None, deadline=None, phases=[Phase.generate])
    @given(
        lengths=st.lists(st.integers(0, 30_000), min_size=1, max_size=20),
        model=st.sampled_from(MODELS),
        gpu=st.sampled_from(["h200", "a100", "l40s", None]),
        mode=st.sampled_from([None, *Mode]),
        task=st.sampled_from(Task),
        itl=st.sampled_from([None, 50]),
    )
    def draw(lengths, model, gpu, mode, task, itl):
        aim = {"objective": Objective.LATENCY, "max_itl_ms": itl} if itl and gpu else {}
        options = {"model": model, "gpu": gpu, "mode": mode, "task": task, **aim}
        try:
            made = plan(lengths, vllm_version=installed[0], **options)
        except ChunkscopeError:
            return
        plans.append((made, folders[model]))

    draw()
    cases = [(folder, made.cli_args()) for made, folder in plans]
    assert len(cases) > 50
    for (made, _), verdict in zip(plans, check_many(cases, python=vllm_python), strict=True):
        agree(made, verdict)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--no-enable-chunked-prefill", "--max-num-batched-tokens", "64"], "max_model_len"),
        (["--max-num-batched-tokens", "64", "--max-num-seqs", "128"], "max_num_seqs"),
        (["--enable-chunked-prefill", "false"], "unrecognized arguments"),
    ],
)
def test_vllm_refuses_what_our_rules_refuse(vllm_python, folders, words, fault):
    words = ["--max-model-len", "4096", *words]
    (verdict,) = check_many([(folders["llama-3.1-8b"], words)], python=vllm_python)
    assert not verdict.accepted
    assert fault in verdict.message


def test_a_plan_checks_itself_with_nothing_but_its_model(vllm_python, installed):
    made = plan(SHORT, vllm_version=installed[0])
    verdict = check(made, python=vllm_python)
    agree(made, verdict)
    assert verdict.vllm_version == installed[0]
    assert not Path("config.json").exists()
