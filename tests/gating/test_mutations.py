"""No single thing that is wrong in an artefact or a budget turns a broken promise into a kept one.

Two checkouts whose every promise is broken, one by numbers and one by doubtful evidence, are made
of the committed examples. Each part of each artefact and of the budget is then removed, negated,
zero, huge, endless, no number, or of another type; each file is gone, empty, cut off or another.
What comes out is a broken promise or an error with exit code 3, and never a bug's.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from chunkscope.errors import InputError
from chunkscope.findings import load_findings
from chunkscope.gating.budget_file import read_budget
from chunkscope.gating.check import judge
from chunkscope.gating.verdict import GateResult
from chunkscope.lengths.profile import Profile, Sample
from chunkscope.planning import search
from chunkscope.planning.plan import Plan
from chunkscope.verification.latencies import median_of
from chunkscope.verification.result import Run, Verification
from tests.conftest import REPOSITORY
from tests.gating.mutations import GONE, mutated, mutations
from tests.gating.test_outputs import rows

EXAMPLE = REPOSITORY / "reports" / "example"
MEASURED = REPOSITORY / "reports" / "h200" / "llama-3.1-8b-mixed" / "verify.json"
NAMES = ("code_repair", "reasoning/tool_use")  # of six datasets: enough, and quickly simulated
FILES = (
    *("reports/profile.json", "reports/plan.json", "reports/verify.json"),
    *("baseline/profile.json", "baseline/verify.json", "chunkscope.toml", "vllm.yaml"),
)
TIGHT = {
    "output_tokens": 256,
    "data": {
        "longest_prompt": 10,
        "p50": 10,
        "p95": "10",
        "p99": 10,
        "min_rows": 9_000,
        "bad_rows": 0,
        "datasets": ["gone"],
        "max_model_len": 300,
        "of": {"code_repair": {"longest_prompt": 10, "min_rows": 9_000}, "gone": {"p95": 10}},
    },
    "drift": {
        "baseline": "baseline/profile.json",
        "p50": "1%",
        "p95": "1%",
        "max": "1%",
        "new_datasets": 0,
        "vanished_datasets": 0,
        "each_dataset": True,
    },
    "settings": {
        "file": "vllm.yaml",
        "must_be": "as-good",
        "threshold_tolerance": "5%",
        "vllm_version": "0.32.0",
        "allow": ["dtype"],
    },
    "memory": {
        "setting": "plan",
        "predicted": {"activation_peak": "1MiB", "device_peak": "1GiB", "kv_requests_of_p95": 9000},
        "measured": {"activation_peak": "1MiB", "device_peak": "1GiB", "kv_requests_of_p95": 9000},
    },
    "speed": {
        "setting": "plan",
        "ttft_p95": "1ms",
        "itl_p99": "0.1ms",
        "e2e_max": "1ms",
        "makespan": "1ms",
        "output_tokens_per_s": 900_000,
        "input_tokens_per_s": 900_000,
        "short": {"ttft_p95": "1ms"},
        "baseline": "baseline/verify.json",
        "tolerance": "1%",
        "compare": ["ttft_p95", "itl_p95", "output_tokens_per_s"],
    },
    "outputs": {"setting": "plan", "equal": "99%", "flipped_choices": 0},
    "freshness": {"data": True, "plan": False, "verification": False, "not_checked": []},
}
DOUBTFUL = {
    "data": {"longest_prompt": 90_000, "p95": 90_000, "bad_rows": 90, "max_model_len": 90_000},
    "drift": {"baseline": "baseline/profile.json", "p50": "900%", "max": "900%"},
    "settings": {"file": "vllm.yaml", "must_be": "equal"},
    "memory": {"measured": {"device_peak": "135GiB", "kv_requests_of_p95": 1}},
    "speed": {"ttft_p95": "9min", "output_tokens_per_s": 1},
    "outputs": {"equal": "10%"},
    "freshness": {"plan": True, "verification": True},
}


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A folder whose promises are broken, and the documents that can be mutated."""

    folder: Path
    documents: dict[str, Any]
    broken: frozenset[tuple[str, str]]
    every: int = 1

    def result(self) -> GateResult:
        budget = read_budget(self.folder / "chunkscope.toml")
        return judge(budget, load_findings(self.folder / "reports"))

    def with_file(self, name: str, data: bytes | None) -> str:
        """What a change to one file leads to that it must not; the file is put back."""
        path = self.folder / name
        before = path.read_bytes()
        path.unlink() if data is None else path.write_bytes(data)
        try:
            return self._wrong(of_budget=name == "chunkscope.toml")
        finally:
            path.write_bytes(before)

    def _wrong(self, *, of_budget: bool) -> str:
        try:
            result = self.result()
        except InputError as error:
            return "" if error.exit_code == 3 else f"exit code {error.exit_code}"
        except Exception as error:
            return f"a bug: {error!r}"
        kept = {(v.promise, v.subject) for v in result.verdicts if v.kept} & self.broken
        if kept:
            return f"kept: {', '.join(map(str, sorted(kept)))}"
        # A promise that is taken out of the budget is no longer made.
        return "everything is kept" if result.kept and not of_budget else ""


def written(document: Any, name: str) -> bytes:
    if name.endswith(".toml"):
        return "".join(toml(("gate",), document)).encode()
    return json.dumps(document).encode()  # NaN and Infinity as some programs write them


def toml(place: tuple[str, ...], table: Any) -> Iterator[str]:
    if not isinstance(table, dict):
        yield f"{'.'.join(map(json.dumps, place))} = {value(table)}\n"
        return
    yield f"[{'.'.join(map(json.dumps, place))}]\n"
    rest = {key: one for key, one in table.items() if not isinstance(one, dict)}
    yield from (f"{json.dumps(key)} = {value(one)}\n" for key, one in rest.items())
    for key, one in table.items():
        if isinstance(one, dict):
            yield from toml((*place, key), one)


def value(given: Any) -> str:
    """TOML has no null: the nearest is an empty text."""
    if isinstance(given, list):
        return f"[{', '.join(map(value, given))}]"
    written = json.dumps("" if given is None else given)
    return {"NaN": "nan", "Infinity": "inf"}.get(written, written)


def make(
    folder: Path, change: Callable[[Profile, Plan, Verification], Any], budget: Any
) -> Checkout:
    shutil.copytree(REPOSITORY / "sample_data", folder / "sample_data")
    (folder / "sample_data" / "new.jsonl").write_text('{"prompt": "not there before"}\n')
    found = Profile.load(EXAMPLE / "profile.json")
    found = replace(found, datasets=tuple(d for d in found.datasets if d.name in NAMES))
    measured = Verification.load(MEASURED)
    run = replace(measured.runs[0], repeats=measured.runs[0].repeats[:2])
    run = replace(run, figures=median_of(run.repeats))
    measured = replace(measured, runs=with_outputs(run))
    artefacts = change(found, Plan.load(EXAMPLE / "plan.json"), measured)
    for name, artefact in zip(FILES[:5], artefacts[:5], strict=True):
        artefact.save(folder / name)
    (folder / "chunkscope.toml").write_bytes(written(budget, "chunkscope.toml"))
    documents = {name: json.loads((folder / name).read_bytes()) for name in FILES[:5]}
    documents["chunkscope.toml"] = budget
    made = Checkout(folder=folder, documents=documents, broken=frozenset())
    (folder / "vllm.yaml").write_text(artefacts[-1])
    result = made.result()
    return replace(made, broken=frozenset((v.promise, v.subject) for v in result.broken))


def with_outputs(run: Run) -> tuple[Run, Run]:
    """Compared with a run without chunks: two of three are other ones."""
    plain, other = rows(2, again=1, prompts=3)
    off = replace(run, setting="off", same_as=(), outputs=other.outputs)
    off = replace(off, repeats=(), figures=None, distribution=None, workers=(), predicted=None)
    return replace(run, outputs=plain.outputs), off


def tight(profile: Profile, plan: Plan, measured: Verification) -> tuple[Any, ...]:
    """Everything belongs together, and no limit is kept."""
    longer = {length * 3: count for length, count in profile.datasets[0].lengths.counts.items()}
    lengths = replace(profile.datasets[0].lengths, counts=longer)
    first = replace(profile.datasets[0], lengths=lengths, skipped=3)
    gone = replace(profile.datasets[1], name="gone before")
    now = replace(profile, datasets=(first, profile.datasets[1]))
    before = replace(profile, datasets=(profile.datasets[0], gone))
    inputs = replace(plan.inputs, profile_digest=now.digest(), dataset=NAMES[1])
    # With weights of its own: what differs is no tie.
    measured = replace(measured, model=replace(measured.model, load_format="auto"))
    run, off = measured.runs
    slow = tuple(faster(repeat) for repeat in run.repeats)
    old = replace(run, repeats=slow, figures=median_of(slow))
    committed = (
        "max-num-seqs: 4\nlong-prefill-token-threshold: 64\nmax-num-batched-tokens: 256\n"
        "bogus: 1\nenforce-eager: true\nmodel: another/model\n"
    )
    return (
        *(now, replace(plan, inputs=inputs), measured),
        *(before, replace(measured, runs=(old, off)), committed),
    )


def faster(figures: Any) -> Any:
    """A baseline that is twice as fast in everything."""
    times = {
        name: replace(
            latency,
            **{
                part: quantiles
                and replace(
                    quantiles,
                    **{q: getattr(quantiles, q) / 2 for q in ("p50", "p95", "p99", "max")},
                )
                for part in ("all", "short", "long")
                for quantiles in [getattr(latency, part)]
            },
        )
        for name in ("ttft_s", "itl_s", "e2e_s")
        for latency in [getattr(figures, name)]
    }
    rates = {n: getattr(figures, n) * 2 for n in ("input_tokens_per_s", "output_tokens_per_s")}
    return replace(figures, makespan_s=figures.makespan_s / 2, **times, **rates)


def doubtful(profile: Profile, plan: Plan, measured: Verification) -> tuple[Any, ...]:
    """Every limit would be kept, were it not for what the figures are of."""
    first, second = profile.datasets
    sampled = replace(first, sample=Sample(rows=first.rows, out_of=first.rows * 2, seed=0))
    failed = replace(second, failure="it ended in the middle")
    run, off = measured.runs
    wrong = replace(run, figures=replace(run.figures, makespan_s=run.figures.makespan_s * 0.9))
    return (
        *(replace(profile, datasets=(sampled, failed)), plan),
        *(replace(measured, runs=(wrong, off)), profile, measured, "max-num-seqs: 1024\n"),
    )


@pytest.fixture(
    scope="module", params=[(tight, TIGHT, 1), (doubtful, DOUBTFUL, 3)], ids=["tight", "doubtful"]
)
def checkout(request, tmp_path_factory) -> Iterator[Checkout]:
    change, budget, every = request.param
    folder = tmp_path_factory.mktemp("checkout")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in (Profile, Plan, Verification):
            patch.setattr(kind, "load", remembering(kind.load))
        patch.setattr(search, "run_setting", cache(search.run_setting))
        yield replace(make(folder, change, budget), every=every)


def remembering(load: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Files that are as they were are not read again: one in five is."""

    @cache
    def loaded(path: Path, _: bytes) -> Any:
        return load(path)

    return lambda path: loaded(path, path.read_bytes()) if path.is_file() else load(path)


def test_every_kind_of_promise_is_broken(checkout):
    tables = {promise.partition(".")[0] for promise, _ in checkout.broken}
    assert tables == {"data", "drift", "settings", "memory", "speed", "outputs", "freshness"}


def test_no_change_to_a_file_keeps_a_broken_promise(checkout):
    tried, wrong = 0, {}
    for name in FILES:
        data = (checkout.folder / name).read_bytes()
        # Another of its kind would be other evidence, and not a wrong file.
        kinds = [other for other in FILES if Path(other).name != Path(name).name]
        others = [(checkout.folder / other).read_bytes() for other in kinds]
        for other in (None, b"", b"{}", b"\xff\xfe", data[: len(data) // 2], *others):
            if name == "vllm.yaml" and other is not None:
                continue  # what is judged, and no evidence: another file may keep the promise
            tried += 1
            if said := checkout.with_file(name, other):
                wrong[name, (other or b"")[:20]] = said
    assert not wrong, wrong
    assert tried > 50


@pytest.mark.parametrize("name", FILES[:6])
def test_no_mutation_keeps_a_broken_promise(checkout, name):
    document = checkout.documents[name]
    tried, wrong = 0, {}
    # All of them where numbers break the promises, and one in three where doubts do.
    for place, instead in islice(mutations(document), None, None, checkout.every):
        tried += 1
        if said := checkout.with_file(name, written(mutated(document, place, instead), name)):
            wrong[(*place, "nothing" if instead is GONE else repr(instead)[:40])] = said
    assert not wrong, "\n".join(f"{place}: {said}" for place, said in wrong.items())
    assert tried >= (LEAST[name] if checkout.every == 1 else 40), tried


# Some ten thousand in all.
LEAST = dict(zip(FILES, (1_500, 1_500, 1_200, 1_500, 1_200, 300), strict=False))
