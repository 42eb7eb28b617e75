"""What the README and the manual show is what the commands really print.

`pytest tests/test_readme.py --update-golden` puts in what they print today.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import build
from tests.commands.helpers import chunkscope
from tests.commands.test_command_line import command as typer_command
from tests.conftest import REPOSITORY

PLANNED = ("recommend", "--model", "qwen2.5-1.5b", "--gpu", "l4")
README = REPOSITORY / "README.md"
CONTRIBUTING = REPOSITORY / ".github" / "CONTRIBUTING.md"
DOCUMENTS = (README, *sorted((REPOSITORY / "chunkscope/guide").glob("*.md")))
ON_GITHUB = re.compile(
    r"https://(?:github\.com/chunkscope/chunkscope/(?:blob|tree)/main|"
    r"raw\.githubusercontent\.com/chunkscope/chunkscope/main)/([^)\s]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A command after a $, and what the document says that it prints."""

    document: Path
    command: str
    shown: str

    def __str__(self) -> str:
        return self.command


def blocks() -> list[Block]:
    found = []
    for path in DOCUMENTS:
        for command, shown in re.findall(
            r"```console\n\$ (.+)\n((?:.*\n)*?)```", path.read_text()
        ):
            found.append(Block(document=path, command=command, shown=shown))
    return found


def commands() -> list[str]:
    """Every command of the documents that is not shown with its output."""
    lines = set()
    for path in DOCUMENTS:
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL):
            whole_lines = block.replace("\\\n", "")
            lines.update(re.findall(r"chunkscope [^|&<>\n]*", whole_lines))
    return sorted(lines)


def python_of(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    for name in ("sample_data", "reports/example", "reports/h200/agents"):
        shutil.copytree(REPOSITORY / name, folder / name)
    assert chunkscope(folder, "analyze", "sample_data/").code == 0
    return folder


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkscope.planning.recommend.recommend", build.planned)


# -- commands --------------------------------------------------------------------------


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_manual_has_options_that_exist(line):
    name, *words = shlex.split(line.rstrip(")"), comments=True)[1:]

    assert typer_command(name).make_context(name, words)


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_a_console_block_is_what_the_command_prints(
    checkout, block, monkeypatch, request
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    words, _, count = block.command.partition(" | head -n ")
    run = chunkscope(checkout, *shlex.split(words)[1:])
    assert run.code == 0, run.err

    lines = run.out.splitlines()
    if count:
        lines = lines[: int(count)]
    printed = "".join(f"{line.rstrip()}\n" for line in lines)

    if request.config.getoption("--update-golden"):
        start = f"$ {block.command}\n"
        text = block.document.read_text()
        text = text.replace(f"{start}{block.shown}```", f"{start}{printed}```")
        block.document.write_text(text)
    else:
        assert printed == block.shown


def test_the_readme_shows_what_commands_print():
    assert [block for block in blocks() if block.document == README]


# -- Python ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "chunkscope/guide/simulate.md"])
def test_its_python_works(checkout, name):
    run_python(python_of(REPOSITORY / name)[0], checkout)


def test_the_python_of_its_own_page_works(checkout):
    code, *_ = python_of(REPOSITORY / "chunkscope/guide/python.md")

    run_python(code, checkout)


WITH_A_MODEL = """
import chunkscope, torch
from tests.reference.small_models import model_of, prompt_of
model, inputs = model_of("Llama"), {"input_ids": torch.tensor([prompt_of(2_500)])}
"""


@pytest.mark.real
def test_its_chunks_of_a_model_work(checkout):
    pytest.importorskip("torch")
    _, code = python_of(REPOSITORY / "chunkscope/guide/python.md")

    run_python(
        f"{WITH_A_MODEL}\n{code}\nassert model.chunking.stats.chunked_sequences == 2",
        checkout,
    )


def run_python(code: str, folder: Path) -> None:
    with chdir(folder):
        exec(f"import chunkscope\n{code}", {})


# -- what else the documents say -------------------------------------------------------


@pytest.mark.parametrize("path", ON_GITHUB.findall(README.read_text()))
def test_a_link_of_the_readme_leads_to_something(path):
    assert (REPOSITORY / path).exists()


def test_the_exit_codes_are_documented():
    from chunkscope.commands.command import EXIT_INTERRUPTED
    from chunkscope.errors import EXIT_BUG, ChunkscopeError

    codes = {0, EXIT_BUG, EXIT_INTERRUPTED}
    for kind in ChunkscopeError.__subclasses__():
        codes.add(kind.exit_code)

    documented = re.findall(r"^\| (\d+) \|", README.read_text(), re.MULTILINE)

    assert {int(code) for code in documented} == codes


def test_every_folder_is_in_the_contributors_table():
    table = CONTRIBUTING.read_text()
    for path in (REPOSITORY / "chunkscope").iterdir():
        if (path / "__init__.py").exists():
            assert f"`{path.name}/`" in table


# -- a job that only gates -------------------------------------------------------------

LEFT_OUT = """
import importlib.metadata, runpy, sys

left_out = set(sys.argv.pop(1).split())
for name, homes in importlib.metadata.packages_distributions().items():
    if {home.lower() for home in homes} & left_out:
        sys.modules[name] = None
runpy.run_module("chunkscope", run_name="__main__")
"""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=; ]", text)[0] for text in requirements}


@pytest.fixture(scope="module")
def not_needed() -> str:
    """The dependencies that a job which only gates does without."""
    (line,) = re.findall(
        r"^pip install --no-deps \. && pip install (.*)$",
        CONTRIBUTING.read_text(),
        re.MULTILINE,
    )
    kept = names(shlex.split(line))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = names(project["dependencies"])
    assert kept < needed
    return " ".join(needed - kept)


@pytest.fixture(scope="module")
def gated(checkout) -> Path:
    """With a plan, its settings and a budget."""
    run = chunkscope(checkout, *PLANNED, "--emit", "vllm-yaml")
    assert run.code == 0, run.err
    (checkout / "a.yaml").write_text(run.out)
    (checkout / "chunkscope.toml").write_text('[gate.settings]\nfile = "a.yaml"\n')
    return checkout


@pytest.mark.parametrize("command", [" ".join(PLANNED), "simulate", "gate"])
def test_a_job_that_only_gates_needs_few_packages(gated, not_needed, command):
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OUT, not_needed, *command.split()],
        cwd=gated,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
