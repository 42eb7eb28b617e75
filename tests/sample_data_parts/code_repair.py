"""A hundred and fifty functions with one mistake each, in files from short to long."""

import re
from collections.abc import Sequence
from random import Random
from string import Template
from typing import NamedTuple

from tests.sample_data_parts.code_snippets import SNIPPET_BANK
from tests.sample_data_parts.helpers import Row, rng_for
from tests.sample_data_parts.words import SNIPPET_DOMAINS


class Bug(NamedTuple):
    """One edit that breaks a snippet, and what a user notices."""

    right: str
    wrong: str
    symptom: str


class Snippet(NamedTuple):
    """A correct function or class, what it imports, tests for it, ways to break it."""

    name: str
    imports: list[str]
    code: str
    tests: str
    bugs: list[Bug]


class Domain(NamedTuple):
    """One business: the file its helpers are in, and every snippet in its own words."""

    items: str
    path: str
    snippets: list[Snippet]


def parse_bug(text: str) -> Bug:
    change, _, symptom = text.partition("\n")
    right, wrong = change.split(" => ")
    return Bug(right, wrong, symptom.strip())


def parse_snippet(text: str) -> Snippet:
    head, _, rest = text.partition("\n@tests\n")
    name, *source = head.split("\n")
    tests, *bugs = rest.split("\n@bug ")
    imports = [line for line in source if line.startswith(("import ", "from "))]
    code = "\n".join(source[len(imports) :])
    return Snippet(name, imports, code, tests, [parse_bug(bug) for bug in bugs])


def domain_of(item: str, items: str, owner: str, amount: str, path: str) -> Domain:
    bank = Template(SNIPPET_BANK).substitute(
        item=item, Item=item.capitalize(), items=items, owner=owner, amount=amount
    )
    return Domain(items, path, [parse_snippet(text) for text in bank.split("\n@snippet ")[1:]])


DOMAINS = [domain_of(*fields) for fields in SNIPPET_DOMAINS]


def broken(snippet: Snippet, bug: Bug) -> Snippet:
    if snippet.code.count(bug.right) != 1:
        raise ValueError(f"{snippet.name}: {bug.right!r} must occur exactly once")
    return snippet._replace(code=snippet.code.replace(bug.right, bug.wrong))


def source_file(domain: Domain, snippets: Sequence[Snippet]) -> str:
    """One file as a prompt shows it: its docstring, the imports it needs, its functions."""
    head = f'"""Helpers for {domain.items}."""'
    imports = sorted({line for snippet in snippets for line in snippet.imports})
    if imports:
        head += "\n\n" + "\n".join(imports)
    code = "\n\n\n".join([head, *(snippet.code for snippet in snippets)])
    return f"File `{domain.path}`:\n```python\n{code}\n```"


def other_files(rng: Random, domain: Domain, functions: int) -> list[str]:
    """Correct files of other domains, about `functions` functions in all."""
    files = []
    for other in rng.sample([d for d in DOMAINS if d is not domain], len(DOMAINS) - 1):
        if functions <= 0:
            break
        chosen = rng.sample(other.snippets, min(functions, rng.randint(4, 8)))
        functions -= len(chosen)
        files.append(source_file(other, chosen))
    return files


def name_in_log(domain: Domain, snippet: Snippet) -> str:
    """`RecentOrderCache` is tested by "tests/test_orders.py::test_recent_order_cache"."""
    suite = domain.path.rpartition("/")[2]
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", snippet.name).lower()
    return f"tests/test_{suite}::test_{name}"


def run_log(rng: Random, domain: Domain, failing: Snippet, passed: int) -> str:
    """The end of a test run in which one test fails."""
    fine = rng.sample([s for s in domain.snippets if s is not failing], passed)
    log = [f"{name_in_log(domain, snippet)} PASSED" for snippet in fine]
    log.insert(rng.randint(0, passed), f"{name_in_log(domain, failing)} FAILED")
    log.append(f"===== 1 failed, {passed} passed in 0.{rng.randint(10, 99)}s =====")
    return "\n".join(log)


def repair_prompt(
    rng: Random, domain: Domain, snippet: Snippet, bug: Bug, neighbours: int, functions: int
) -> str:
    """Ask for a repair: code with the bug among `neighbours`, other files, what goes wrong."""
    correct = [s for s in domain.snippets if s is not snippet]
    chosen = [broken(snippet, bug), *rng.sample(correct, neighbours)]
    rng.shuffle(chosen)
    files = [source_file(domain, chosen), *other_files(rng, domain, functions)]
    rng.shuffle(files)
    name, symptom = snippet.name, bug.symptom
    task = rng.choice(
        (
            f"A user reports: {symptom}. The cause is one mistake in `{name}`. Find it and reply "
            f"with the whole corrected `{name}`, nothing else.",
            f"`{name}` in `{domain.path}` does not do what its docstring says: {symptom}. Repair "
            "it with the smallest change you can and keep its name and its arguments.",
            f"The nightly tests fail. What people see is that {symptom}. Return a corrected "
            f"version of `{name}` and explain the mistake in one sentence.",
        )
    )
    evidence = rng.choice(
        (
            f"These checks must pass:\n```python\n{snippet.tests}\n```",
            f"Test run:\n```\n{run_log(rng, domain, snippet, rng.randint(3, 9))}\n```",
        )
    )
    return "\n\n".join([task, *files, evidence])


def repair_sizes(rng: Random, count: int) -> list[tuple[int, int]]:
    """(neighbours, functions in other files) of each task: mostly small, a thin long tail."""
    medium = [(rng.randint(5, 8), rng.randint(0, 2)) for _ in range(9)]
    large = [(5, 8), (6, 11), (6, 16), (7, 22), (8, 33)]
    small = [(rng.choice((0, 0, 0, 1, 1, 2, 3, 4)), 0) for _ in range(count - len(medium + large))]
    sizes = small + medium + large
    rng.shuffle(sizes)
    return sizes


def rows() -> list[Row]:
    rng = rng_for("code")
    sizes = repair_sizes(rng, 150)
    cases = [(d, snippet, bug) for d in DOMAINS for snippet in d.snippets for bug in snippet.bugs]
    chosen = rng.sample(cases, len(sizes))
    return [
        {
            "task_id": f"repair/{number:03}",
            "prompt": repair_prompt(rng, *case, *size),
            "tests": case[1].tests,
        }
        for number, (case, size) in enumerate(zip(chosen, sizes, strict=True), start=1)
    ]
