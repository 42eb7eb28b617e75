"""A prompt from several fields, by a Jinja template as in lm-eval's `doc_to_text`."""

import json
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, meta
from jinja2.sandbox import SandboxedEnvironment

from chunkscope.errors import UsageError
from chunkscope.prompts.paths import FieldPath, joined_text
from chunkscope.sources.base import DataError, first_line

ROW = "row"  # the whole record, for fields whose names Jinja cannot write
EXAMPLE = "write --template 'Q: {{ question }}'"


def _printed(value: Any) -> Any:
    """What an expression writes: texts and numbers, or the texts of a list."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, StrictUndefined):
        return value  # which Jinja reports with its name
    return joined_text(value, "template")


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class Template:
    """A template, which makes a text of each record."""

    label = "template"

    def __init__(self, text: str) -> None:
        environment = SandboxedEnvironment(
            undefined=StrictUndefined, finalize=_printed, keep_trailing_newline=True
        )
        # Jinja's own filter escapes <, > and & for HTML, and sorts the keys.
        environment.filters["tojson"] = _as_json
        # A shell hands over a line break as it was typed.
        source = text.replace("\\n", "\n").replace("\\t", "\t")
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            why = first_line(error)
            message = f"cannot read the template {text!r}: {why}"
            raise UsageError(message, hint=EXAMPLE) from None
        self.names = sorted(meta.find_undeclared_variables(tree))
        if not self.names:
            raise UsageError("the template names no field", hint=EXAMPLE)

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        if ROW in self.names:
            return (FieldPath(()),)
        return tuple(FieldPath((name,)) for name in self.names)

    def text(self, record: Any) -> str:
        """Raises DataError where a field is missing, or is no text."""
        values = dict(record) if isinstance(record, dict) else {}
        for name in self.names:
            if name != ROW and name not in values:
                raise DataError("field_missing", field=name)
        try:
            return self._template.render({ROW: record, **values})
        except DataError:
            raise
        except (
            TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            raise DataError("template_failed", why=first_line(error)) from error
