"""The measured runs in reports/h200, as the tables of the README.

python tests/h200.py
"""

from pathlib import Path

from chunkscope.artefacts.figures import BY_KEY
from chunkscope.artefacts.numbers import number, seconds
from chunkscope.verification.result import Run, Verification

FOLDER = Path(__file__).parents[1] / "reports" / "h200"
HEADER = (
    "| model, data | setting | activation peak, GiB (predicted) | KV cache tokens | "
    "all requests took | first token p50 / p95 | token gap p99 / longest | chunked, most chunks |",
    "|---|---|---|---|---|---|---|---|",
)


def files() -> list[Path]:
    return sorted(FOLDER.glob("*/verify.json"))


def measured() -> dict[str, Verification]:
    return {path.parent.name: Verification.load(path) for path in files()}


def table() -> str:
    rows = [_row(name, v, run) for name, v in measured().items() for run in v.runs]
    return "\n".join([*HEADER, *rows])


def _row(name: str, v: Verification, run: Run) -> str:
    first = run is v.runs[0]
    setting = " = ".join((run.setting, *run.same_as)).replace("max-num-batched-tokens=", "")
    if not run.ok:
        return f"| {name if first else ''} | {setting} | {run.message} | | | | | |"
    cells = (
        name if first else "",
        setting,
        f"{run.activation_peak_gib:.2f} ({run.predicted.activation_gib:.2f})",
        number(run.kv_cache_tokens),
        _took(run),
        f"{_time(run, 'ttft_s.p50')} / {_time(run, 'ttft_s.p95')}",
        f"{_time(run, 'itl_s.p99')} / {_time(run, 'itl_s.max')}",
        f"{run.figures.chunked_prompts}, {run.figures.chunks_max}",
    )
    return f"| {' | '.join(cells)} |"


def _took(run: Run) -> str:
    spans = [repeat.makespan_s for repeat in run.repeats]
    return f"{seconds(run.figures.makespan_s)} ({min(spans):.2f} to {max(spans):.2f})"


def _time(run: Run, name: str) -> str:
    return seconds(BY_KEY[name].of(run.figures))


if __name__ == "__main__":
    print(table())
