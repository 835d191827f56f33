"""``worldctl log --redact`` and ``worldctl export --redact``: leases without the paths of what they are on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.realm import Realm, founded
from world.log import TreeHead
from world.log.merkle import Frontier
from world.views.leases import redacted, without_paths

LONG = ("--ttl-ms", "600000")
SECRETS = ("/secret/plan", "/secret/new", "/secret/tree")
RENAME = {
    "ver": "1.0", "session_id": "o2", "agent_id": "old",
    "scope": [{"predicate": "RENAMES", "resource": "FILE:/secret/plan", "to": "FILE:/secret/new"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    """A realm with leases, conflicts, a manifest that renames, and a request that waited."""
    realm = founded(tmp_path_factory.mktemp("redaction"))
    ask = ("lease", "acquire", "--session", "s", *LONG)
    (realm.folder / "rename.json").write_text(json.dumps(RENAME))
    realm("lease", "acquire", "--manifest", "@rename.json", *LONG)
    realm(*ask, "FILE:/secret/tree/*", "--agent", "young")
    realm(*ask, "FILE:/secret/plan", "--agent", "young", code=1)
    realm(*ask, "FILE:/secret/tree/leaf", "--agent", "old", "--wait", "0.01", code=1)
    return realm


def verdicts(lines: list[Any]) -> list[Any]:
    return [line["state"] for line in lines if line.get("topic") == "verdict.given"]


@pytest.mark.requirement("KM-7.3")
def test_the_redacted_log_has_no_path_in_text_or_json(realm: Realm) -> None:
    shown, full = realm("log", "--redact", "--json"), realm("log", "--json")
    for out in (shown.out, realm("log", "--redact").out, realm("log", "--redact", "--reverse").out):
        assert "secret" not in out
    assert all(secret in full.out for secret in SECRETS)
    for told, whole in zip(verdicts(shown.lines), verdicts(full.lines), strict=True):
        assert told == without_paths(whole) != whole
    assert redacted("FILE:/secret/plan") in shown.out
    assert {"conflicts", "leases", "manifest", "wanted"} <= {key for told in verdicts(shown.lines) for key in told}
    marked = [line["topic"] for line in shown.lines if line.get("redacted")]
    assert marked == ["verdict.given"] * len(verdicts(full.lines))


@pytest.mark.requirement("KM-7.3", "CARD-audit")
def test_the_heads_of_a_redacted_export_follow_from_its_leaves(realm: Realm) -> None:
    plain, hidden = realm("export").lines, realm("export", "--redact")
    assert "secret" not in hidden.out
    assert "secret" in json.dumps(plain)
    frontier = Frontier()
    for told, whole in zip(hidden.lines, plain, strict=True):
        if "leaf" in told:
            assert told["leaf"] == whole["leaf"]
            frontier = frontier.extended([bytes.fromhex(told["leaf"])])
        elif "head" in told:
            assert told == whole
            assert TreeHead(frontier.size, frontier.root()) == TreeHead.from_hex(**told["head"])
        if "redacted" not in told:
            assert told == whole
    (realm.folder / "heads.jsonl").write_text(hidden.out)
    assert "sound" in realm("verify", "--against", "heads.jsonl").out


@pytest.mark.requirement("KM-7.3")
def test_a_redacted_export_is_refused_by_import_and_nothing_is_made(realm: Realm, tmp_path: Path) -> None:
    realm("export", "hidden.jsonl", "--redact", "--force")
    address = str(tmp_path / "copy.db")
    refused = realm("--log", address, "import", "hidden.jsonl", code=1).err
    assert "BAD_EXPORT" in refused
    assert "redacted" in refused
    assert not Path(address).exists()


@pytest.mark.requirement("KM-7.3")
def test_one_resource_is_one_name_however_its_type_is_written() -> None:
    assert redacted("file:/a") == redacted("FILE:/a") != redacted("FILE:/b")
    assert redacted("FILE:/a").startswith("FILE:#")


PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["resource", "to", "leases"]), inner),
    max_leaves=8,
)


@pytest.mark.requirement("KM-7.3")
@given(PLAIN)
def test_only_resources_are_hidden_wherever_they_stand(told: Any) -> None:
    def compare(shown: Any, whole: Any, name: str = "") -> None:
        if isinstance(whole, dict):
            assert list(shown) == list(whole)
            for key in whole:
                compare(shown[key], whole[key], key)
        elif isinstance(whole, list):
            for one, other in zip(shown, whole, strict=True):
                compare(one, other)
        else:
            hidden = name in ("resource", "to") and isinstance(whole, str)
            assert shown == (redacted(whole) if hidden else whole)

    compare(without_paths(told), told)
