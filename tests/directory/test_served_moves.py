"""A running server follows its realm from a file to PostgreSQL, and on to another PostgreSQL server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.server_faults.test_moved_realms import CLIENTS, EACH, Clients, check, order, placed
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_server_follows_moves_between_postgresql_servers_under_load(places: tuple[str, str], tmp_path: Path) -> None:
    with placed(tmp_path) as (served, directory), ThreadPoolExecutor(CLIENTS + 1) as pool:
        clients, upto = Clients(served), threading.Event()
        try:
            reader = pool.submit(clients.read, upto)
            writers = [pool.submit(clients.write, number) for number in range(CLIENTS)]
            clients.wait_for(EACH * CLIENTS)
            for place in places:
                directory.move("main", place, by="ann")
                clients.wait_for(EACH * CLIENTS)
            upto.set()
            clients.wait_for(1)
        finally:
            clients.is_over = True
            upto.set()
        for writer in writers:
            writer.result(PATIENCE_S)
        assert order(served, "last").status_code == 200
        reader.result(PATIENCE_S)
        assert clients.unexpected == []
        assert clients.seen == list(range(1, len(clients.seen) + 1))
        check(places[1], clients.acknowledged, served)
