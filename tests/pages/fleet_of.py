"""Founds the realm of ``tests.pages.fleet`` with a history: worlds on two branches, waiting people, a doubt, leases."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.pages.fleet import fleet, handlers, house
from tests.server.served import Place
from world.clock import ManualClock
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

FLEET = Path(__file__).resolve().parent / "fleet.py"
POLICY = {"kind": "policy_rules", "policy": "house", "timeoutMs": 7_200_000, "onTimeout": "reject"}
THEN = {**POLICY, "then": [{"ask": ["eve"], "timeoutMs": None}]}
ACTORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ann": ("human", ("approver", "reader", "operator", "actor", "auditor")),
    "bob": ("human", ("approver", "reader")),
    "eve": ("human", ("approver", "reader")),
    "dev": ("human", ("actor", "approver", "reader")),
    "nil": ("human", ("reader",)),
    "rollout-bot": ("agent", ("actor",)),
    "cleanup-bot": ("agent", ("actor",)),
    "support-bot": ("agent", ("actor",)),
    "payer": ("agent", ("worker",)),
}
ADMINISTRATORS = "operator ann"
MINUTE = 60_000
BEFORE = (
    "The checkout is moved to new machines on Tuesday at 09:00. Orders that are placed during the move may be "
    "confirmed later than usual. Write to support if an order is missing after one hour."
)
AFTER = (
    "The checkout is moved to new machines on Thursday at 11:00. Orders that are placed during the move may be "
    "confirmed up to two hours later than usual. Write to support if an order is missing after three hours."
)


def deployment(service: str, replicas: int, **more: Any) -> dict[str, Any]:
    """Return the input of a deployment."""
    return {"service": service, "image": f"registry/{service}:1.{replicas}", "replicas": replicas, **more}


def founded_fleet(folder: Path, server: str = "burst = 10000\nrequests_per_second = 10000") -> Place:
    """Found the realm, three hours ago, and write its configuration.

    Args:
        folder: where log and configuration go.
        server: lines of the section ``[server]``.
    """
    place = Place(folder, str(folder / "world.db"))
    clock = ManualClock(time.time_ns() // 1_000_000 - 180 * MINUTE, step_ms=40)
    limits = Limits(klis=KlisSettings.read({"administrators": ADMINISTRATORS}))
    options: dict[str, Any] = {"policies": [house], "effects": handlers, "limits": limits, "clock": clock}
    with Realm.create(place.log, domain=fleet, **options) as realm:
        for name, (kind, rights) in ACTORS.items():
            binding: Any = POLICY if kind == "agent" or name == "dev" else {"kind": "auto_approve"}
            binding = THEN if name == "support-bot" else binding
            realm.register(name, kind, binding=binding)  # type: ignore[arg-type]
            for right in rights:
                realm.access.grant(name, right, by="operator")  # type: ignore[arg-type]
            place.tokens[name] = realm.access.create_token(name, by="operator").token
        _worlds(realm, clock)
        _doubt(realm, clock)
        _waiting(realm, clock)
        _leases(realm, clock)
    (folder / "world.toml").write_text(
        f"log = {json.dumps(place.log)}\ndomain = '{FLEET}:fleet'\npolicies = ['{FLEET}:house']\n"
        f"effects = ['{FLEET}:handlers']\n[klis]\nadministrators = '{ADMINISTRATORS}'\n[server]\n{server}\n",
        encoding="utf-8",
    )
    return place


def _worlds(realm: Realm, clock: ManualClock) -> None:
    """Deploy services on ``main``, and others on ``canary``."""
    for service, replicas in (("checkout", 2), ("search", 3), ("mail", 1), ("search", 5)):
        notice = BEFORE if service == "checkout" else ""
        realm.act("rollout-bot", "service.deploy", deployment(service, replicas, notice=notice))
        clock.advance(3 * MINUTE)
    realm.create_branch("canary", by="ann")
    for service, replicas in (("search", 4), ("recommendations", 2)):
        realm.act("rollout-bot", "service.deploy", deployment(service, replicas), branch="canary")
        clock.advance(2 * MINUTE)
    realm.act("rollout-bot", "service.deploy", deployment("mail", 2))
    realm.act("rollout-bot", "service.deploy", deployment("mail", 3, region="moon"))
    clock.advance(5 * MINUTE)


def _doubt(realm: Realm, clock: ManualClock) -> None:
    """Have a refund approved and claimed by a worker that never reports: its effect is in doubt once opened again."""
    asked = realm.act("support-bot", "refund.pay", {"order": "A-1041", "cents": 12_900}, scope=["refunds.A-1041"])
    clock.advance(4 * MINUTE)
    realm.decide(asked.proposal_id, "approve", by="ann", reason="the parcel came back")
    assert realm.claim_effect({"bank.pay"}, worker="payer-1") is not None
    clock.advance(60 * MINUTE)
    realm.settle()


def _waiting(realm: Realm, clock: ManualClock) -> None:
    """Ask people about a retirement with votes, a deployment and a refund."""
    retired = realm.act(
        "cleanup-bot", "service.retire", {"service": "checkout"}, scope=["services.checkout", "notices.checkout"]
    )
    clock.advance(MINUTE)
    realm.decide(retired.proposal_id, "approve", by="bob", reason="the traffic moved last week")
    realm.decide(retired.proposal_id, "ask", by="eve", reason="Which service answers the old addresses?")
    clock.advance(40 * MINUTE)
    realm.act(
        "rollout-bot",
        "service.deploy",
        deployment("checkout", 12, region="eu-north", notice=AFTER),
        scope=["services.checkout", "notices.checkout"],
        note="asked for by the release calendar",
    )
    clock.advance(20 * MINUTE)
    realm.act("support-bot", "refund.pay", {"order": "A-1077", "cents": 4_999}, scope=["refunds.*"])


def _leases(realm: Realm, clock: ManualClock) -> None:
    """Let three sessions hold files and one wait behind them."""
    desk = realm.leases.desk

    def manifest(agent: str, session: str, *places: tuple[str, str]) -> dict[str, Any]:
        scope = [{"predicate": predicate, "resource": resource} for predicate, resource in places]
        return {"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope}

    long = 86_400_000
    old = manifest("ann", "review", ("CONSUMES", "FILE:/docs/plan.md"))
    desk.request(old, by="ann", ttl_ms=long)
    desk.request(manifest("bob", "edit", ("MUTATES", "FILE:/src/search.py")), by="bob", ttl_ms=long)
    desk.request(manifest("eve", "read", ("CONSUMES", "FILE:/docs/plan.md")), by="eve", ttl_ms=long)
    desk.request(manifest("ann", "rename", ("MUTATES", "FILE:/src/search.py")), by="ann", queue=True, ttl_ms=long)
    desk.request(manifest("eve", "late", ("MUTATES", "FILE:/src/search.py")), by="eve", queue=True, ttl_ms=long)
