"""The rows of constants.csv: each is used, has a source, and names its test."""

import ast
from pathlib import Path

import pytest

from chunkscope.hardware import constants
from chunkscope.hardware.constants import CONSTANTS
from chunkscope.report.accuracy import accuracy_tables
from tests.conftest import REPOSITORY

HARDWARE = Path(constants.__file__).parent
MODELS = ("memory.py", "kv_groups.py", "step_time.py")
BASES = {"measured", "assumed", "read in vLLM"}


def names_read() -> set[str]:
    """The rows that the models ask for: constant("NAME") and whole("NAME")."""
    names = set()
    for file in MODELS:
        for node in ast.walk(ast.parse((HARDWARE / file).read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("constant", "whole"):
                names.add(ast.literal_eval(node.args[0]))
    return names


def test_every_row_is_used_and_no_other():
    assert names_read() == CONSTANTS.keys()


@pytest.mark.parametrize("constant", CONSTANTS.values(), ids=CONSTANTS)
def test_a_row_has_a_unit_and_says_where_its_value_is_from(constant):
    assert constant.basis in BASES
    assert constant.unit
    assert constant.source
    assert float(constant.value) > 0


@pytest.mark.parametrize("constant", CONSTANTS.values(), ids=CONSTANTS)
def test_what_was_measured_names_a_test_that_exists(constant):
    if constant.basis == "measured":
        assert constant.test
    if constant.test:
        file, name = constant.test.split("::")
        assert f"\ndef {name}(" in (REPOSITORY / file).read_text()


@pytest.mark.parametrize("file", MODELS)
def test_a_model_holds_no_number_of_its_own(file):
    """A name at the top of a module for a number would be a constant without a row."""
    for statement in ast.parse((HARDWARE / file).read_text()).body:
        if isinstance(statement, ast.Assign):
            value = statement.value
            assert not isinstance(value, ast.Constant), ast.unparse(statement)


def test_the_manual_shows_every_row():
    tables = accuracy_tables()
    for constant in CONSTANTS.values():
        assert f"\n{constant.name} = {constant.value} {constant.unit} " in tables
