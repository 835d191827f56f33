"""Backtests: recorded cases judged again by another policy; planted flips are found, all of them and no others."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.counter import counter
from tests.cli.realm import COUNTER, CliRealm
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.limits import Limits
from world.pipeline import judge
from worldprotocol import Realm
from worldprotocol.analysis.backtest import Backtest, BacktestSetup, CaseSelection
from worldprotocol.analysis.work import stretches
from worldprotocol.analysis.work import workers as choice
from worldprotocol.analysis.work.processes import ProcessCrew
from worldprotocol.analysis.work.workers import Workers

pytestmark = pytest.mark.slow

START = 1_700_000_000_000
DECISIONS = 1_000
RULES = """
name = "{name}"

[[rules]]
id = "small_sales_pass"
verdict = "approve"
actions = ["sell"]
when = "intent.input.count <= {most}"

[[rules]]
id = "enough_for_today"
verdict = "reject"
when = "history.count({{'actorId': actor.actorId, 'outcome': 'completed'}}) >= {often}"

[[rules]]
id = "charges_go_to_people"
verdict = "escalate"
actions = ["charge"]
to = ["{asked}"]
when = "intent.input.amount > {amount}"
"""


def rules(name: str = "till", *, most: int = 5, often: int = 100_000, asked: str = "ann", amount: int = 0) -> str:
    return RULES.format(name=name, most=most, often=often, asked=asked, amount=amount)


def opened(folder: Path, **parts: Any) -> Realm:
    (folder / "rules.toml").write_text(rules())
    (folder / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    world = Realm.create(
        folder / "world.db",
        domain=counter,
        policies=["rules.toml"],
        folder=folder,
        clock=ManualClock(START, 1),
        **parts,
    )
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
    return world


def other(folder: Path, **changes: Any) -> str:
    file = folder / "other.toml"
    file.write_text(rules("other", **changes))
    return str(file)


def setup(folder: Path, policy: str, **wanted: Any) -> BacktestSetup:
    return BacktestSetup(str(folder / "world.db"), f"{COUNTER}:counter", policy, wanted=CaseSelection(**wanted))


def found(folder: Path, policy: str, *, jobs: int = 1, **wanted: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    running = Backtest(setup(folder, policy, **wanted), Workers(jobs))
    lines = list(running.lines())
    return lines, dict(running.counts)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A log of a thousand decisions; the ids of the proposals that flip where 4 is the most, in order, and all ids."""
    folder = tmp_path_factory.mktemp("thousand")
    numbers = random.Random(5)
    planted = set(numbers.sample(range(DECISIONS), 17))
    flips, every = [], []
    with opened(folder, durability="normal") as world:
        for at in range(DECISIONS):
            count = 5 if at in planted else numbers.choice((1, 2, 3, 4, 6, 7))
            done = world.act("bot", "sell", {"item": "tea", "count": count})
            every.append(done.proposal_id)
            if at in planted:
                flips.append(done.proposal_id)
    return folder, flips, every


@pytest.mark.requirement("CARD-policy", "CARD-replay")
@pytest.mark.parametrize("jobs", [1, 2])
def test_planted_flips_among_a_thousand_decisions_are_found_exactly(
    recorded: tuple[Path, list[str], list[str]], jobs: int
) -> None:
    folder, flips, every = recorded
    lines, counts = found(folder, other(folder, most=4), jobs=jobs)
    assert [one["proposalId"] for one in lines] == flips
    assert counts == {"judged": DECISIONS, "same": DECISIONS - len(flips), "flips": len(flips)}
    for one in lines:
        assert (one["change"], one["from"]["verdict"], one["to"]["verdict"]) == ("verdict", "approve", "reject")
        assert (one["from"]["decidedBy"], one["to"]["decidedBy"]) == (["small_sales_pass"], [])
        assert one["from"]["sources"] == ["rules.toml:4"]
    with Realm.open_read_only(folder / "world.db") as world:
        done = {one for one in every if world.proposal(one).status == "completed"}
    later = [sum(name in done for name in every[every.index(one) + 1 :]) for one in flips]
    assert [one["laterWorlds"] for one in lines] == later


@pytest.mark.requirement("CARD-replay")
def test_history_is_that_before_each_case(recorded: tuple[Path, list[str], list[str]]) -> None:
    folder, _, every = recorded
    with Realm.open_read_only(folder / "world.db") as world:
        done = [one for one in every if world.proposal(one).status == "completed"]
    lines, _ = found(folder, other(folder, often=len(done) - 3))
    assert [one["proposalId"] for one in lines] == done[-3:]
    assert {tuple(one["to"]["decidedBy"]) for one in lines} == {("enough_for_today",)}


def test_as_many_processes_judge_as_pay(
    recorded: tuple[Path, list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flips, _ = recorded
    policy, taken = other(folder, most=4), []

    class Counted(ProcessCrew):
        def __init__(self, count: int) -> None:
            taken.append(count)
            super().__init__(count)

    monkeypatch.setattr(choice, "ProcessCrew", Counted)
    monkeypatch.setattr(stretches, "cores", lambda: 4)
    monkeypatch.setattr(stretches, "watch_cores", lambda: lambda: 3)
    monkeypatch.setattr(stretches, "FIRST", 500)
    for pays_s, jobs in ((1_000.0, []), (1e-9, [3])):
        monkeypatch.setattr(stretches, "PAYS_S", pays_s)
        running = Backtest(setup(folder, policy))
        assert [one["proposalId"] for one in running.lines()] == flips
        assert taken == jobs


def test_only_what_is_wanted_is_judged(recorded: tuple[Path, list[str], list[str]]) -> None:
    folder, flips, _ = recorded
    policy = other(folder, most=4)
    with Realm.open_read_only(folder / "world.db") as world:
        at = world.proposal(flips[5]).submitted.at
    assert [one["proposalId"] for one in found(folder, policy, since=at)[0]] == flips[5:]
    assert [one["proposalId"] for one in found(folder, policy, until=at)[0]] == flips[:6]
    assert found(folder, policy, branch="nowhere") == ([], {})
    assert found(folder, policy, of="nobody")[1] == {"otherBindings": DECISIONS}


@pytest.mark.requirement("CARD-policy")
def test_what_people_would_say_is_undecided_and_what_they_said_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.register("eve", "human", binding={"kind": "auto_approve"})
        answered = world.act("bot", "charge", {"amount": 1}).proposal_id
        world.decide(answered, "reject", by="ann")
        open_still = world.act("bot", "charge", {"amount": 2}).proposal_id
        world.act("bot", "sell", {"item": "tea", "count": 1})
        world.act("ann", "sell", {"item": "tea", "count": 1})
    lines, counts = found(tmp_path, other(tmp_path))
    assert (lines, counts) == ([], {"judged": 3, "same": 3, "otherBindings": 1})
    lines, counts = found(tmp_path, other(tmp_path, asked="eve"))
    assert [(one["proposalId"], one["why"]) for one in lines] == [
        (answered, "asksPeople"),
        (open_still, "asksPeople"),
    ]
    voting = Path(other(tmp_path))
    voting.write_text(voting.read_text().replace("to = [", 'vote = "unanimous"\nto = ['))
    lines, counts = found(tmp_path, str(voting))  # another question, though it is the same ann
    assert [(one["proposalId"], one["why"]) for one in lines] == [
        (answered, "asksPeople"),
        (open_still, "asksPeople"),
    ]
    lines, counts = found(tmp_path, other(tmp_path, amount=9))  # by default rejected, as ann did
    assert [(one["proposalId"], one["why"]) for one in lines] == [(open_still, "neverDecided")]
    assert "flips" not in counts


DECIDES = """name = "house"

[[rules]]
id = "small_builds"
verdict = "approve"
when = "intent.input.name.size() == 1"

[[rules]]
id = "known_folders"
verdict = "narrow"
scope = ["data.built"]
when = "intent.input.name.startsWith('in-')"

[[rules]]
id = "nothing_hidden"
verdict = "reject"
when = "intent.input.name.startsWith('.')"
"""


@pytest.mark.requirement("CARD-policy")
def test_a_case_that_people_would_be_asked_about_names_the_rules_that_decided_it_then(tmp_path: Path) -> None:
    house = tmp_path / "house.toml"
    house.write_text(DECIDES)
    names = ("x", "in-x", ".x", "/../x")
    with site(tmp_path, str(house)) as world:
        ids = [world.act("bot", "build", {"name": name}).proposal_id for name in names]
        assert [world.proposal(one).status for one in ids] == ["completed", "completed", "rejected", "rejected"]
    running = Backtest(
        BacktestSetup(
            f"{tmp_path / 'world.db'}", f"{tmp_path / 'site.py'}:site", one_rule(tmp_path, "ask", "escalate")
        ),
        Workers(1),
    )
    lines = list(running.lines())
    assert {one["why"] for one in lines} == {"asksPeople"}
    told = [(one["from"]["verdict"], one["from"]["decidedBy"], one["from"]["sources"]) for one in lines]
    assert told == [
        ("approve", ["small_builds"], ["house.toml:3"]),
        ("approve", ["known_folders"], ["house.toml:8"]),
        ("reject", ["nothing_hidden"], ["house.toml:14"]),
        ("reject", [], []),
    ]
    (tmp_path / "world.toml").write_text(f'domain = "{tmp_path / "site.py"}:site"\npolicies = ["house.toml"]\n')
    words = CliRealm(tmp_path)("policy", "backtest", "--with", "ask.toml").out.splitlines()
    assert [line.split("\t")[4] for line in words[:-1]] == [
        f"{then} -> wait (it)"
        for then in (
            "approve (small_builds)",
            "approve (known_folders)",
            "reject (nothing_hidden)",
            "reject (by default)",
        )
    ]


@pytest.mark.requirement("CARD-policy")
def test_the_command_lists_flips_as_lines_and_ends_with_one(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        first = world.act("bot", "sell", {"item": "tea", "count": 5})
        world.act("bot", "sell", {"item": "tea", "count": 1})
    before = (tmp_path / "world.db").read_bytes()
    realm, policy = CliRealm(tmp_path), other(tmp_path, most=4)
    said = realm("policy", "backtest", "--with", policy, "--json", code=1)
    flip, summary = said.lines
    assert (flip["kind"], flip["proposalId"], flip["laterWorlds"]) == ("flip", first.proposal_id, 1)
    size = summary["upto"]
    counts = {"judged": 2, "same": 1, "flips": 1, "undecided": 0, "otherBindings": 0}
    assert summary == {"kind": "summary", **counts, "after": 0, "upto": size}
    [newest] = realm("policy", "backtest", "--with", policy, "--last", "1", "--json").lines
    assert (newest["judged"], newest["flips"], newest["upto"]) == (1, 0, size)
    assert flip["position"] <= newest["after"] < size
    both = realm("policy", "backtest", "--with", policy, "--last", "2", "--jobs", "2", "--json", code=1).lines
    assert (both[0], both[1]["judged"], both[1]["after"]) == (flip, 2, flip["position"] - 1)
    words = realm("policy", "backtest", "--with", "other.toml", "--jobs", "1", code=1).out
    assert "approve (small_sales_pass) -> reject (by default)\t1 later worlds" in words
    assert "the same: 2, flips: 0" in realm("policy", "backtest", "--with", "till").out
    assert json.loads(realm("policy", "backtest", "--with", "till", "--since", "1h", "--json").out)["judged"] == 0
    realm("policy", "backtest", "--with", "till", "--branch", "nowhere", code=1)
    assert (tmp_path / "world.db").read_bytes() == before


SITE = """
from pydantic import BaseModel

from worldprotocol import Domain, set_


class Site(BaseModel):
    built: int = 0


class Page(BaseModel):
    name: str


site = Domain("urn:example:site", version="1.0.0", state=Site)


@site.computed("isFull", deps=["built"])
def is_full(data):
    return data["built"] >= MOST


@site.action("build", version="1", manifest=[{"predicate": "MUTATES", "resource": "FILE:/out/{input.name}.html"}])
def build(ctx, given: Page):
    return [set_("built", ctx.data["built"] + 1)]


@site.computed("folder", deps=["built"])
def folder(data):
    return "out"


@site.action("mark", version="1", manifest=[{"predicate": "MUTATES", "resource": "FILE:/{computed.folder}/x"}])
def mark(ctx, given: Page):
    return []
"""
ONE_RULE = 'name = "{name}"\n[[rules]]\nid = "it"\nverdict = "{verdict}"\n'


def one_rule(folder: Path, name: str, verdict: str, when: str | None = None) -> str:
    file = folder / f"{name}.toml"
    condition = "" if when is None else f"when = {json.dumps(when)}\n"
    file.write_text(ONE_RULE.format(name=name, verdict=verdict) + condition)
    return str(file)


def site(folder: Path, policy: str, *, most: int = 9, name: str = "site") -> Realm:
    file = folder / f"{name}.py"
    file.write_text(SITE.replace("MOST", str(most)))
    world = Realm.create(folder / "world.db", domain=f"{file}:site", policies=[policy], clock=ManualClock(START, 1))
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": Path(policy).stem, "ask": ["ann"]})
    return world


def of_site(folder: Path, policy: str, **parts: Any) -> list[tuple[str, str]]:
    """Return what is found in a log of the site: a flip's verdicts, or why it is undecided."""
    name = parts.pop("name", "site")
    running = Backtest(BacktestSetup(str(folder / "world.db"), f"{folder / name}.py:site", policy, **parts), Workers(1))
    lines = list(running.lines())
    assert sum(running.counts.values()) - running.counts["judged"] == running.counts["judged"]
    return [
        (one["kind"], f"{one['from']['verdict']} to {one['to']['verdict']}" if one["kind"] == "flip" else one["why"])
        for one in lines
    ]


@pytest.mark.requirement("CARD-policy")
def test_what_people_approved_counts_as_approved_whatever_became_of_its_leases(tmp_path: Path) -> None:
    with site(tmp_path, one_rule(tmp_path, "house", "escalate")) as world:
        refused = world.act("bot", "build", {"name": "/../x"}).proposal_id
        assert world.decide(refused, "approve", by="ann").status == "rejected"  # its manifest is refused
        assert "manifest" in world.proposal(refused).decision.reason  # type: ignore[union-attr]
        rejected = world.act("bot", "build", {"name": "y"}).proposal_id
        world.decide(rejected, "reject", by="ann")
    assert of_site(tmp_path, one_rule(tmp_path, "yes", "approve")) == [("flip", "reject to approve")]
    assert of_site(tmp_path, one_rule(tmp_path, "no", "reject")) == [("flip", "approve to reject")]


@pytest.mark.requirement("CARD-policy")
def test_a_rejection_because_the_policy_was_not_in_force_was_decided_by_none_of_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "hold", lambda *_: False)  # earlier releases rejected what is held today
    house = one_rule(tmp_path, "house", "approve")
    site(tmp_path, house).close()
    one_rule(tmp_path, "house", "approve", "true")
    with Realm.open(tmp_path / "world.db", domain=f"{tmp_path / 'site.py'}:site", policies=[house]) as world:
        assert world.act("bot", "build", {"name": "x"}).status == "rejected"
    running = Backtest(BacktestSetup(str(tmp_path / "world.db"), f"{tmp_path / 'site.py'}:site", house), Workers(1))
    (flip,) = running.lines()
    assert flip["from"]["verdict"] == "reject"
    assert (flip["from"]["decidedBy"], flip["from"]["sources"]) == (["the engine"], ["policy in force"])
    assert flip["to"]["decidedBy"] == ["it"]


READS_NONE = "!(intent.input.name == 'y') && base.data.built >= 0"
READS_COMPUTED = "!base.computed.isFull"
IN_PYTHON = """
from worldprotocol import Approve, Policy, rule


@rule
def reads(case):
    return None if case.view.computed["computed.isFull"] else Approve()


@rule
def does_not(case):
    return Approve() if case.view.data["built"] < 9 else None


reading = Policy("reading", [reads])
other = Policy("other", [does_not])
"""


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_what_reads_computed_values_is_undecided_under_other_code_than_was_adopted(tmp_path: Path) -> None:
    house = one_rule(tmp_path, "house", "approve", READS_COMPUTED)
    (tmp_path / "rules.py").write_text(IN_PYTHON)
    with site(tmp_path, house) as world:
        for at in range(3):
            before = world.act("bot", "build", {"name": f"x{at}"}).proposal_id
    without = one_rule(tmp_path, "without", "approve", READS_NONE)
    reading, other = (f"{tmp_path / 'rules.py'}:{name}" for name in ("reading", "other"))
    with Realm.open(tmp_path / "world.db", domain=f"{tmp_path / 'site.py'}:site", policies=[house]) as world:
        assert world.act("bot", "mark", {"name": "x"}).status == "completed"
    (tmp_path / "later.py").write_text(SITE.replace("MOST", "2"))
    for policy in (house, without, reading, other):
        assert of_site(tmp_path, policy) == []
    assert of_site(tmp_path, house, name="later") == [("undecided", "otherCode")] * 4
    assert of_site(tmp_path, reading, name="later") == [("undecided", "otherCode")] * 4
    for policy in (without, other):  # what the action declares to touch is made of a computed value
        assert of_site(tmp_path, policy, name="later") == [("undecided", "otherCode")]
    with Realm.open(tmp_path / "world.db", domain=f"{tmp_path / 'later.py'}:site", policies=[house]) as world:
        world.adopt_domain()
        done = world.act("bot", "build", {"name": "x3"})
        assert done.status == "rejected"  # from here on it is full
        after = done.proposal_id
    assert of_site(tmp_path, house, name="later") == [("undecided", "otherCode")] * 4
    assert of_site(tmp_path, house) == [("undecided", "otherCode")]
    (tmp_path / "world.toml").write_text('domain = "later.py:site"\n')
    realm = CliRealm(tmp_path)
    now, then = (realm("explain", one, "--json").json for one in (after, before))
    assert (now["rules"][0]["reads"], now["note"]) == ({"base.computed.isFull": True}, None)
    assert "reads" not in then["rules"][0]
    assert "as adopted then, which is not available" in then["note"]
    assert f"  note      {then['note']}" in realm("explain", before).out


def test_a_rule_that_does_not_end_is_broken_off_in_a_backtest_too(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.act("bot", "sell", {"item": "tea", "count": 1})
    (tmp_path / "slow.py").write_text(ENDLESS.replace('write_text("a process has begun")', "name"))
    slow = f"{tmp_path / 'slow.py'}:endless"
    running = Backtest(
        BacktestSetup(str(tmp_path / "world.db"), f"{COUNTER}:counter", slow, limits=Limits(max_call_ms=50)), Workers(1)
    )
    (line,) = running.lines()
    assert (line["kind"], line["why"]) == ("undecided", "timedOut")
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\n[limits]\nmax_call_ms = 50\n')
    assert "RULE_TIMED_OUT" in CliRealm(tmp_path)("policy", "backtest", "--with", "slow.py:endless").out


def test_the_command_says_why_a_case_is_undecided_and_refuses_a_policy_that_never_judged(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.act("bot", "charge", {"amount": 2})
    realm, never = CliRealm(tmp_path), other(tmp_path, amount=9)
    said = realm("policy", "backtest", "--with", never).out
    assert "wait (charges_go_to_people) -> reject (by default)\tno human answer is recorded" in said
    assert realm("policy", "backtest", "--with", never, "--of", "till", "--json").lines[-1]["judged"] == 1
    told = realm("policy", "backtest", "--with", never, "--of", "tell", "--json", code=1).json["error"]
    assert (told["code"], told["details"]["known"]) == ("UNKNOWN_POLICY", ["till"])


ENDLESS = """
import threading
from pathlib import Path

from worldprotocol import Approve, Policy, rule

BEGUN = threading.Event()


def tells():
    BEGUN.wait()
    (Path(__file__).parent / "begun").write_text("a process has begun")


threading.Thread(target=tells, daemon=True).start()


@rule
def thinks_for_ever(case):
    BEGUN.set()
    while True:
        pass


endless = Policy("endless", [thinks_for_ever])
"""


def test_ctrl_c_ends_a_backtest_with_all_its_processes_in_the_middle_of_a_rule(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        for _ in range(4):
            world.act("bot", "sell", {"item": "tea", "count": 1})
    (tmp_path / "endless.py").write_text(ENDLESS)
    wanted = ["policy", "backtest", "--with", "endless.py:endless", "--jobs", "2", "--json"]
    command = [sys.executable, "-m", "worldprotocol", *wanted]
    paths = {"PYTHONPATH": f"{Path(__file__).parents[2]}"}
    os.mkfifo(tmp_path / "begun")
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **paths}, stdout=subprocess.PIPE) as running:
        assert (tmp_path / "begun").read_text().startswith("a process has begun")
        processes = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, json.loads(said)["error"]["code"]) == (130, "INTERRUPTED")
    assert len(processes) > 2
    assert psutil.wait_procs(processes, timeout=PATIENCE_S)[1] == []
