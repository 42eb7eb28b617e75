"""`chunkscope models`."""

from chunkscope.commands.options import Json
from chunkscope.commands.printing import show_list


def models(json: Json = False) -> None:
    """List the models known by name. Others: a folder with a config.json, or a hub id.

    Example: chunkscope models
    """
    from chunkscope.models.find import MODELS, built_in

    documents = []
    rows = []
    for name, model in MODELS.items():
        shape = built_in(name)
        if shape is None:
            continue
        size = shape.parameters.total
        documents.append(
            {
                "name": name,
                "hub_ids": list(model.hub_ids),
                "parameters": size,
                "context": shape.limit,
            }
        )
        rows.append((name, model.hub_ids[0], billions(size), shape.limit))
    headings = ("name", "on the hub", "size", "context")
    show_list("models", documents, headings, rows, json=json)


def billions(parameters: int) -> str:
    """
    >>> billions(1_540_000_000), billions(405_000_000_000)
    ('1.5B', '405B')
    """
    if parameters < 100e9:
        return f"{parameters / 1e9:.1f}B"
    return f"{parameters / 1e9:.0f}B"
