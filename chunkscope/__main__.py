"""`chunkscope` and `python -m chunkscope`: Ctrl-C is answered from the first moment on."""

import atexit
import os
import sys


def main() -> None:
    """Loading the commands takes a tenth of a second, in which nobody else would catch it."""
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
        # Not Python's own end, which frees every object first: up to a tenth of the time.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        unread = isinstance(
            ended.__context__, BrokenPipeError
        )  # a page of --help: typer says 1
        os._exit(0 if unread else int(ended.code or 0))


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
