"""What was measured on an H200 is committed; here it is held against what is said of it."""

import pytest

from tests.conftest import REPOSITORY
from tests.h200 import files, measured, table

README = (REPOSITORY / "README.md").read_text()
RUNS = [
    pytest.param(run, id=f"{name}: {run.setting}")
    for name, verification in measured().items()
    for run in verification.runs
]


def test_two_models_were_measured_over_three_kinds_of_data() -> None:
    names = {path.parent.name for path in files()}
    wanted = {
        f"{m}-{d}" for m in ("llama-3.1-8b", "qwen2.5-1.5b") for d in ("short", "mixed", "long")
    }
    assert wanted <= names


def test_the_readme_shows_what_was_measured() -> None:
    assert table() in README


@pytest.mark.parametrize("verification", measured().values(), ids=measured())
def test_they_say_where_and_with_what(verification) -> None:
    assert verification.machine.gpu == "NVIDIA H200"
    assert verification.machine.vllm == "0.24.0"
    assert verification.model.dummy
    names = {name for run in verification.runs for name in (run.setting, *run.same_as)}
    if set(verification.run("plan").args) == {"max_model_len"}:
        names.add("default")  # the plan sets nothing else: it is vLLM's own
    if verification.run("plan").args.get("enable_chunked_prefill") is False:
        names.add("off")
    assert {"plan", "default", "off"} <= names


@pytest.mark.parametrize("run", RUNS)
def test_the_predicted_activation_peak_is_close(run) -> None:
    """Within 10 % or 0.3 GiB, as the README promises."""
    found, predicted = run.activation_peak_gib, run.predicted.activation_gib
    assert abs(found - predicted) <= max(0.1 * found, 0.3)


@pytest.mark.parametrize("run", RUNS)
def test_the_predicted_kv_cache_is_close(run) -> None:
    assert run.predicted.kv_cache_tokens == pytest.approx(run.kv_cache_tokens, rel=0.02)
