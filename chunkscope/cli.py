"""The command line: which commands there are, and how errors become exit codes."""

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import typer

from chunkscope import console
from chunkscope._version import __version__
from chunkscope.commands.options import OUTPUT, GroupedCommand
from chunkscope.errors import EXIT_BUG, ChunkscopeError, InputError

EXIT_INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (*_FULL, errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)
SMALL = ("prefixes", "report", "memory", "doctor", "demo", "models", "gpus", "help")
COMMANDS = (
    "analyze",
    "prefixes",
    "recommend",
    "simulate",
    "verify",
    "report",
    "gate",
    "memory",
    "doctor",
    "demo",
    "models",
    "gpus",
    "help",
)


def _past_typer(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an answer to Ctrl-C, on which typer would be silent."""

    @wraps(command)
    def run(**options: Any) -> None:
        # From here on there is work to be kept, so that Ctrl-C is an exception again.
        if callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            command(**options)
        except KeyboardInterrupt:
            console.say("interrupted")
            # sys.exit would wait for threads, one of which may be waiting for a pipe.
            os._exit(EXIT_INTERRUPTED)

    return run


def application(wanted: str = "") -> typer.Typer:
    """With the wanted command alone, as the options of the others take a while."""
    app = typer.Typer(
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,  # rich is slow to load, and --help is often typed
        pretty_exceptions_enable=False,
        help="How long evaluation prompts really are, and the vLLM settings that "
        "follow.\n\n"
        "Example: chunkscope analyze sample_data/",
    )
    app.callback()(_common)
    names = [wanted] if wanted in COMMANDS else COMMANDS
    for name in names:
        app.command(name, cls=GroupedCommand)(_past_typer(command_called(name)))
    return app


def command_called(name: str) -> Callable[..., None]:
    module_name = "small" if name in SMALL else name
    function_name = "show_help" if name == "help" else name
    module = import_module(f"chunkscope.commands.{module_name}")
    command: Callable[..., None] = getattr(module, function_name)
    return command


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chunkscope {__version__}")
        raise typer.Exit


def _common(
    _version_wanted: bool = OUTPUT(
        "Print the version.",
        "--version",
        "-V",
        default=False,
        callback=_version,
        is_eager=True,
    ),
) -> None:
    pass


def main() -> None:
    """Run a command. The one place where errors become a sentence and an exit code."""
    _mend_streams()
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in ("verify", "demo"):  # which compute as a user's program would
        # The threads of numpy would only wait.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for cycles takes a tenth of the time, and hardly anything here has any.
    gc.set_threshold(1_000_000)
    try:
        app = application(wanted)
        app(sys.argv[1:], standalone_mode=True, prog_name="chunkscope")
    except ChunkscopeError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSED:
            say_error(refused(error))
            sys.exit(InputError.exit_code)
        sys.excepthook(type(error), error, error.__traceback__)
        console.say(
            "\nerror: this is a bug in chunkscope; "
            "please report it with the lines above"
        )
        sys.exit(EXIT_BUG)


def say_error(error: ChunkscopeError) -> None:
    text = f"error: {error.message}"
    if error.hint:
        text += f"\n\nhint: {error.hint}"
    console.say(text)


def refused(error: OSError) -> InputError:
    """What the system did not do for us, in our words."""
    if error.errno in _FULL:
        console.drop_output()
        return InputError(
            f"cannot write the output: {error.strerror}",
            hint="free disk space and repeat",
        )
    return InputError(
        f"cannot open {error.filename}: {error.strerror}",
        hint="is the name right, and may you read it?",
    )


def _mend_streams() -> None:
    """Replace streams that the shell closed (`2>&-`); stdout takes any character."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = open(os.devnull, "r+", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, nowhere)
        elif name == "stdout" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
