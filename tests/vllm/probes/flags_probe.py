"""Every option of `vllm serve` as its own parser describes it: serve_flag_rows.py."""

import json

import vllm
from check_probe import ENGINE_PARSER, Parser


def serve_parser():
    """With the server's own options, where they are defined."""
    for module in ("launchers", "openai"):
        try:
            args = __import__(
                f"vllm.entrypoints.{module}.cli_args", fromlist=["make_arg_parser"]
            )
            return args.make_arg_parser(Parser())
        except ImportError:
            continue
    return ENGINE_PARSER


def described(action):
    inner = [c.cell_contents for c in getattr(action.type, "__closure__", None) or ()]
    names = [
        getattr(kind, "__name__", "")
        for kind in (action.type, *inner)
        if callable(kind)
    ]
    return {
        "options": action.option_strings,
        "dest": action.dest,
        "action": type(action).__name__,
        "nargs": action.nargs,
        "types": names,
        "choices": [str(choice) for choice in action.choices or ()],
        "default": repr(action.default),
        "server": not set(action.option_strings)
        & set(ENGINE_PARSER._option_string_actions),
    }


flags = [described(action) for action in serve_parser()._actions]
print("\n" + json.dumps([vllm.__version__, flags]))
