"""Rights and API tokens on the command line; what it writes says that no caller was verified."""

from __future__ import annotations

from pathlib import Path

from tests.cli.inside import Inside
from tests.cli.realm import FOUND
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import UNAUTHENTICATED
from worldprotocol.api.callers.access import verify_token
from worldprotocol.api.realm import Realm


def test_rights_and_tokens_are_granted_listed_and_revoked(tmp_path: Path) -> None:
    realm = Inside(tmp_path)
    realm(*FOUND)
    realm("actor", "add", "bot", "--kind", "agent", "--auto-approve")
    assert realm("rights", "list", "--json").json == []
    assert realm("rights", "grant", "bot", "actor").out == "bot has the right actor.\n"
    assert realm("rights", "grant", "bot", "actor").out == "bot has the right actor already.\n"
    realm("rights", "grant", "bot", "reader", "--redact", "inputs")
    assert "INVALID_REDACTION" in realm("rights", "grant", "bot", "reader", "--redact", "all", code=2).err
    assert "UNKNOWN_ACTOR" in realm("rights", "grant", "nobody", "actor", code=1).err
    assert "INVALID_VALUE" in realm("rights", "grant", "bot", "actor", "--redact", "inputs", code=2).err
    shown = realm("rights", "list", "--json").json
    assert [(one["actorId"], one["right"], one["redaction"]) for one in shown] == [
        ("bot", "actor", None),
        ("bot", "reader", ["inputs"]),
    ]
    useless = realm("token", "create", "--actor", "bot", "--can", "actor", "--can", "auditor")
    assert "bot does not have the right auditor yet; `worldctl rights grant bot auditor` grants it." in useless.err
    several = realm("token", "create", "--actor", "bot", "--can", "auditor", "--can", "approver")
    assert (
        "does not have the rights auditor, approver yet; `worldctl rights grant bot RIGHT` grants each." in several.err
    )
    for one in realm("token", "list", "--json").json:
        realm("token", "revoke", one["tokenId"], "--reason", "useless")
    said = realm("token", "create", "--actor", "bot", "--can", "actor", "--days", "1", "--json")
    assert "does not have" not in said.err
    made = said.json
    with Realm.open_read_only(tmp_path / "world.db") as reading:
        assert verify_token(reading.realm(), made["token"], made["expiresAt"] - 1).actor_id == "bot"
    (listed,) = realm("token", "list", "--json").json
    assert (listed["tokenId"], listed["can"]) == (made["tokenId"], ["actor"])
    assert made["token"] not in realm("token", "list").out
    realm("token", "revoke", made["tokenId"], "--reason", "lost")
    assert realm("token", "list", "--json").json == []
    assert "UNKNOWN_TOKEN" in realm("token", "revoke", made["tokenId"], "--reason", "again", code=1).err
    realm("rights", "revoke", "bot", "actor", "--reason", "over")
    assert "RIGHT_NOT_GRANTED" in realm("rights", "revoke", "bot", "actor", "--reason", "over", code=1).err
    realm("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}')
    realm("lease", "acquire", "--agent", "bot", "--session", "s", "FILE:/a")
    assert realm("verify").code == 0
    with Realm.open_read_only(tmp_path / "world.db") as reading:
        events = [event for _, event in reading.events()]
    assert [one.verified for one in events if isinstance(one, ProposalSubmitted)] == [UNAUTHENTICATED]
    direct = [one for one in events if isinstance(one, VerdictGiven) and one.session_id == "s"]
    assert [one.verified for one in direct] == [UNAUTHENTICATED]
