"""The page in a real browser: it draws, sorts, filters, copies, prints, and asks nobody."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.findings import load_findings
from chunkscope.planning.plan import Plan
from chunkscope.report.comparison import compare
from chunkscope.report.page import render
from chunkscope.verification.result import Run
from tests.conftest import REPOSITORY
from tests.report import examples
from tests.report.conftest import Opener

Axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe
Page = pytest.importorskip("playwright.sync_api").Page

pytestmark = pytest.mark.real

CHARTS = {
    "histogram": "g[aria-label=rect] rect",
    "cumulative": "g[aria-label=line] path",
    "reuse-curve": "g[aria-label=line] path",
    "memory-all": "g[aria-label=bar] rect",
    "memory-rest": "g[aria-label=bar] rect",
    "ttft-curve": "g[aria-label=line] path",
    "itl-curve": "g[aria-label=line] path",
    "ttft": "g[aria-label=dot] circle",
    "itl": "g[aria-label=dot] circle",
    "bar-makespan_s": "g[aria-label=bar] path",
    "bar-output_tokens_per_s": "g[aria-label=bar] path",
    "bar-kv_cache_tokens": "g[aria-label=bar] path",
    "tradeoff": "g[aria-label=dot] circle",
    "timeline": "g[aria-label=rect] rect",
    "engine-0": "g[aria-label=line] path",
}


def frozen() -> Run:
    """A clock too coarse for gaps: a log axis has no place for nought."""
    still = examples.figures(gap=0.0)
    return examples.run("plan", figures=still, repeats=(still, still))


def made(folder: Path, **parts: object) -> Path:
    page = folder / "report.html"
    page.write_bytes(render(load_findings(examples.write(folder / "reports", **parts))))
    return page


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything")
    page = folder / "report.html"
    page.write_bytes(render(examples.everything(folder / "reports")))
    return page


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("hundred"), found=examples.hundred())


def first_column(page: Page) -> list[str]:
    return page.locator("#datasets tbody tr:visible td:first-child .pick").all_inner_texts()


def overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_the_page_loads_in_silence_and_asks_nobody(show: Opener, everything: Path) -> None:
    opened = show(everything)
    opened.page.wait_for_selector("html[data-ready=yes]", state="attached")
    opened.page.wait_for_timeout(300)
    assert opened.said == []
    assert opened.requested == [everything.as_uri()]


@pytest.mark.parametrize(("chart", "marks"), CHARTS.items(), ids=CHARTS)
def test_every_chart_has_marks(show: Opener, everything: Path, chart: str, marks: str) -> None:
    page = show(everything).page
    found = page.locator(f"#{chart} svg {marks}")
    assert found.count() > 0
    for mark in found.all():
        box = mark.bounding_box()
        assert box is not None
        assert box["width"] > 0
        assert box["height"] > 0


def test_no_chart_is_left_empty(show: Opener, everything: Path) -> None:
    page = show(everything).page
    empty = page.eval_on_selector_all(
        "figure.chart", "charts => charts.filter(c => !c.querySelector('svg')).map(c => c.id)"
    )
    assert empty == []


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"found": examples.profile(), "planned": False}, id="a profile alone"),
        pytest.param({"found": examples.profile()}, id="a profile and a plan"),
        pytest.param({"verified": examples.verification()}, id="measurements alone"),
        pytest.param({"verified": examples.verification(runs=())}, id="nothing measured yet"),
        pytest.param(
            {"verified": examples.verification(runs=examples.runs()[3:])}, id="every run failed"
        ),
        pytest.param({"verified": examples.verification(runs=(frozen(),))}, id="gaps of no time"),
        pytest.param({"simulated": examples.simulation()}, id="a simulation alone"),
        pytest.param({"diagnosed": examples.diagnosis()}, id="a log alone"),
        pytest.param(
            {"simulated": examples.simulation(runs=(), pareto=(), knee=None)},
            id="a simulation of nothing",
        ),
        pytest.param(
            {"found": examples.profile(), "model": None, "gpu": None}, id="a plan without a model"
        ),
        pytest.param(
            {"found": examples.profile(examples.dataset("one", examples.lengths(9, 1, 0, 1)))},
            id="one dataset of one prompt",
        ),
    ],
)
def test_the_page_works_with_whatever_is_there(show: Opener, tmp_path: Path, parts: dict) -> None:
    opened = show(made(tmp_path, **parts))
    opened.page.wait_for_selector("html[data-ready=yes]", state="attached")
    assert opened.said == []
    assert overflow(opened.page) == 0


def test_a_page_with_a_plan_alone_still_copies(show: Opener, tmp_path: Path) -> None:
    folder = examples.write(tmp_path / "reports", found=examples.profile())
    (folder / "profile.json").unlink()
    page = tmp_path / "report.html"
    page.write_bytes(render(load_findings(folder)))
    opened = show(page)
    assert opened.page.locator("pre.form:visible").inner_text().startswith("--max-model-len")
    assert opened.said == []


# -- what is from strangers ----------------------------------------------------------------------


def test_names_full_of_markup_do_nothing(show: Opener, tmp_path: Path) -> None:
    found = examples.profile(
        *(
            examples.dataset(name, examples.lengths(100 * n, 50, 0.5, n), field=examples.EVIL)
            for n, name in enumerate(examples.EVIL_NAMES, start=1)
        )
    )
    evil_runs = tuple(examples.run(examples.EVIL, message=examples.EVIL) for _ in range(1))
    opened = show(
        made(
            tmp_path,
            found=found,
            verified=examples.verification(
                runs=(*examples.runs(), *evil_runs), verdict=examples.EVIL, source=examples.EVIL
            ),
        )
    )
    page = opened.page
    for chart in ("histogram", "cumulative", "memory-all", "ttft"):
        page.locator(f"#{chart} svg").last.hover()  # tooltips hold names too
    for name in examples.EVIL_NAMES:
        page.locator("#datasets .pick", has_text=name[:12]).first.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 4  # the data, two libraries, the page's own
    assert examples.EVIL in first_column(page)
    assert opened.said == []


# -- the table -----------------------------------------------------------------------------------


def test_a_column_sorts_both_ways(show: Opener, everything: Path) -> None:
    page = show(everything).page
    head = page.locator("#datasets th", has_text="max")
    head.locator("button").click()
    assert first_column(page) == ["qmsum", "arena_hard", "gsm8k"]
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert first_column(page) == ["gsm8k", "arena_hard", "qmsum"]


def test_names_sort_from_a_and_what_is_unknown_comes_last(show: Opener, everything: Path) -> None:
    page = show(everything).page
    page.locator("#datasets th button", has_text="dataset").click()
    assert first_column(page) == ["arena_hard", "gsm8k", "qmsum"]
    page.locator("#datasets th button", has_text="chunk at").click()
    assert first_column(page) == ["qmsum", "arena_hard", "gsm8k"]
    page.locator("#datasets th button", has_text="chunk at").click()
    assert first_column(page) == ["arena_hard", "qmsum", "gsm8k"]


def test_a_hundred_datasets_filter_by_name(show: Opener, hundred: Path) -> None:
    page = show(hundred).page
    assert len(first_column(page)) == 100
    page.fill("#filter", "TASK_01")
    assert first_column(page) == [f"suite/task_01{n}" for n in range(10)]
    assert page.inner_text("#matching") == "10 of 100"
    page.fill("#filter", "no such thing")
    assert first_column(page) == []
    page.fill("#filter", "")
    assert len(first_column(page)) == 100


def test_a_dataset_that_is_picked_is_drawn(show: Opener, everything: Path) -> None:
    page = show(everything).page
    bars = "#histogram g[aria-label=rect]"
    before = page.inner_html(bars)
    page.click("#datasets .pick >> text=qmsum")
    assert page.inner_html(bars) != before
    assert page.locator("#shown option:checked").inner_text() == "qmsum"
    assert page.locator("tr.picked").get_attribute("data-name") == "qmsum"
    page.select_option("#shown", label="all together")
    assert page.inner_html(bars) == before


def test_what_is_shared_is_drawn_for_a_dataset_that_is_chosen(
    show: Opener, everything: Path
) -> None:
    page = show(everything).page
    chooser = page.locator("#reuse-shown")
    assert chooser.locator("option").all_inner_texts() == ["all together", "gsm8k", "arena_hard"]
    before = page.locator("#reuse-curve svg").inner_html()
    (tokens,) = re.findall(r"the plan: ([\d,]+) tokens, ", before)
    assert f"The plan's KV cache of {tokens} tokens" in page.inner_text("#reuse")
    chooser.select_option(label="arena_hard")
    after = page.locator("#reuse-curve svg").inner_html()
    assert after != before
    assert "the plan:" not in after  # it is about all of them


def test_hovering_the_curve_tells_a_percentile(show: Opener, everything: Path) -> None:
    page = show(everything).page
    box = page.locator("#cumulative svg").bounding_box()
    assert box is not None
    page.locator("#cumulative").scroll_into_view_if_needed()
    page.locator("#cumulative svg").hover(position={"x": box["width"] * 0.3, "y": 100})
    said = page.inner_text("#percentile")
    assert said.endswith("tokens.")
    percent = float(said.split(" ")[0])
    tokens = float(said.rpartition("at most ")[2].split(" ")[0].replace(",", ""))
    exact = examples.profile().overall.percentile(percent)
    assert exact == pytest.approx(tokens, abs=1)


@pytest.mark.parametrize(
    ("chart", "figure", "x"), [("ttft", "ttft_s", 0.7), ("itl", "itl_s", 0.12)]
)
def test_hovering_a_curve_tells_a_percentile_of_every_setting(
    show: Opener, everything: Path, chart: str, figure: str, x: float
) -> None:
    page = show(everything).page
    svg = page.locator(f"#{chart}-curve svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box is not None
    svg.hover(position={"x": box["width"] * x, "y": box["height"] * 0.6})
    said = page.inner_text(f"#{figure}-at")
    percent, _, values = said.partition(": ")
    spread = getattr(examples.distribution(), figure)
    first = values.split(", ")[0]
    assert first.startswith("plan: ")
    number, unit = first.removeprefix("plan: ").split()
    exact = spread[int(percent.removeprefix("p"))]
    assert float(number) * (0.001 if unit == "ms" else 1) == pytest.approx(exact, rel=0.01)
    assert "default: " in values


def test_a_run_without_a_distribution_is_marked_by_its_quantiles(
    show: Opener, everything: Path
) -> None:
    page = show(everything).page
    assert page.locator("#ttft-curve g[aria-label=line]").count() == 2
    assert page.locator("#ttft-curve g[aria-label=dot] circle").count() == 4
    assert "endpoint-like (four quantiles only)" in page.inner_text("#ttft-curve .legend")


def test_the_slowest_tenth_of_a_curve_is_drawn_as_large_as_the_rest(
    show: Opener, everything: Path
) -> None:
    page = show(everything).page
    ticks = page.eval_on_selector_all(
        "#itl-curve g[aria-label='y-axis tick label'] text",
        "all => all.map(t => [t.textContent, t.getBoundingClientRect().y])",
    )
    at = {text.removesuffix(" %"): y for text, y in ticks}
    assert at["90"] - at["100"] == pytest.approx(at["0"] - at["90"], abs=2)


def test_predicted_and_measured_memory_stand_side_by_side(show: Opener, everything: Path) -> None:
    page = show(everything).page
    labels = page.locator("#memory-all g[aria-label='y-axis tick label'] text").all_text_contents()
    assert labels[:4] == ["plan, predicted", "measured", "default, predicted", "measured"]
    assert page.locator("#memory-all g[aria-label=tick] line").count() == 2  # most held


def test_outputs_stand_beside_the_noise_of_batching(show: Opener, everything: Path) -> None:
    page = show(everything).page
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()
        for row in page.locator("#measured table tr", has=page.locator("th[scope=row]")).all()
    }
    assert rows["outputs as the reference"][0].startswith("67 %")
    assert rows["outputs as the reference"][1] == "the reference"
    assert rows["outputs as before when sent again"][0].startswith("83 %")
    assert rows["first token that differs"][0].startswith("7")
    said = page.locator("#outputs").inner_text()
    assert "compared with default" in said.lower()
    assert "the noise of batching" in said
    assert "Random weights: ties decide" in said
    differ = (
        "plan: 2 of 6 choices differ from default's, and 1 when the same setting is sent again."
    )
    assert differ in said


def test_one_dataset_needs_neither_a_chooser_nor_a_filter(show: Opener, tmp_path: Path) -> None:
    one = examples.profile(examples.dataset("one", examples.lengths(90, 50, 0.3, 1)))
    page = show(made(tmp_path, found=one)).page
    assert not page.locator("#shown").is_visible()
    assert not page.locator("#filter").is_visible()


MEASURED = sorted(p.parent for p in (REPOSITORY / "reports" / "h200").glob("**/verify.json"))


@pytest.mark.parametrize("folder", MEASURED, ids=lambda folder: folder.name)
def test_what_an_h200_measured_fits_a_phone(show: Opener, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(render(load_findings(folder)))
    opened = show(path, width=390)
    assert opened.said == []
    assert overflow(opened.page) == 0
    outside = opened.page.eval_on_selector_all(
        "figure.chart svg text", "all => all.filter(t => t.getBoundingClientRect().x < 0).length"
    )
    assert outside == 0


# -- the arguments -------------------------------------------------------------------------------


def test_the_copy_button_copies_what_is_shown(show: Opener, everything: Path) -> None:
    page = show(everything, permissions=["clipboard-read", "clipboard-write"]).page
    page.click("#copy")
    page.wait_for_function("document.getElementById('copied').textContent === 'copied'")
    plan = Plan.load(everything.parent / "reports" / "plan.json")
    assert page.evaluate("navigator.clipboard.readText()") == " ".join(plan.cli_args())
    page.select_option("#form", label="vllm-yaml")
    page.click("#copy")
    page.wait_for_timeout(100)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "max-model-len: 33792" in copied
    assert page.locator("pre.form:visible").inner_text().strip() == copied.strip()


def test_where_another_row_did_better_its_arguments_are_copied(
    show: Opener, tmp_path: Path
) -> None:
    verified = examples.verification(better="default", verdict="vLLM's default is better.")
    path = made(tmp_path, found=examples.profile(), verified=verified)
    page = show(path, permissions=["clipboard-read", "clipboard-write"]).page
    assert page.inner_text("h1").startswith("Keep vLLM's default")
    page.click("#copy")
    page.wait_for_function("document.getElementById('copied').textContent === 'copied'")
    assert page.evaluate("navigator.clipboard.readText()") == "--max-model-len 23552"


def test_without_a_clipboard_the_text_is_copied_the_old_way(show: Opener, everything: Path) -> None:
    page = show(everything, permissions=["clipboard-read", "clipboard-write"]).page
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(); }")
    page.click("#copy")
    page.wait_for_function("document.getElementById('copied').textContent === 'copied'")
    assert page.evaluate("navigator.clipboard.readText()").startswith("--max-model-len 33792")


# -- how it looks --------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_nothing_sticks_out(show: Opener, everything: Path, hundred: Path, width: int) -> None:
    for path in (everything, hundred):
        page = show(path, width=width).page
        assert overflow(page) == 0
        wide = page.eval_on_selector_all(
            "figure.chart svg",
            "all => all.filter(s => s.clientWidth > s.closest('.chart').clientWidth + 1).length",
        )
        assert wide == 0


def test_the_charts_follow_the_window(show: Opener, everything: Path) -> None:
    page = show(everything).page
    wide = page.locator("#cumulative svg").get_attribute("width")
    page.set_viewport_size({"width": 500, "height": 900})
    page.wait_for_function(
        "wide => document.querySelector('#cumulative svg').getAttribute('width') !== wide", arg=wide
    )
    assert overflow(page) == 0


CONTRAST = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((part) => {
      const c = part / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const card = light(getComputedStyle(document.querySelector('.card')).backgroundColor);
  const places = ['h1', '.lead', '.hint', 'td', '.tiles dt', '.pick', '.pill', '.bad', '.none'];
  return places.map((where) => {
    const ink = light(getComputedStyle(document.querySelector(where)).color);
    const [high, low] = ink > card ? [ink, card] : [card, ink];
    return [where, (high + 0.05) / (low + 0.05)];
  }).filter(([where, ratio]) => ratio < 4.5);
}"""


# -- for everybody -----------------------------------------------------------------------------

WIDTHS = (390, 768, 1024, 1440)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All there can be, with a sweep that has the plan and is of other data."""
    folder = tmp_path_factory.mktemp("swept")
    simulated = examples.simulation()
    runs = (*simulated.runs, examples.simulated(8_192, 43.0, 0.36, setting="default"))
    runs = (replace(runs[0], setting="plan"), *runs[1:])
    work = replace(simulated.workload, profile_digest="of another")
    simulated = replace(simulated, runs=runs, workload=work)
    verified = examples.verification()
    return made(folder, found=examples.profile(), verified=verified, simulated=simulated)


@pytest.mark.parametrize("media", ["light", "dark", "print"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_against_wcag_aa(
    show: Opener, everything: Path, swept: Path, width: int, media: str
) -> None:
    for path in (everything, swept):
        page = show(path, width=width, color_scheme="dark" if media == "dark" else "light").page
        page.evaluate(
            "document.querySelectorAll('details').forEach((part) => { part.open = true })"
        )
        if media == "print":
            page.emulate_media(media="print")
        found = Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []


@pytest.mark.parametrize("width", [1024, 1440])
def test_on_a_desk_no_table_needs_to_be_scrolled(
    show: Opener, everything: Path, swept: Path, width: int
) -> None:
    for path in (everything, swept):
        wide = show(path, width=width).page.eval_on_selector_all(
            ".scroll:not(details *)",
            "all => all.filter((s) => s.scrollWidth > s.clientWidth).length",
        )
        assert wide == 0


def test_on_a_phone_the_sections_are_all_there_and_tables_can_be_scrolled_by_keys(
    show: Opener, everything: Path
) -> None:
    page = show(everything, width=390).page
    for link in page.locator("nav a").all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    table = page.locator("#measured .scroll").first
    table.focus()
    assert table.evaluate("box => document.activeElement === box")
    assert table.evaluate("box => getComputedStyle(box).backgroundImage").count("gradient") == 4


def test_the_plan_and_vllms_own_are_points_of_the_trade_off(show: Opener, swept: Path) -> None:
    page = show(swept).page
    named = page.locator("#tradeoff g[aria-label=text] text").all_text_contents()
    assert {"plan", "vLLM's own"} <= set(named)
    assert page.locator("#tradeoff g[aria-label=dot] path").count() == 2
    bold = page.locator("#simulated tr.best th").all_inner_texts()
    assert len(bold) == 4
    assert "knee" in bold[1]


def test_every_tick_has_a_label_of_its_own(show: Opener, everything: Path, tmp_path: Path) -> None:
    close = [examples.simulated(2**n, 1_100 + 12.5 * n, 0.9 / n) for n in range(9, 15)]
    near = made(tmp_path, simulated=examples.simulation(runs=tuple(close), pareto=(), knee=None))
    for path in (everything, near):
        same = show(path).page.eval_on_selector_all(
            "g[aria-label='x-axis tick label'], #tradeoff g[aria-label='y-axis tick label']",
            """all => all.map((axis) => [...axis.querySelectorAll("text")].map(t => t.textContent))
                .filter((labels) => new Set(labels).size < labels.length)""",
        )
        assert same == []


def test_a_page_of_mixed_data_says_so_at_the_top(show: Opener, swept: Path) -> None:
    page = show(swept, width=1024).page
    said = page.locator("#verdict .overruled")
    assert "This page mixes artefacts of different data." in said.inner_text()
    assert "The simulation ran the requests of another profile" in said.inner_text()
    box = said.bounding_box()
    assert box is not None
    assert box["y"] < 400


def test_without_scripts_that_is_said(show: Opener, everything: Path) -> None:
    page = show(everything, java_script_enabled=False).page
    assert "Scripts are off" in page.inner_text("main")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_dark_and_in_the_light(
    show: Opener, everything: Path, scheme: str
) -> None:
    page = show(everything, color_scheme=scheme).page
    assert page.evaluate(CONTRAST) == []


def test_the_button_turns_the_lights_off_and_on(show: Opener, everything: Path) -> None:
    page = show(everything, color_scheme="light").page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.click("#theme")
    dark = page.evaluate(colour)
    assert dark != light
    page.click("#theme")
    assert page.evaluate(colour) == light


def test_it_prints_whole_and_on_white(show: Opener, hundred: Path) -> None:
    page = show(hundred, color_scheme="dark").page
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    table = page.locator(".scroll.tall").evaluate("box => box.scrollHeight - box.clientHeight")
    assert table <= 1
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") >= 3 or len(paper) > 50_000


def test_the_numbers_are_there_without_javascript(show: Opener, everything: Path) -> None:
    page = show(everything, java_script_enabled=False).page
    text = page.inner_text("body")
    for figure in ("Cap prefill chunks", "--max-model-len 33792", "911,104", "out of memory"):
        assert figure in text


def test_rates_are_drawn_against_both_latencies_with_their_limits(
    show: Opener, tmp_path: Path
) -> None:
    opened = show(made(tmp_path, simulated=examples.rated()))
    page = opened.page
    for chart in ("rates-ttft", "rates-gap"):
        assert page.locator(f"#{chart} svg g[aria-label=dot] circle").count() == 10
        assert page.locator(f"#{chart} svg g[aria-label=rule] line").count() == 1
    assert page.locator("#tradeoff").count() == 0, "each is at another rate"
    assert "no rate" in page.locator("#simulated").inner_text()
    assert opened.said == []


def test_what_changed_stands_below_the_verdict(show: Opener, tmp_path: Path) -> None:
    old = examples.everything(tmp_path / "old")
    shorter = examples.profile(examples.dataset("gsm8k", examples.lengths(100, 1_319, 0.3, 1)))
    new = load_findings(examples.write(tmp_path / "new", found=shorter))
    path = tmp_path / "report.html"
    path.write_bytes(render(new, compare(old, new)))
    opened = show(path)
    assert "aggressive" in opened.page.inner_text("#changes")
    assert opened.page.locator("#cumulative .legend").inner_text().endswith("before")
    assert opened.said == []
