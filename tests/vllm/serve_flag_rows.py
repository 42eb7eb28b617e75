"""What vLLM's parsers say of themselves -> chunkscope/vllm/serve_flags.csv.

    python -m tests.vllm.serve_flag_rows PYTHON...

Each PYTHON has another version of vLLM, one of every minor version from 0.12 on, in
any order (.ci/vllm-scheduler makes them). What has an effect on memory or speed, no
parser says: that is here.
"""

import ast
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from chunkscope.vllm import flags
from chunkscope.vllm.flags import dotted, release
from chunkscope.vllm.rules import Version
from chunkscope.vllm.settings import NAMES

TABLE = Path(flags.__file__).with_name("serve_flags.csv")
KINDS = {
    "int": "int",
    "float": "float",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "length",
    **dict.fromkeys(("loads", "parse_dataclass", "_parse_type", "parse_type"), "json"),
}
# Of the engine's arguments these change neither memory nor speed; any other may.
_HARMLESS = """
trust_remote_code seed served_model_name download_dir disable_log_stats
disable_log_requests enable_log_requests log_level log_config_file logging_config
aggregate_engine_logging show_hidden_metrics_for_version hf_token
allowed_local_media_path allowed_media_domains reasoning_parser reasoning_parser_plugin
use_tqdm_on_load safetensors_load_strategy safetensors_prefetch_num_threads
safetensors_prefetch_block_size max_parallel_loading_workers ignore_patterns
shutdown_timeout fail_on_environ_validation master_addr master_port
"""
# Of the server's only these may: they change what is sent, who answers, or where
# settings stand.
_OF_THE_SERVER = """
config headless api_server_count chat_template default_chat_template_kwargs lora_modules
trust_request_chat_template tokens_only grpc enable_flash_late_interaction
use_gpu_for_pooling_score enable_scale_out disable_frontend_multiprocessing
"""
COLUMNS = (
    "name",
    "also",
    "takes",
    "choices",
    "default",
    "effect",
    "server",
    "since",
    "until",
)


def known_flags(python: str) -> tuple[str, list[dict[str, Any]]]:
    """The version of that vLLM, and every option as its parser describes it."""
    program = Path(__file__).parent / "probes" / "flags_probe.py"
    run = subprocess.run(
        [python, str(program)], capture_output=True, text=True, check=True, timeout=600
    )
    version, flags = json.loads(run.stdout.splitlines()[-1])
    return version, flags


def rows_of(described: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """By name, all but the versions."""
    found = [_row(one) for one in described if one["action"] != "_HelpAction"]
    return {row["name"]: row for row in found if row is not None}


def _row(one: dict[str, Any]) -> dict[str, str] | None:
    words = [word for word in one["options"] if not word.startswith("--no-")]
    names = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
    names.sort(key=lambda name: name != one["dest"])
    if not names:
        return None  # the model, which stands without a flag
    name, takes = names[0], _takes(one)
    choices = (
        sorted(c for c in one["choices"] if c != "None") if takes != "texts" else []
    )
    short = [word for word in words if not word.startswith("--")]
    short += ["-O"] * (
        name == "optimization_level"
    )  # vLLM puts one for the other, then parses
    return {
        "name": name,
        "also": " ".join((*names[1:], *short)),
        "takes": takes,
        "choices": "|".join(choices),
        "default": "" if _is_judged(name) else _default(one["default"], takes),
        "effect": _effect(name, server=one["server"]),
        "server": "yes" if one["server"] else "",
    }


def _takes(one: dict[str, Any]) -> str:
    if one["action"] in ("BooleanOptionalAction", "_StoreTrueAction"):
        return "switch" if one["action"] == "BooleanOptionalAction" else "on"
    if one["nargs"] in ("+", "*", "?"):
        return "maybe" if one["nargs"] == "?" else "texts"
    optional = one["types"][:1] == ["_optional_type"]
    kind = one["types"][optional : optional + 1]
    return KINDS.get(kind[0] if kind else "", "text") + ("?" if optional else "")


def _default(written: str, takes: str) -> str:
    """As it would be written; nothing where that is not one plain value."""
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return ""
    if (
        takes == "on"
        or value == "==SUPPRESS=="
        or not isinstance(value, str | int | float)
    ):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_judged(name: str) -> bool:
    return name in (*NAMES, "model")


def _effect(name: str, *, server: bool) -> str:
    if _is_judged(name):
        return "judged"
    harmless = (
        name not in _OF_THE_SERVER.split() if server else name in _HARMLESS.split()
    )
    return "none" if harmless else "any"


def _first(version: Version) -> str:
    """One release stands for its minor version."""
    return dotted((*version[:2], 0))


def table_of(
    versions: dict[Version, dict[str, dict[str, str]]],
) -> list[dict[str, str]]:
    """A row for each name, and another from where something about it changed."""
    rows: list[dict[str, str]] = []
    order = sorted(versions)
    for name in sorted({name for found in versions.values() for name in found}):
        last: dict[str, str] | None = None
        for version in order:
            row = versions[version].get(name)
            if row == last:
                continue
            if last is not None:
                rows[-1]["until"] = _first(version)
            if row is not None:
                rows.append({**row, "since": _first(version), "until": ""})
            last = row
    return rows


def main(pythons: list[str]) -> None:
    found = {}
    for python in pythons:
        version, described = known_flags(python)
        found[release(version).version] = rows_of(described)
    with TABLE.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table_of(found))


if __name__ == "__main__":
    main(sys.argv[1:])
