"""chunkscope.toml: defaults of options by command, and options of single datasets."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from chunkscope.errors import InputError, nearest

CONFIG = Path("chunkscope.toml")
PROJECT = Path("pyproject.toml")  # in which the tables are called [tool.chunkscope...]
WITHOUT_DEFAULTS = ("gate", "help")  # [gate] is the budget
TABLES = (
    "analyze",
    "prefixes",
    "recommend",
    "simulate",
    "verify",
    "report",
    "memory",
    "doctor",
    "demo",
    "gate",
    "datasets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTable:
    """A table of the file, such as [analyze]."""

    path: Path
    name: str
    values: dict[str, Any] = field(default_factory=dict)


def defaults(ctx: Any, command: Any) -> dict[str, Any]:
    """The table of a command as click's `default_map`, checked."""
    name = command.name
    if name in WITHOUT_DEFAULTS:
        return {}
    table = config_table(name)
    if not table.values:
        return {}
    options = options_of(command)
    values = {}
    for key, value in table.values.items():
        option = options.get(key.replace("-", "_"))
        if option is None:
            raise InputError(
                f"{table.path}: [{name}] has no option {key}",
                hint=nearest(key, options),
            )
        try:
            typed = as_typed(value, is_repeatable=option.multiple)
            option.type_cast_value(ctx, typed)
        except typer.BadParameter as error:
            where = f"{table.path}: [{name}] {key}"
            raise InputError(f"{where}: {error.message}") from None
        values[option.name] = typed
    return values


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command, by all their names: max_num_seqs, model and m."""
    options = {}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            for name in (parameter.name, *parameter.opts):
                options[name.lstrip("-").replace("-", "_")] = parameter
    return options


def as_typed(value: object, *, is_repeatable: bool) -> str | list[str]:
    """A value as it would be typed, a list as an option that is repeated."""
    if isinstance(value, dict):
        raise typer.BadParameter("it is a table, not a value")
    if isinstance(value, list):
        if not is_repeatable:
            raise typer.BadParameter("it is a list, and this option takes one value")
        return [str(element) for element in value]
    if is_repeatable:
        return [str(value)]
    return str(value)


def config_table(name: str) -> ConfigTable:
    """A table of chunkscope.toml; where it has none, that of pyproject.toml.

    The environment variable CHUNKSCOPE_CONFIG names another file.
    """
    named = os.environ.get("CHUNKSCOPE_CONFIG")
    paths = (Path(named),) if named else (CONFIG, PROJECT)
    for path in paths:
        if not named and not path.exists():
            continue
        table = read_tables(path).get(name)
        if table:
            return ConfigTable(path=path, name=name, values=table)
    return ConfigTable(path=paths[0], name=name)


def read_tables(path: Path) -> dict[str, dict[str, Any]]:
    """All tables of a file; an error for one that nothing reads."""
    import tomllib

    from chunkscope.artefacts.files import read_text

    text = read_text(path, hint="is CHUNKSCOPE_CONFIG right?")
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    if path.name == PROJECT.name:
        document = document.get("tool", {}).get("chunkscope", {})
    for name, table in document.items():
        if name not in TABLES:
            raise InputError(
                f"{path}: unknown table {name}", hint=nearest(name, TABLES)
            )
        if not isinstance(table, dict):
            raise InputError(f"{path}: {name} is not a table", hint=f"write [{name}]")
    return document
