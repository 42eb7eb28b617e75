"""The command line: which commands there are, and how errors become exit codes."""

import sys
import traceback
from typing import Annotated, NoReturn

import typer

from chunkscope import __version__, console
from chunkscope.commands.analyze import analyze
from chunkscope.commands.recommend import recommend
from chunkscope.errors import EXIT_BUG, ChunkscopeError

EXIT_INTERRUPTED = 130

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich is slow to load, and --help is often typed
    pretty_exceptions_enable=False,
    help="How long evaluation prompts really are, and the vLLM settings that follow.\n\n"
    "Example: chunkscope analyze sample_data/",
)
app.command()(analyze)
app.command()(recommend)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chunkscope {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version_wanted: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run a command. The one place where errors become a sentence and an exit code."""
    try:
        app(standalone_mode=True)
    except ChunkscopeError as error:
        console.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        console.say("interrupted; datasets that were finished are kept for the next run")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain again while closing stdout.
        sys.stderr.close()
        sys.exit(0)
    except Exception:
        traceback.print_exc()
        console.say("\nerror: this is a bug in chunkscope; please report it with the lines above")
        sys.exit(EXIT_BUG)
    sys.exit(0)
