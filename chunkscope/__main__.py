"""`chunkscope` and `python -m chunkscope`, which answer Ctrl-C from the start."""

import os


def main() -> None:
    """Run a command; Ctrl-C is caught while the commands load, too."""
    try:
        import signal

        # A shell lets a command in the background ignore Ctrl-C, and so it does.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, end)
    except KeyboardInterrupt:
        end()
    from chunkscope.cli import main as run

    run()


def end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
