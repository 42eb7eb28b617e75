"""Chat templates from strangers: a text, or a sentence about the row or the template."""

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from chunkscope.prompts.chat import conversation
from chunkscope.prompts.paths import UnusableError
from chunkscope.tokenizers.chat_template import ChatTemplate, choose_template
from chunkscope.tokenizers.foreign import TemplateRefused
from tests.fuzz.helpers import Explore, anything, fine, texts

NAMES = st.sampled_from(
    ["messages", "messages[0]", "message", "message.content", "message['role']", "tools", "x", "1",
     "'a'", "10**3", "none", "loop.index", "namespace(a=1)", "strftime_now('%d %b')", "bos_token",
     "5.0"]
)  # fmt: skip
FILTERS = st.sampled_from(
    ["tojson", "trim", "length", "upper", "join", "list", "first", "int", "items", "batch(2)",
     "selectattr('role')", "tojson(indent=2)", "map('x')", "center(99)", "indent(99)",
     "nope", "attr('__class__')", "sum"]
)  # fmt: skip
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: (
        st.tuples(inner, FILTERS).map(" | ".join)
        | st.tuples(inner, st.sampled_from("+-*/~[%=<"), inner).map(" ".join)
        | inner.map("raise_exception({})".format)
        | inner.map("{}.__class__.__mro__".format)
        | inner.map("({})".format)
    ),
    max_leaves=4,
)
PIECES = st.recursive(
    st.text(max_size=10) | EXPRESSIONS.map("{{{{ {} }}}}".format),
    lambda inner: (
        st.tuples(EXPRESSIONS, inner).map(lambda p: "{{% if {} -%}}{}{{% endif %}}".format(*p))
        | st.tuples(EXPRESSIONS, inner).map(lambda p: "{{% set x = {} %}}{}".format(*p))
        | inner.map("{{% for message in messages %}}{}{{%- endfor %}}".format)
        | inner.map("{{% for x in range(9999) %}}{}{{% endfor %}}".format)
        | inner.map("{{% generation %}}{}{{% endgeneration %}}".format)
        | inner.map("{{% macro m(x) %}}{}{{% endmacro %}}{{{{ m(1) }}}}".format)
        | inner.map("{{% include 'x' %}}{}".format)
        | st.lists(inner, max_size=3).map("".join)
    ),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), anything, max_size=3),
    max_size=3,
)
SAID = [{"role": "user", "content": "hi"}]


def check(source: Any, messages: list[dict[str, Any]], tools: Any) -> None:
    with fine(), suppress(UnusableError):  # which is a bad row
        if template := choose_template(source, has_tools=bool(tools)):
            row = {"messages": messages, "tools": tools}
            made = ChatTemplate(template, special_tokens={"bos_token": "<s>"})
            with suppress(TemplateRefused):
                made.render(conversation(messages, row)).encode()


def test_a_template(explore: Explore) -> None:
    past = [
        (r'{{ "\ud800" }}', SAID, None),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", SAID, None),
        ("{% for m in messages %}", SAID, None),
        ("{{ 1 // 0 }}", SAID, None),
        ("{{ m(", SAID, None),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", SAID, None),
        ("{{ '%d' % 'x' }}", SAID, None),
        ([{"name": 5, "template": []}], SAID, None),
    ]
    explore(check, PIECES, MESSAGES, st.none() | anything, examples=150, past=past)


def test_the_value_of_chat_template_may_be_anything(explore: Explore) -> None:
    named = st.lists(st.fixed_dictionaries({"name": texts, "template": anything}), max_size=3)
    past = [({"\ud800": ""}, SAID, None)]
    explore(check, named | anything, st.just(SAID), st.none(), examples=60, past=past)
