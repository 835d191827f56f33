"""Fixtures of the tests of feeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.feeds.feeding import SECRET, Feeding, feeding


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feeding]:
    """Return a new realm, and set the secret of its feeds."""
    monkeypatch.setenv("FEED_HOOK", SECRET)
    with feeding(tmp_path) as made:
        yield made
