"""Commands over a directory work where a moved realm is, and a log that was left says where its realm is now."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from worldprotocol.directory.directory import RealmDirectory

COUNTER = """\
id: urn:test:counter
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
POLICY = """\
name = "counting"
[[rules]]
id = "all"
verdict = "approve"
when = "true"
"""
STRICT = POLICY.replace('"true"', "\"intent.type == 'lower'\"")
PLACED = ("--directory", "realms.db", "--realm", "shop", "--config", "shop/world.toml")
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def moved(tmp_path: Path) -> Inside:
    """A realm with one intent at its old place and three more at its new one; world.toml names the old place."""
    (tmp_path / "counter.yaml").write_text(COUNTER)
    (tmp_path / "counting.toml").write_text(POLICY)
    (tmp_path / "strict.toml").write_text(STRICT)
    cli = Inside(tmp_path)
    create = ("realm", "create", "shop", "--place", "shop.db", "--domain", "counter.yaml", "--policy", "counting.toml")
    cli("--directory", "realms.db", *create)
    cli(*PLACED, "actor", "add", "ann", "--kind", "human", "--policy", "counting")
    cli(*PLACED, "submit", "raise", "--actor", "ann")
    cli("--directory", "realms.db", "realm", "move", "shop", "--to", "new.db")
    for _ in range(3):
        cli(*PLACED, "submit", "raise", "--actor", "ann")
    return cli


def test_audits_of_a_moved_realm_read_its_new_place(moved: Inside) -> None:
    assert moved(*PLACED, "verify", "--json").json["proposals"] == 4
    assert moved(*PLACED, "recheck", "--json").json["steps"]["executions"] == 4
    backtest = moved(*PLACED, "policy", "backtest", "--with", "strict.toml", "--json", code=1).lines[-1]
    assert (backtest["judged"], backtest["flips"]) == (4, 4)
    last = moved(*PLACED, "log", "--json", "--topic", "proposal.submitted").lines[-1]["state"]["proposalId"]
    assert moved(*PLACED, "whatif", "--drop", last, "--json", code=1).lines[-1]["proposals"] > 0


EVERY = (
    ["log"], ["show", "1"], ["runs"], ["stuck"], ["effects"], ["actions", "--actor", "ann"], ["state"], ["waits"],
    ["blame", "count"], ["worlds"], ["report", "-o", "report.html"], ["replay"], ["verify"], ["recheck"],
    ["export"], ["sql", "SELECT count(*) FROM events"], ["inbox"],
    ["branch", "list"], ["actor", "list"], ["policy", "list"], ["rights", "list"], ["token", "list"], ["keys", "list"],
    ["lease", "list"], ["settle"], ["policy", "ask", "raise", "--actor", "ann"], ["policy", "adopt", "counting"],
    ["policy", "backtest", "--with", "counting.toml"], ["doctor", "--rebuild"], ["submit", "raise", "--actor", "ann"],
)  # fmt: skip


def test_no_command_over_a_directory_needs_the_place_that_the_realm_has_left(moved: Inside) -> None:
    for file in moved.folder.glob("shop.db*"):
        file.unlink()
    failed = {}
    for words in EVERY:
        try:
            moved(*PLACED, *words)
        except AssertionError as error:
            failed[" ".join(words)] = str(error)
    assert failed == {}


def test_no_command_but_those_that_found_realms_reads_the_address_past_the_one_place_that_resolves_it() -> None:
    allowed = {"support/command_context.py", "remote/target.py", "remote/execution.py"}  # the place, and servers
    allowed |= {"commands/admin/init.py", "commands/admin/serve.py", "commands/admin/realm.py"}  # found, serve, create
    allowed |= {"commands/act/dev.py", "commands/agents/installation.py"}  # whether any was named
    allowed |= {"support/audit_work/options.py"}  # names one
    cli = ROOT / "worldprotocol" / "cli"
    for file in sorted(cli.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            is_configured = isinstance(node, ast.Attribute) and node.attr == "log_address"
            if is_configured or ast.unparse(node) == "desk.log":
                assert str(file.relative_to(cli)) in allowed, ast.unparse(node)


def test_a_left_log_says_where_its_realm_is_now(moved: Inside) -> None:
    place = f"{moved.folder}/new.db#main"
    verified = moved("--log", "shop.db", "verify", "--json").json
    assert verified["closed"] == {"epoch": 0, "reason": "move", "hasEnded": True, "place": place}
    assert f"the realm was moved to {place} and continues there" in moved("--log", "shop.db", "verify").out
    config = ("--config", "shop/world.toml")
    assert moved(*config, "recheck", "--json").json["closed"]["place"] == place
    assert f"was moved to {place}" in moved(*config, "recheck").err
    for words in (["state"], ["whatif", "--drop", "1"], ["policy", "backtest", "--with", "counting.toml"]):
        assert f"was moved to {place}" in moved(*config, *words, code=1 if "--drop" in words else 0).err, words
    refused = moved(*config, "submit", "raise", "--actor", "ann", code=1).err
    assert f"it was moved to {place}; open it there. [LOG_FENCED]" in refused


def test_audits_of_several_realms_take_names_of_the_directory(moved: Inside) -> None:
    with RealmDirectory.open(moved.folder / "realms.db") as opened:
        assert opened.entry("shop").place == f"{moved.folder}/new.db#main"
    create = ("realm", "create", "other", "--place", "other.db", "--domain", "counter.yaml")
    moved("--directory", "realms.db", *create)
    directory = ("--directory", "realms.db")
    found = moved(*directory, "verify", "shop", "other", "--json").json
    assert [(one["realm"], one["proposals"]) for one in found["realms"]] == [("shop", 4), ("other", 0)]
    assert moved(*directory, "verify", "shop", "--json").json["realms"][0]["proposals"] == 4
    both = ("shop=shop/world.toml", "other=other/world.toml")
    assert moved(*directory, "recheck", *both, "--json").json["total"]["steps"]["executions"] == 4
    backtest = moved(*directory, "policy", "backtest", *both, "--with", "counting.toml", "--json").lines
    assert backtest[-1]["judged"] == 4
    assert "[UNKNOWN_REALM]" in moved(*directory, "verify", "shop", "nobody", code=1).err
    by_environment = moved("verify", "other", "new.db", "--json", WORLDCTL_DIRECTORY="realms.db", code=0).json
    assert [one["proposals"] for one in by_environment["realms"]] == [0, 4]


def test_options_about_a_place_without_effect_are_refused(moved: Inside) -> None:
    assert (
        "here it would have no effect" in moved("--realm", "shop", "--config", "shop/world.toml", "state", code=2).err
    )
    assert "leave one of them out" in moved(*PLACED, "recheck", "shop", code=2).err
    assert "founds a realm in no directory" in moved(*PLACED, "init", "--domain", "counter.yaml", code=2).err
    assert "--directory goes with --realm NAME" in moved("--directory", "realms.db", "recheck", code=2).err
    (moved.folder / "shop.db").unlink()
    doctor = ("--realm", "shop", "--config", "shop/world.toml", "doctor")  # it runs here though a server is named
    assert moved(*doctor, WORLDCTL_SERVER="https://127.0.0.1:1", WORLDCTL_DIRECTORY="realms.db").out
