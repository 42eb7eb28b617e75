"""The page as bytes: small, the same every time, self-contained, and safe to look at."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from chunkscope.findings import load_findings
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.prompts.harness.log import LogSummary
from chunkscope.report import page
from chunkscope.report.page import HERE, LIBRARIES, embedded, render
from chunkscope.report.page.charts import PERCENTS, bin_edges, charts
from tests.report import examples

# As published on npm: d3 7.9.0 and @observablehq/plot 0.6.17, files of their dist folders.
PUBLISHED = {
    "d3.min.js": "f2094bbf6141b359722c4fe454eb6c4b0f0e42cc10cc7af921fc158fceb86539",
    "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
}


class Reader(HTMLParser):
    """What a browser would make of the page: elements, their attributes, and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(examples.everything(tmp_path_factory.mktemp("reports"))).decode()


def test_a_hundred_datasets_make_less_than_two_megabytes(tmp_path: Path) -> None:
    folder = examples.write(tmp_path, found=examples.hundred(), verified=examples.verification())
    assert len(render(load_findings(folder))) < 1_000_000


def test_a_hundred_datasets_with_long_names_and_many_lengths_stay_small(tmp_path: Path) -> None:
    wide = LengthHistogram.of(range(1, 30_001, 20))
    found = examples.profile(
        *(examples.dataset(f"{'a very long name ' * 10}{n}", wide) for n in range(100))
    )
    assert len(render(load_findings(examples.write(tmp_path, found=found)))) < 2_000_000


def test_the_same_artefacts_give_the_same_bytes(tmp_path: Path) -> None:
    findings = examples.everything(tmp_path)
    assert render(findings) == render(load_findings(tmp_path))


def test_nothing_is_loaded_from_anywhere(html: str) -> None:
    for tag, attributes in Reader(html).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_only_the_pages_own_scripts_may_run(html: str) -> None:
    found = Reader(html)
    policy = next(a["content"] for _, a in found.elements if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    _, *scripts = found.scripts
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert digests == allowed


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_libraries_are_as_they_were_published(name: str) -> None:
    data = (HERE / "vendor" / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == PUBLISHED[name]


def test_the_licences_go_with_the_libraries(html: str) -> None:
    for _, licence in LIBRARIES:
        assert (HERE / "vendor" / licence).read_text() in html


def test_names_full_of_markup_stay_text(tmp_path: Path) -> None:
    evil = examples.profile(
        *(
            examples.dataset(name, examples.lengths(80, 40, 0.3, 1), field=name, failure=name)
            for name in examples.EVIL_NAMES
        )
    )
    evil = replace(evil, options={"command": [examples.EVIL]})
    worst = replace(examples.runs()[0], setting=examples.EVIL, same_as=(examples.EVIL,))
    verified = examples.verification(
        verdict=examples.EVIL,
        command=(examples.EVIL,),
        better=examples.EVIL,
        runs=(worst, *examples.runs()),
    )
    html = render(load_findings(examples.write(tmp_path, found=evil, verified=verified))).decode()
    found = Reader(html)
    assert len(found.scripts) == 4
    assert not [tag for tag, _ in found.elements if tag == "img"]
    assert not [a for _, a in found.elements if any(name.startswith("on") for name in a)]
    assert "{{ 7 * 7 }}" in html
    data = orjson.loads(found.scripts[0])
    assert [s["name"] for s in data["lengths"]["sets"]] == ["all together", *examples.EVIL_NAMES]
    assert data["curves"]["ttft_s"][0]["setting"] == f"{examples.EVIL} = {examples.EVIL}"


def test_embedded_data_cannot_end_its_element() -> None:
    text = embedded({"a": "</script><!--\u2028\u2029&"})
    assert not set(text) & set("<>&\u2028\u2029")
    assert orjson.loads(text) == {"a": "</script><!--\u2028\u2029&"}


def test_what_was_not_measured_says_so_and_is_never_nought(html: str) -> None:
    assert "not measured" in html
    assert "not predicted" in html
    assert ">None<" not in html
    assert ">nan<" not in html


def test_failed_runs_are_shown_as_such(html: str) -> None:
    for words in ("out of memory at 32,768 tokens", "timed out", "refused by vLLM"):
        assert words in html


# -- the charts' data ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shortest", "longest"), [(1, 1), (1, 2), (5, 20), (7, 100_000), (1_000_000, 1_000_001)]
)
def test_every_length_has_a_bin(shortest: int, longest: int) -> None:
    edges = bin_edges(shortest, longest)
    assert edges == sorted(set(edges))
    assert edges[0] <= shortest
    assert edges[-1] > longest


def test_bins_hold_every_prompt_and_the_curve_is_exact(tmp_path: Path) -> None:
    found = examples.profile(
        examples.dataset("empty and long", LengthHistogram.of([0, 1, 7, 9_000]))
    )
    findings = load_findings(examples.write(tmp_path, found=found, planned=False))
    (everything,) = charts(findings, None)["lengths"]["sets"]
    assert sum(everything["counts"]) == 4
    exact = dict(zip(PERCENTS, everything["at"], strict=True))
    assert exact[50] == found.overall.percentile(50)
    assert exact[100] == 9_000


def test_of_a_thousand_datasets_the_longest_are_drawn(tmp_path: Path) -> None:
    found = examples.profile(
        *(examples.dataset(f"file {n}", LengthHistogram.of([n + 1])) for n in range(1_000))
    )
    findings = load_findings(examples.write(tmp_path, found=found, planned=False))
    names = [s["name"] for s in charts(findings, None)["lengths"]["sets"]]
    assert names == ["all together", *(f"file {n}" for n in range(800, 1_000))]


def test_a_harness_log_is_named_with_its_file(tmp_path: Path) -> None:
    log = LogSummary(
        harness="lm-eval", task="<b>", documents=2, requests=8, kinds={"likelihood": 8}
    )
    found = examples.profile(examples.dataset("mine", LengthHistogram.of([9] * 8), log=log))
    html = page.render(load_findings(examples.write(tmp_path, found=found, planned=False)))
    said = "lm-eval, task &lt;b&gt;, 2 documents, 8 requests (8 likelihood; as logged)"
    assert f"<small>{said}</small>" in html.decode()


def test_a_profile_without_prompts_has_no_chart(tmp_path: Path) -> None:
    nothing = examples.profile(examples.dataset("nothing", LengthHistogram.of([])))
    findings = load_findings(examples.write(tmp_path, found=nothing, planned=False))
    assert charts(findings, None)["lengths"] is None
    assert b"not there" not in page.render(findings)


# -- how times are spread ------------------------------------------------------------------------


def test_a_curve_has_every_percentile_and_a_run_without_one_its_quantiles(tmp_path: Path) -> None:
    found = charts(examples.everything(tmp_path), None)["curves"]["ttft_s"]
    plan, default, older = found
    assert [plan["setting"], default["setting"], older["setting"]] == [
        *("plan", "default", "endpoint-like")
    ]
    assert [percent for percent, _ in plan["at"]] == list(range(101))
    assert plan["at"][0][1] == 0.3
    assert not older["whole"]
    assert [percent for percent, _ in older["at"]] == [50, 95, 99, 100]


def test_without_any_distribution_there_is_no_curve(tmp_path: Path) -> None:
    old = tuple(replace(run, distribution=None) for run in examples.runs())
    folder = examples.write(tmp_path, verified=examples.verification(runs=old))
    findings = load_findings(folder)
    assert charts(findings, None)["curves"] == {}
    html = page.render(findings).decode()
    assert 'id="ttft"' in html
    assert 'id="ttft-curve"' not in html


def test_a_run_without_gaps_still_has_first_tokens(tmp_path: Path) -> None:
    first = examples.runs()[0]
    spread = examples.distribution()
    one_token = replace(first, distribution=replace(spread, itl_s=None))
    figures = replace(first.figures, itl_s=None)
    runs = (replace(one_token, figures=figures, repeats=(figures,)),)
    folder = examples.write(tmp_path, verified=examples.verification(runs=runs))
    assert set(charts(load_findings(folder), None)["curves"]) == {"ttft_s"}


def test_numbers_stay_with_their_units() -> None:
    assert page.nobreak("p95 1.2 s, 5 seconds (-67 %)") == "p95 1.2\xa0s, 5 seconds (-67\xa0%)"


def test_the_curve_of_what_is_found_has_a_line_per_order_and_the_plan(
    tmp_path: Path,
) -> None:
    findings = examples.everything(tmp_path)
    drawn = charts(findings, None)["reuse"]
    assert [one["name"] for one in drawn["sets"]] == ["all together", "gsm8k", "arena_hard"]
    for one in drawn["sets"]:
        in_file, *best = one["lines"].values()
        # gsm8k's small prompts are all found in the smallest cache: no order adds anything.
        assert len(best) == (one["name"] != "gsm8k")
        assert all([size for size, _ in in_file] == [size for size, _ in line] for line in best)
        assert all(0 <= found <= one["ideal"] for _, found in in_file)
        assert in_file[-1][0] >= one["flat_at"]
    assert findings.plan is not None
    assert findings.plan.memory is not None
    assert drawn["plan"]["tokens"] == findings.plan.memory.kv_cache_tokens
    assert 0 < drawn["plan"]["found"] <= drawn["sets"][0]["ideal"]


def test_without_prefixes_there_is_no_such_section(tmp_path: Path) -> None:
    found = examples.profile(examples.dataset("a", LengthHistogram.of([5, 9])))
    html = render(load_findings(examples.write(tmp_path, found=found))).decode()
    assert 'id="reuse"' not in html
