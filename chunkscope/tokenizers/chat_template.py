"""Chat templates: a conversation in, the text that the model is fed out.

The text is the one `transformers` makes with
`apply_chat_template(add_generation_prompt=True)`, and so the one vLLM tokenizes,
without importing transformers, which takes a second.
"""

import datetime
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context

from chunkscope.artefacts.files import read_text
from chunkscope.errors import InputError
from chunkscope.prompts.chat import (
    Conversation,
    part_content,
    string_content,
    without_developers,
)
from chunkscope.sources.base import DataError, first_line
from chunkscope.tokenizers.fast_jinja import FastSandbox
from chunkscope.tokenizers.foreign import TemplateRefused


class ChatTemplate:
    """One compiled template.

    `content_format` says whether it loops over the parts of a message's content
    ("openai") or takes content as a string; `uses_date` whether its text depends on the
    day it is rendered on, which `date` pins; `uses_tools` whether it writes down what
    tools there are.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, Any],
        date: datetime.date | None = None,
    ) -> None:
        self.date = date
        # The sandbox that transformers renders chat templates in, setting by setting.
        environment = FastSandbox(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
        )
        self._environment = environment
        # Jinja's own filter would escape <, > and & for HTML.
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime_now
        environment.globals.update(
            special_tokens, documents=None, add_generation_prompt=True
        )
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(tree)
        except (jinja2.TemplateError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            raise DataError(
                "template_not_jinja", why=first_line(error), line=line
            ) from error
        names = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"}
        self.uses_date = "strftime_now" in names
        self.uses_tools = "tools" in names
        self.has_developers = "'developer'" in source or '"developer"' in source
        self.content_format = "openai" if _loops_over_content(tree) else "string"

    def render(self, conversation: Conversation) -> str:
        """The prompt's text. Raises TemplateRefused where the template will not have
        it."""
        content = part_content if self.content_format == "openai" else string_content
        messages = conversation.messages
        if not self.has_developers:
            messages = without_developers(conversation)
        variables = {
            **self._environment.globals,
            **conversation.template_kwargs,
            "messages": content(messages),
            "tools": conversation.tools,
        }
        try:
            context = Context(self._environment, variables, None, self._template.blocks)
            text = "".join(self._template.root_render_func(context))
            text.encode()  # a lone surrogate is no character to a tokenizer
        except Exception as error:  # whatever a template does with a row
            reason = " ".join(str(error).split()) or type(error).__name__
            raise TemplateRefused("template_refused", why=reason) from error
        return text

    def _strftime_now(self, format: str) -> str:  # noqa: A002  (templates may name it)
        # Local time without a zone, as transformers has it.
        now = datetime.datetime.now()  # noqa: DTZ005
        if self.date is not None:
            now = datetime.datetime.combine(self.date, datetime.time())
        return now.strftime(format)


def choose_template(value: object, has_tools: bool) -> str | None:
    """The template out of what `chat_template` holds: text, or several by name."""
    if value is None or isinstance(value, str):
        return value
    named: dict[str, object] = {}
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict):
                named[str(entry.get("name"))] = entry.get("template")
    elif isinstance(value, dict):
        named = value
    else:
        raise DataError("template_not_text")
    texts = {name: text for name, text in named.items() if isinstance(text, str)}
    if has_tools and "tool_use" in texts:
        return texts["tool_use"]
    if "default" in texts:
        return texts["default"]
    raise DataError("no_default_template", names=", ".join(sorted(texts)))


def read_template(path: Path) -> Any:
    """A template file: Jinja text, or JSON with a "chat_template"
    (tokenizer_config.json)."""
    hint = "give a Jinja file, or a JSON file such as tokenizer_config.json"
    text = read_text(path, "chat template", hint=hint)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(config, dict) and config.get("chat_template"):
        return config["chat_template"]
    raise InputError(f'{path} is JSON without a "chat_template"', hint=hint)


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what to train on; the text is the
    body's."""

    tags = {"generation"}  # noqa: RUF012  (jinja's way to say it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(
            line
        )  # so that names set inside stay inside


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(message)


def _loops_over_content(tree: nodes.Template) -> bool:
    """Whether a loop over messages has one over the content of a message.

    So vLLM tells ("auto" content format), and a template it would misread is misread
    the same way here.
    """
    messages = _names_of_messages(tree)
    message_names = set()
    for target, source in _loops(tree):
        if _root_name(source) in messages:
            message_names.add(target)
    for _, source in _loops(tree):
        if _step_name(source) == "content" and _root_name(source.node) in message_names:
            return True
        # Newer templates hand `message.content` to a macro that loops over what it
        # calls `content`.
        if _root_name(source) == "content":
            return True
    return False


def _names_of_messages(tree: nodes.Template) -> list[str]:
    """`messages`, and what is set to them: `loop_messages = messages[1:]`."""
    names = ["messages"]
    for name in names:  # which grows
        for assign in tree.find_all(nodes.Assign):
            target = _root_name(assign.target)
            if target and target not in names and _root_name(assign.node) == name:
                names.append(target)
    return names


def _loops(tree: nodes.Template) -> Iterator[tuple[str, Any]]:
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            yield loop.target.name, _unwrapped(loop.iter)


def _unwrapped(node: Any) -> Any:
    """The expression without filters, tests and slices around it."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node


def _root_name(node: Any) -> str | None:
    node = _unwrapped(node)
    return node.name if isinstance(node, nodes.Name) else None


def _step_name(node: Any) -> Any:
    """What is read in `message.content` and in `message["content"]`."""
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value
    return node.attr if isinstance(node, nodes.Getattr) else None
