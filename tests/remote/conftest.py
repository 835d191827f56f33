"""The realm that the tests of one module share, used in each way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.remote.yards import KINDS, Yard, yard_of


@pytest.fixture(scope="module", params=KINDS)
def yard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Return a realm, on this machine or on a server."""
    with yard_of(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened
