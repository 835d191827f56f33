"""A command prints the same on a log and over a server on that log, byte by byte, and has the same exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.remote.commanded import Commanded, commanded
from world.events.proposal_events import HumanAnswered, ProposalSubmitted
from worldprotocol.server.commands.command_table import REMOTE

pytestmark = pytest.mark.slow

READING = [
    "inbox",
    "inbox --for ann",
    "inbox --at {waiting}",
    "log",
    "log --topic proposal.submitted --actor bot",
    "log --reverse --limit 3",
    "log --redact inputs --redact actors",
    "log --topic none",
    "show HEAD",
    "show {waiting}",
    "show 5",
    "show {waiting} --redact inputs",
    "show none",
    "explain {waiting}",
    "explain {rejected}",
    "explain {waiting} --redact",
    "trace {done}",
    "trace e1",
    "state",
    "state stock.tea",
    "state nothing.here",
    "state --at 30",
    "diff main plan",
    "diff main main",
    "blame stock",
    "blame stock.tea --branch plan",
    "worlds",
    "worlds --limit 2",
    "waits",
    "stuck",
    "effects",
    "runs",
    "actions --actor bot",
    "actions --tools",
    "policy list",
    "policy list --all",
    "policy show house",
    "policy diff",
    "policy shadow show",
    "policy ask --actor bot --intent case.json --at HEAD",
    "policy ask --actor bot --intent missing.json",
    "policy ask sell --actor bot --input @case-input.json --scope sold --at HEAD",
    "policy backtest --with house",
    "lease list",
    "lease list --agent bot",
    "branch list",
    "actor list",
    "keys list",
    "rights list",
    "token list",
    "bisect --path stock.cake --becomes 3",
    "replay",
    "replay --data",
    "verify",
    "recheck",
    "whatif --drop {done}",
    "export",
    "export --redact inputs",
    "prove {done}",
    "prove --between 5 9",
]
"""Commands that change nothing; names in braces are proposals of the log."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commanded]:
    """Return a served shop, which no test of this module changes."""
    with commanded(tmp_path_factory.mktemp("equal")) as running:
        yield running


@pytest.fixture(scope="module")
def names(shop: Commanded) -> dict[str, str]:
    """Return proposals by what became of them."""
    with shop.served.place.realm() as realm:
        events = [event for _, event in realm.events()]
        ids = [one.proposal_id for one in events if isinstance(one, ProposalSubmitted)]
        assert not any(isinstance(one, HumanAnswered) for one in events)
        by_status = {realm.proposal(name).status: name for name in ids}
    return {"waiting": by_status["evaluating"], "rejected": by_status["rejected"], "done": by_status["completed"]}


def test_the_compared_commands_are_those_that_read() -> None:
    lines = [f"{line} " for line in READING]
    compared = {path for path in REMOTE if any(line.startswith(f"{path} ") for line in lines)}
    acting = {path for path, row in REMOTE.items() if set(row.rights) <= {"actor", "operator", "approver"}}
    assert set(REMOTE) - acting - compared == {"report", "checkpoint"}  # they contain the time, and need a key


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.slow)])
@pytest.mark.parametrize("line", READING)
def test_a_command_prints_the_same_over_a_server(shop: Commanded, names: dict[str, str], line: str, form: str) -> None:
    words = [*shlex.split(line.format(**names)), *(["--json"] if form == "json" else [])]
    local = shop.beside(*words)
    remote = shop.over("all", *words)
    assert (remote.out, remote.err, remote.code) == (local.out, local.err, local.code)


def test_what_is_printed_for_a_terminal_is_the_same_over_a_server(shop: Commanded) -> None:
    local, remote = shop.on_terminal("lease", "list"), shop.on_terminal("lease", "list", actor="all")
    assert "─" in local
    assert remote == local


def test_a_file_that_a_command_names_is_sent_and_no_other(shop: Commanded) -> None:
    there = shop.remote("all", "policy", "ask", "--actor", "bot", "--intent", "case.json", "--json").json
    assert there["input"] == {"item": "tea", "count": 9}
    said = shop.remote(
        "all", "policy", "ask", "--actor", "bot", "--intent", "world.toml", code=2
    )  # only the server has it
    assert "world.toml cannot be read: No such file" in said.err


def test_the_report_over_a_server_has_the_figures_of_the_log(shop: Commanded) -> None:
    local, remote = (shop.local("report", "--json").json, shop.remote("all", "report", "--json").json)
    assert local["events"] == remote["events"]
    page = shop.remote("all", "report").out
    assert page.startswith("<!DOCTYPE html>")
    assert str(local["events"]["counted"]) in page
