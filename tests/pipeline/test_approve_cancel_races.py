"""An approval and a cancellation that race: each proposal ends in one way, and no effect is made twice."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from host import handler
from tests.pipeline.works import check_log
from world.core import load_domain
from world.errors import RefusedError
from worldprotocol.api.realm import Realm

ROUNDS = 150
MAIL = {"kind": "effect", "type": "mail.send", "params": {"to": {"kind": "get", "path": "input.to"}}}
DOMAIN: dict[str, Any] = {
    "version": "1.0.0",
    "id": "urn:test:races",
    "state": {"fields": {"sent": {"type": "number", "required": True, "default": 0}}},
    "computed": {"fields": {}},
    "actions": {
        "mail": {
            "input": {"type": "object", "fields": {"to": {"type": "string", "required": True}}},
            "manifest": [{"predicate": "MUTATES", "resource": "URL:https://mail.example/inbox"}],
            "flow": MAIL,
        },
    },
}


@pytest.mark.requirement("WP-fsm", "HC-compute")
@pytest.mark.slow
def test_an_approval_and_a_cancellation_at_once_give_one_end_and_at_most_one_effect(tmp_path: Path) -> None:
    address, sent = str(tmp_path / "w.db"), Counter[str]()

    @handler("mail.send", touches=[("MUTATES", "URL:https://mail.example/inbox")])
    def send(params: Any, call: Any) -> Any:
        sent[params["to"]] += 1
        return "sent"

    domain = load_domain(DOMAIN)
    with (
        Realm.create(address, domain=domain, effects=[send]) as first,
        Realm.open(address, domain=domain, effects=[send]) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        first.register("bot", "agent", binding={"kind": "hitl", "ask": ["ann"]})
        first.register("ann", "human", binding={"kind": "auto_approve"})
        ends = Counter[tuple[str, bool]]()
        for number in range(ROUNDS):
            asked, barrier = first.act("bot", "mail", {"to": str(number)}), Barrier(2)

            def approve(name: str = asked.proposal_id, start: Barrier = barrier) -> None:
                start.wait()
                try:
                    first.decide(name, "approve", by="ann")
                except RefusedError as refused:
                    assert refused.code == "NOT_WAITING"  # noqa: PT017  # withdrawn before

            def cancel(name: str = asked.proposal_id, start: Barrier = barrier, tries: int = number % 6) -> bool:
                start.wait()
                for _ in range(tries):
                    try:
                        second.host.cancel(name, by="ann", reason="not needed")
                    except RefusedError as refused:
                        assert refused.code == "NOT_RUNNING"  # noqa: PT017  # being decided, or over
                    else:
                        return True
                return False

            approving, cancelling = threads.submit(approve), threads.submit(cancel)
            approving.result()
            was_cancelled = cancelling.result()
            first.settle()
            ended = first.proposal(asked.proposal_id)
            ends[ended.status, was_cancelled] += 1
            code = None if ended.error is None else ended.error.code
            assert (ended.status, code) in {("completed", None), ("failed", "CANCELLED"), ("superseded", None)}
            assert sent[str(number)] <= {"completed": 1, "failed": 1, "superseded": 0}[ended.status]
            assert ended.status != "completed" or sent[str(number)] == 1
            assert was_cancelled == (ended.status != "completed")
    assert ends.total() == ROUNDS
    assert ends["completed", False]  # either of them was first at times
    assert ends["superseded", True] + ends["failed", True]
    check_log(address, domain=domain)
