"""The report, what changed, or the profile as Markdown: for a comment on a pull request."""

from collections.abc import Iterable, Iterator, Sequence

from chunkscope.artefacts.figures import ITL_MAX, MAKESPAN, TTFT_P95, Figure
from chunkscope.artefacts.numbers import number
from chunkscope.console import printable
from chunkscope.findings import Findings
from chunkscope.lengths.profile import ALL, Profile
from chunkscope.report import sentences
from chunkscope.report.comparison import Comparison, Part
from chunkscope.report.length_columns import length_cells
from chunkscope.report.memory_bill import Bills, bills
from chunkscope.report.provenance import origins
from chunkscope.report.runs import beside, fate, measured, titled
from chunkscope.report.summary import measured_on, summarize
from chunkscope.report.tradeoff import Tradeoff, tradeoff
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.verdict import Outcome

MOST_DATASETS = 30  # a comment is read on a screen; the longest prompts decide
MARKUP = "\\`*_{}[]<>|#~@&!"


def as_markdown(findings: Findings) -> str:
    blocks = [*_verdict(findings)]
    if findings.profile is not None:
        blocks += _lengths(findings.profile)
    if (found := bills(findings)) is not None:
        blocks += _memory(found)
    if findings.verification is not None:
        blocks += _measured(findings.verification)
    if (simulated := tradeoff(findings)) is not None:
        blocks += _simulated(simulated)
    return "\n\n".join([*blocks, *_provenance(findings)]) + "\n"


def comparison_as_markdown(comparison: Comparison) -> str:
    old, new = text(comparison.old_name), text(comparison.new_name)
    blocks = [f"## chunkscope: what changed from {old} to {new}"]
    if not comparison.changes:
        blocks.append(sentences.NOTHING_CHANGED)
    if comparison.notes:
        blocks.append(_list(comparison.notes))
    for part in Part:
        rows = [
            [
                text(c.subject),
                text(c.figure),
                text(c.old),
                f"**{text(c.new)}**",
                _by(c.by, c.outcome),
            ]
            for c in comparison.of(part)
        ]
        if rows:
            blocks += [f"### {part.value.capitalize()}"]
            blocks += [table(["", "figure", "before", "now", ""], rows, left=2)]
    if comparison.ties:
        blocks.append(sentences.ties(comparison.ties))
    return "\n\n".join(blocks) + "\n"


# -- the parts -----------------------------------------------------------------------------------


def _verdict(findings: Findings) -> Iterator[str]:
    summary, plan = summarize(findings), findings.plan
    yield f"## chunkscope: {text(summary.headline)}"
    if summary.mixed:
        yield "\n".join(f"> **Mixed data:** {text(line)}  " for line in summary.mixed)
    basis = f"**{summary.basis}** {text(summary.basis_text)}" if summary.basis else ""
    yield "  \n".join(filter(None, (text(summary.title), basis)))
    if plan is not None:
        words = summary.arguments.replace(sentences.NOTHING_TO_SET, sentences.NOTHING_TO_COPY)
        yield f"```sh\n{printable(words)}\n```"
    said = (*summary.why, *summary.gains, *filter(None, (summary.refused,)))
    if said:
        yield _list(said)
    notes = (*filter(None, (summary.overruled,)), *summary.cautions)
    if notes:
        yield "\n".join(f"> {text(line)}  " for line in notes)


def _lengths(profile: Profile) -> Iterator[str]:
    tokens = f"in tokens of {text(profile.tokenizer.name)}"
    yield f"### Lengths\n\n{text(sentences.prompts(profile))}, {tokens}."
    longest = sorted(profile.datasets, key=lambda d: -(d.lengths.max or 0))
    few = longest[:MOST_DATASETS]
    counted = [(text(d.name), d.lengths) for d in few]
    if len(profile.datasets) > 1:
        counted.append((f"**{ALL}**", profile.overall))
    columns = ("p50", "p95", "p99", "max", ">2K", ">8K")
    rows = [[name, *length_cells(lengths, ("count", *columns))] for name, lengths in counted]
    yield table(["dataset", "prompts", *columns], rows)
    if len(few) < len(longest):
        yield f"The {len(few)} datasets with the longest prompts, of {len(longest)}."


def _memory(found: Bills) -> Iterator[str]:
    limit = f", which has {found.limit_gib:,.1f}" if found.limit_gib else ""
    yield f"### Memory\n\nGiB of one GPU{limit}."
    rows = []
    for bill in found.bills:
        missing = f"not {bill.label}"
        parts = [f"{bill.parts[p]:,.2f}" if p in bill.parts else missing for p in found.parts]
        tokens = missing if bill.kv_cache_tokens is None else number(bill.kv_cache_tokens)
        what = f"**{bill.fate}**" if bill.fate else bill.label.value
        rows.append([text(bill.setting), what, *parts, tokens])
    yield table(["setting", "", *found.parts, "KV tokens"], rows, left=2)


def _measured(verification: Verification) -> Iterator[str]:
    yield f"### Measured\n\nMeasured {text(measured_on(verification))}."
    if verification.verdict:
        yield f"**{text(words.verdict(verification))}**"
    failed = [run for run in verification.runs if not run.ok]
    if failed:
        yield "\n".join(f"- **{fate(r)}** {text(words.failure(r))}" for r in failed)
    running = tuple(run for run in verification.runs if run.ok)
    if running:
        rows = [
            [figure.title, *(_measured_cell(figure, run, running[0]) for run in running)]
            for figure in measured(running)
        ]
        yield table(["", *(text(titled(run)) for run in running)], rows)
        yield f"Percentages against {text(running[0].setting)}; a tie is within the spread."
        if said := list(words.outputs(verification)):
            yield _list(said)


def _measured_cell(figure: Figure, run: Run, first: Run) -> str:
    cell, by, outcome = beside(figure, run, first)
    return f"{cell} ({_by(by, outcome)})" if by else cell


def _by(by: str, outcome: Outcome) -> str:
    said = {Outcome.TIE: "tie", Outcome.BETTER: f"{by}, better", Outcome.WORSE: f"{by}, worse"}
    return said.get(outcome, by)


def _simulated(simulated: Tradeoff) -> Iterator[str]:
    figures = (MAKESPAN, TTFT_P95, ITL_MAX)
    yield f"### Simulated\n\nNot measured. Step times: {text(simulated.source)}."
    rows = [
        [
            text(point.setting) + (f" ({point.mark})" if point.mark else ""),
            *map(point.shown, figures),
        ]
        for point in simulated.points
    ]
    yield table(["setting", *(figure.heading for figure in figures)], rows)
    if simulated.knee:
        yield sentences.KNEE


def _provenance(findings: Findings) -> Iterator[str]:
    lines = []
    for origin in origins(findings):
        lines.append(f"- **{origin.file}** `{origin.sha256}`, {text(origin.created)}")
        lines += [f"  - {text(name)}: {text(value)}" for name, value in origin.facts]
    listed = "\n".join(lines)
    yield f"<details><summary>Provenance</summary>\n\n{listed}\n\n</details>"


# -- the profile alone -----------------------------------------------------------------------


def profile_as_markdown(profile: Profile) -> str:
    """For a pull request or a wiki page."""
    columns = ("p50", "p90", "p95", "p99", "max", ">2K", ">8K")
    rows = [
        [
            text(dataset.name + (" (sample)" if dataset.sample else "")),
            text(dataset.field),
            *length_cells(dataset.lengths, ("count", *columns)),
        ]
        for dataset in profile.datasets
    ]
    if len(profile.datasets) > 1:
        cells = length_cells(profile.overall, ("count", *columns))
        rows.append([f"**{ALL}**", "", *cells])
    about = [f"Tokenizer: {profile.tokenizer.name}", *sentences.samples(profile)]
    headings = ["dataset", "prompt", "rows", *(c.replace(">", "over ") for c in columns)]
    first = [line for said in sentences.uncounted(profile) for line in (text(said), "")]
    below = [table(headings, rows, left=2), "", "  \n".join(map(text, about)), ""]
    return "\n".join([*first, *below])


# -- Markdown itself -----------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """The first `left` columns are text, the others figures. Cells are Markdown already."""
    rule = ["---"] * left + ["---:"] * (len(headings) - left)
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))


def text(words: str) -> str:
    """Text from users must not end its cell or line, become markup, or call anybody's name.

    >>> text("a|b @team")
    'a\\\\|b \\\\@team'
    """
    one_line = printable(" ".join(words.split()))
    return "".join(f"\\{c}" if c in MARKUP else c for c in one_line)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)
