"""The fixture `recorded`: a recorded log is a test, and a test records its log."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import cel  # noqa: F401 - its extension cannot be loaded anew by each in-process run of pytest
import pytest

from tests.golden import garden
from tests.golden.generate import rehashed
from worldprotocol.testing.recordings import Recordings

pytestmark = pytest.mark.slow

SHOP = """
from pydantic import BaseModel

from authority import Approve, Policy, rule
from host import handler
from projections import projection
from worldprotocol import ActionContext, Domain, effect, set_

MADE = []


class Shop(BaseModel):
    stock: dict[str, int] = {"tea": 10, "salt": 0}
    receipts: list[str] = []


class Sale(BaseModel):
    item: str
    count: int = 1


shop = Domain("urn:example:shop", version="1.0.0", state=Shop)


@shop.action("sell", version="1")
def sell(ctx: ActionContext, input: Sale):
    have = ctx.data["stock"].get(input.item, 0)
    if have < input.count:
        ctx.fail("OUT_OF_STOCK", f"{have} left", item=input.item)
    return [set_(f"stock.{input.item}", have - input.count)]


@shop.action("charge", version="1")
def charge(ctx: ActionContext, input: Sale):
    receipt = yield effect("bank.charge", item=input.item)
    return [set_("receipts", [*ctx.data["receipts"], receipt["id"]])]


@rule
def small(case):
    return Approve("it is little") if case.intent.body.input["count"] <= 5 else None


@projection("till")
def till(request):
    return {"kind": "intent", "body": {"type": "sell", "input": request.source.payload}}


@handler("bank.charge", retries=1, backoff_ms=1, idempotent=True)
def bank(params, call):
    MADE.append(params["item"])
    return {"id": f"{params['item']} {len(MADE)}"}


PARTS = {"domain": shop, "policies": [Policy("house", [small])], "projections": [till], "effects": [bank]}
"""

TEST = """
import shop


def scenes(world):
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
    world.act("bot", "sell", {"item": "tea", "count": 3})
    world.act("bot", "sell", {"item": "tea", "count": 7})
    for _ in range(2):
        world.act("bot", "charge", {"item": "salt", "count": 1})
    world.project({"kind": "ui", "eventId": "e1", "payload": {"item": "tea", "count": 1}}, "bot")


def test_the_shop(recorded):
    with recorded("golden/shop.jsonl", **shop.PARTS) as world:
        scenes(world)
        assert world.data()["stock"]["tea"] == 6
        assert list(world.data()["receipts"]) == ["salt 1", "salt 2"]
    assert len(shop.MADE) == MAKES
"""


class Project:
    """A project with a test that records."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.golden = pytester.path / "golden" / "shop.jsonl"
        self.shop = SHOP
        self.test = TEST
        pytester.makeconftest("pytest_plugins = []")

    def run(self, *options: str, makes: int = 0, code: int = 0) -> pytest.RunResult:
        (self.pytester.path / "shop.py").write_text(self.shop)
        (self.pytester.path / "test_shop.py").write_text(self.test.replace("MAKES", str(makes)))
        ran = self.pytester.runpytest("-p", "no:cacheprovider", "-W", "error", "-q", *options)
        assert ran.ret == code, ran.stdout.str()
        return ran

    def recorded(self) -> Project:
        self.run("--record=once", makes=2)
        return self

    def change(self, old: str, new: str) -> None:
        assert old in self.shop
        self.shop = self.shop.replace(old, new)

    def position(self, topic: str, nth: int = 1) -> int:
        events = [json.loads(line) for line in self.golden.read_bytes().splitlines()]
        return [one["position"] for one in events if one.get("topic") == topic][nth - 1]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # shop.py changes within the second that bytecode tells apart
    return Project(pytester)


@pytest.mark.requirement("CARD-tests", "CARD-replay")
def test_what_a_test_records_is_the_same_every_time_and_then_no_effect_is_made(project: Project) -> None:
    project.recorded()
    first = project.golden.read_bytes()
    project.run(makes=0)
    assert project.golden.read_bytes() == first
    project.run("--record=all", makes=2)
    assert project.golden.read_bytes() == first
    assert sorted(path.name for path in project.golden.parent.iterdir()) == ["shop.jsonl"]


@pytest.mark.requirement("CARD-tests")
@pytest.mark.parametrize("how", ["option", "CI"])
def test_where_nothing_is_recorded_a_missing_log_fails(
    project: Project, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "CI":
        monkeypatch.setenv("CI", "true")
    ran = project.run(*(["--record=none"] if how == "option" else []), code=1)
    ran.stdout.fnmatch_lines(["There is no recorded log *shop.jsonl. Record it: run this test with --record=once*"])
    assert not project.golden.exists()


def test_a_test_that_fails_records_nothing(project: Project) -> None:
    project.test = TEST.replace('["tea"] == 6', '["tea"] == 5')
    project.run(code=1)
    assert not project.golden.parent.exists()


@pytest.mark.requirement("CARD-replay", "CARD-tests")
def test_an_action_that_computes_something_else_is_shown_with_who_and_why_and_both_values(project: Project) -> None:
    project.recorded().change("have - input.count)", "have - 2 * input.count)")
    ran = project.run(code=1)
    ran.stdout.fnmatch_lines(
        [
            f"* differently at event {project.position('proposal.completed')} of *EXECUTION_DIVERGED",
            '  who       bot (agent) wanted sell {"count":3,"item":"tea"}, proposal *',
            "  why       approved by policy_rules:house: small: it is little",
            "  changed   *the code of action:sell*, since it was recorded",
            "  differs   patch 0: value",
            "    recorded  7",
            "    now       4",
            "  further   1 more, the first of them at event *",
            "  @pytest.mark.expected_flip(proposal=*",
        ]
    )
    assert "Traceback" not in ran.stdout.str()
    assert ">  " not in ran.stdout.str()


@pytest.mark.requirement("CARD-replay", "CARD-tests", "CARD-policy")
def test_a_policy_that_decides_otherwise_is_shown_and_may_be_expected(project: Project) -> None:
    project.recorded().change("<= 5", "<= 2")
    ran = project.run(code=1)
    position = project.position("proposal.judged")
    ran.stdout.fnmatch_lines(
        [
            f"shop.jsonl comes out differently at event {position} of * (proposal.judged): DECISION_FLIPPED",
            "  bot sell: it was approve and is now reject.",
            "  changed   the policy house, since it was recorded",
            "  differs   verdict",
            "    recorded  approve",
            "    now       reject",
        ]
    )
    marked = '@pytest.mark.expected_flip(position=POSITION, to="reject")\ndef test_the_shop'
    project.test = ("import pytest\n" + TEST).replace("def test_the_shop", marked).replace("POSITION", str(position))
    project.test = project.test.partition("        assert world.data()")[0]  # the rest follows from the flip
    project.run()


@pytest.mark.requirement("CARD-tests")
def test_a_flip_that_was_expected_and_does_not_happen_fails_and_so_does_one_that_is_meant_twice(
    project: Project,
) -> None:
    project.recorded()
    test = "import pytest\n" + TEST
    for marker, words in (
        ('proposal="00"', 'expected_flip(proposal="00") did not happen: all is as it was recorded*'),
        ("proposal=''", "expected_flip needs a proposal (its id, or the beginning of it) or a position."),
        ("file='shop.jsonl'", "expected_flip needs a proposal (its id, or the beginning of it) or a position."),
    ):
        project.test = test.replace("def test_the", f"@pytest.mark.expected_flip({marker})\ndef test_the")
        project.run(code=1).stdout.fnmatch_lines([words.replace('"00"', "'00'")])
    project.change("have - input.count)", "have - 2 * input.count)")
    project.test = test.replace("def test_the", "@pytest.mark.expected_flip(proposal='00')\ndef test_the")
    project.test = project.test.partition("        assert world.data()")[0]
    project.run(code=1).stdout.fnmatch_lines(["expected_flip(proposal='00') happened 2 times. Each one expects*"])


@pytest.mark.requirement("CARD-tests")
@pytest.mark.parametrize("is_recorded", [True, False])
def test_scenes_that_an_exception_left_prove_nothing(project: Project, is_recorded: bool) -> None:
    if is_recorded:
        project.recorded()
    head, call = TEST.split("    with recorded")
    left = "\n".join(f"    {line}" for line in f"    with recorded{call}".partition("        assert")[0].splitlines())
    project.test = f"import pytest\n{head}    with pytest.raises(KeyError):\n{left}\n            raise KeyError('x')\n"
    project.run(code=1).stdout.fnmatch_lines(["The scenes of shop.jsonl were left by KeyError: 'x'; so nothing was *"])
    assert project.golden.exists() is is_recorded


@pytest.mark.requirement("CARD-tests")
@pytest.mark.parametrize("second", ["proposal='00'", "proposal='0', code='EXECUTION_DIVERGED'"])
def test_two_markers_stand_for_two_divergences(project: Project, second: str) -> None:
    project.recorded().change("have - input.count)", "have - 2 * input.count)")
    test = ("import pytest\n" + TEST).partition("        assert world.data()")[0]
    both = f"@pytest.mark.expected_flip(proposal='00')\n@pytest.mark.expected_flip({second})\ndef test_the"
    project.test = test.replace("def test_the", both)
    project.run()  # two proposals come out differently
    three = f"@pytest.mark.expected_flip(proposal='00')\n{both}"
    project.test = test.replace("def test_the", three)
    project.run(code=1).stdout.fnmatch_lines(["expected_flip(*) did not happen. Each one *"])


def test_a_marker_without_a_recorded_log_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.expected_flip(position=3)\ndef test_it(): pass")
    ran = pytester.runpytest("-p", "no:cacheprovider", "--strict-markers")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["expected_flip is about recorded logs, and this test does not use `recorded`."])


@pytest.mark.requirement("CARD-tests", "INT-12.2")
def test_a_projection_that_selects_something_else_is_shown_with_its_source(project: Project) -> None:
    project.recorded().change('"input": request.source.payload', '"input": {**request.source.payload, "count": 2}')
    project.run(code=1).stdout.fnmatch_lines(
        [
            f"shop.jsonl comes out differently at event {project.position('projection.recorded')} *PROJECTION_DIVERGED",
            "  who       bot, by the projection till of ui event e1",
        ]
    )


@pytest.mark.requirement("CARD-tests", "HC-journal")
def test_an_effect_without_a_recorded_result_fails_with_what_to_do(project: Project) -> None:
    project.recorded()
    project.test = TEST.replace("range(2)", "range(3)")
    ran = project.run(code=1)
    ran.stdout.fnmatch_lines(
        ['The effect bank.charge with {"item":"salt"} has no recorded result, and tests make no *--record=new adds*']
    )


@pytest.mark.requirement("CARD-tests")
def test_what_a_test_does_after_the_end_of_the_log_is_added_only_on_purpose(project: Project) -> None:
    project.recorded()
    before = project.golden.read_bytes().splitlines()
    more = '        world.act("bot", "charge", {"item": "tea", "count": 1})\n'
    project.test = TEST.replace('        assert world.data()["stock"]', more + '        assert world.data()["stock"]')
    project.test = project.test.replace('["salt 1", "salt 2"]', '["salt 1", "salt 2", "tea 1"]')
    project.run(code=1)
    assert project.golden.read_bytes().splitlines() == before
    project.run("--record=new", makes=1)
    after = project.golden.read_bytes().splitlines()
    assert after[: len(before) - 1] == before[:-1]  # the last line is the tree head
    assert len(after) > len(before)
    project.run(makes=0)
    project.test = TEST
    project.run(code=1).stdout.fnmatch_lines(["*The test ends before this event; played again, nothing more happens."])


def test_a_refused_addition_names_the_event_that_holds_other_code(project: Project) -> None:
    project.recorded()
    before = project.golden.read_bytes()
    position = project.position("policy.adopted")
    project.shop = SHOP + "\n# the module's text is part of the identity of its rules\n"
    more = '    world.act("bot", "sell", {"item": "tea", "count": 1})\n'
    project.test = TEST.replace("\n\ndef test", f"{more}\n\ndef test").replace("== 6", "== 5")
    ran = project.run("--record=new", code=1)
    ran.stdout.fnmatch_lines([f"*Nothing was added: event {position}, policy.adopted, names other code*"])
    assert project.golden.read_bytes() == before


@pytest.mark.requirement("CARD-tests", "CARD-replay")
def test_a_log_of_an_earlier_version_of_the_engine_is_still_the_same_test(project: Project) -> None:
    project.recorded()
    told = [json.loads(line) for line in project.golden.read_bytes().splitlines()]
    for line in told:
        if line.get("topic") == "decision.made":
            line["schemaVersion"] = 1
    project.golden.write_bytes(b"".join(rehashed(told)))
    project.run(makes=0)
    more = '        world.act("bot", "charge", {"item": "tea", "count": 1})\n'
    project.test = TEST.replace('        assert world.data()["stock"]', more + '        assert world.data()["stock"]')
    project.test = project.test.replace('["salt 1", "salt 2"]', '["salt 1", "salt 2", "tea 1"]')
    project.run("--record=new", makes=1)
    project.run(makes=0)


@pytest.mark.requirement("CARD-tests")
def test_scenes_that_are_played_otherwise_are_shown_at_the_first_event(project: Project) -> None:
    project.recorded()
    project.test = TEST.replace('"count": 3', '"count": 2').replace('["tea"] == 6', '["tea"] == 7')
    project.run(code=1).stdout.fnmatch_lines(
        [
            f"shop.jsonl comes out differently at event {project.position('proposal.submitted')} *: PLAYED_DIFFERENTLY",
            "  differs   intent.body.input.count",
            "    recorded  3",
            "    now       2",
        ]
    )


def test_other_code_that_comes_to_the_same_is_no_difference(project: Project) -> None:
    project.recorded()
    before = project.golden.read_bytes()
    project.change("have - input.count)", "have - (input.count))")
    project.run()
    assert project.golden.read_bytes() == before


@pytest.mark.requirement("CARD-audit", "CARD-tests")
def test_a_log_that_was_changed_is_no_test(project: Project) -> None:
    project.recorded()
    project.golden.write_bytes(project.golden.read_bytes().replace(b'"count":3', b'"count":4'))
    project.run(code=1).stdout.fnmatch_lines(["shop.jsonl is no sound recorded log. Line *: event * was changed*"])


@pytest.mark.requirement("CARD-audit", "CARD-tests")
def test_a_forged_log_whose_hashes_fit_is_found_out(pytester: pytest.Pytester) -> None:
    (pytester.path / "world.toml").write_text('domain = "tests.golden.garden:garden"\n')
    log = garden.FOLDER / "garden-forged.jsonl"
    pytester.makepyfile(f"def test_it(recorded): recorded({str(log)!r})")
    ran = pytester.runpytest("-p", "no:cacheprovider")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        ["garden-forged.jsonl comes out differently at event 44 of *: LOG_DAMAGED", "  WRONG_HASH*"]
    )


@pytest.mark.requirement("CARD-tests", "CARD-replay")
def test_a_log_from_elsewhere_is_checked_with_the_code_at_hand(recorded: Recordings, tmp_path: Path) -> None:
    log = shutil.copy(garden.FOLDER / "garden.jsonl", tmp_path)
    found = recorded(log, domain=garden.garden, policies=[garden.rules], projections=[garden.sensor])
    told = json.loads((garden.FOLDER / "garden.summary.json").read_text())
    assert found.data == told["data"]
    assert found.checked is not None
    assert found.checked.steps["executions"] == 16


def test_a_policy_that_is_not_at_hand_proves_nothing(pytester: pytest.Pytester) -> None:
    (pytester.path / "world.toml").write_text('domain = "tests.golden.garden:garden"\n')
    pytester.makepyfile(f"def test_it(recorded): recorded({str(garden.FOLDER / 'garden.jsonl')!r})")
    ran = pytester.runpytest("-p", "no:cacheprovider")
    ran.stdout.fnmatch_lines(["*: POLICY_NOT_AT_HAND", "Give the test the domain, the policies and the projections*"])
    assert "neither an action nor a policy" not in ran.stdout.str()  # which nobody can know then


def test_a_missing_log_that_nothing_drives_fails_in_every_mode(project: Project) -> None:
    project.test = "import shop\ndef test_it(recorded): recorded('golden/shop.jsonl', **shop.PARTS)\n"
    for mode in ("none", "once", "new", "all"):
        project.run(f"--record={mode}", code=1).stdout.fnmatch_lines(["There is no recorded log *"])


def unused(project: Project, *options: str, code: int) -> bool:
    ran = project.run(*options, code=code)
    return "recorded logs that no test uses" in ran.stdout.str()


@pytest.mark.requirement("CARD-tests")
def test_a_log_with_which_a_scene_begins_is_used(project: Project) -> None:
    project.recorded()
    project.test = """
import shop

def test_more(given):
    given("golden/shop.jsonl", **shop.PARTS).when("sell", {"item": "tea", "count": 1}, actor="bot")
"""
    text = project.pytester.path / "pytest.ini"
    text.write_text("[pytest]\nworldprotocol_golden = golden\n")
    assert not unused(project, code=0)
    project.test = "def test_none(): pass\n"
    assert unused(project, code=1)


@pytest.mark.requirement("CARD-tests")
def test_a_recorded_log_that_no_test_uses_fails_a_run_of_all_tests(project: Project) -> None:
    project.recorded()
    second = project.golden.with_name("old.jsonl")
    second.write_bytes(project.golden.read_bytes())
    project.run(code=1).stdout.fnmatch_lines(["*recorded logs that no test uses*", str(second), "Delete them, or *"])
    assert unused(project, "-n", "1", code=1)
    assert not unused(project, "-k", "shop or other", "--deselect", "test_shop.py::test_none", "test_shop.py", code=0)
    assert not unused(project, "test_shop.py::test_the_shop", code=0)
    project.test = TEST + "\ndef test_other(recorded): pass\n"
    assert not unused(project, "-k", "the_shop", code=0)
    project.test = TEST + "\nfrom pytest import skip\ndef test_other(recorded): skip('not here')\n"
    assert not unused(project, code=0)
    second.unlink()
    assert not unused(project, code=0)


def test_the_configuration_names_the_folders_of_recorded_logs(project: Project) -> None:
    project.recorded()
    kept = project.pytester.path / "kept" / "deep"
    kept.mkdir(parents=True)
    (kept / "old.jsonl").write_bytes(b"")
    assert not unused(project, code=0)
    project.pytester.makeini("[pytest]\nworldprotocol_golden = kept golden\n")
    assert unused(project, code=1)


def test_a_world_toml_beside_the_test_says_what_the_realm_is(project: Project, tmp_path: Path) -> None:
    project.test = TEST.replace(", **shop.PARTS", "").replace("import shop\n", "").replace("shop.MADE", "[]")
    project.shop = f"{SHOP}\nhouse = Policy('house', [small])\n"
    (project.pytester.path / "world.toml").write_text(
        'domain = "shop:shop"\npolicies = ["shop:house"]\nprojections = ["shop:till"]\neffects = ["shop:bank"]\n'
    )
    project.test = project.test.replace('shop.jsonl"', 'shop.jsonl", data={"stock": {"tea": 11}}').replace(
        "== 6", "== 7"
    )
    project.run("--record=once")
    project.run("--record=none")


@pytest.mark.requirement("CARD-tests", "HC-journal")
def test_an_effect_that_failed_and_was_made_again_fails_and_is_made_again(project: Project) -> None:
    project.change(
        'return {"id"', 'if len(MADE) == 1:\n        return Failed("BUSY", "later", retryable=True)\n    return {"id"'
    )
    project.change("import handler", "import Failed, handler")
    project.test = """
import shop


def test_the_shop(recorded):
    with recorded("golden/shop.jsonl", **shop.PARTS) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        assert world.act("ann", "charge", {"item": "salt"}).status == "completed"
    assert len(shop.MADE) == MAKES
"""
    project.run("--record=once", makes=2)
    assert project.position("effect.retried") < project.position("effect.fulfilled")
    project.run("--record=none", makes=0)


def test_a_run_that_uses_nothing_of_this_imports_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            ours = {"world", "authority", "host", "projections", "hypothesis.strategies"}
            assert not ours & set(sys.modules)
            of_the_roof = [name for name in sys.modules if name.startswith("worldprotocol.")]
            assert of_the_roof == ["worldprotocol.pytest_plugin"]
        """
    )
    options = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:schemathesis")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)
