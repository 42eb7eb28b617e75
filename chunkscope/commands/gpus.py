"""`chunkscope gpus`."""

from chunkscope.commands.options import Json
from chunkscope.commands.printing import show_list


def gpus(json: Json = False) -> None:
    """List the GPUs known by name. Others: --gpu 80GiB.

    Example: chunkscope gpus
    """
    from chunkscope.hardware.gpus import ALIASES, FIGURES, TABLE

    documents = []
    rows = []
    for card in TABLE.values():
        aliases = [alias for alias, name in ALIASES.items() if name == card.name]
        document: dict[str, object] = {"name": card.name}
        document["title"] = card.title
        document["also"] = aliases
        for figure in FIGURES:
            document[figure] = getattr(card, figure)
        documents.append(document)
        memory = f"{card.memory_gib:.1f}"
        rows.append(
            (card.name, card.title, memory, card.bandwidth_gb_s, card.dense_tflops)
        )
    headings = ("name", "GPU", "GiB", "GB/s", "dense TFLOPS")
    show_list("gpus", documents, headings, rows, json=json)
