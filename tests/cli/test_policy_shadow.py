"""``worldctl policy shadow``: a second policy judges for the record, and what it would have said is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.realm import COUNTER, CliRealm, sale
from tests.cli.test_policy_commands import RULES, founded

STRICT = RULES.replace('"till"', '"strict"').replace("<= 5", "<= 2").replace("> 5", "> 2")


def doctor(realm: CliRealm, code: int = 0) -> tuple[bool, str]:
    """Return what doctor says of the shadow."""
    (one,) = [one for one in realm("doctor", "--json", code=code).json["checks"] if one["check"] == "shadow"]
    return one["ok"], one["found"]


@pytest.mark.requirement("CARD-policy", "CARD-audit")
@pytest.mark.slow
def test_a_shadow_is_turned_on_compared_and_turned_off(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    assert realm("policy", "shadow", "show").out.splitlines()[0] == "shadowing now: none"
    assert "[UNKNOWN_POLICY]" in realm("policy", "shadow", "on", "strict", code=1).err
    (tmp_path / "strict.toml").write_text(STRICT)
    assert "add it there" in realm("policy", "shadow", "on", "strict.toml", code=1).err
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml", "strict.toml"]\n')
    told = realm("policy", "shadow", "on", "strict.toml", "--json").json
    assert (told["name"], told["actors"], told["changed"]) == ("strict", [], True)
    assert realm("policy", "shadow", "on", "strict").out.startswith("strict shadowed already: ")
    realm("submit", "--intents", "-", given=sale("bot") + sale("bot", count=4) + sale("bot", count=9), code=4)
    assert realm("policy", "shadow", "show").code == 0
    shown = realm("policy", "shadow", "show", "--json", "--check", code=1).json
    assert shown["configured"]["name"] == "strict"
    assert {name: shown[name] for name in ("shadowed", "agree", "disagree", "notAsked")} == {
        "shadowed": 3,
        "agree": 2,
        "disagree": 1,
        "notAsked": 0,
    }
    (line,) = shown["disagreements"]
    assert (line["change"], line["actor"], line["input"]["count"]) == ("verdict", "bot", 4)
    assert (line["ruling"]["verdict"], line["ruling"]["decidedBy"]) == ("approve", ["few"])
    assert (line["shadow"]["verdict"], line["shadow"]["decidedBy"]) == ("wait", ["many"])
    words = realm("policy", "shadow", "show").out
    assert "sell by bot\tapprove (few), the shadow wait (many)" in words
    assert "shadowed: 3; agree: 2, disagree: 1, not asked: 0" in words
    assert "[UNKNOWN_POLICY]" in realm("policy", "shadow", "show", "--of", "other", "--check", code=1).err
    assert realm("policy", "shadow", "show", "--of", "strict", "--json", "--check", code=1).json["shadowed"] == 3
    assert "proposal.shadowed" in realm("log", "--topic", "proposal.shadowed").out
    assert "strict wait" in realm("log", "--topic", "proposal.shadowed").out
    assert realm("policy", "shadow", "off").out == "No policy shadows any more.\n"
    assert realm("policy", "shadow", "off", "--json").json == {
        "name": None,
        "hash": None,
        "actors": [],
        "changed": False,
    }
    realm("verify")
    realm("policy", "shadow", "on", "strict")
    assert doctor(realm) == (True, f"strict {told['hash'][:12]}, for the record only")
    (tmp_path / "strict.toml").write_text(STRICT.replace("<= 2", "<= 3"))
    assert "has changed since it was turned on" in doctor(realm, code=1)[1]
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    assert "There is no policy 'strict' at hand" in doctor(realm, code=1)[1]
    assert realm("recheck", "--json").json["steps"]["shadows"] == 3


@pytest.mark.requirement("CARD-policy", "CARD-audit")
def test_a_policy_that_only_shadowed_is_shown_from_the_log_and_compared(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    (tmp_path / "strict.toml").write_text(STRICT)
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml", "strict.toml"]\n')
    then = realm("policy", "shadow", "on", "strict", "--json").json["hash"]
    (tmp_path / "strict.toml").write_text(STRICT.replace("<= 2", "<= 3"))
    assert realm("policy", "show", "strict", "--json").json["origin"] == "at hand"
    (line,) = realm("policy", "diff", f"strict@{then[:8]}", "strict", "--json", code=1).json[0]["differences"]
    assert (line["kind"], line["rule"]) == ("changed", "few")
    (tmp_path / "strict.toml").unlink()
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    for named in ("strict", f"strict@{then[:8]}"):
        shown = realm("policy", "show", named, "--json").json
        assert (shown["origin"], shown["hash"], [one["id"] for one in shown["rules"]]) == (
            "shadowed",
            then,
            ["few", "many"],
        )
    assert "turned on as a shadow by event" in realm("policy", "show", "strict").out
    assert realm("policy", "diff", "strict", "till", "--json", code=1).json[0]["from"]["origin"] == "shadowed"
    assert [one["name"] for one in realm("policy", "list", "--json").json] == ["till"]
    assert realm("policy", "list", "--all", "--json").json[-1]["event"] == "shadowed"
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml", "strict.toml"]\n')
    (tmp_path / "strict.toml").write_text(STRICT)
    realm("policy", "adopt", "strict")
    realm("policy", "shadow", "on", "strict")
    assert realm("policy", "show", "strict", "--json").json["origin"] == "in force"


@pytest.mark.requirement("CARD-policy")
def test_a_policy_does_not_shadow_itself(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    for more in ((), ("--for", "bot")):
        assert "agree with itself" in realm("policy", "shadow", "on", "till", *more, code=1).err
    assert realm("policy", "shadow", "show", "--json").json["configured"]["name"] is None
    assert "[UNKNOWN_POLICY]" in realm("policy", "shadow", "show", "--of", "till", "--check", code=1).err
    realm("policy", "shadow", "on", "till", "--for", "ann")  # by another authority
    assert realm("policy", "shadow", "show", "--of", "till", "--json", "--check").json["shadowed"] == 0


def test_what_people_decided_is_told_beside_a_question(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    (tmp_path / "strict.toml").write_text(
        STRICT.replace('verdict = "escalate"', 'verdict = "reject"').replace("to =", "#")
    )
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml", "strict.toml"]\n')
    assert "for what bot proposes" in realm("policy", "shadow", "on", "strict", "--for", "bot").out
    realm("submit", "--intents", "-", given=sale("bot", count=9) + sale("ann", count=9), code=4)
    realm("decide", "01", "approve", "--by", "ann")
    (line,) = realm("policy", "shadow", "show", "--json").json["disagreements"]
    assert (line["ruling"]["verdict"], line["decision"], line["shadow"]["verdict"]) == ("wait", "approved", "reject")
    assert "wait (many), the shadow reject (many); approved in the end" in realm("policy", "shadow", "show").out


@pytest.mark.parametrize(
    ("change", "expected"),
    [(("to = [", 'vote = "unanimous"\nto = ["kim", '), "question"), (('id = "many"', 'id = "lots"'), None)],
)
def test_a_shadow_that_asks_for_more_than_one_approval_does_not_agree(
    tmp_path: Path, change: tuple[str, str], expected: str | None
) -> None:
    realm = founded(tmp_path)
    voting = RULES.replace("to = [", 'vote = "majority"\nto = ["kim", ')
    (tmp_path / "rules.toml").write_text(voting)
    realm("policy", "adopt", "till")
    shadow = RULES if expected else voting
    (tmp_path / "strict.toml").write_text(shadow.replace('"till"', '"strict"').replace(*change))
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml", "strict.toml"]\n')
    realm("policy", "shadow", "on", "strict")
    realm("submit", "--intents", "-", given=sale("bot", count=9), code=4)
    told = realm("policy", "shadow", "show", "--json").json["disagreements"]
    assert [one["change"] for one in told] == ([] if expected is None else [expected])


def test_a_shadow_that_would_allow_less_to_be_written_does_not_agree(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    less = RULES.replace('"approve"', '"narrow"\nscope = ["data.*"]')
    (tmp_path / "strict.toml").write_text(less.replace('"till"', '"strict"'))
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml", "strict.toml"]\n')
    realm("policy", "shadow", "on", "strict")
    realm("submit", "--intents", "-", given=sale("bot"))
    (line,) = realm("policy", "shadow", "show", "--json").json["disagreements"]
    assert (line["change"], line["shadow"]["approvedScope"]) == ("scope", {"allowedPaths": ["data.*"]})
