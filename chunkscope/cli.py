"""The command line: which commands there are, and how errors become exit codes."""

import errno
import os
import signal
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

from chunkscope import console
from chunkscope._version import __version__
from chunkscope.commands.options import Command, Given, completed
from chunkscope.errors import EXIT_BUG, ChunkscopeError, InputError, UsageError

EXIT_INTERRUPTED = 130
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Each command, and the module that has it.
COMMANDS = {
    "analyze": "analyze",
    "prefixes": "known",
    "recommend": "recommend",
    "simulate": "simulate",
    "verify": "verify",
    "report": "report",
    "gate": "gate",
    "memory": "known",
    "doctor": "doctor",
    "demo": "known",
    "models": "known",
    "gpus": "known",
    "help": "known",
}
ABOUT = """usage: chunkscope COMMAND [OPTIONS]

How long evaluation prompts really are, and the vLLM settings that follow.

Example: chunkscope analyze sample_data/

"""
COMPLETION = """\
# For bash and zsh: eval "$(chunkscope --completion)"
[ -n "$ZSH_VERSION" ] && autoload -U +X bashcompinit && bashcompinit
_chunkscope() { local IFS=$'\\n'
  COMPREPLY=($(_CHUNKSCOPE_COMPLETE=1 chunkscope "${COMP_WORDS[@]:1:COMP_CWORD}")); }
complete -o default -F _chunkscope chunkscope
"""


def load(name: str) -> Command:
    module = import_module(f"chunkscope.commands.{COMMANDS[name]}")
    found: Command = getattr(module, "help_command" if name == "help" else name)
    return found


def run(words: list[str]) -> None:
    first = words[0] if words else "--help"
    if "_CHUNKSCOPE_COMPLETE" in os.environ:
        names = [name for name in COMMANDS if name.startswith(first)]
        offered = completed(load(first).parser(), words) if first in COMMANDS else names
        console.emit("".join(f"{name}\n" for name in offered).encode())
    elif first in COMMANDS:
        command = load(first)
        given = command.parser().parse_intermixed_args(words[1:], Given())
        if callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler)  # there is work to be kept
        command.run(given)
    elif first in ("--help", "-h"):
        lines = [
            f"  {name:<10}  {load(name).about.split('. ')[0].splitlines()[0]}" for name in COMMANDS
        ]
        console.emit((ABOUT + "\n".join(("commands:", *lines, "", _OPTIONS))).encode())
    elif first in ("--version", "-V"):
        console.emit(f"chunkscope {__version__}\n".encode())
    elif first == "--completion":
        console.emit(COMPLETION.encode())
    else:
        near = get_close_matches(first, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "`chunkscope --help` lists them"
        raise UsageError(f"there is no command {first}", hint=hint)


_OPTIONS = """options:
  -V, --version  Print the version.
  --completion   Print what bash or zsh needs to complete commands, GPUs and models.
  -h, --help     Show this and exit; also of a command: chunkscope analyze --help
"""


def main() -> NoReturn:
    """Run a command. The one place where errors become a sentence and an exit code."""
    _mend_streams()
    try:
        run(sys.argv[1:])
        sys.stdout.flush()
    except ChunkscopeError as error:
        console.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        console.say("interrupted; what was counted or measured is kept")
        # Not sys.exit: that would wait for threads, one of which may be waiting for a pipe.
        os._exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # `| head` has seen enough
        _drop_output()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            _drop_output()
            full = InputError(
                f"cannot write the output: {error.strerror}",
                hint="what was counted or measured is kept; make room, and run it again",
            )
            console.show_error(full)
            sys.exit(full.exit_code)
        import traceback

        traceback.print_exc()
        console.say("\nerror: this is a bug in chunkscope; please report it with the lines above")
        sys.exit(EXIT_BUG)
    sys.exit(0)


def _drop_output() -> None:
    """Python would try once more while closing stdout, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _mend_streams() -> None:
    """Python has no stream where the shell closed one (`2>&-`), and may have one for ASCII only."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif name == "stdout" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
