"""The program of docs/developer.md that connects to a server runs, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import blocks
from tests.server.served import founded, serving
from world.events.verification import Right
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "developer.md"
NEEDS: tuple[Right, ...] = ("actor", "reader")


def test_the_program_of_the_page_for_developers_runs(tmp_path: Path) -> None:
    [program] = [one.text for one in blocks(PAGE) if one.mark == "file: order_tea.py"]
    place = founded(tmp_path)
    with Realm.open(place.log, domain="tests.server.kiosk:kiosk", on_change="hold") as realm:
        realm.access.grant("kid", "reader", by="operator")
    with serving(place) as served:
        given = os.environ | {"REALMS": served.url, "REALMS_TOKEN": place.tokens["kid"]}
        done = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("completed {'one': 'tea'}\n", "")
