"""Strangers' programs in processes of their own, where limits of time and memory hold.

A chat template runs under the interpreter's lock, and some libraries load tokenizers under it: no
thread of ours could stop them. A process of its own can be ended by the kernel, whatever it does.
Questions are pickled, answers are plain JSON: what runs in there is not trusted out here.

The limits are the kernel's, on Linux and (time only) macOS; elsewhere there are none.
"""

import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

import orjson

from chunkscope.errors import ChunkscopeError, InputError, MissingError, OverLimit

_QUESTION = struct.Struct("<QdQ")  # its size, then the limits
_ANSWER = struct.Struct("<Q")
_CHILD = """
import sys
sys.path[:] = sys.argv[2:]
from chunkscope.tokenizers.confined import serve
serve(sys.argv[1])
"""


class Limits(NamedTuple):
    """Seconds of computing, and bytes of memory, for one answer."""

    seconds: float
    memory: int


class Confined:
    """Asks `module:function`. Threads that ask at the same time ask processes of their own."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._idle: list[_Child] = []

    def ask(self, question: Any, limits: Callable[[int], Limits], what: str) -> Any:
        """What the function answers; its own errors are raised here, and OverLimit.

        `limits` are for a question of so many bytes.
        """
        data = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        given = limits(len(data))
        try:
            child = self._idle.pop()
        except IndexError:
            child = _Child(self._work)
        answer = child.exchange(data, given)
        if answer is None:
            raise _why(child.end(), given, what)
        self._idle.append(child)
        kind, *rest = orjson.loads(answer)
        if kind == "memory":
            raise _too_large(given, what)
        if kind == "answer":
            return rest[0]
        error = MissingError if kind == "missing" else InputError
        raise error(rest[0], hint=rest[1])

    def end(self) -> None:
        """End the processes that nobody asks at the moment."""
        self._idle.clear()


def _too_large(limits: Limits, what: str) -> OverLimit:
    return OverLimit(
        f"{what} takes more than {limits.memory / (1 << 30):.1f} GiB of memory",
        hint="is it as it was published? Take another one",
    )


def _why(ended: "tuple[int, str]", limits: Limits, what: str) -> ChunkscopeError:
    code, said = ended
    hint = "is it as it was published? Take another one"
    if code in (-getattr(signal, "SIGPROF", 0), -getattr(signal, "SIGXCPU", 0)):
        return OverLimit(f"{what} takes longer than {limits.seconds:.0f} s", hint=hint)
    if code in (-signal.SIGABRT, -getattr(signal, "SIGKILL", 0)):  # how native code ends without
        return _too_large(limits, what)
    how = f"signal {-code}" if code < 0 else f"code {code}"
    return InputError(f"{what} ended the process it ran in ({how}): {said}", hint=hint)


class _Child:
    def __init__(self, work: str) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        self._process = subprocess.Popen(  # noqa: S603
            # -P: the current folder may be a stranger's, and hold a jinja2.py.
            [sys.executable, "-P", "-c", _CHILD, work, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._ended = weakref.finalize(self, _end, self._process, self._said)

    def exchange(self, question: bytes, limits: Limits) -> bytes | None:
        """The answer; None when the process ended instead."""
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            return None
        with suppress(OSError):
            to.write(_QUESTION.pack(len(question), *limits))
            to.write(question)
            to.flush()
            if len(head := back.read(_ANSWER.size)) == _ANSWER.size:
                (size,) = _ANSWER.unpack(head)
                if len(answer := back.read(size)) == size:
                    return answer
        return None

    def end(self) -> tuple[int, str]:
        """How it ended, and what it said last."""
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        self._ended()
        return code, next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _end(process: "subprocess.Popen[bytes]", said: BinaryIO) -> None:
    process.kill()
    with suppress(OSError):
        process.communicate()
    said.close()


# -- inside ----------------------------------------------------------------------------------------


def serve(work: str) -> None:
    """Answer until nobody asks any more."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: there is nothing to tidy up
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    module, _, name = work.partition(":")
    function = getattr(import_module(module), name)
    while len(head := questions.read(_QUESTION.size)) == _QUESTION.size:
        size, seconds, memory = _QUESTION.unpack(head)
        _limit(Limits(seconds, memory))
        answer = _answer(function, questions.read(size))
        _limit(None)
        answers.write(_ANSWER.pack(len(answer)))
        answers.write(answer)
        answers.flush()


def _answer(function: Callable[[Any], Any], question: bytes) -> bytes:
    try:
        return orjson.dumps(["answer", function(pickle.loads(question))])  # noqa: S301  (from us)
    except MemoryError:
        return orjson.dumps(["memory"])
    except ChunkscopeError as error:
        kind = "missing" if isinstance(error, MissingError) else "input"
        said = (error.message, error.hint)
        return orjson.dumps(
            [kind, *(text and text.encode(errors="replace").decode() for text in said)]
        )


def _limit(limits: Limits | None) -> None:
    """The kernel ends the process when it has computed for so long; memory is not to be had."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    signal.setitimer(signal.ITIMER_PROF, limits.seconds if limits else 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = limits.memory if limits else most
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)  # there may be less to begin with
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))
