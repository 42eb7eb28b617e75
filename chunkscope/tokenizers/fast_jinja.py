"""Jinja's sandbox with faster steps into values, which chat templates consist of.

Jinja's own sandbox asks a dozen questions at each step into a value. The code that is
generated here answers them by itself for what templates step into: a dict's key, a
text's method, a loop's counter, a name in a namespace. All else goes to the sandbox.

3,000 chats took 0.13 s with Qwen3's template, where Jinja's own code took 0.61 s; with
Llama 3.1's 0.05 s and 0.15 s.
"""

from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

# The attribute in which Jinja's namespace keeps its names.
NAMES = "object.__getattribute__(v, '_Namespace__attrs')"


class FastCode(CodeGenerator):
    """Writes Python for a template."""

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        if _is_plain(node.attr):
            self._write_step(node, node.attr, "getattr", frame)
        else:
            super().visit_Getattr(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        name: Any = node.arg.value if isinstance(node.arg, nodes.Const) else None
        if _is_plain(name):
            self._write_step(node, name, "getitem", frame)
        else:
            super().visit_Getitem(node, frame)

    def _write_step(
        self, node: nodes.Getattr | nodes.Getitem, name: str, step: str, frame: Frame
    ) -> None:
        """`VALUE if type(v := ...) is KIND else ... else environment.getattr(v,
        name)`"""
        is_hidden = name.startswith(("_", "format"))  # what the sandbox looks at
        kind: type = LoopContext if _is_loop(node.node) else str
        value = f"v.{name}"
        if is_hidden or name not in dir(kind):
            kind = dict
            missing = f"environment.nothing({name!r})"
            value = f"(v[{name!r}] if {name!r} in v else {missing})"
        self.write(f"({value} if type(v := ")
        self.visit(node.node, frame)
        self.write(f") is {kind.__name__} else ")
        if not is_hidden:
            in_namespace = f"type(v) is Namespace and {name!r} in (a := {NAMES})"
            self.write(f"a[{name!r}] if {in_namespace} else ")
        self.write(f"environment.{step}(v, {name!r}))")


def _is_plain(name: Any) -> bool:
    """Whether it can be a key that no dict has as a method."""
    return isinstance(name, str) and name not in dir(dict)


def _is_loop(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "loop"


class FastSandbox(ImmutableSandboxedEnvironment):
    """The sandbox that transformers renders chat templates in."""

    code_generator_class = FastCode

    @staticmethod
    @lru_cache
    def nothing(name: str) -> jinja2.Undefined:
        """What a dict has under a key that it has not."""
        return jinja2.Undefined(obj={}, name=name)

    def call(self, context: Any, called: Any, /, *args: Any, **names: Any) -> Any:
        is_method_of_text = type(getattr(called, "__self__", None)) is str
        if called is not Namespace and not is_method_of_text:
            return super().call(context, called, *args, **names)
        names.pop("_loop_vars", None)
        names.pop("_block_vars", None)
        return called(*args, **names)
