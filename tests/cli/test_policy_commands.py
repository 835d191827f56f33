"""``worldctl policy`` adopt, retire, list, show and diff: what is and was in force, and what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.counter import counter
from tests.cli.inside import Inside
from tests.cli.realm import COUNTER, CliRealm
from worldprotocol import Realm

RULES = """\
name = "till"

[[rules]]
id = "few"
verdict = "approve"
actions = ["sell"]
when = "intent.input.count <= 5"
reason = "few"

[[rules]]
id = "many"
verdict = "escalate"
when = "intent.input.count > 5"
to = ["ann"]
"""


def founded(folder: Path) -> CliRealm:
    """Return a realm under the rules of a file, with ann and bot; bot is bound by them."""
    (folder / "rules.toml").write_text(RULES)
    (folder / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    with Realm.create(folder / "world.db", domain=counter, policies=["rules.toml"], folder=folder) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
    return Inside(folder)


def test_a_file_that_is_gone_is_listed_with_its_fault_beside_all_others(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    config = tmp_path / "world.toml"
    config.write_text(config.read_text().replace("[", '["gone.toml", ', 1))
    till, gone = realm("policy", "list", "--json").json
    assert (till["name"], till["note"]) == ("till", "in force")
    assert (gone["name"], gone["adopted"], gone["atHand"]) == ("gone.toml", None, None)
    assert "cannot be read" in gone["note"]
    assert "gone.toml" in realm("policy", "list").out


def test_a_policy_file_is_found_beside_world_toml_from_any_folder(tmp_path: Path) -> None:
    founded(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    realm = Inside(tmp_path / "elsewhere")
    wish = '{"type": "sell", "input": {"item": "tea", "count": 1}}'
    words = ["--config", "../world.toml", "policy", "ask", "--actor", "bot", "--intent", "-", "--json"]
    assert realm(*words, "--policy", "rules.toml", given=wish).json["verdict"] == "approve"
    (tmp_path / "elsewhere" / "rules.toml").write_text(RULES.replace("approve", "reject"))  # the nearer one
    assert realm(*words, "--policy", "rules.toml", given=wish).json["verdict"] == "reject"


@pytest.mark.requirement("CARD-policy", "CARD-audit")
def test_the_life_of_a_policy_is_listed(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    before = realm("policy", "list", "--json").json[0]
    assert (before["note"], before["replaced"]) == ("in force", None)
    (tmp_path / "rules.toml").write_text(RULES.replace("<= 5", "<= 6"))
    assert realm("policy", "list", "--json").json[0]["note"] == "changed since it was adopted"
    adopted = realm("policy", "adopt", "till", "--json").json
    assert adopted["replaced"] == before["adopted"]
    assert f"in force, in place of {before['adopted'][:12]}" in realm("policy", "list").out
    assert "bot wants; bind them otherwise first" in realm("policy", "retire", "till", code=1).err
    realm("actor", "bind", "bot", "--auto-approve")
    assert "is retired" in realm("policy", "retire", "till", "--reason", "enough", "--by", "ann").out
    (listed,) = realm("policy", "list", "--json").json
    assert (listed["adopted"], listed["note"]) == (None, "retired")
    history = realm("policy", "list", "--all", "--json").json
    assert [(one["event"], one["hash"], one["by"]) for one in history] == [
        ("adopted", before["adopted"], "operator"),
        ("adopted", adopted["hash"], "operator"),
        ("retired", adopted["hash"], "ann"),
    ]
    assert (history[1]["replaced"], history[2]["reason"]) == (before["adopted"], "enough")
    shown = realm("policy", "list", "--all").out
    assert "retired" in shown
    assert "enough" in shown
    assert "[POLICY_NOT_ADOPTED]" in realm("policy", "retire", "till", code=1).err
    assert realm("policy", "show", "till", "--json").json["origin"] == "at hand"
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\n')
    shown = realm("policy", "show", "till", "--json").json  # from the log
    assert (shown["origin"], shown["hash"], shown["position"]) == ("adopted", adopted["hash"], history[1]["position"])


@pytest.mark.requirement("CARD-policy")
def test_a_policy_is_shown_as_it_was_adopted_and_compared_with_the_one_at_hand(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    first = realm("policy", "show", "till", "--json").json
    assert (first["origin"], first["hash"]) == ("in force", realm("policy", "list", "--json").json[0]["adopted"])
    assert first["rules"][0] == {
        "id": "few",
        "source": "rules.toml:3",
        "language": "cel",
        "effect": "approve",
        "actions": ["sell"],
        "when": "intent.input.count <= 5",
        "description": "few",
    }
    assert "no difference" in realm("policy", "diff").out
    (tmp_path / "rules.toml").write_text(RULES.replace("<= 5", "<= 6"))
    words = realm("policy", "show", f"till@{first['hash'][:10]}").out
    assert "when   intent.input.count <= 5" in words
    assert "rule 2    many escalate [rules.toml:10]" in words
    (told,) = realm("policy", "diff", "--json", code=1).json
    assert (told["from"]["origin"], told["to"]["origin"]) == ("in force", "at hand")
    (change,) = told["differences"]
    assert (change["rule"], change["fields"][0]["to"]) == ("few", "intent.input.count <= 6")
    assert "+ intent.input.count <= 6" in realm("policy", "diff", "till", code=1).out
    assert realm("policy", "diff", f"till@{first['hash'][:10]}", "till").code == 0
    assert realm("policy", "diff", "till", "rules.toml", code=1).out == realm("policy", "diff", "till", code=1).out


def test_what_names_no_policy_is_refused_with_what_there_is(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    assert "[UNKNOWN_POLICY]" in realm("policy", "show", "nowhere", code=1).err
    assert "there is till@" in realm("policy", "show", "till@ffffffffff", code=1).err
    (tmp_path / "rules.toml").write_text(RULES.replace("<= 5", "<= 6"))
    assert "[AMBIGUOUS]" in realm("policy", "show", "till@", code=1).err
    realm("policy", "diff", "a", "b", "c", code=2)
