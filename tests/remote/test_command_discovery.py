"""``worldctl`` on a log that a server has: it uses the server's socket, unless that is of no use to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm, environment
from tests.server.served import Place, Served, founded, serving
from world.events.realm_events import BranchCreated

pytestmark = pytest.mark.slow

UID = os.getuid()


def peer(actor: str) -> str:
    """Return the lines of ``[server]`` that map this user to an actor."""
    return f"requests_per_second = 1000\nburst = 1000\n[server.peers]\n{UID} = '{actor}'"


def created(place: Place) -> list[tuple[str, str]]:
    """Return method and actor of all that created branches."""
    with place.realm() as realm:
        events = [event for _, event in realm.events() if isinstance(event, BranchCreated)]
    return [(one.verified.method, one.by) for one in events if one.verified is not None]


def commanded(served: Served, *words: str, code: int = 0) -> str:
    said = CliRealm(served.place.folder)(*words, code=code)
    return said.err if code else said.out


def test_a_mapped_peer_uses_the_socket_of_the_log(tmp_path: Path) -> None:
    place = founded(tmp_path, server=peer("all"))
    with serving(place) as served:
        commanded(served, "branch", "create", "one")
        commanded(served, "branch", "create", "two", "--log", place.log)
        commanded(served, "branch", "create", "three", "--config", "world.toml")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        CliRealm(elsewhere)("branch", "create", "four", WORLD_LOG=place.log)
        assert created(place) == [("peer", "all")] * 4
        commanded(served, "branch", "create", "five", "--local")
        assert created(place)[4:] == [("unauthenticated", "operator")]
        assert json.loads(commanded(served, "branch", "list", "--json"))["branches"][-1]["name"] == "five"
        assert commanded(served, "backups", "list") == ""  # no server executes it
        commanded(served, "recheck", "--jobs", "1")


def test_a_configured_socket_is_used_for_its_own_log_only(tmp_path: Path) -> None:
    place = founded(tmp_path, server=f"socket = 'here.sock'\n{peer('all')}")
    (tmp_path / "other").mkdir()
    other = founded(tmp_path / "other")
    with serving(place) as served:
        assert served.socket is not None
        assert Path(served.socket).name == "here.sock"
        commanded(served, "branch", "create", "one")
        assert created(place) == [("peer", "all")]
        (tmp_path / "world.toml").write_text((tmp_path / "world.toml").read_text().replace(place.log, other.log))
        commanded(served, "branch", "create", "two")
        assert created(other) == [("unauthenticated", "operator")]


def test_a_peer_that_is_not_mapped_works_on_the_file(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with serving(place) as served:
        commanded(served, "branch", "create", "one")
        assert created(place) == [("unauthenticated", "operator")]


def test_a_refusal_by_rights_names_the_way_around_it(tmp_path: Path) -> None:
    place = founded(tmp_path, server=peer("kid"))
    with serving(place) as served:
        for words in (["branch", "create", "one"], ["state"], ["submit", "order.place", "--actor", "ann"]):
            said = commanded(served, *words, code=1)
            assert "--local works on the file without it" in said, words
        assert created(place) == []
        assert "--local" in CliRealm(tmp_path)("--help").out


def test_a_socket_without_a_server_is_passed_over(tmp_path: Path) -> None:
    place = founded(tmp_path, server=peer("all"))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{place.log}.sock")
        CliRealm(tmp_path)("branch", "create", "one")  # nobody listens
    CliRealm(tmp_path)("branch", "create", "two")
    assert created(place) == [("unauthenticated", "operator")] * 2


@pytest.mark.parametrize("where", ["nothing", "config", "socket"])
def test_looking_for_a_socket_imports_nothing(tmp_path: Path, where: str) -> None:
    """A configuration without a socket is not even parsed; only what may be a socket is."""
    if where != "nothing":
        (tmp_path / "world.toml").write_text("log = 'world.db'\n[server]\nport = 1\n")
    if where == "socket":
        (tmp_path / "world.db.sock").write_text("a file of that name is no socket")
    code = (
        "import sys; from worldprotocol.cli.remote.target import run_remotely; import json;"
        "before = set(sys.modules); assert run_remotely(['inbox']) is None;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, check=True
    )
    assert json.loads(done.stdout) == []
