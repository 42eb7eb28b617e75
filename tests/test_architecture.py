"""The architecture: imports point one way, and what is heavy is loaded late."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import chunkscope
from chunkscope.cli import COMMANDS

PACKAGE = Path(chunkscope.__file__).parent

# Each part may import from the layers above it in this list, never from its own or
# those below.
LAYERS = [
    {"_version", "errors"},
    {"console", "network"},
    {"artefacts"},
    {"sources", "models"},
    {"prompts", "hardware"},
    {"tokenizers", "vllm"},
    {"prefixes"},
    {"lengths"},
    {"simulation"},
    {"planning"},
    {"verification"},
    {"diagnosis", "reference"},
    {"findings"},
    {"gating"},
    {"report"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
# Two legs carry the house: one knows the data and nothing of vLLM, the other the
# reverse.
LEGS = (
    {"sources", "prompts", "tokenizers", "prefixes", "lengths"},
    {"models", "hardware", "vllm"},
)
# Loading one of these takes longer than `chunkscope --help` may.
HEAVY = {
    "datasets",
    "huggingface_hub",
    "jinja2",
    "mistral_common",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "rich",
    "tiktoken",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The top-level module or folder that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return ".".join(("chunkscope", *path.relative_to(PACKAGE).with_suffix("").parts))


NAMES = {name_of(path).removesuffix(".__init__"): path for path in modules()}


def imports(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            names = imported_text(node)
        else:
            continue
        for name in names:
            module = name if name in NAMES else name.rpartition(".")[0]
            if module in NAMES:
                yield module


def imported_text(call: ast.Call) -> list[str]:
    """The start of the name in `import_module(...)`, a text or an f-string."""
    if "import_module" not in ast.unparse(call.func):
        return []
    text = call.args[0]
    if isinstance(text, ast.JoinedStr):
        text = text.values[0]
    if not isinstance(text, ast.Constant):
        return []
    return [str(text.value).rstrip(".")]


def layer(part: str) -> int:
    found = [index for index, parts in enumerate(LAYERS) if part in parts]
    assert found, f"say in LAYERS where {part} belongs"
    return found[0]


@pytest.mark.parametrize(
    "path", modules(), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return  # the public names, loaded on first use
    used = {part_of(NAMES[name]) for name in imports(path)} - {part}
    assert "__init__" not in used, (
        "the package's own face: import from the part that has it"
    )
    wrong = {other for other in used if layer(other) >= layer(part)}
    assert not wrong, f"{part} must not know of {', '.join(sorted(wrong))}"
    for leg, other in (LEGS, LEGS[::-1]):
        assert part not in leg or not used & other, (
            f"{part} must not know of the other leg"
        )


def test_no_two_files_import_each_other() -> None:
    """Nor do three in a ring. Imports inside functions and for types count."""
    known = {name: set(imports(path)) - {name} for name, path in NAMES.items()}
    known["chunkscope"] = set()  # the public names
    while loose := [name for name, used in known.items() if not used & known.keys()]:
        for name in loose:
            del known[name]
    ring = {name: sorted(used & known.keys()) for name, used in known.items()}
    assert not ring, "these import each other, or what does: " + str(ring)


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


HELP = """
from chunkscope.cli import main
for words in {lines}:
    sys.argv = ["chunkscope", *words]
    try:
        main()
    except SystemExit as stop:
        assert stop.code == 0
"""


def test_help_loads_nothing_heavy() -> None:
    lines = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    assert not loaded_by(HELP.format(lines=lines)) & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import chunkscope")
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("chunkscope.")} == {
        "chunkscope._version"
    }


def test_the_public_names_are_sorted_and_there() -> None:
    assert chunkscope.__all__ == sorted(chunkscope.__all__)
    for name in chunkscope.__all__:
        assert callable(getattr(chunkscope, name))
    with pytest.raises(AttributeError, match="nothing"):
        _ = chunkscope.nothing
