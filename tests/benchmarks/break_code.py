"""Do the tests notice? Break one line at a time and run the core tests of that folder on it.

    python tests/benchmarks/break_code.py --seed 24 --breaks 40 > table.md
    python tests/benchmarks/break_code.py --part 1/2 > one.md &   # every second one, side by side
    python tests/benchmarks/break_code.py --seed 7 --folder sources --folder lengths

A break turns a comparison, changes a number, drops a branch or swaps two arguments. Breaks are
drawn by the seed, spread over the folders by their lines, none of them in words, help or messages.
Each is tried in a copy of the checkout: the folder's tests, the examples in its docstrings, then
the golden files, up to the first failure. A break that no test notices is listed as a survivor.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
OPPOSITES = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq)),
    *((ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
)
TURNED = {**dict(OPPOSITES), **{other: one for one, other in OPPOSITES}}
SYMMETRICAL = ("max", "min", "isinstance", "getattr", "hasattr")  # or nothing to swap
LEFT_OUT = ("report/words", "inside/", "__main__.py", "_version.py", "guide/")
LARGE = 100
PATIENCE_S = 1_200


@dataclass(frozen=True)
class Break:
    path: Path
    node: ast.AST
    kind: str
    new: str

    @property
    def line(self) -> int:
        return self.node.lineno

    def applied(self, text: str) -> str:
        """The file's text with the node's text replaced."""
        lines = text.splitlines(keepends=True)
        node = self.node
        row = lines[node.lineno - 1].encode()
        lines[node.lineno - 1] = (
            row[: node.col_offset] + self.new.encode() + row[node.end_col_offset :]
        ).decode()
        return "".join(lines)


def breaks_of(path: Path) -> Iterator[Break]:
    """All one-line breaks of a file."""
    for node in _outside_words(ast.parse(path.read_text(encoding="utf-8"))):
        if getattr(node, "lineno", None) is None or node.lineno != node.end_lineno:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            turned = ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)
            yield Break(path, node, "comparison turned", ast.unparse(turned))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            # One more of a size is the same size: none of it is a break.
            large = node.value >= LARGE
            changed = 0 if large else node.value * 2 + 1 if node.value else 1
            yield Break(path, node, "number changed", repr(changed))
        elif isinstance(node, ast.IfExp) and _are_words(node.body, node.orelse):
            continue
        elif isinstance(node, ast.If | ast.IfExp) and node.test.lineno == node.test.end_lineno:
            yield Break(path, node.test, "branch dropped", "False")
        elif (
            isinstance(node, ast.Call)
            and len(node.args) == 2
            and getattr(node.func, "id", "") not in SYMMETRICAL
            and not any(isinstance(a, ast.Starred | ast.Constant) for a in node.args)
        ):
            swapped = ast.Call(node.func, node.args[::-1], node.keywords)
            yield Break(path, node, "arguments swapped", ast.unparse(swapped))


def _are_words(*nodes: ast.AST) -> bool:
    return any(
        isinstance(node, ast.JoinedStr | ast.Constant)
        and isinstance(getattr(node, "value", ""), str)
        for node in nodes
    )


def _outside_words(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those of formatted text and of errors that are raised."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr | ast.Raise):
            yield child
            yield from _outside_words(child)


def drawn(seed: int, count: int, folders: list[str]) -> list[Break]:
    """So many breaks: folders by their share of lines (each at least once), then kinds in turn.

    Of these folders; of all where none is named.
    """
    chance = random.Random(seed)
    package = REPOSITORY / "chunkscope"
    files: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not any(part in name for part in LEFT_OUT):
            part = name.split("/")[0] if "/" in name else "top level"
            if part in folders or not folders:
                files.setdefault(part, []).append(path)
    lines = {
        part: sum(path.read_bytes().count(b"\n") for path in paths) for part, paths in files.items()
    }
    parts = [*files, *chance.choices([*files], [lines[part] for part in files], k=count)][:count]
    kinds = ("comparison turned", "number changed", "branch dropped", "arguments swapped")
    chosen: list[Break] = []
    for index, part in enumerate(parts):
        pool = [b for path in files[part] for b in breaks_of(path)]
        wanted = [b for b in pool if b.kind == kinds[index % len(kinds)]] or pool
        chosen.append(chance.choice(wanted))
    return chosen


def tests_of(broken: Break) -> list[list[str]]:
    """What is run on it, in turn: the folder's tests, its examples, then what people see.

    Of the folder's tests, those that name the module come first: they notice soonest. The top level
    has no folder of tests: it is reached through Python's names and the commands.
    """
    path = broken.path.relative_to(REPOSITORY).with_suffix("")
    part, module = path.parts[1], ".".join(path.parts)
    tests = REPOSITORY / "tests"
    files = sorted((tests / part).rglob("test_*.py"))
    files = files or [tests / "test_python.py", *sorted((tests / "commands").glob("test_*.py"))]
    named = [file for file in files if module in file.read_text(encoding="utf-8")]
    others = [file for file in files if file not in named]
    folder = [[str(file.relative_to(REPOSITORY)) for file in group] for group in (named, others)]
    examples = ["tests/test_doctests.py", "-k", f"chunkscope.{part}"]
    return [*filter(None, folder), examples, ["tests/test_golden.py"]]


def caught_by(broken: Break, checkout: Path) -> str | None:
    """The first test that fails with it; None if none does."""
    path = checkout / broken.path.relative_to(REPOSITORY)
    text = path.read_text(encoding="utf-8")
    path.write_text(broken.applied(text), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    try:
        for tests in tests_of(broken):
            try:
                done = subprocess.run(
                    [*command, *tests],
                    cwd=checkout,
                    env=env,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=PATIENCE_S,
                )
            except subprocess.TimeoutExpired:
                return f"{tests[0]} does not end"
            if done.returncode not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
                failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
                return failed[0].split(" - ")[0].split()[1] if failed else tests[0]
    finally:
        path.write_text(text, encoding="utf-8")
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--breaks", type=int, default=40)
    parser.add_argument("--folder", action="append", default=[], help="only there; repeatable")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three parts")
    parser.add_argument("--list", action="store_true", help="show the breaks, run nothing")
    options = parser.parse_args()
    print("| where | break | line with it | caught by |\n|---|---|---|---|")
    part, parts = map(int, options.part.split("/"))
    chosen = drawn(options.seed, options.breaks, options.folder)[part - 1 :: parts]
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        if not options.list:
            ignored = shutil.ignore_patterns(".git", "*_cache", "__pycache__", ".venv*")
            shutil.copytree(REPOSITORY, checkout, ignore=ignored)
            shared = REPOSITORY.parent / "shared"
            if shared.is_dir():
                (Path(folder) / "shared").symlink_to(shared)
        for broken in chosen:
            where = f"{broken.path.relative_to(REPOSITORY / 'chunkscope')}:{broken.line}"
            text = broken.path.read_text(encoding="utf-8")
            line = broken.applied(text).splitlines()[broken.line - 1].strip().replace("|", "\\|")
            test = "" if options.list else caught_by(broken, checkout) or "**nothing**"
            caught += test not in ("", "**nothing**")
            print(f"| {where} | {broken.kind} | `{line}` | {test} |", flush=True)
    print(f"\n{caught} of {len(chosen)} were caught (seed {options.seed}).")


if __name__ == "__main__":
    main()
