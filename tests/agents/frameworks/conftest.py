"""The realm of a test, founded as the examples found theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.frameworks.desk import desk_realm
from worldprotocol.api.realm import Realm


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    """Return the realm of the service desk."""
    with desk_realm(tmp_path) as opened:
        yield opened
