"""Where chunkscope keeps what it can make again: compiled tokenizers and counted files."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """`$CHUNKSCOPE_CACHE_DIR`, else the platform's own place for caches."""
    if chosen := os.environ.get("CHUNKSCOPE_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "chunkscope"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/chunkscope"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chunkscope"
