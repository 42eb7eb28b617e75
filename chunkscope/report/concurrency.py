"""How many samples or requests to keep under way, as sentences, a table and a curve."""

from chunkscope.artefacts.numbers import plural, seconds, share
from chunkscope.planning.plan import ConcurrencyAnswer, ConcurrencyPoint, KneeChange
from chunkscope.report.blocks import Block, Table, Text, table
from chunkscope.report.phrases import settings_text
from chunkscope.report.pictures import time_over_samples

HOUR_S = 3_600
LOST_SHARE = 0.1  # of the prompt tokens, that the cache serves less beyond the knee


def concurrency_blocks(answer: ConcurrencyAnswer) -> list[Block]:
    """What else would move the knee, and the runs with other numbers."""
    blocks: list[Block] = [Text(change_sentence(change)) for change in answer.changes]
    blocks.append(points_table(answer))
    curve = [(point.at_once, point.hours * HOUR_S) for point in answer.points]
    if len(curve) > 1:
        blocks.append(time_over_samples(curve, answer.advised))
    return blocks


def time_of(hours: float) -> str:
    return seconds(hours * HOUR_S)


# -- sentences -------------------------------------------------------------------------


def advice_sentences(answer: ConcurrencyAnswer) -> list[str]:
    """How many at once, how long then, and what more of them do."""
    sentences = []
    best = answer.point(answer.advised)
    if best is not None:
        how_many = plural(answer.advised, answer.unit.removesuffix("s"))
        sentences.append(f"Run {how_many} at once: {time_of(best.hours)} (simulated).")
        sentences += knee_sentences(answer, best)
    client = answer.point(answer.client) if answer.client else None
    if client is not None and client is not best:
        took = time_of(client.hours)
        sentences.append(f"The client keeps {client.at_once:,} under way: {took}.")
    return sentences


def knee_sentences(answer: ConcurrencyAnswer, best: ConcurrencyPoint) -> list[str]:
    """Where contexts are evicted before their next turn; nothing where none are."""
    beyond = []
    for point in answer.points:
        lost = best.served_from_cache - point.served_from_cache
        if point.at_once > best.at_once and lost >= LOST_SHARE:
            beyond.append(point)
    if not beyond:
        return []
    knee = beyond[0].at_once
    worst = max(beyond, key=lambda point: point.hours)
    took, cached = time_of(worst.hours), share(worst.served_from_cache)
    return [
        f"From {knee:,} on the KV cache no longer holds their contexts: "
        f"{worst.at_once:,} take {took}, with {cached} of the prompt tokens served "
        f"from the cache instead of {share(best.served_from_cache)}."
    ]


def warning_sentences(answer: ConcurrencyAnswer, timeout_s: float | None) -> list[str]:
    """Samples that end early, and requests that the client gives up."""
    sentences = []
    if answer.outgrow:
        sentences.append(
            f"{answer.outgrow:,} of {plural(answer.samples, 'sample')} outgrow "
            "max_model_len: a turn that is refused ends its sample."
        )
    if answer.timeouts:
        sentences.append(
            f"{plural(answer.timeouts, 'request')} would take longer than "
            f"--e2e-timeout {seconds(timeout_s)}."
        )
    return sentences


def change_sentence(change: KneeChange) -> str:
    """Another setting or GPU, and how many at once are best with it."""
    name = settings_text(change.settings)
    if change.gpu is not None:
        name = f"--gpu {change.gpu}"
    if change.host_gib is not None:
        name = f"--kv-offloading-size {change.host_gib:g} (loads at an assumed 20 GB/s)"
    took = time_of(change.hours)
    text = f"With {name}, {change.at_once:,} at once take {took} (simulated)."
    if change.outgrow:
        return f"{text} {plural(change.outgrow, 'sample')} would outgrow it."
    return text


# -- the runs --------------------------------------------------------------------------


def points_table(answer: ConcurrencyAnswer) -> Table:
    """A row for each number that was simulated; the advised one matters most."""
    rows = []
    strong = []
    for place, point in enumerate(answer.points):
        took, cached = time_of(point.hours), share(point.served_from_cache)
        first, whole = seconds(point.ttft_p95_s), seconds(point.e2e_p95_s)
        rows.append([point_name(answer, point), took, cached, first, whole])
        if point.at_once == answer.advised:
            strong.append(place)
    headings = ["time", "from the cache", "first token p95", "answer p95"]
    return table([f"{answer.unit} at once", *headings], rows, strong=strong)


def point_name(answer: ConcurrencyAnswer, point: ConcurrencyPoint) -> str:
    """`8 (advised)`, `16 (the client's)`."""
    marks = []
    if point.at_once == answer.advised:
        marks.append("advised")
    if point.at_once == answer.client:
        marks.append("the client's")
    if not marks:
        return f"{point.at_once:,}"
    return f"{point.at_once:,} ({', '.join(marks)})"
