"""The Python surface: words and names as people write them, and what a notebook shows."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from traceback import format_exception_only
from typing import Any

import pytest

import chunkscope
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.planning.emit import emit
from chunkscope.prompts.selection import SelectOptions
from chunkscope.vllm.enums import Target, Task
from tests.commands.helpers import chunkscope as command
from tests.commands.helpers import write_jsonl

REPORTS = Path(__file__).parents[1] / "reports"
PROFILE = REPORTS / "example" / "profile.json"
PLAN = REPORTS / "example" / "plan.json"
VERIFY = REPORTS / "h200" / "llama-3.1-8b-mixed" / "verify.json"
STEP = StepModel(
    fixed_s=0.005, per_token_s=2e-5, per_prefill_pair_s=1e-9, per_decode_context_s=4e-8, origin="x"
)
ROOM = {"max_num_seqs": 8, "kv_cache_tokens": 100_000, "max_num_batched_tokens": 512}


def simulated(**words: Any) -> chunkscope.Simulation:
    return chunkscope.simulate([(4_000, 16)], {**ROOM, "max_model_len": 8_192}, STEP, **words)


# --- words and names --------------------------------------------------------------------------


def test_files_are_named_by_text_too(tmp_path: Path) -> None:
    profile = chunkscope.Profile.load(str(PROFILE))
    profile.save(str(tmp_path / "copy.json"))
    assert chunkscope.Profile.load(tmp_path / "copy.json") == profile
    named = chunkscope.recommend(str(PROFILE), mode="off")
    assert named.settings == chunkscope.recommend(profile, mode="off").settings
    assert chunkscope.recommend(PROFILE).mode == named.decision.mode or named.decision.forced


def test_a_task_said_as_a_word_is_that_task() -> None:
    asked = chunkscope.recommend(PROFILE, model="qwen3-8b", gpu="h100", task="loglikelihood")
    assert asked.inputs.task is Task.LOGLIKELIHOOD
    likely = chunkscope.memory("qwen3-8b", "h100", task="loglikelihood", entry="llm")
    plain = chunkscope.memory("qwen3-8b", "h100", entry="llm")
    assert likely.deployment.logprobs
    assert not plain.deployment.logprobs
    assert simulated(task="loglikelihood").workload.task == "loglikelihood"
    calm = chunkscope.recommend(
        PROFILE, model="qwen3-8b", gpu="h100", objective="latency", max_itl_ms=100
    )
    assert calm.inputs.objective == "latency"


@pytest.mark.parametrize(
    ("word", "choices"),
    [
        ("task", "generate, loglikelihood"),
        ("objective", "throughput, latency"),
        ("mode", "off, conservative, aggressive"),
        ("order", "data, longest, shuffled"),
        ("entry", "serve, llm, other"),
        ("policy", "evidence, lengths"),
    ],
)
def test_an_unknown_word_is_an_error_that_lists_the_choices(word: str, choices: str) -> None:
    with pytest.raises(UsageError, match=f"^{word} is 'nonsense', which is none of: {choices}$"):
        chunkscope.recommend(PROFILE, **{word: "nonsense"})


def test_names_are_offered_before_they_are_loaded_and_hints_are_in_tracebacks() -> None:
    assert set(dir(chunkscope)) >= {"analyze", "recommend", "Profile"}
    with pytest.raises(ChunkscopeError) as raised:
        chunkscope.memory(model="qwen3-8", gpu="h100")
    assert "hint: built in: qwen3-8b" in "".join(format_exception_only(raised.value))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: simulated(policy="nonsense"),
        lambda: simulated(task="nonsense"),
        lambda: chunkscope.memory("qwen3-8b", "h100", task="nonsense"),
        lambda: chunkscope.VerifyOptions(task="nonsense"),
        lambda: chunkscope.VerifyOptions(order="nonsense"),
        lambda: chunkscope.Plan.load(PLAN).emit("nonsense"),
        lambda: AnalyzeOptions(chat_date="soon"),
    ],
)
def test_so_it_is_everywhere(ask: Any) -> None:
    with pytest.raises(UsageError) as caught:
        ask()
    assert caught.value.hint or ", which is none of: " in caught.value.message


def test_activation_is_the_decision_of_the_plan_for_the_same_prompts(tmp_path: Path) -> None:
    profile, plan = chunkscope.Profile.load(PROFILE), chunkscope.Plan.load(PLAN)
    assert chunkscope.activation(profile) == chunkscope.activation(str(PROFILE)) == plan.decision
    write_jsonl(tmp_path / "short.jsonl", [{"prompt": "a b c"}])
    short = chunkscope.activation(chunkscope.analyze(tmp_path / "short.jsonl"))
    assert (short.mode, short.threshold) == ("off", None)
    assert "limit 1,000" in short.reason
    with pytest.raises(ChunkscopeError, match="is a plan file, not a profile file"):
        chunkscope.activation(PLAN)
    with pytest.raises(ChunkscopeError, match=r"nowhere\.json"):
        chunkscope.activation(tmp_path / "nowhere.json")


def test_options_take_names_days_and_single_words(tmp_path: Path) -> None:
    options = AnalyzeOptions(
        chat_template="~/chat.jinja", chat_date="2026-01-31", include="*.jsonl", names="mine",
        select=SelectOptions(fields="question"),
    )  # fmt: skip
    assert options.chat_template == Path.home() / "chat.jinja"
    assert (options.chat_date.day, options.include, options.names) == (31, ("*.jsonl",), ("mine",))
    write_jsonl(tmp_path / "a.jsonl", [{"question": "one", "text": "two words"}])
    profile = chunkscope.analyze(
        str(tmp_path / "a.jsonl"), options=replace(options, chat_template=None)
    )
    assert [(d.name, d.field) for d in profile.datasets] == [("mine", "question")]
    assert chunkscope.VerifyOptions(against="off").against == ("off",)
    (tmp_path / "shots.txt").write_text("Answer this.")
    (file,) = AnalyzeOptions(prefix_files=tmp_path / "shots.txt").prefix_files
    assert file.content == "Answer this."


def test_emit_is_what_the_command_prints() -> None:
    plan = chunkscope.Plan.load(str(REPORTS / "h200" / "llama-3.1-8b-mixed" / "plan.json"))
    for target in ("vllm-args", "json", "kubernetes", "lm-eval"):
        assert plan.emit(target) == emit(plan, Target(target)).text


# --- what is shown ------------------------------------------------------------------------------


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, _: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def values() -> list[Any]:
    profile = chunkscope.Profile.load(PROFILE)
    return [profile, chunkscope.Plan.load(PLAN), simulated(), chunkscope.Verification.load(VERIFY)]


@pytest.mark.parametrize("place", range(4))
def test_a_value_is_one_line_and_in_a_notebook_a_table(place: int) -> None:
    value = values()[place]
    assert repr(value).startswith(f"<{type(value).__name__} ")
    assert len(repr(value).splitlines()) == 1
    assert len(repr(value)) < 200
    page = Cells()
    page.feed(value._repr_html_())
    assert not page.open
    assert len(page.texts) > 3


def test_settings_without_a_name_are_told_apart_by_their_arguments() -> None:
    found = simulated()
    assert "<td>budget 512</td>" in found._repr_html_()
    assert [bar.label for bar in found.plot().bars] == ["budget 512"]


def test_names_of_strangers_do_not_get_into_the_page(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "<b>x.jsonl", [{"prompt": "a"}])
    shown = chunkscope.analyze(tmp_path / "<b>x.jsonl")._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;x" in shown


def test_charts_are_drawn_without_a_library(tmp_path: Path) -> None:
    profile = chunkscope.Profile.load(PROFILE)
    for chart in (profile.plot(), simulated().plot()):
        tree = ElementTree.fromstring(chart._repr_svg_())
        assert tree.attrib["role"] == "img"
        assert len(tree.findall("{http://www.w3.org/2000/svg}rect")) == len(chart.bars) > 0
        assert chart.save(str(tmp_path / "chart.svg")).read_text() == str(chart)
    assert sum(bar.value for bar in profile.plot().bars) == profile.overall.count


# --- what is known --------------------------------------------------------------------------------


def test_models_and_gpus_list_what_is_known(tmp_path: Path) -> None:
    from chunkscope.hardware.gpus import CARDS
    from chunkscope.models.find import MODELS

    models = json.loads(command(tmp_path, "models", "--json").out)["models"]
    assert [model["name"] for model in models] == list(MODELS)
    gpus = json.loads(command(tmp_path, "gpus", "--json").out)["gpus"]
    assert [gpu["name"] for gpu in gpus] == [card.name for card in CARDS]
    some = command(tmp_path, "models", "qwen3-8")
    assert "qwen3-8b" in some.out
    assert "llama" not in some.out
    assert "NVIDIA H100" in command(tmp_path, "gpus", "H100").out
    nothing = command(tmp_path, "gpus", "abacus")
    assert (nothing.code, nothing.out) == (0, "")
    assert "none of that name" in nothing.err
