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
from pathlib import Path

import pytest

from tests import build
from tests.commands.helpers import chunkscope
from tests.conftest import REPOSITORY

DOCUMENTS = (
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "chunkscope/guide").iterdir()),
)
TEXTS = {path.stem: path.read_text() for path in DOCUMENTS}
README = TEXTS["README"]
PLANNED = "recommend --model qwen2.5-1.5b --gpu l4"
BLOCK = r"```console\n\$ (.+)\n((?:.*\n)*?)```"
BLOCKS = [
    (path, *block)
    for path in DOCUMENTS
    for block in re.findall(BLOCK, TEXTS[path.stem])
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    for name in ("sample_data", "reports/example"):
        shutil.copytree(REPOSITORY / name, folder / name)
    assert chunkscope(folder, "analyze", "sample_data/").code == 0
    return folder


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkscope.planning.recommend.recommend", build.planned)


def test_the_readme_shows_commands_and_their_output() -> None:
    assert len(re.findall(BLOCK, README)) >= 3


COMMANDS = sorted(
    {
        line
        for text in TEXTS.values()
        for block in re.findall(r"```sh\n(.*?)```", text, re.S)
        for line in re.findall(r"chunkscope [^|&<>\n]*", block.replace("\\\n", ""))
    }
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_manual_has_options_that_exist(line: str) -> None:
    from typer.main import get_command

    from chunkscope.cli import application

    name, *words = shlex.split(line.rstrip(")"), comments=True)[1:]
    command = get_command(application()).commands[name]  # type: ignore[attr-defined]
    assert command.make_context(name, words)


@pytest.mark.parametrize(
    ("path", "command", "shown"), BLOCKS, ids=[block[1] for block in BLOCKS]
)
def test_a_console_block_is_what_the_command_prints(
    checkout, path, command, shown, monkeypatch, request
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    words, _, lines = command.partition(" | head -n ")
    run = chunkscope(checkout, *shlex.split(words)[1:])
    assert run.code == 0, run.err
    printed = [
        f"{line.rstrip()}\n" for line in run.out.splitlines()[: int(lines or 999)]
    ]
    if request.config.getoption("--update-golden"):
        path.write_text(path.read_text().replace(shown, "".join(printed)))
    else:
        assert "".join(printed) == shown


@pytest.mark.parametrize("name", ["README", "simulate", "python"])
def test_its_python_works_too(checkout: Path, name: str) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", TEXTS[name], re.S)
    run_python(f"import chunkscope\n{code}", checkout)


def run_python(code: str, folder: Path) -> None:
    with chdir(folder):
        exec(code, {})


WITH_A_MODEL = """
import chunkscope, torch
from tests.reference.small_models import model_of, prompt_of
model, inputs = model_of("Llama"), {"input_ids": torch.tensor([prompt_of(2_500)])}
"""


@pytest.mark.real
def test_its_chunks_of_a_model_work_too(checkout: Path) -> None:
    pytest.importorskip("torch")
    _, code = re.findall(r"```python\n(.*?)```", TEXTS["python"], re.S)
    said = "assert model.chunking.stats.chunked_sequences == 2"
    run_python(f"{WITH_A_MODEL}\n{code}\n{said}", checkout)


LEFT_OUT = """
import importlib.metadata, runpy, sys

left_out = set(sys.argv.pop(1).split())
for name, homes in importlib.metadata.packages_distributions().items():
    if {home.lower() for home in homes} & left_out:
        sys.modules[name] = None
runpy.run_module("chunkscope", run_name="__main__")
"""


@pytest.mark.parametrize("command", [PLANNED, "simulate", "gate"])
def test_a_job_that_only_gates_needs_what_the_readme_says(
    checkout: Path, command: str
) -> None:
    text = (REPOSITORY / ".github" / "CONTRIBUTING.md").read_text()
    (line,) = re.findall(
        r"^pip install --no-deps \. && pip install (.*)$", text, re.MULTILINE
    )
    kept = {re.split(r"[<>=]", word)[0] for word in shlex.split(line)}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=; ]", word)[0] for word in project["dependencies"]}
    assert kept < needed
    if command != PLANNED:
        arguments = chunkscope(checkout, *PLANNED.split(), "--emit", "vllm-yaml").out
        (checkout / "a.yaml").write_text(arguments)
        (checkout / "chunkscope.toml").write_text('[gate.settings]\nfile = "a.yaml"\n')
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "-c", LEFT_OUT, " ".join(needed - kept), *command.split()]
    done = subprocess.run(
        words, cwd=checkout, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_exit_codes_are_documented() -> None:
    from chunkscope.cli import EXIT_INTERRUPTED
    from chunkscope.errors import EXIT_BUG, ChunkscopeError

    codes = {kind.exit_code for kind in ChunkscopeError.__subclasses__()}
    documented = {
        int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)
    }
    assert documented == codes | {0, EXIT_BUG, EXIT_INTERRUPTED}


def test_every_folder_is_in_the_contributors_table() -> None:
    table = (REPOSITORY / ".github" / "CONTRIBUTING.md").read_text()
    package = REPOSITORY / "chunkscope"
    folders = {
        f"`{path.name}/`"
        for path in package.iterdir()
        if (path / "__init__.py").exists()
    }
    assert not [name for name in sorted(folders) if name not in table]
