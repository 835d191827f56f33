"""An import in a process of its own that is killed with SIGKILL in the middle."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from examples.repository.importing import Progress

ROOT: Final = Path(__file__).parents[2]


def kill_import(folder: Path, *, branches: int, after: int, progress: Progress | None = None) -> int:
    """Start an import and kill it as soon as it has reported so many branches; it gets no time to clean up.

    Args:
        folder: where it imports to.
        branches: how many it would import.
        after: how many it may finish, at the least.
        progress: called with the numbers of imported branches and of all branches.

    Returns:
        The number of branches that it had reported before.

    Raises:
        RuntimeError: when it ended by itself before it could be killed.
    """
    command = [sys.executable, "-m", "examples.repository.importing", str(folder), str(branches)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        rendered = 0
        for line in child.stdout:
            rendered = int(line)
            if progress is not None:
                progress(rendered, branches)
            if rendered >= after:
                child.send_signal(signal.SIGKILL)
                break
        for line in child.stdout:
            rendered = int(line)
    if child.returncode != -signal.SIGKILL:
        raise RuntimeError(f"The import ended by itself with {child.returncode} after {rendered} branches.")
    return rendered
