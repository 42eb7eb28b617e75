"""The README's figures of how near the simulator comes are what the tool computes."""

import re

import pytest

from tests.benchmarks.simulate_accuracy import FIT, cases, main_table, tables
from tests.conftest import REPOSITORY
from tests.h200 import FOLDER

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?=%)")
ROUNDING = 0.3  # points: another machine's linear algebra may round a fit otherwise


def test_the_readme_shows_how_near_the_simulator_comes() -> None:
    computed = tables(FOLDER)
    shown = (REPOSITORY / "README.md").read_text()
    shown = shown[shown.index(computed.splitlines()[0]) :]
    shown = shown[: shown.index(computed.splitlines()[-1][:40])] + "end"
    computed = computed[: computed.index(computed.splitlines()[-1][:40])] + "end"
    assert NUMBER.sub("N", shown) == NUMBER.sub("N", computed)
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(computed), strict=True)
    far = [(a, b) for a, b in pairs if abs(float(a) - float(b)) > ROUNDING]
    assert not far


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-1.5b"])
def test_no_workload_is_both_fitted_on_and_held_out(model: str) -> None:
    rows = [row for row in main_table(cases(FOLDER), FIT) if row.startswith(f"| {model}")]
    fitted = {row.split("|")[1].split()[0] for row in rows if "fitted on" in row}
    held_out = {row.split("|")[1].split()[0] for row in rows if "fitted on" not in row}
    assert fitted == {f"{model}-{name}" for name in FIT}
    assert held_out
    assert not fitted & held_out
