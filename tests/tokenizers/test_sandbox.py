"""The quick sandbox answers as Jinja's own does, whatever a template asks for."""

from collections.abc import Callable
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from markupsafe import Markup

from chunkscope.tokenizers.sandbox import Sandbox

ATTRIBUTES = sorted(
    {name for kind in (dict, str, list, int) for name in dir(kind)}
    | {"role", "content", "absent", "_hidden", "__class__", "", "func_code", "mro"}
    | {"index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0"}
    | {"previtem", "nextitem", "changed", "cycle", "_iterator", "_Namespace__attrs"}
)
JINJA, OURS = ImmutableSandboxedEnvironment(), Sandbox()
OBJECTS = {
    "dict": {"role": "user", "none": None, "keys": 1, "_hidden": 2, "": 3},
    "empty dict": {},
    "text": "some text",
    "markup": Markup("text"),
    "namespace": Namespace(role="user", _hidden=1, first=[], last="".upper, mro="".format),
    "list": [1],
    "number": 7,
    "nothing": None,
}
LOOPS = {
    "items": "[1, 2]",
    "none left": "[1]",
    "lazy": "[1, 2]|map('upper')",
    "failing": "[{}, 1]|map(attribute='a.b')",
}


def told(value: Any) -> str:
    """What it is; of something undefined, what is said when it is used."""
    return _of(lambda: f"{type(value)} {value!r} {str(value) if value is None else value + ''}")


def rendered(environment: ImmutableSandboxedEnvironment, source: str, **given: object) -> str:
    return _of(lambda: environment.from_string(source).render(given))


def _of(make: Callable[[], str]) -> str:
    try:
        return make().split(" at 0x")[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}".split(" at 0x")[0]


def assert_same(source: str, **given: object) -> None:
    assert rendered(OURS, source, **given) == rendered(JINJA, source, **given)


@pytest.mark.parametrize("made", OBJECTS.values(), ids=OBJECTS)
def test_every_attribute_is_what_jinja_gives(made: Any) -> None:
    for name in ATTRIBUTES:
        ours, wanted = OURS.getattr(made, name), JINJA.getattr(made, name)
        assert type(ours) is type(wanted), name
        assert told(ours) == told(wanted), name


@pytest.mark.parametrize("over", LOOPS.values(), ids=LOOPS)
def test_every_attribute_of_a_loop_is_what_jinja_gives(over: str) -> None:
    for name in filter(str.isidentifier, ATTRIBUTES):
        assert_same(f"{{% for one in {over} %}}{{{{ loop.{name} }}}},{{% endfor %}}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ ''.join(['{', '}']).format_map({}) }}",
        "{{ [].append(1) }}",
        "{{ {}.update({'a': 1}) }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% for x in [1] %}{{ loop.__class__ }}{{ loop._iterable }}{% endfor %}",
        "{% set f = 'a'.upper %}{{ f() }}{{ f.__self__ }}{{ f.__call__() }}",
        "{% for x in ['a'] %}{{ x.startswith('a') }}{{ x.split(sep='a', maxsplit=1) }}{% endfor %}",
        "{{ 'a'.upper(_loop_vars=1) }}{{ 'a'.upper(1) }}",
        "{{ ','.join(messages|map(attribute='role')) }}",
        "{{ no_such_name.role }}",
    ],
)
def test_what_breaks_out_or_goes_wrong_does_so_alike(source: str) -> None:
    assert_same(source, messages=[{"role": "user"}, {"role": "tool"}])
