"""A release that is announced in a process that is killed between sending the mail and recording that it was sent.

    python -m examples.repository.announcing FOLDER

The scheduler proposes the announcement, and the maintainer approves it. Its effect is not idempotent, so no process
repeats it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.repository.history import read_sessions
from examples.repository.importing import SCHEDULER, Import
from examples.repository.killing import ROOT
from examples.repository.rules import MAINTAINER

RELEASE: Final = "3.2"
"""The release that is announced."""


def announce_and_die(folder: Path) -> None:
    """Announce the release of a folder's world in a process of its own, which does not survive it.

    Args:
        folder: holds the world.

    Raises:
        RuntimeError: the process was not killed while it sent the mail.
    """
    command = [sys.executable, "-m", "examples.repository.announcing", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, check=False).returncode
    if ended != -signal.SIGKILL:
        raise RuntimeError(f"The process that announces the release ended by itself with {ended}.")


def main(arguments: Sequence[str]) -> int:
    """Announce the release in the world of a folder; the mail is the last thing that this process does."""
    (folder,) = arguments
    running = Import(Path(folder), read_sessions(1), sent=lambda: os.kill(os.getpid(), signal.SIGKILL))
    with running.realm as realm:
        at = running.clock.now_ms()
        running.ids.about(f"release-{RELEASE}")
        asked = realm.act(SCHEDULER, "release.announce", {"version": RELEASE, "at": at}, note="after the last branch")
        realm.decide(asked.proposal_id, "approve", by=MAINTAINER, reason="all of it is in")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
