"""Functions as the Berkeley leaderboard (BFCL) documents them, made into tools as it does itself.

Its rows have them in `function`, with types of Python, Java and JavaScript and dots in their names;
what it sends to a server is JSON Schema, and underscores.
"""

from typing import Any

_TYPES = {
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("char", "String", "any", "Any"), "string"),
    **dict.fromkeys(("list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("dict", "HashMap", "Hashtable"), "object"),
    "bool": "boolean",
}


_JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object")


def as_tool(doc: Any) -> Any:
    """
    >>> as_tool({"name": "a.b", "parameters": {"type": "dict", "properties": {}}})["function"]
    {'name': 'a_b', 'parameters': {'type': 'object', 'properties': {}}}
    """
    if not isinstance(doc, dict) or not isinstance(doc.get("name"), str):
        return doc
    function = {**doc, "name": doc["name"].replace(".", "_")}
    if "parameters" in doc:
        function["parameters"] = _schema(doc["parameters"])
    return {"type": "function", "function": function}


def _schema(schema: Any, depth: int = 20) -> Any:
    """A type that is not known is a string; of a float that is said twice more."""
    if not isinstance(schema, dict) or not depth:
        return schema
    kind = schema.get("type", "string")
    made = {**schema, "type": kind if kind in _JSON_TYPES else _TYPES.get(str(kind), "string")}
    if kind == "float":
        said = f"{schema.get('description', '')} This is a float type value."
        made |= {"format": "float", "description": said}
    if isinstance(parts := made.get("properties"), dict):
        made["properties"] = {name: _schema(part, depth - 1) for name, part in parts.items()}
    if "items" in made:
        made["items"] = _schema(made["items"], depth - 1)
    return made
