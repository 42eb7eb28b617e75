"""The reference engine in a process of its own: counts one list of texts from stdin.

Loading it holds the interpreter lock for a third of a second. Done here, that happens on another
core while the main process already counts with a fast engine.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from chunkscope.tokenizers.compiled import Compiled


class ReferenceProcess:
    """Started early, asked once at the end."""

    def __init__(self, compiled: "Compiled") -> None:
        package_home = str(Path(__file__).resolve().parents[2])
        paths = [package_home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "chunkscope.tokenizers.worker", compiled.form,
             str(compiled.folder), compiled.pattern],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Its own session: Ctrl-C is for the main process, which closes this one.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RAYON_NUM_THREADS": "1"},
        )  # fmt: skip

    def count(self, texts: list[str]) -> list[int] | None:
        """The counts, or None when the process did not live to tell."""
        try:
            answer, _ = self._process.communicate(orjson.dumps(texts))
            counts: list[int] = orjson.loads(answer)
        except (OSError, ValueError):
            return None
        return counts

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def main(form: str, folder: str, pattern: str) -> None:
    from chunkscope.tokenizers.compiled import Compiled
    from chunkscope.tokenizers.engines import reference

    compiled = Compiled(key="worker", folder=Path(folder), files=(), form=form, pattern=pattern)
    engine = reference(compiled)
    texts = orjson.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(orjson.dumps(engine.count(texts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
