"""Ask a harness what its tasks would send, and write that down as the harness's own log.

    python chunkscope_tasks.py FOLDER

FOLDER/asked.json says what is wanted. The logs go to FOLDER, and FOLDER/outcome.json says which
they are, or what went wrong. When stdin ends (it does when chunkscope is gone, however it went),
everything in this process group ends too.
"""

import importlib
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

HARNESSES = {"lm-eval": "chunkscope_lm_eval", "inspect": "chunkscope_inspect"}


class CannotRender(Exception):  # noqa: N818  (nothing is broken)
    """What was asked for cannot be had: a sentence, and what to do about it."""

    def __init__(self, message: str, hint: "str | None" = None) -> None:
        super().__init__(message)
        self.outcome: dict[str, Any] = {"refused": message, "hint": hint}


class Loading:
    """`datasets.load_dataset`, watched: a set that cannot be had is no mistake in a task."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.path: Any = None
        self.name: Any = None

    def watch(self) -> None:
        try:
            import datasets
        except ImportError:
            return  # whoever needs it will say so
        load = datasets.load_dataset

        def load_dataset(*args: Any, **kwargs: Any) -> Any:
            try:
                return load(*args, **kwargs)
            except Exception as error:
                given = {**dict(zip(("path", "name"), args)), **kwargs}
                self.error, self.path, self.name = error, given.get("path"), given.get("name")
                raise

        datasets.load_dataset = load_dataset


def main() -> None:
    folder = Path(sys.argv[1])
    end_with_parent()
    asked = json.loads((folder / "asked.json").read_bytes())
    outcome = answer(asked, folder)
    whole = folder / "outcome.part"
    whole.write_text(json.dumps(outcome), encoding="utf-8")
    whole.replace(folder / "outcome.json")
    sys.stdout.flush()
    os._exit(0)  # threads of a task may still be waiting for something


def answer(asked: "dict[str, Any]", folder: Path) -> "dict[str, Any]":
    loading = Loading()
    try:
        loading.watch()
        harness = importlib.import_module(HARNESSES[asked["harness"]])
        return dict(harness.render(asked, folder))
    except CannotRender as refused:
        return refused.outcome
    except BaseException as error:  # a task may raise anything, SystemExit too
        traceback.print_exc()
        return explained(error, loading)


def end_with_parent() -> None:
    held = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a task that reads from it gets nothing

    def wait() -> None:
        while os.read(held, 1):
            pass
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def explained(error: BaseException, loading: Loading) -> "dict[str, Any]":
    """What a task raised: its last line and its place, or what it would need."""
    causes = [error]
    while following := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(following)
        if len(causes) > 100:
            break
    said = traceback.format_exception_only(type(error), error)[-1].strip()
    if loading.error in causes:
        return {"dataset": str(loading.path), "config": loading.name, "said": str(loading.error)}
    for cause in causes:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            return {"package": cause.name.partition(".")[0], "said": said}
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else None
    return {"raised": said, "place": place}


if __name__ == "__main__":
    # The parts say `from chunkscope_tasks import CannotRender`, and must get this very class.
    sys.modules["chunkscope_tasks"] = sys.modules["__main__"]
    main()
