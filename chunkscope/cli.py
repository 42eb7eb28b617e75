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
    *("analyze", "prefixes", "recommend", "simulate", "verify", "report", "gate"),
    *("memory", "doctor", "demo", "models", "gpus", "help"),
)


def _past_typer(command: Callable[..., None]) -> Callable[..., None]:
    """Typer would answer Ctrl-C with silence."""

    @wraps(command)
    def run(**given: Any) -> None:
        if callable(
            signal.getsignal(signal.SIGINT)
        ):  # from here on there is work to be kept
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            command(**given)
        except KeyboardInterrupt:
            console.say("interrupted")
            # Not sys.exit: that would wait for threads, one of which may be waiting for a pipe.
            os._exit(EXIT_INTERRUPTED)

    return run


def application(wanted: str = "") -> typer.Typer:
    """With one command, if it is one: the options of the others take a while to make."""
    app = typer.Typer(
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,  # rich is slow to load, and --help is often typed
        pretty_exceptions_enable=False,
        help="How long evaluation prompts really are, and the vLLM settings that follow.\n\n"
        "Example: chunkscope analyze sample_data/",
    )
    app.callback()(_common)
    for name in [wanted] if wanted in COMMANDS else COMMANDS:
        module = import_module(
            f"chunkscope.commands.{'small' if name in SMALL else name}"
        )
        command = getattr(module, "show_help" if name == "help" else name)
        app.command(name, cls=GroupedCommand)(_past_typer(command))
    return app


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
    if sys.argv[1:2] not in (
        ["verify"],
        ["demo"],
    ):  # which compute as a user's own program would
        os.environ.setdefault(
            "OPENBLAS_NUM_THREADS", "1"
        )  # numpy's threads would only wait
    gc.set_threshold(
        1_000_000
    )  # next to nothing here has cycles: looking for them takes a tenth
    try:
        app = application(sys.argv[1] if len(sys.argv) > 1 else "")
        app(sys.argv[1:], standalone_mode=True, prog_name="chunkscope")
    except ChunkscopeError as error:
        console.say(
            f"error: {error.message}"
            + (f"\n\nhint: {error.hint}" if error.hint else "")
        )
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSED:
            what, hint = (
                f"open {error.filename}",
                "is the name right, and may you read it?",
            )
            if error.errno in _FULL:
                console.drop_output()
                what, hint = "write the output", "free disk space and repeat"
            console.say(f"error: cannot {what}: {error.strerror}\n\nhint: {hint}")
            sys.exit(InputError.exit_code)
        sys.excepthook(type(error), error, error.__traceback__)
        console.say(
            "\nerror: this is a bug in chunkscope; please report it with the lines above"
        )
        sys.exit(EXIT_BUG)


def _mend_streams() -> None:
    """Python has no stream where the shell closed one (`2>&-`), and may have one for ASCII only."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif name == "stdout" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
