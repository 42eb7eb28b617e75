"""Put what the commands print today into the README's console blocks.

python tests/update_readme.py
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree

REPOSITORY = Path(__file__).parents[1]


def main() -> None:
    readme = REPOSITORY / "README.md"
    with tempfile.TemporaryDirectory() as folder:
        copytree(REPOSITORY / "sample_data", Path(folder) / "sample_data")

        def run(block: re.Match[str]) -> str:
            words = shlex.split(block[1])[1:]
            printed = subprocess.run(
                [sys.executable, "-m", "chunkscope", *words],
                cwd=folder,
                env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            lines = "".join(line.rstrip() + "\n" for line in printed.splitlines())
            return f"```console\n$ {block[1]}\n{lines}```"

        pattern = r"```console\n\$ (.+)\n(?:.*\n)*?```"
        readme.write_text(re.sub(pattern, run, readme.read_text()))


if __name__ == "__main__":
    main()
