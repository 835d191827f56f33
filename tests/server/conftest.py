"""A server that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.served import Served, founded, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a running server of a module's own."""
    folder: Path = tmp_path_factory.mktemp("served")
    limits = "max_wait_s = 2\nrequests_per_second = 10000\nburst = 10000\nmax_body_bytes = 100000"
    with serving(founded(folder, server=limits)) as running:
        yield running
