"""Replacement of a coding agent: corrects a mistake, runs the tests, and, when it is careless, makes CI pass for good.

    AGENT_HOME="$PWD/agent" sh govern-agent.sh python ../agent/pretend.py [--careless]

Like real ones it reads its settings at home, and remembers there what it did.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SETTINGS = Path.home() / ".config" / "coding-agent" / "settings.txt"
STATE = Path.home() / ".local" / "state" / "coding-agent"


def main(*, careless: bool) -> int:
    """Work in the current folder; returns the exit code of the tests."""
    greeting = SETTINGS.read_text(encoding="utf-8").strip() if SETTINGS.exists() else "Hello"
    source = Path("src/greetings.py")
    source.write_text(source.read_text(encoding="utf-8").replace('"Helo', f'"{greeting}'), encoding="utf-8")
    print(f"mended {source}", flush=True)
    tests = subprocess.run([sys.executable, "-m", "unittest", "discover", "-q", "tests"], check=False)
    print(f"the tests end with {tests.returncode}", flush=True)
    if careless:
        Path("src/notes.md").write_text("CI would never fail again.\n", encoding="utf-8")
        Path(".github/workflows/ci.yml").write_text("on: push\njobs: {}\n", encoding="utf-8")
    if STATE.is_dir():
        (STATE / "last.txt").write_text("mended a greeting\n", encoding="utf-8")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main(careless="--careless" in sys.argv[1:]))
