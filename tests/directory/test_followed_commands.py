"""Threads of a process that follows a move: each command goes on at the new place, whoever follows first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.directory.yard import NAME, create, opened, yard
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import WaitTimeoutError
from worldprotocol import handler
from worldprotocol.directory.directory import RealmDirectory


def test_a_command_waits_for_the_end_of_a_move(directory: RealmDirectory, tmp_path: Path) -> None:
    done: list[str] = []

    with create(directory, tmp_path / "a.db") as realm:

        def act() -> None:
            done.append(realm.act("a0", "count", {"who": "a0"}).status)

        acting = threading.Thread(target=act)

        def on_step(step: str) -> None:
            if step == "closed":
                acting.start()

        directory.move(NAME, tmp_path / "b.db", on_step=on_step)
        acting.join(PATIENCE_S)
        assert done == ["completed"]
        assert realm.log.address.path == str(tmp_path / "b.db")


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_effect_that_ends_after_the_old_place_was_closed_is_taken_over(
    directory: RealmDirectory, tmp_path: Path, idempotent: bool
) -> None:
    """Its result cannot be recorded: it is made again, or is in doubt, as after the end of its process."""
    made: list[str] = []

    @handler("mail.send", time_limit_ms=60_000, idempotent=idempotent)
    def moving_mail(params: Any, call: Any) -> Any:
        made.append(params["text"])
        if len(made) == 1:
            with RealmDirectory.open(tmp_path / "directory.db") as other:
                other.move(NAME, tmp_path / "b.db")
        return {"ok": True}

    create(directory, tmp_path / "a.db").close()
    with directory.realm(NAME, domain=yard, effects=[moving_mail]) as realm:
        proposal = realm.act("ann", "send", {"text": "hello"})
        assert realm.log.address.path == str(tmp_path / "b.db")
        assert made == ["hello"] * (2 if idempotent else 1)
        assert realm.proposal(proposal.proposal_id).status == ("completed" if idempotent else "executing")
        assert len(realm.host.stuck()) == (0 if idempotent else 1)
        assert verify(realm.log).findings == ()


def test_a_wait_goes_on_at_the_new_place(directory: RealmDirectory, tmp_path: Path) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        asked = realm.act("kid", "count", {"who": "kid"})
        ended: list[str] = []
        waiting = threading.Thread(target=lambda: ended.append(realm.wait(asked, PATIENCE_S).status))
        waiting.start()
        directory.move(NAME, tmp_path / "b.db")
        with opened(directory) as other:
            other.decide(asked.proposal_id, "approve", by="ann")
        waiting.join(PATIENCE_S)
        assert ended == ["completed"]
        with pytest.raises(WaitTimeoutError):
            realm.wait(realm.act("kid", "count", {"who": "kid"}), 0.01)


def test_a_caller_whose_effect_waits_to_be_made_again_follows_a_move(directory: RealmDirectory, tmp_path: Path) -> None:
    """The command of another thread closes the writer that both used."""
    failed, ended = threading.Event(), list[Any]()

    @handler("mail.send", time_limit_ms=60_000, idempotent=True, retries=1, backoff_ms=3_600_000)
    def failing_mail(params: Any, call: Any) -> Any:
        failed.set()
        raise OSError("no answer")

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
