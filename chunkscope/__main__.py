"""`chunkscope` and `python -m chunkscope`, which answer Ctrl-C from the start."""

import atexit
import os
import sys


def main() -> None:
    """Run a command; Ctrl-C is caught while the commands load, too."""
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        _end()
    from chunkscope.cli import main as run

    try:
        run()
    except SystemExit as ended:
        # Not Python's own end, which frees every object first: up to a tenth of the
        # time.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        if isinstance(ended.__context__, BrokenPipeError):
            os._exit(0)  # nobody read --help to its end, for which typer says 1
        os._exit(int(ended.code or 0))


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
