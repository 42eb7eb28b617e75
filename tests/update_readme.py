"""Put what the commands print today into the console blocks of the README and the manual.

python tests/update_readme.py
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
GUIDE = REPOSITORY / "chunkscope" / "guide"
# In the order of reading: a command finds the artefacts of those before it.
DOCUMENTS = (
    REPOSITORY / "README.md",
    *(GUIDE / f"{name}.md" for name in ("analyze", "formats", "prefixes", "recommend", "memory")),
    *(GUIDE / f"{name}.md" for name in ("simulate", "verify", "doctor", "report", "gate")),
    *(GUIDE / f"{name}.md" for name in ("python", "config", "cluster", "demo", "security")),
)
MEASURED = "chunkscope demo"  # its times differ each time, and it needs torch
BLOCK = r"```console\n\$ (.+)\n((?:.*\n)*?)```"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkout = make_checkout(Path(folder))
        in_bash("chunkscope analyze sample_data/", checkout).check_returncode()  # taken for granted

        def run(block: re.Match[str]) -> str:
            if block[1] == MEASURED and not find_spec("torch"):
                return block[0]
            done = in_bash(block[1], checkout)
            done.check_returncode()
            return f"```console\n$ {block[1]}\n{printed(done)}```"

        for document in DOCUMENTS:
            document.write_text(re.sub(BLOCK, run, document.read_text()))


def make_checkout(folder: Path) -> Path:
    """What their commands find: the data, measurements, and logs of a harness and of vLLM."""
    shutil.copytree(REPOSITORY / "sample_data", folder / "sample_data")
    for name in ("example", "h200"):
        shutil.copytree(REPOSITORY / "reports" / name, folder / "reports" / name)
    shutil.copytree(REPOSITORY / "reports" / "example" / "lm_eval", folder / "log" / "results")
    log = REPOSITORY / "tests" / "diagnosis" / "logs" / "vllm-0.28-cpu-kv-bound.log"
    shutil.copy(log, folder / "vllm.log")
    return folder


def in_bash(line: str, checkout: Path) -> "subprocess.CompletedProcess[str]":
    """Run it as it stands there; what is about results/ leaves the other reports alone."""
    here = f'chunkscope() {{ {shlex.quote(sys.executable)} -m chunkscope "$@"; }}\n'
    here += "" if shutil.which("jq") else "jq() { cat; }\n"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", here + line],
        cwd=checkout / "log" if "results/" in line else checkout,
        env=environment(checkout),
        capture_output=True,
        text=True,
        check=False,
    )


def environment(checkout: Path) -> dict[str, str]:
    return {
        **os.environ,
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONPATH": str(REPOSITORY),
        "CHUNKSCOPE_CACHE_DIR": str(checkout / "cache"),
    }


def printed(done: "subprocess.CompletedProcess[str]") -> str:
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


if __name__ == "__main__":
    main()
