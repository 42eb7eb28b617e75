"""Every example in a docstring is true."""

import doctest
import inspect
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "chunkscope"
# What runs inside a harness or an engine is imported there only.
MODULES = sorted(
    ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(
        ".__init__"
    )
    for file in PACKAGE.rglob("*.py")
    if "inside" not in file.parts and file.name != "__main__.py"
)
WITH_EXAMPLES = [
    name
    for name in MODULES
    if ">>> "
    in Path(inspect.getsourcefile(import_module(name)) or "").read_text(
        encoding="utf-8"
    )
]

WITH_TORCH = {"chunkscope.reference.chunked"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.real] if name in WITH_TORCH else [])
        for name in WITH_EXAMPLES
    ],
)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    if name in WITH_TORCH:
        pytest.importorskip("torch")
    module = import_module(name)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    with chdir(REPOSITORY):
        result = doctest.testmod(module, optionflags=flags, report=False)
    assert result.attempted
    assert not result.failed
