"""Jinja's sandbox, quick with what chat templates ask of it most: keys, text, loops, namespaces.

Jinja looks for `message.role` among the attributes of a dict first, and asks a dozen questions of
each method of a string. For these types the answers are known beforehand, and they are the same;
whatever is not listed here goes the long way. Imports jinja2, so import it late.
"""

from types import BuiltinMethodType, NoneType
from typing import Any

from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_OF_A_DICT = frozenset(dir(dict))
# Jinja wraps the two that format: they reach attributes of what they are given.
_OF_TEXT = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}
_OF_A_LOOP = frozenset(
    ("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0")
)
_PLAIN = frozenset((str, int, float, bool, dict, list, NoneType))


class Sandbox(ImmutableSandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)
        if kind is dict and attribute not in _OF_A_DICT:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        if kind is str and attribute in _OF_TEXT:
            return getattr(obj, attribute)
        if (kind is LoopContext and attribute in _OF_A_LOOP) or (
            kind is Namespace and attribute[:1] != "_"
        ):
            try:
                value = getattr(obj, attribute)
            except AttributeError:  # neither has items
                return self.undefined(obj=obj, name=attribute)
            if type(value) in _PLAIN:
                return value
        return super().getattr(obj, attribute)

    # Templates name the keywords: they must not be those of this method.
    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        if type(__obj) is BuiltinMethodType and type(__obj.__self__) is str:
            kwargs.pop("_block_vars", None)
            kwargs.pop("_loop_vars", None)
            return __obj(*args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)
