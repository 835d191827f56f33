"""Threads of a process that follows a move: each command goes on at the new place, whoever follows first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.directory.yard import NAME, create, yard
from tests.patience import PATIENCE_S
from worldprotocol import handler
from worldprotocol.directory.directory import RealmDirectory


def test_a_caller_whose_effect_waits_to_be_made_again_follows_a_move(tmp_path: Path) -> None:
    """The command of another thread closes the writer that both used."""
    failed, ended = threading.Event(), list[Any]()

    @handler("mail.send", time_limit_ms=60_000, idempotent=True, retries=1, backoff_ms=3_600_000)
    def failing_mail(params: Any, call: Any) -> Any:
        failed.set()
        raise OSError("no answer")

    with RealmDirectory.found(tmp_path / "directory.db", by="ann") as directory:
        create(directory, tmp_path / "a.db").close()
        with directory.realm(NAME, domain=yard, effects=[failing_mail]) as realm:
            sending = threading.Thread(target=lambda: ended.append(realm.act("ann", "send", {"text": "hello"})))
            sending.start()
            assert failed.wait(PATIENCE_S)
            directory.move(NAME, tmp_path / "b.db")
            realm.register("bob", "human")
            sending.join(PATIENCE_S)
            [proposal] = ended
            assert (proposal.status, realm.log.address.path) == ("executing", str(tmp_path / "b.db"))
