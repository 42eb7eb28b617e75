"""A pytest plugin that takes away what Windows lacks (and macOS does in another way).

`pytest -p tests.without_posix ...`: no fork, no process groups, no limits of the kernel, no file
locks, and new processes are spawned.
"""

import multiprocessing
import os
import signal
import sys

ATTRIBUTES = ("fork", "forkpty", "killpg", "getpgid", "setsid", "getpgrp", "geteuid",
              "sched_getaffinity", "mkfifo", "wait4", "nice")  # fmt: skip
SIGNALS = ("SIGKILL", "SIGPROF", "SIGXCPU", "SIGHUP", "SIGALRM", "setitimer", "alarm")
MODULES = ("fcntl", "resource", "pwd", "grp", "termios")


def take_away() -> None:
    # Libraries decide when they are loaded what there is: those that the tests use are first.
    import datasets  # noqa: F401
    import pytest  # noqa: F401

    multiprocessing.set_start_method("spawn", force=True)
    for name in ATTRIBUTES:
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        if hasattr(signal, name):
            delattr(signal, name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    assert not [name for name in sys.modules if name.startswith("chunkscope.")]


take_away()
