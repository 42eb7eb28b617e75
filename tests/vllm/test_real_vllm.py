"""Every emitted line goes through vLLM's own parser, and means what the plan says.

All questions of this file are put to one process (`answers`); the tests read what it
said.
"""

import ast
import json
import shlex
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import cycle, product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from chunkscope.errors import ChunkscopeError, EngineError
from chunkscope.hardware.gpus import GIB, TABLE, Parallel
from chunkscope.hardware.step_time import Runner
from chunkscope.models import MODELS as BUILT_IN
from chunkscope.models import find_model, known_model
from chunkscope.models.quantization import Quantization
from chunkscope.planning.emit import emit
from chunkscope.planning.rule import LengthRule
from chunkscope.vllm.check import DRY, check
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, Mode, Target, Task
from chunkscope.vllm.flags import command_line, flags_of, release, spelled
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings
from tests.build import LONG, MIXED, SHORT, plan

pytestmark = pytest.mark.real

PROFILES = {
    "short": SHORT,
    "mixed": MIXED,
    "long": LONG,
    "one token": [1],
    "on the cut-offs": [999, 1_000, 2_048],
    "longer than some models take": [*range(100, 60_000, 500)],
}
MODELS = ("llama-3.1-8b", "qwen2.5-7b-instruct", "mistral-7b-v0.3", "qwen3-30b-a3b")
SPLITS = (1, 2, 4, 8)
# Their image processors need torchvision, which the CPU build cannot have.
NEED_TORCHVISION = {
    "Gemma3ForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
}
KNOWN = sorted(
    name for name in BUILT_IN if find_model(name).architecture not in NEED_TORCHVISION
)
# vLLM's config counts no attention layers of Nemotron-H, and builds its experts on a
# GPU alone; Gemma 4's layers differ in their heads.
UNIFORM = [name for name in KNOWN if not name.startswith(("nemotron-3", "gemma-4"))]
# Layers of one model differ here, so that vLLM's config alone does not say their bytes.
BUILT = ("gemma-4-26b-a4b", "gemma-4-31b", "qwen3-next-80b-a3b", "llama-3.1-8b")
DRAWN = {"database": None, "deadline": None, "phases": [Phase.generate]}
DRAWN["suppress_health_check"] = list(HealthCheck)
GPUS = ("h200", "b200", "a100", "l40s", None)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A case, what it is about, and what to say when the answer is wrong."""

    case: dict[str, Any]
    about: Any
    told: str = ""


def case_of(folder, arguments, gpu=None):
    """Words for `vllm serve` or keywords for `LLM`, on a GPU (None: this machine)."""
    card, dry = (
        gpu and (round(gpu.memory_gib * GIB), gpu.title),
        {"model": str(folder), **DRY},
    )
    if isinstance(arguments, dict):
        return {"gpu": card, "keywords": {**arguments, **dry}}
    return {"gpu": card, "words": [*arguments, *command_line(dry)]}


def both_ways(made, folder, told=""):
    """As words for `vllm serve` and as keywords for `LLM`."""
    told = f"{told} -> {made.cli_args()}"
    served, offline = (
        made.settings_for(entry).given() for entry in (Entry.SERVE, Entry.LLM)
    )
    return [
        Question(case=case_of(folder, arguments, made.gpu), about=made, told=told)
        for arguments in (command_line(served), offline)
    ]


def matrix(version, folders):
    """Each model, profile and mode together; the GPUs in turn: each meets each."""
    combined = product(MODELS, PROFILES, (None, *Mode))
    for (model, name, mode), gpu in zip(combined, cycle(GPUS), strict=False):
        told = {"model": model, "mode": mode, "gpu": gpu}
        with suppress(ChunkscopeError):
            made = plan(PROFILES[name], **told, vllm_version=version)
            yield from both_ways(made, folders[model], f"{name}, {told}")


def any_profile(version, folders):
    """Hypothesis draws the profiles and options."""
    drawn = []
    tokens = st.one_of(
        st.integers(0, 1_100), st.integers(0, 40_000), st.integers(0, 300_000)
    )

    @settings(max_examples=80, **DRAWN)
    @given(
        lengths=st.lists(tokens, min_size=1, max_size=20),
        model=st.sampled_from(MODELS),
        gpu=st.sampled_from([*TABLE, None]),
        mode=st.sampled_from([None, *Mode]),
        task=st.sampled_from(Task),
        entry=st.sampled_from(Entry),
        tp=st.sampled_from([1, 1, 2, 4]),
        max_output=st.sampled_from([None, 1, 3_000]),
        rule=st.builds(
            LengthRule,
            off_below=st.sampled_from([1, 1_000, 5_000]),
            conservative_threshold=st.sampled_from([1, 100, 2_048, 100_000]),
            aggressive_factor=st.sampled_from([0.01, 0.8, 1.0]),
        ),
    )
    def draw(lengths, model, gpu, **options):
        options |= {"model": model, "gpu": gpu}
        with suppress(ChunkscopeError):
            made = plan(lengths, vllm_version=version, **options)
            drawn.extend(both_ways(made, folders[model], f"{lengths}, {options}"))

    draw()
    return drawn


def emitted(version, folders):
    """What `--emit python`, `json` and `lm-eval` print, read as their readers would."""
    for model in MODELS:
        for lengths in (SHORT, MIXED, LONG):
            for entry in (Entry.SERVE, Entry.LLM):
                made = plan(lengths, model=model, vllm_version=version, entry=entry)
                call = ast.parse(emit(made, Target.PYTHON).text).body[1].value
                python = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
                (_, _, _, _, pairs, *_) = shlex.split(emit(made, Target.LM_EVAL).text)
                words = pairs.split(",")
                harness = {
                    k: _literal(v)
                    for k, _, v in (word.partition("=") for word in words)
                }
                assert python.pop("model") == harness.pop("pretrained")
                texts = {"python": python, "lm-eval": harness}
                if (
                    entry is Entry.LLM
                ):  # the JSON is for who was said to start the engine
                    texts["json"] = json.loads(emit(made, Target.JSON).text)
                for target, keywords in texts.items():
                    case = case_of(folders[model], keywords, made.gpu)
                    yield Question(case=case, about=made, told=f"{target}: {keywords}")


def _literal(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def left_alone(version, folders):  # noqa: ARG001
    """Nothing set, on every GPU of the table."""
    for card in TABLE.values():
        for nothing, entry in (([], Entry.SERVE), ({}, Entry.LLM)):
            case = case_of(folders[MODELS[0]], nothing, card)
            yield Question(case=case, about=(card, entry))


def any_settings(version, folders):  # noqa: ARG001
    """Settings no plan would hold: do we refuse what vLLM refuses, and only that?"""
    drawn = []
    tokens = st.sampled_from([128, 2_048, 4_096])
    near = st.one_of(
        tokens, st.sampled_from([-1, 0, 1, 127, 129, 4_095, 4_097, 131_072])
    )

    @settings(max_examples=400, **DRAWN)
    @given(
        max_model_len=st.one_of(tokens, tokens, st.sampled_from([1, 131_072, 131_073])),
        max_num_batched_tokens=near,
        max_num_seqs=st.one_of(st.just(1), st.just(128), near),
        long_prefill_token_threshold=st.one_of(st.just(0), tokens, near),
        enable_chunked_prefill=st.booleans(),
        gpu_memory_utilization=st.sampled_from([*[0.9] * 9, 0.1, 1.0, 0.0, 1.1]),
    )
    def draw(**args):
        drawn_settings = Settings(**args)
        words = command_line(drawn_settings.given())
        case = case_of(folders[MODELS[0]], words)
        drawn.append(Question(case=case, about=drawn_settings, told=str(words)))

    draw()
    return drawn


MAKERS = (matrix, any_profile, emitted, left_alone, any_settings)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A model is a folder with nothing but a config.json in it."""
    made = {name: tmp_path_factory.mktemp(name) for name in {*KNOWN, *MODELS}}
    for name, folder in made.items():
        (folder / "config.json").write_text(json.dumps(dict(known_model(name).config)))
    return made


@pytest.fixture(scope="session")
def answers(
    probe, installed, folders
) -> dict[str, list[tuple[Question, SimpleNamespace]]]:
    asked = {make.__name__: list(make(installed[0], folders)) for make in MAKERS}
    cases = {repr(q.case): q.case for questions in asked.values() for q in questions}
    verdicts = dict(zip(cases, probe("check_probe", [*cases.values()]), strict=True))
    return {
        name: [
            (question, SimpleNamespace(**verdicts[repr(question.case)]))
            for question in questions
        ]
        for name, questions in asked.items()
    }


def agree(question, verdict):
    """vLLM took it, and runs with every value of the plan, those left to it as well."""
    assert verdict.accepted, f"{question.told}: {verdict.message}"
    known = {}
    for name, value in question.about.effective.given().items():
        if name not in UNUSUAL:  # what the probe does not report
            known[name] = value
    assert {name: verdict.seen[name] for name in known} == known, question.told


def test_the_flag_table_is_the_installed_vllms(installed):
    version, options = installed
    flags = {spelling for option in options for spelling in option["options"]}
    known = release(version).version
    switches = [field.name for field in fields(Settings) if field.type == bool | None]
    assert "enable_chunked_prefill" in switches
    for name in NAMES:
        for key in (name, f"no_{name}") if name in switches else (name,):
            assert (spelled(key) in flags) == (name in flags_of(known)), key


def test_every_mode_model_and_gpu_is_asked_about(answers):
    planned = {
        (q.about.model.name, q.about.decision.mode) for q, _ in answers["matrix"]
    }
    assert planned == {
        (find_model(model).name, mode) for model in MODELS for mode in Mode
    }
    assert len({q.about.gpu for q, _ in answers["matrix"]}) == len(GPUS)


@pytest.mark.parametrize(
    ("name", "least"), [("matrix", 180), ("any_profile", 120), ("emitted", 60)]
)
def test_what_a_plan_says_is_accepted_and_means_the_plan(answers, name, least):
    assert len(answers[name]) >= least
    for question, verdict in answers[name]:
        agree(question, verdict)


def test_no_step_is_larger_than_what_the_running_requests_can_fill(answers):
    """vLLM takes it, with a warning of unexpected behaviour."""
    for question, verdict in (*answers["matrix"], *answers["any_profile"]):
        seen = verdict.seen
        most = seen["max_num_seqs"] * seen["max_model_len"]
        assert seen["max_num_batched_tokens"] <= most, question.told


def test_vllms_own_choice_is_known_for_every_gpu_of_the_table(answers, installed):
    for question, verdict in answers["left_alone"]:
        card, entry = question.about
        expected = release(installed[0]).batch_defaults(card, entry).given()
        assert {name: verdict.seen[name] for name in expected} == expected, (
            card.name,
            entry,
        )


def test_our_rules_refuse_what_vllm_refuses_and_nothing_else(answers, installed):
    """But for our own rule: off with a threshold, which vLLM takes and chunks."""
    there = Engine(release=release(installed[0]), shape=find_model(MODELS[0]))
    seen = {True: 0, False: 0}
    for question, verdict in answers["any_settings"]:
        broken = [
            r
            for r in there.refusals(question.about)
            if r.code != "refused_off_with_threshold"
        ]
        assert verdict.accepted is not bool(broken), (
            f"{question.told}: {broken}, {verdict.message}"
        )
        seen[verdict.accepted] += 1
    assert min(seen.values()) > 50


def test_a_plan_checks_itself_with_nothing_but_its_model(vllm_python, installed):
    made = plan(SHORT, vllm_version=installed[0])
    assert check(made.deployment, made.settings, python=vllm_python) == installed[0]
    refused = replace(made.settings, max_num_batched_tokens=4, max_num_seqs=8)
    with pytest.raises(EngineError, match="max_num_batched_tokens"):
        check(made.deployment, refused, python=vllm_python)


@pytest.fixture(scope="session")
def read(probe, folders):
    asked = [(name, tp) for name in KNOWN for tp in SPLITS]
    answers = probe("model_probe", [[str(folders[name]), tp] for name, tp in asked])
    return dict(zip(asked, answers, strict=True))


def splits(shape, tp):
    """Are the heads split, as far as vLLM checks before it loads weights?"""
    try:
        Parallel(tensor=tp).check(replace(shape, quantization=Quantization()))
    except ChunkscopeError:
        return False
    return True


@pytest.mark.parametrize("name", KNOWN)
def test_limit_runner_and_splits_are_vllms(read, installed, name):
    shape = find_model(name)
    runner = release(installed[0]).runner(shape.architecture, dense=shape.dense)
    assert read[name, 1]["v2_runner"] == (runner is Runner.V2)
    for tp in SPLITS:
        seen = read[name, tp]
        assert ("refused" not in seen) == splits(shape, tp), seen
        if splits(shape, tp):
            assert seen["limit"] == (shape.original or shape.limit), tp


@pytest.mark.parametrize("name", UNIFORM)
def test_the_kv_cache_of_a_token_is_vllms(read, name):
    shape = find_model(name)
    latent = shape.attention.latent
    index_bytes = latent.index_bytes * shape.kv_layers if latent else 0
    for tp in SPLITS:
        if splits(shape, tp):
            ours = shape.kv_bytes_per_token(tp) - index_bytes
            assert read[name, tp]["kv_bytes_per_token"] == ours, tp


def test_the_kv_cache_of_layers_that_differ_is_vllms(probe, folders):
    sizes = probe("layers_probe", [str(folders[name]) for name in BUILT])

    assert sizes == [find_model(name).kv_bytes_per_token() for name in BUILT]
