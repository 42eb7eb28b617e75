"""The command line: which commands there are, and how errors become exit codes."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Annotated, NoReturn, ParamSpec

import typer

from chunkscope import console
from chunkscope._version import __version__
from chunkscope.commands.analyze import analyze, spelled_out
from chunkscope.commands.demo import demo
from chunkscope.commands.doctor import doctor
from chunkscope.commands.gate import gate
from chunkscope.commands.known import gpus, models, show_help
from chunkscope.commands.memory import memory
from chunkscope.commands.options import GroupedCommand
from chunkscope.commands.prefixes import prefixes
from chunkscope.commands.recommend import recommend
from chunkscope.commands.report import report
from chunkscope.commands.simulate import simulate
from chunkscope.commands.verify import verify
from chunkscope.errors import EXIT_BUG, ChunkscopeError, InputError

EXIT_INTERRUPTED = 130
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_INTERRUPT = signal.default_int_handler  # Python's own: it raises KeyboardInterrupt

P = ParamSpec("P")


class Interrupted(Exception):  # noqa: N818  (it is what the user did)
    """Ctrl-C."""


class OutputClosed(Exception):  # noqa: N818  (`| head` has seen enough)
    """Whoever read our output went away."""


def _past_typer(command: Callable[P, None]) -> Callable[P, None]:
    """Typer would answer Ctrl-C with silence, and `| head` with the exit code of a broken gate."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if callable(handler := signal.getsignal(signal.SIGINT)) and handler is not _INTERRUPT:
            signal.signal(signal.SIGINT, _INTERRUPT)  # from here on there is work to be kept
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except BrokenPipeError as error:
            raise OutputClosed from error

    return run


app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # rich is slow to load, and --help is often typed
    pretty_exceptions_enable=False,
    help="How long evaluation prompts really are, and the vLLM settings that follow.\n\n"
    "Example: chunkscope analyze sample_data/",
)
for _command in (
    *(analyze, prefixes, recommend, simulate, verify, report, gate),
    *(memory, doctor, demo, models, gpus),
):
    app.command(cls=GroupedCommand)(_past_typer(_command))
app.command("help")(_past_typer(show_help))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chunkscope {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run a command. The one place where errors become a sentence and an exit code."""
    _mend_streams()
    try:
        app(spelled_out(sys.argv[1:]), standalone_mode=True, prog_name="chunkscope")
    except ChunkscopeError as error:
        console.show_error(error)
        sys.exit(error.exit_code)
    except Interrupted:
        console.say("interrupted; what was counted or measured is kept")
        # Not sys.exit: that would wait for threads, one of which may be waiting for a pipe.
        os._exit(EXIT_INTERRUPTED)
    except OutputClosed:
        _drop_output()
        sys.exit(0)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            _drop_output()
            full = InputError(
                f"cannot write the output: {error.strerror}",
                hint="what was counted or measured is kept; make room, and run it again",
            )
            console.show_error(full)
            sys.exit(full.exit_code)
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
