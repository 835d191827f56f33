"""Lists, points in time after the cut, and redaction of a cut log, whose leases began before it."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COMMAND, environment
from world.log import open_log
from worldprotocol import Realm
from worldprotocol.export.cloud_events import CloudEvents
from worldprotocol.export.redaction import Redaction

pytestmark = pytest.mark.slow

DOMAIN = """
id: urn:example:counter
version: 1.0.0
state:
  fields:
    count: {type: number, default: 0}
actions:
  raise:
    flow:
      kind: patch
      op: set
      path: count
      value: {kind: add, left: {kind: get, path: count}, right: {kind: lit, value: 1}}
"""
RAISES = 60


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """A realm whose log was cut; ``whole.db`` is as it was before."""
    cli = Inside(tmp_path_factory.mktemp("cut"))
    (cli.folder / "counter.yaml").write_text(DOMAIN)
    cli("init", "--domain", "counter.yaml")
    cli("actor", "add", "zoe", "--kind", "agent", "--auto-approve")
    with Realm.open(cli.folder / "world.db", domain=cli.folder / "counter.yaml") as acting:
        for _ in range(RAISES):
            assert acting.act("zoe", "raise").status == "completed"
    cli("export", "whole.jsonl")
    cli("--log", "whole.db", "import", "whole.jsonl")
    cli("archive", "a", "--keep", "20", "--no-tables")
    cli("cut", "a", "--keep", "20")
    return cli


def cut_after(realm: Inside) -> int:
    upto: int = realm("verify", "--json").json["archived"]["upto"]
    return upto


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "command", [("lease", "list"), ("waits",), ("inbox",), ("worlds",), ("branch", "list"), ("actor", "list")]
)
def test_a_point_after_the_cut_is_shown_as_by_the_whole_log(realm: Inside, command: tuple[str, ...]) -> None:
    upto = cut_after(realm)
    for at in (upto + 1, upto + 3, upto + 20):
        asked = (*command, "--at", str(at), "--json")
        assert realm(*asked).out == realm("--log", "whole.db", *asked).out


@pytest.mark.parametrize("filters", [("--actor", "zoe"), ("--type", "raise"), ("--status", "completed")])
def test_a_filtered_list_begins_after_the_cut(realm: Inside, filters: tuple[str, ...]) -> None:
    upto = cut_after(realm)
    whole = realm("--log", "whole.db", "log", *filters, "--json").out.splitlines()
    expected = [line for line in whole if json.loads(line)["position"] > upto]
    said = realm("log", *filters, "--json")
    assert said.out.splitlines() == expected
    assert f"Events 1 to {upto} are archived" in said.err


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("rule", ["actors", "resources", "inputs", "actor=zoe"])
def test_redaction_of_a_cut_log_hides_what_it_hides_of_the_whole_one(realm: Inside, rule: str) -> None:
    upto = cut_after(realm)
    shown = {}
    for log in ("world.db", "whole.db"):
        lines = realm("--log", log, "log", "--redact", rule, "--json").out.splitlines()
        events = [json.loads(line) for line in lines]
        shown[log] = [one for one in events if upto < one["position"] <= upto + 100]
    assert shown["world.db"] == shown["whole.db"]
    assert shown["world.db"]


def test_names_of_agents_that_only_archived_events_register_stay_hidden(realm: Inside) -> None:
    redaction = Redaction(["actors"])
    with open_log(str(realm.folder / "world.db"), read_only=True) as log:
        redaction.learn(log)
        [newest] = list(log.read(log.head().size - 1))
    assert "zoe" in redaction._names["zoe"]
    assert newest.topic == "log.archived"


def test_a_followed_log_begins_after_the_cut(realm: Inside) -> None:
    with subprocess.Popen(
        [*COMMAND, "log", "--follow", "--json"], cwd=realm.folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        following.send_signal(signal.SIGINT)
        following.communicate()
    assert json.loads(first)["position"] == cut_after(realm) + 1


def test_cloud_events_of_a_cut_log_are_those_of_the_whole_one(realm: Inside) -> None:
    upto, found = cut_after(realm), {}
    for name in ("world.db", "whole.db"):
        with open_log(str(realm.folder / name), read_only=True) as log:
            events = [(one, False) for one in log.read(upto, upto + 100)]
            found[name] = CloudEvents(log).forms(events, is_whole=True)
    assert found["world.db"] == found["whole.db"]
