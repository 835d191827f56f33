"""Policies are found by name: given, by reference, or offered by installed packages."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from authority import Approve, Policy, PolicyRegistry, Reject, StandardAuthority
from tests.authority.cases import ASKING, always, by_policy, make_case, policy
from world.core import Domain
from world.errors import RefusedError
from worldprotocol import Realm

pytestmark = pytest.mark.slow

RULES = '''
"""Rules of a package."""
from authority import Approve, Policy, Reject, rule

LIMIT = 3

@rule
def short(case):
    """Approve short titles."""
    return Approve() if len(case.intent.body.input or "") <= LIMIT else None

@rule("never-delete")
def never(case):
    return Reject("never") if case.intent.body.type == "delete" else None

several = [short, never]
house = Policy("house", several, version="1")
nothing = "no rule"

class Inner:
    house = house
'''


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages that Python finds."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def install(site: Path, package: str, offers: str, *, code: str = RULES) -> None:
    (site / f"{package}.py").write_text(code, encoding="utf-8")
    info = site / f"{package}-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.1\n", encoding="utf-8")
    (info / "top_level.txt").write_text(package, encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[worldprotocol.rules]\n{offers}\n", encoding="utf-8")


def refusal(ask) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        ask()
    return refused.value


@pytest.mark.requirement("CARD-policy")
def test_an_installed_package_plugs_in_a_policy_rules_or_a_rule(site):
    install(site, "acme_rules", "house = acme_rules:house\ntwo = acme_rules:several\none = acme_rules:short")
    registry = PolicyRegistry.installed()
    assert {"house", "two", "one"} <= set(registry.names())
    assert [one.name for one in registry.get("house").rules] == ["short", "never-delete"]
    assert [one.name for one in registry.get("two").rules] == ["short", "never-delete"]
    assert [one.name for one in registry.get("one").rules] == ["short"]


@pytest.mark.requirement("CARD-policy")
def test_a_policy_of_a_package_judges_and_names_its_distribution(site):
    install(site, "acme_rules", "house = acme_rules:house")
    authority = StandardAuthority(PolicyRegistry.installed())
    binding = authority.check_binding(by_policy())
    ruling = authority.judge(make_case(binding, given="abc"))
    assert ruling.verdict == "approve"
    assert ruling.trace[0].source == "acme_rules 2.1, acme_rules:7"
    assert authority.judge(make_case(binding, action="delete")).verdict == "reject"
    told = authority.describe_policy("house")
    assert told["version"] == "1"
    assert told["rules"][0]["distribution"] == "acme_rules 2.1"
    assert told["rules"][0]["description"] == "Approve short titles."
    assert told["hash"] == ruling.policy_hash


def test_packages_are_loaded_when_they_are_first_asked_for(site):
    install(site, "acme_rules", "house = acme_rules:house")
    registry = PolicyRegistry.installed()
    assert "acme_rules" not in sys.modules
    registry.get("house")
    assert "acme_rules" in sys.modules


@pytest.mark.parametrize(
    ("code", "offer", "refused"),
    [
        ("raise RuntimeError('boom')", "house", "NOT_LOADED"),
        ("import sys; sys.exit(3)", "house", "NOT_LOADED"),
        ("def broken(:", "house", "NOT_LOADED"),
        (RULES, "missing", "NOT_LOADED"),
        (RULES, "nothing", "INVALID_RULE"),
    ],
)
def test_a_package_that_cannot_be_loaded_refuses_each_time_and_spoils_no_other(site, code, offer, refused):
    install(site, "acme_rules", f"house = acme_rules:{offer}", code=code)
    install(site, "good_rules", "one = good_rules:short")
    registry = PolicyRegistry.installed()
    first, second = (refusal(lambda: registry.get("house")) for _ in range(2))
    assert first.code == second.code == refused
    assert first.message == second.message
    assert first is not second
    assert registry.get("one").name == "one"
    ruling = StandardAuthority(registry).judge(make_case(by_policy()))
    assert (ruling.verdict, ruling.reason) == ("reject", first.message)


def test_a_policy_must_be_called_as_its_entry_point_is():
    registry = PolicyRegistry(
        offered=[EntryPoint("shop", "tests.authority.test_policy_registry:HOUSE", "worldprotocol.rules")]
    )
    assert refusal(lambda: registry.get("shop")).code == "INVALID_POLICY"


def test_two_packages_that_offer_one_name_are_refused_until_one_is_gone():
    point = "tests.authority.test_policy_registry:HOUSE"
    registry = PolicyRegistry(
        offered=[EntryPoint("house", point, "worldprotocol.rules"), EntryPoint("house", "x:y", "g")]
    )
    assert registry.names() == ["house"]
    assert refusal(lambda: registry.get("house")).code == "DUPLICATE_POLICY"
    given = registry.add(HOUSE)
    assert registry.get("house") is given


def test_an_unknown_policy_is_refused_with_those_that_are_known():
    registry = PolicyRegistry([HOUSE])
    unknown = refusal(lambda: registry.get("hous"))
    assert (unknown.code, unknown.details["known"]) == ("UNKNOWN_POLICY", ["house"])
    assert refusal(lambda: registry.describe("")).code == "UNKNOWN_POLICY"


@pytest.fixture
def rules_file(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(RULES, encoding="utf-8")
    return path


@pytest.mark.requirement("CARD-policy")
def test_a_policy_can_be_loaded_from_a_file(rules_file):
    registry = PolicyRegistry()
    assert registry.load(f"{rules_file}:house").name == "house"
    assert registry.load(f"{rules_file}:several").name == "several"
    assert registry.load(f"{rules_file}:several", name="other").name == "other"
    assert registry.load("rules.py:Inner.house", base=rules_file.parent) is registry.get("house")
    assert registry.names() == ["house", "other", "several"]
    assert registry.get("house").evaluate(make_case(given="abc"), ASKING).verdict == "approve"


def test_a_policy_from_a_file_has_the_same_hash_in_every_folder(rules_file, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "rules.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(RULES, encoding="utf-8")
    here = PolicyRegistry().load(f"{rules_file}:house")
    there = PolicyRegistry().load(f"{elsewhere}:house")
    assert here.hash == there.hash
    assert here.description["rules"][0]["source"] == "rules.py:7"
    elsewhere.with_name("changed.py").write_text(RULES.replace("LIMIT = 3", "LIMIT = 4"), encoding="utf-8")
    changed = PolicyRegistry().load(f"{elsewhere.with_name('changed.py')}:house")
    rule_here, rule_changed = (one.description["rules"][0] for one in (here, changed))
    assert rule_here["sourceHash"] == rule_changed["sourceHash"]
    assert rule_here["moduleHash"] != rule_changed["moduleHash"]
    assert changed.hash != here.hash


@pytest.mark.requirement("CARD-policy")
def test_a_policy_can_be_loaded_from_a_module():
    assert PolicyRegistry().load("tests.authority.test_policy_registry:HOUSE").name == "house"


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("no_colon", "BAD_REFERENCE"),
        (":x", "BAD_REFERENCE"),
        ("no_such_module_at_all:x", "NOT_LOADED"),
        ("no/such/file.py:x", "NOT_LOADED"),
        ("tests.authority.test_policy_registry:nothing_of_that_name", "NOT_LOADED"),
        ("tests.authority.test_policy_registry:RULES", "INVALID_RULE"),
    ],
)
def test_a_reference_that_names_no_policy_is_refused(reference, code):
    assert refusal(lambda: PolicyRegistry().load(reference)).code == code


def test_a_file_that_ends_the_process_is_refused(tmp_path):
    path = tmp_path / "exits.py"
    path.write_text("raise SystemExit(1)", encoding="utf-8")
    assert refusal(lambda: PolicyRegistry().load(f"{path}:x")).code == "NOT_LOADED"


def test_one_name_stands_for_one_policy():
    registry = PolicyRegistry([HOUSE])
    assert registry.add(Policy("house", HOUSE.rules)) is HOUSE
    duplicate = refusal(lambda: registry.add(policy(Reject())))
    assert duplicate.code == "DUPLICATE_POLICY"
    assert registry.get("house") is HOUSE


def test_rules_can_be_added_as_a_policy():
    registry = PolicyRegistry()
    assert registry.add(always(Approve(), "free")).name == "free"
    assert registry.add([always(Approve(), "free"), always(None, "silent")], name="both").name == "both"
    assert refusal(lambda: registry.add([always(Approve(), "free")])).code == "INVALID_POLICY"


HOUSE = policy(Approve())


def test_a_realm_takes_a_rule_as_a_policy_of_its_name():
    rest = Domain("urn:example:rest", version="1.0.0", state={"fields": {}})
    rest.flow("rest", {"kind": "halt"})
    with Realm.create("sqlite:///:memory:", domain=rest, policies=[always(Approve("calm"), "calm")]) as realm:
        realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "calm"})
        assert realm.act("bot", "rest").status == "completed"
    with pytest.raises(RefusedError, match="is not a rule; decorate the function") as refused:
        Realm.create("sqlite:///:memory:", domain=rest, policies=[len])
    assert refused.value.code == "INVALID_RULE"
