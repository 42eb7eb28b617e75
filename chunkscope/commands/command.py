"""A command as typer runs it: defaults from a file, help in groups, Ctrl-C."""

import os
import signal
from typing import Any

from typer.core import TyperCommand

from chunkscope import console
from chunkscope.commands.config import defaults
from chunkscope.errors import UsageError

EXIT_INTERRUPTED = 130
OTHER_OPTIONS = "Output"  # the group of options that name none, such as --help


class Command(TyperCommand):
    """A command whose options have defaults in chunkscope.toml."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "" in args:
            raise UsageError(
                "an argument is empty",
                hint="leave it out, or is a shell variable not set?",
            )
        is_help = "--help" in args or "-h" in args
        if not is_help and not ctx.resilient_parsing:
            ctx.default_map = defaults(ctx, self)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the options by group, in the order in which they are declared."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            names, _ = parameter.get_help_record(ctx) or ("", "")
            text = getattr(parameter, "help", "")
            group = getattr(parameter, "rich_help_panel", None) or OTHER_OPTIONS
            # An option that only switches off is listed as " / --no-prefixes".
            row = (names.removeprefix(" / "), text)
            groups.setdefault(group, []).append(row)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run it. On Ctrl-C it tidies up, says so, and ends."""
        # While the command was loading, Ctrl-C ended the process at once.
        if callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console.say("interrupted")
            # sys.exit would wait for threads, one of which may be waiting for a pipe.
            os._exit(EXIT_INTERRUPTED)
