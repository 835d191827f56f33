"""``worldctl policy ask``: what it says would become of a real proposal, and questions that cannot be asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm, founded

RULES = 'name = "shop"\n[[rules]]\nid = "small"\nverdict = "approve"\nwhen = "intent.input.count <= 5"\n'
SALE = '{"type": "sell", "input": {"item": "tea", "count": 2}}'


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    realm = founded(tmp_path)
    (tmp_path / "shop.toml").write_text(RULES)
    config = (tmp_path / "world.toml").read_text()
    at = config.index("policies = [") + len("policies = [")
    (tmp_path / "world.toml").write_text(f'{config[:at]}"shop.toml", {config[at:]}')
    realm("policy", "adopt", "shop")
    realm("actor", "add", "owl", "--kind", "agent", "--policy", "shop")
    return realm


def note(realm: CliRealm, actor: str, *words: str) -> str | None:
    """Return the note, which people see where there is one."""
    asking = ["policy", "ask", "--actor", actor, "--intent", "-", *words]
    told: str | None = realm(*asking, "--json", given=SALE).json["note"]
    said = realm(*asking, given=SALE).out
    assert (f"  note      {told}" in said) if told else ("  note" not in said)
    return told


@pytest.mark.requirement("CARD-policy")
@pytest.mark.slow
def test_the_note_says_what_a_real_proposal_would_meet(realm: CliRealm) -> None:
    assert note(realm, "owl") is note(realm, "owl", "--policy", "shop") is note(realm, "ann") is None
    own = "a proposal would be judged by the actor's own policy, shop as it was adopted"
    assert note(realm, "owl", "--policy", "house") == own
    (realm.folder / "strict.toml").write_text(RULES.replace("<= 5", "<= 1"))
    assert note(realm, "owl", "--policy", "strict.toml") == own
    assert note(realm, "kid", "--policy", "shop") == "a proposal would be judged by the actor's own binding, hitl"
    (realm.folder / "shop.toml").write_text(RULES.replace("<= 5", "<= 6"))
    for words in ((), ("--policy", "shop"), ("--policy", "house")):
        told = note(realm, "owl", *words)
        assert told is not None
        assert told.startswith("a proposal is held: the loaded shop is not as adopted")
    line = json.dumps({"actor": "owl", **json.loads(SALE)}) + "\n"
    assert json.loads(realm("submit", "--intents", "-", given=line, code=5).out)["status"] == "submitted"
    realm("policy", "adopt", "shop")
    assert note(realm, "owl") is None


def test_the_note_says_that_an_input_is_refused_before_it_is_judged(realm: CliRealm) -> None:
    sell = ("sell", "--input", '{"item": "tea", "count": "two"}')
    noted = realm("policy", "ask", *sell, "--actor", "owl", "--json").json["note"]
    assert noted.startswith("a proposal is refused before it is judged, because its input does not fit: input.count")
    assert noted.rpartition(": ")[2] in realm("submit", *sell, "--actor", "owl", code=2).err


def test_an_action_with_its_input_is_asked_about_as_it_is_submitted(realm: CliRealm) -> None:
    scoped = json.dumps(json.loads(SALE) | {"scopeProposal": {"allowedPaths": ["sold"]}})
    for file, words in ((SALE, ()), (scoped, ("--scope", "sold"))):
        words = ("sell", "--input", json.dumps(json.loads(file)["input"]), *words)
        told = realm("policy", "ask", *words, "--actor", "owl", "--json").json
        whole = realm("policy", "ask", "--actor", "owl", "--intent", "-", "--json", given=file).json
        assert told == whole | {"submittedAt": told["submittedAt"]}
        assert (told["action"], told["input"]["count"], told["verdict"]) == ("sell", 2, "approve")
    for wrong in ((), ("sell", "--intent", "-"), ("--intent", "-", "--scope", "sold")):
        assert "ACTION" in realm("policy", "ask", "--actor", "owl", *wrong, given=SALE, code=2).err


@pytest.mark.parametrize(
    ("words", "given", "code"),
    [
        (["--set", "base.data.stock[tea]=5"], SALE, "INVALID_PATH"),
        (["--set", "intent.input[count]=5"], SALE, "INVALID_PATH"),
        ([], '{"body": 5}', "INVALID_VALUE"),
        ([], '{"body": ["sell"]}', "INVALID_VALUE"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_asked_is_refused_with_a_code(realm: CliRealm, words: list[str], given: str, code: str) -> None:
    said = realm("policy", "ask", "--actor", "owl", "--intent", "-", *words, "--json", given=given, code=2)
    assert said.json["error"]["code"] == code
