"""A diagnosis as Markdown, and as annotations of GitHub Actions."""

from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.report import diagnosis_words as words
from chunkscope.report.ci import escaped
from chunkscope.report.markdown import table, text


def as_markdown(found: Diagnosis) -> str:
    blocks = [f"## chunkscope doctor: {text(words.answer(found))}"]
    for place, engine in enumerate(found.engines, start=1):
        blocks += _engine(engine, place, len(found.engines))
    return "\n\n".join(blocks) + "\n"


def _engine(engine: EngineReport, place: int, of: int) -> list[str]:
    blocks = [f"### {text(words.heading(engine, place, of))}", text(words.happened(engine))]
    blocks += [text(caution)] if (caution := words.caution(engine)) else []
    if configured := [[text(name), text(value)] for name, value in words.configured(engine)]:
        blocks.append(table(["configured", ""], configured))
    if differences := words.differences(engine):
        blocks.append("\n".join(f"- {text(difference)}" for difference in differences))
    if rows := [[text(cell) for cell in row] for row in words.fitted(engine)]:
        columns = 3 if engine.predicted else 2
        heads = ["what fitted", "by the log", "predicted"][:columns]
        blocks.append(table(heads, [row[:columns] for row in rows]))
    blocks += [text(f"It took: {took}.")] if (took := words.start_up(engine)) else []
    if engine.phases:
        cells = [[text(cell) for cell in words.phase_cells(phase)] for phase in engine.phases]
        blocks.append(table(["when", "held back by", *words.PHASE_HEADINGS], cells[:100]))
    for number, symptom in enumerate(engine.symptoms, start=1):
        blocks.append(
            f"{number}. **{text(symptom.title)}**: {text(words.told(symptom))}. "
            f"Change: {text(symptom.change)}."
        )
    return blocks if engine.symptoms else [*blocks, words.NOTHING]


def annotations(found: Diagnosis) -> str:
    """One per symptom; a notice where there is none."""
    lines = [
        f"::warning title=chunkscope doctor%3A {symptom.rule}::"
        + escaped(f"{symptom.title}: {words.told(symptom)}. Change: {symptom.change}")
        for symptom in found.symptoms
    ]
    return "\n".join(lines or [f"::notice title=chunkscope doctor::{words.NOTHING}"]) + "\n"
