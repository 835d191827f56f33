"""``--redact``: what is hidden is replaced by its leaf hash, what is shown is what was hashed, and proofs hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import CliRealm, founded
from world.log import TreeHead
from world.log.merkle import Frontier

LONG = ("--ttl-ms", "600000")
SECRETS = ("/secret/plan", "/secret/new", "/secret/tree")
RENAME = {
    "ver": "1.0", "session_id": "o2", "agent_id": "old",
    "scope": [{"predicate": "RENAMES", "resource": "FILE:/secret/plan", "to": "FILE:/secret/new"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    """A realm with leases, conflicts, a manifest that renames, and a request that waited."""
    realm = founded(tmp_path_factory.mktemp("redaction"), Inside)
    ask = ("lease", "acquire", "--session", "s", *LONG)
    (realm.folder / "rename.json").write_text(json.dumps(RENAME))
    realm("lease", "acquire", "--manifest", "@rename.json", "--by", "old", *LONG)
    realm(*ask, "FILE:/secret/tree/*", "--agent", "young")
    realm(*ask, "FILE:/secret/plan", "--agent", "young", code=1)
    realm(*ask, "FILE:/secret/tree/leaf", "--agent", "old", "--wait", "0.01", code=1)
    realm("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}')
    return realm


def folded(lines: list[Any]) -> TreeHead:
    frontier = Frontier().extended(bytes.fromhex(line["leaf"]) for line in lines if "leaf" in line)
    return TreeHead(frontier.size, frontier.root())


@pytest.mark.requirement("KM-7.3")
def test_the_redacted_log_has_no_path_in_text_or_json(realm: CliRealm) -> None:
    shown, full = realm("log", "--redact", "resources", "--json").lines, realm("log", "--json")
    texts = [realm("log", "--redact", "resources", *more).out for more in ((), ("--reverse",), ("--json",))]
    assert not any("secret" in out for out in texts)
    assert all(secret in full.out for secret in SECRETS)
    for told, whole in zip(shown, full.lines, strict=True):
        hidden = {"position": whole["position"], "leaf": whole["leaf"], "redacted": True}
        assert told == (hidden if "redacted" in told else whole)
    topics = [whole["topic"] for told, whole in zip(shown, full.lines, strict=True) if "redacted" in told]
    assert topics.count("verdict.given") == full.out.count('"topic":"verdict.given"')


@pytest.mark.requirement("KM-7.3", "CARD-audit")
@pytest.mark.parametrize("rules", [("resources",), ("inputs",), ("actors",), ("resources", "inputs", "actors")])
def test_the_heads_of_a_redacted_export_follow_from_its_leaves(realm: CliRealm, rules: tuple[str, ...]) -> None:
    options = [word for rule in rules for word in ("--redact", rule)]
    plain, hidden = realm("export").lines, realm("export", *options)
    assert hidden.lines[0] == plain[0] | {"redacted": sorted(rules)}
    for told, whole in zip(hidden.lines[1:], plain[1:], strict=True):
        assert told == (
            {"leaf": whole["leaf"], "position": whole["position"], "redacted": True} if "redacted" in told else whole
        )
    assert folded(hidden.lines) == TreeHead.from_hex(**plain[-1]["head"])
    (realm.folder / "hidden.jsonl").write_text(hidden.out)
    assert "sound" in realm("verify", "--against", "hidden.jsonl").out
    told = realm("verify", "hidden.jsonl", "--json").json
    assert told["ok"] is True
    assert told["redacted"] == sorted(rules)
    gone = [line["position"] for line in hidden.lines if "redacted" in line and "position" in line]
    assert gone == [at for first, last in told["hiddenSpans"] for at in range(first, last + 1)]
    assert told["hidden"] == len(gone) > 0
    words = realm("verify", "hidden.jsonl").out
    assert f"{len(gone)} of them hidden" in words
    assert "not looked into: events" in words


@pytest.mark.requirement("KM-7.3")
@pytest.mark.parametrize(
    ("rule", "secrets"),
    [
        ("resources", SECRETS),
        ("inputs", ("tea", '"stock"', "milk")),
        ("actors", ('"old"', '"young"', '"ann"', "Ann", "operator", "bot")),
        ("actor=ann", ('"ann"', "ann ")),
        ("topic=verdict.*", ("verdict.given",)),
        ("stream=klis", ('"klis"',)),
    ],
)
def test_a_rule_leaves_nothing_of_what_it_hides(realm: CliRealm, rule: str, secrets: tuple[str, ...]) -> None:
    events = realm("export").out.partition("\n")[2]
    for out in (realm("export", "--redact", rule).out.partition("\n")[2], realm("log", "--redact", rule).out):
        shown = "\n".join(line for line in out.splitlines() if '"domain.adopted"' not in line)
        assert not [secret for secret in secrets if secret in shown]
    assert any(secret in events for secret in secrets)


@pytest.mark.requirement("KM-7.3")
def test_what_is_made_of_hidden_events_is_not_shown(realm: CliRealm) -> None:
    told = realm("show", "HEAD", "--redact", "inputs", "--json").json
    assert told["redacted"] is True
    assert {"position", "leaf", "redacted"} == set(told["hidden"][0])
    assert realm("show", "HEAD", "--redact", "topic=nothing", "--json").json["kind"] == "world"
    assert "tea" not in realm("show", "HEAD", "--redact", "inputs").out
    position = str(told["hidden"][0]["position"])
    assert "tea" in realm("show", position).out
    assert "tea" not in realm("show", position, "--redact", "inputs").out
    assert "--data" in realm("show", "HEAD", "--data", "--redact", "inputs", code=2).err


@pytest.mark.requirement("KM-7.3")
def test_a_role_is_what_the_configuration_says(realm: CliRealm) -> None:
    config = realm.folder / "world.toml"
    before = config.read_text()
    config.write_text(before + '\n[redact]\nguest = ["inputs", "actor=ann"]\n')
    try:
        by_role = realm("export", "--redact", "role=guest").out
        assert by_role == realm("export", "--redact", "inputs", "--redact", "actor=ann").out
        assert "ann" not in by_role.partition("\n")[0]
        assert "INVALID_REDACTION" in realm("export", "--redact", "role=nobody", code=2).err
    finally:
        config.write_text(before)
    assert "INVALID_REDACTION" in realm("log", "--redact", "role=guest", code=2).err
    for rule in ("paths", "actor=", "inputs=x", "topic"):
        assert "INVALID_REDACTION" in realm("export", "--redact", rule, code=2).err


@pytest.mark.requirement("KM-7.3")
def test_a_redacted_export_is_refused_by_import_and_nothing_is_made(realm: CliRealm, tmp_path: Path) -> None:
    realm("export", "hidden.jsonl", "--redact", "resources", "--force")
    address = str(tmp_path / "copy.db")
    refused = realm("--log", address, "import", "hidden.jsonl", code=1).err
    assert "BAD_EXPORT" in refused
    assert "redacted" in refused
    assert not Path(address).exists()
