"""Founds a kiosk with a history for auditors: versions of a policy, judged cases, keys and governed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.realm import CliRealm
from tests.server.kiosk import handlers, kiosk
from tests.server.served import Place, Served, founded
from worldprotocol.api.realm import Realm
from worldprotocol.cli.commands.lease.klis import public_key

RULES = """\
name = "house"
[[rules]]
id = "tea_only"
verdict = "reject"
when = 'intent.input.item != "tea"'
reason = "the kiosk has {limit} kinds of tea"
[[rules]]
id = "rest"
verdict = "approve"
"""
KEY = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
"""A public key of Ed25519 (RFC 8032, section 7.1, test 2, with another last byte)."""

SCOPE = {"allowedPaths": ["orders"]}


def worldctl(place: Place) -> CliRealm:
    """Return the command line in the folder of a realm."""
    return CliRealm(place.folder)


def founded_audited(folder: Path, server: str = "") -> Place:
    """Found the realm and write its configuration.

    Args:
        folder: where it goes.
        server: lines of the section ``[server]``.
    """
    place = founded(folder, server=server)
    config = folder / "world.toml"
    config.write_text(f"policies = ['{folder}/rules.toml']\n{config.read_text()}")
    rules = folder / "rules.toml"
    for limit in (2, 3):
        rules.write_text(RULES.replace("{limit}", str(limit)))
        with Realm.open(place.log, domain=kiosk, effects=handlers, policies=[str(rules)], on_change="hold") as realm:
            realm.adopt_policy("house", by="operator")
            if limit == 3:
                realm.register("pol", "agent", binding={"kind": "policy_rules", "policy": "house"}, name="Pol")
                for right in ("actor", "reader"):
                    realm.access.grant("pol", right, by="operator")
                place.tokens["pol"] = realm.access.create_token("pol", by="operator").token
                key = realm.leases.desk.register_key("bot", public_key(KEY), by="operator")
                realm.leases.desk.revoke_key(key, by="operator", reason="lost")
    return place


def ordered(served: Served, actor: str, item: str, number: str, **query: Any) -> dict[str, Any]:
    """Submit an order as an actor and return its proposal."""
    body = {"type": "order.place", "input": {"item": item, "number": number}, "scopeProposal": SCOPE}
    answer = served.submit(actor, body, **query)
    assert answer.status_code in (200, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found
