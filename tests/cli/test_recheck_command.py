"""``worldctl recheck``: both values of the first difference, many processes, and surroundings that are varied."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.realm import COUNTER, CliRealm, founded, sale
from tests.support.patience import PATIENCE_S
from worldprotocol.analysis.recheck.results import Changed
from worldprotocol.analysis.recheck.whole_log import RecheckSetup, recheck_log
from worldprotocol.analysis.work import stretches
from worldprotocol.analysis.work.stretches import Stretches
from worldprotocol.analysis.work.work_list import TaskDone
from worldprotocol.analysis.work.workers import Workers

FICKLE = Path(__file__).resolve().parent / "fickle.py"


@pytest.fixture(scope="module")
def fickle(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    realm = CliRealm(tmp_path_factory.mktemp("fickle"))
    realm("init", "--domain", f"{FICKLE}:notes", "--policy", f"{FICKLE}:sets")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm("actor", "add", "bot", "--kind", "agent", "--policy", "sets")
    for actor, action in (("ann", "hour"), ("ann", "tongue"), ("ann", "dice"), ("bot", "keep"), *[("ann", "take")] * 4):
        realm("submit", action, "--actor", actor, "--input", "{}")
    return realm


def positions(realm: CliRealm, topic: str) -> list[int]:
    return [line["position"] for line in realm("log", "--topic", topic, "--json").lines]


@pytest.mark.requirement("CARD-replay", "CARD-audit")
@pytest.mark.slow
def test_what_a_step_depends_on_is_found_by_varying_it(fickle: CliRealm) -> None:
    before = hashlib.sha256((fickle.folder / "world.db").read_bytes()).hexdigest()
    said = fickle("recheck", "--runs", "1", "--vary", "hashseed,order,locale,timezone", code=1).out
    ends = sorted(positions(fickle, "proposal.completed"))
    decisions = sorted(positions(fickle, "decision.made"))
    found = {name: int(at) for at, name in re.findall(r"^(\d+)\tvaries\t(\w+)\t", said, re.MULTILINE)}
    assert found.pop("order") in ends[4:]
    assert found == {"timezone": ends[0], "locale": ends[1], "nothing": ends[2], "hashseed": decisions[3]}
    assert "\tvaries\tnothing\tit differs from run to run with nothing varied:\n" in said
    assert (
        f"{ends[0]}\tvaries\ttimezone\tit depends on the timezone:\n  as it is: as recorded\n  TZ=WPA-14: The exec"
        in said
    )
    assert said.splitlines()[-1].startswith("6 runs up to event ")
    assert hashlib.sha256((fickle.folder / "world.db").read_bytes()).hexdigest() == before
    assert "hashseed, order, locale, timezone" in fickle("recheck", "--vary", "moon", code=2).err


@pytest.mark.requirement("CARD-replay")
@pytest.mark.slow
def test_what_makes_no_difference_is_said_too(fickle: CliRealm) -> None:
    upto = str(min(positions(fickle, "proposal.completed")))
    told = fickle("recheck", "--runs", "1", "--vary", "locale", "--upto", upto, "--json").json
    assert (told["ok"], told["byItself"], told["varied"]) == (True, None, {"locale": None})
    assert [run["varied"] for run in told["runs"]] == ["nothing", "nothing", "locale"]


@pytest.mark.requirement("CARD-replay", "CARD-audit")
@pytest.mark.slow
def test_the_first_difference_is_shown_with_both_values_and_with_what_changed(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    realm("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 2}')
    realm("submit", "sell", "--actor", "ann", "--input", '{"item": "cake", "count": 1}')
    assert "all as recorded" in realm("recheck").out
    other = tmp_path / "counter.py"
    other.write_text(COUNTER.read_text().replace("have - input.count)", "have - input.count - 1)"))
    config = tmp_path / "world.toml"
    config.write_text(config.read_text().replace(f"{COUNTER}:counter", f"{other}:counter"))
    told = realm("recheck", "--json", code=1).json
    drift, found = told["divergences"]
    assert (drift["code"], found["code"]) == ("CODE_CHANGED", "EXECUTION_DIVERGED")
    assert found["position"] == min(positions(realm, "proposal.completed"))
    assert found["changedSince"] == {"schema": False, "code": ["action:sell"], "policies": []}
    said = realm("recheck", code=1).out
    assert "recorded {" in said
    assert "computed {" in said
    assert "since this was recorded, the code of action:sell changed" in said
    assert len(realm("recheck", "--all", "--json", code=1).json["divergences"]) == 3


def broken(realm: CliRealm, other: str) -> None:
    """Let ``sell`` do something else from now on, under the same schema."""
    (realm.folder / "counter.py").write_text(COUNTER.read_text().replace('return [set_(f"stock', other))
    config = realm.folder / "world.toml"
    config.write_text(config.read_text().replace(f"{COUNTER}:counter", "counter.py:counter"))


@pytest.fixture
def crowd(tmp_path: Path) -> CliRealm:
    realm = founded(tmp_path)
    people = [line for number in range(8) for line in (sale("ann"), sale("bot", count=1 + number % 3))]
    realm("submit", "--intents", "-", given="".join(people), code=4)
    for answer in ("ask", "approve"):
        realm("submit", "charge", "--actor", "kid", "--input", '{"amount": 3}', code=4)
        waiting = realm("inbox", "--json").json[0]["proposalId"]
        realm("decide", waiting, answer, "--by", "ann", "--reason", "what for?")
    return realm


@pytest.mark.requirement("CARD-replay")
@pytest.mark.slow
def test_wherever_the_log_is_cut_the_stretches_come_to_the_same(
    crowd: CliRealm, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InTurn(Stretches[Any]):
        """Three openings of the log in this process, which take the stretches in turn."""

        def results(self) -> Iterator[tuple[int, int, TaskDone[Any]]]:
            with ExitStack() as opened:
                [work] = self._works
                begun = [opened.enter_context(work.begin()) for _ in range(self._workers.jobs or 1)]
                for at in range(work.after, work.upto):
                    yield 0, at + 1, TaskDone(0, at, begun[at % len(begun)]((at, at + 1)))

    monkeypatch.setattr(stretches, "Stretches", InTurn)
    for other in ("", "ctx.fail('GONE', 'no more')\n    return [set_(f\"stock"):
        if other:
            broken(crowd, other)
        at = str(COUNTER) if not other else str(crowd.folder / "counter.py")
        setup = RecheckSetup(
            str(crowd.folder / "world.db"), f"{at}:counter", (), (f"{COUNTER}:house",), every=bool(other)
        )
        one, three = (recheck_log(setup, workers=Workers(jobs)) for jobs in (1, 3))
        assert one.to_wire() == three.to_wire()
        assert one.ok is not bool(other)
        assert one.steps["rulings"] > 18


@pytest.mark.requirement("CARD-replay")
@pytest.mark.slow
def test_several_processes_come_to_what_one_comes_to(crowd: CliRealm) -> None:
    broken(crowd, 'return [set_("sold", 0), set_(f"stock')
    one, two = (crowd("recheck", "--jobs", jobs, "--json", code=1).json for jobs in ("1", "2"))
    assert one["divergences"] == two["divergences"]
    assert [found["code"] for found in one["divergences"]] == ["CODE_CHANGED", "EXECUTION_DIVERGED"]


@pytest.mark.slow
def test_ctrl_c_ends_the_processes(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    realm("submit", "--intents", "-", given=sale("bot") * 6)
    broken(
        realm,
        "import os\n    open(f'begun-{os.getpid()}', 'w').close()\n    while True: pass\n    return [set_(f\"stock",
    )
    for wanted in (["--jobs", "2"], ["--runs", "2"]):
        for file in tmp_path.glob("begun-*"):
            file.unlink()
        started = realm.start("recheck", *wanted)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and len(list(tmp_path.glob("begun-*"))) < 2:
            time.sleep(0.02)
        workers = [psutil.Process(int(file.name.removeprefix("begun-"))) for file in tmp_path.glob("begun-*")]
        assert len(workers) == 2
        os.kill(started.pid, signal.SIGINT)
        assert started.wait(PATIENCE_S) == 130
        assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == []
        for pipe in (started.stdin, started.stdout, started.stderr):
            if pipe is not None:
                pipe.close()


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (Changed(False, (), ()), "neither schema nor code of the domain nor policies have changed"),
        (Changed(False, (), (), is_whole=False), "what the functions call was not recorded"),
        (Changed(False, ("action:sell",), (), is_whole=False), "the code of action:sell changed"),
        (Changed(False, (), (), ("lib 2 (1 when adopted)",)), "the distribution lib 2 (1 when adopted) changed"),
    ],
)
def test_a_recheck_claims_unchanged_code_only_where_all_of_it_was_compared(changed: Changed, words: str) -> None:
    assert words in str(changed)
    assert ("nor code of the domain" in str(changed)) == (changed == Changed(False, (), ()))
    assert ("codeCompared" in changed.to_wire()) is not changed.is_whole
