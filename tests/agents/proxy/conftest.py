"""One server for all tests of the proxy in a process: a realm whose policy decides on the tools of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.proxy.proxied import governed
from tests.server.served import Served


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The running server."""
    with governed(tmp_path_factory.mktemp("proxied")) as running:
        yield running
