"""A process that takes a backup or rolls back is killed before every change it makes: nothing is lost or half done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.requirement("KO-3.3", "KO-7")
def test_killed_at_any_point_a_backup_is_whole_or_absent_and_a_rollback_is_finished(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("backup_crashes.py")), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["takes"] > 30
    assert told["restores"] > 30
    assert told["again"] > 10
