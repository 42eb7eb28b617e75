"""The command line: which commands there are, and how errors become exit codes."""

import errno
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from chunkscope import console
from chunkscope._version import __version__
from chunkscope.commands.command import Command
from chunkscope.errors import (
    EXIT_BUG,
    ChunkscopeError,
    InputError,
    UsageError,
    nearest,
)

# Each module has a function of the command's name.
COMMANDS = {
    "analyze": "chunkscope.commands.analyze",
    "prefixes": "chunkscope.commands.prefixes",
    "recommend": "chunkscope.commands.recommend",
    "simulate": "chunkscope.commands.simulate",
    "verify": "chunkscope.commands.verify",
    "report": "chunkscope.commands.report",
    "gate": "chunkscope.commands.gate",
    "memory": "chunkscope.commands.memory",
    "doctor": "chunkscope.commands.doctor",
    "demo": "chunkscope.commands.demo",
    "models": "chunkscope.commands.models",
    "gpus": "chunkscope.commands.gpus",
    "help": "chunkscope.commands.help",
}
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CANNOT_BE_OPENED = (errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)


class Commands(TyperGroup):
    """The group of all commands; the module of a command is loaded when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (click's)
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:  # noqa: ARG002
        if name not in COMMANDS:
            raise UsageError(
                f"there is no command {name}", hint=nearest(name, COMMANDS)
            )
        module = import_module(COMMANDS[name])
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        alone.command(name, cls=Command)(getattr(module, name))
        return typer.main.get_command(alone)


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chunkscope {__version__}")
        raise typer.Exit


def no_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Print the version.",
            callback=print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """How long evaluation prompts really are, and the vLLM settings that follow.

    Example: chunkscope analyze sample_data/
    """


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # rich is slow to load, and --help is often typed
    pretty_exceptions_enable=False,
)
app.callback()(no_command)


def main() -> None:
    """Run a command. The one place where errors become a sentence and an exit code."""
    mend_streams()
    try:
        app(prog_name="chunkscope")
    except ChunkscopeError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except Exception as error:
        refusal = refused_by_system(error)
        if refusal is not None:
            say_error(refusal)
            sys.exit(refusal.exit_code)
        sys.excepthook(type(error), error, error.__traceback__)
        console.say(
            "\nerror: this is a bug in chunkscope; "
            "please report it with the lines above"
        )
        sys.exit(EXIT_BUG)


def say_error(error: ChunkscopeError) -> None:
    console.say(f"error: {error.message}")
    if error.hint:
        console.say(f"\nhint: {error.hint}")


def refused_by_system(error: Exception) -> InputError | None:
    """What the system did not do for us, in our words; None for any other error."""
    if not isinstance(error, OSError):
        return None
    if error.errno in DISK_IS_FULL:
        console.drop_output()
        return InputError(
            f"cannot write the output: {error.strerror}",
            hint="free disk space and repeat",
        )
    if error.errno in CANNOT_BE_OPENED:
        return InputError(
            f"cannot open {error.filename}: {error.strerror}",
            hint="is the name right, and may you read it?",
        )
    return None


def mend_streams() -> None:
    """Replace streams that the shell closed (`2>&-`); stdout takes any character."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, "r+", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, nowhere)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
