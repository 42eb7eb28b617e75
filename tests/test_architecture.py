"""The architecture: imports point one way, and what is heavy is loaded late."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import chunkscope

PACKAGE = Path(chunkscope.__file__).parent

# Each part may import from the layers above it in this list, never from its own or those below.
LAYERS = [
    {"errors", "folders", "histogram", "labels", "choices"},
    {"artefact", "checked", "console", "hardware", "models", "sources"},
    {
        "calibration",
        "digests",
        "policy",
        "profile",
        "progress",
        "sampling",
        "step_time",
        "vllm_flags",
    },
    {"cache", "memory", "tally", "tokenizers", "workload"},
    {"simulation"},
    {"choose", "plan", "scan"},
    {"analysis", "emit", "planning", "vllm_check"},
    {"prediction", "verification"},
    {"findings"},
    {"gating"},
    {"report"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
# Loading one of these takes longer than `chunkscope --help` may.
HEAVY = {
    *("torch", "vllm", "transformers", "datasets", "pandas", "pyarrow", "numpy", "rich"),
    *("pydantic", "tokenizers", "tiktoken", "mistral_common", "huggingface_hub", "jinja2"),
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The module or folder a file belongs to; reading an artefact back is part of its module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py").removesuffix("_file")


def imports(path: Path) -> Iterator[str]:
    """Parts of the package that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            if package == "chunkscope" and rest and rest != ["__version__"]:
                yield rest[0].removesuffix("_file")


def layer(part: str) -> int:
    found = [index for index, parts in enumerate(LAYERS) if part in parts]
    assert found, f"say in LAYERS where {part} belongs"
    return found[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return  # the public names, loaded on first use
    wrong = {used for used in imports(path) if used != part and layer(used) >= layer(part)}
    assert not wrong, f"{part} must not know of {', '.join(sorted(wrong))}"


def test_every_layer_is_there() -> None:
    parts = {part_of(path) for path in modules()} - {"__init__"}
    assert set().union(*LAYERS) <= parts


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


HELP = """
sys.argv = ["chunkscope", *{arguments}]
from chunkscope.cli import main
try:
    main()
except SystemExit as stop:
    assert stop.code == 0
"""


COMMANDS = ("analyze", "recommend", "simulate", "verify", "report", "gate")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded_by(HELP.format(arguments=arguments)) & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import chunkscope")
    assert not loaded & HEAVY
    assert not any(name.startswith("chunkscope.") for name in loaded)


def test_the_public_names_are_sorted_and_there() -> None:
    assert chunkscope.__all__ == sorted(chunkscope.__all__)
    for name in chunkscope.__all__:
        assert getattr(chunkscope, name).__module__.startswith("chunkscope.")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = chunkscope.nothing


def test_only_one_file_spells_vllms_flags() -> None:
    from chunkscope.vllm_flags import FLAGS

    spelled = {flag.spelling for flag in FLAGS}
    assert "--max-num-batched-tokens" in spelled
    for path in modules():
        if path.name != "vllm_flags.py":
            text = path.read_text(encoding="utf-8")
            assert not [flag for flag in spelled if flag in text], path
