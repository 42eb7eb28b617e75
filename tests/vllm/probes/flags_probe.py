"""Every option of `vllm serve` as that vLLM's own parser describes it, for serve_flag_rows.py."""

import json

import vllm
from check_probe import ENGINE_PARSER, serve_parser


def described(action):
    inner = [c.cell_contents for c in getattr(action.type, "__closure__", None) or ()]
    names = [getattr(kind, "__name__", "") for kind in (action.type, *inner) if callable(kind)]
    return {
        "options": action.option_strings,
        "dest": action.dest,
        "action": type(action).__name__,
        "nargs": action.nargs,
        "types": names,
        "choices": [str(choice) for choice in action.choices or ()],
        "default": repr(action.default),
        "server": not set(action.option_strings) & set(ENGINE_PARSER._option_string_actions),
    }


flags = [described(action) for action in serve_parser()[0]._actions]
print("\n" + json.dumps([vllm.__version__, flags]))
