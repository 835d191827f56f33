"""Every command of ``worldctl`` with every right and with none, and what a caller gets that may not read everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import httpx
import pytest

from tests.server.kiosk import handlers, kiosk
from tests.server.served import NO_TLS, PATH, Served, founded, serving
from world.events.verification import RIGHTS
from worldprotocol.api.realm import Realm
from worldprotocol.cli.registry import COMMANDS
from worldprotocol.operations.registry import declared_operations
from worldprotocol.server.commands.command_table import LOCAL, OFFLINE, REMOTE
from worldprotocol.server.commands.command_words import local_reason

pytestmark = pytest.mark.slow


def leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, and those of a group at any depth, by their words."""
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from leaves(f"{path} {name}", one)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command


LEAVES = {path: one for name, entry in COMMANDS.items() for path, one in leaves(name, entry.load())}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a running server of this module's own, with proposals of bot and kid, and readers with redaction."""
    limits = "max_wait_s = 2\nrequests_per_second = 10000\nburst = 10000\n[redact]\nguest = ['inputs']"
    place = founded(tmp_path_factory.mktemp("served"), server=limits)
    with Realm.open(place.log, domain=kiosk, effects=handlers) as realm:
        for name, rights in {"guest": ["reader"], "clerk": ["reader", "approver"]}.items():
            realm.register(name, "human", binding={"kind": "auto_approve"})
            for right in rights:
                rules = ["inputs"] if right == "reader" else None
                realm.access.grant(name, right, by="operator", redaction=rules)  # type: ignore[arg-type]
            place.tokens[name] = realm.access.create_token(name, by="operator").token
    with serving(place) as running:
        assert running.submit("kid").json()["status"] == "completed"
        assert running.submit("bot").json()["status"] == "evaluating"
        yield running


@pytest.fixture(scope="module")
def proposals(served: Served) -> dict[str, str]:
    """Return the proposals by their actor."""
    with served.client("aud") as client:
        found = client.get(f"{PATH}/proposals").json()["proposals"]
    return {one["actor"]["actorId"]: one["proposalId"] for one in found}


def commanded(client: httpx.Client, *words: str) -> tuple[str, str, int | str]:
    """Run a command; return what it printed, its errors, and its exit code or the code of the problem."""
    answer = client.post(f"{PATH}/commands", json={"arguments": list(words)})
    if answer.status_code != 200:
        return "", answer.json()["detail"], answer.json()["code"]
    pieces = [json.loads(line) for line in answer.text.splitlines()]
    out, err = ("".join(one[1] for one in pieces if one[0] == kind) for kind in ("out", "err"))
    assert pieces[-1][0] == "exit"
    return out, err, pieces[-1][1]


def test_the_table_names_the_options_and_arguments_of_the_commands() -> None:
    assert set(REMOTE) <= set(LEAVES)
    for path, row in REMOTE.items():
        options = {name: one for one in LEAVES[path].params if isinstance(one, click.Option) for name in one.opts}
        for option in row.options:
            assert option.name in options, (path, option.name)
            found = options[option.name]
            assert found.is_flag == (option.form == ""), (path, option.name)
            assert found.nargs == (2 if option.form == "pair" else 1), (path, option.name)
        arguments = [one for one in LEAVES[path].params if isinstance(one, click.Argument)]
        many = [one for one in arguments if one.nargs == -1]
        if path != "bisect":  # its command is never run by a server
            assert len(row.arguments) in (len(arguments), 0), path
            assert not row.arguments or row.arguments[-1].endswith("...") == bool(many), path


def test_every_other_command_says_why_no_server_executes_it() -> None:
    derived = {one.command.words for one in declared_operations().values() if one.command is not None}
    for path in LEAVES.keys() - REMOTE.keys() - derived:
        assert local_reason(path) != local_reason("unknown"), path
    assert {path for path in LOCAL if not any(f"{one} ".startswith(f"{path} ") for one in LEAVES)} == set()
    assert LOCAL.keys() >= OFFLINE


@pytest.mark.parametrize("right", [*RIGHTS, None])
def test_a_command_needs_one_of_its_rights(served: Served, right: Any) -> None:
    """Each command is sent without arguments; where it is permitted, its own usage error is the answer of some."""
    with Realm.open(served.place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        limited = realm.access.create_token("all", by="operator", can=[right]) if right else None
    token = served.place.tokens["nil"] if limited is None else limited.token
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=60, trust_env=False, verify=NO_TLS) as client:
        codes = {path: commanded(client, *path.split())[2] for path in LEAVES}
    for path, code in codes.items():
        if right in (None, "worker"):
            assert code == "RIGHT_MISSING", path
        elif path not in REMOTE:
            assert code == "NOT_OVER_SERVER", path
        elif right in REMOTE[path].rights:
            assert code in (0, 1, 2), path
        else:
            assert code == "RIGHT_MISSING", path


def test_a_command_without_credentials_is_refused(served: Served) -> None:
    with served.client() as client:
        assert commanded(client, "inbox")[2] == "SIGN_IN_REQUIRED"


def test_an_actor_reads_its_own_proposals_and_no_other(served: Served, proposals: dict[str, str]) -> None:
    with served.client("kid") as client:
        for command in ("show", "explain", "trace"):
            out, _, code = commanded(client, command, proposals["kid"], "--json")
            assert (code, proposals["kid"] in out) == (0, True)
            for other in (proposals["bot"], proposals["bot"][:-2], "HEAD", "5", "main", "", "none"):
                assert commanded(client, command, other)[2] == "UNKNOWN_PROPOSAL", (command, other)
            assert commanded(client, command, proposals["kid"], "--at", "5")[2] == "RIGHT_MISSING"
        assert commanded(client, "decide", proposals["bot"], "approve")[2] == "UNKNOWN_PROPOSAL"
        assert commanded(client, "inbox", "--json")[0] == "[]\n"
        assert commanded(client, "inbox", "--for", "ann")[2] == "NOT_THE_VERIFIED_ACTOR"
        assert commanded(client, "submit", "order.place", "--base", "HEAD")[2] == "RIGHT_MISSING"


def test_an_approver_reads_what_it_is_asked_and_no_other(served: Served, proposals: dict[str, str]) -> None:
    with served.client("bob") as client:
        (entry,) = json.loads(commanded(client, "inbox", "--json")[0])
        assert entry["proposalId"] == proposals["bot"]
        assert proposals["bot"] in commanded(client, "show", proposals["bot"])[0]
        assert commanded(client, "show", proposals["kid"])[2] == "UNKNOWN_PROPOSAL"


def test_a_reader_with_redaction_gets_no_hidden_event(served: Served, proposals: dict[str, str]) -> None:
    with served.client("guest") as client:
        events = [json.loads(line) for line in commanded(client, "log", "--json")[0].splitlines()]
        hidden = [one for one in events if one.get("redacted")]
        assert hidden
        assert not any("state" in one for one in hidden)
        whole = json.loads(commanded(client, "show", "5", "--json")[0])
        assert whole["kind"] == "event"
        shown = json.loads(commanded(client, "show", proposals["kid"], "--json")[0])
        assert shown["redacted"]
        assert '"tea"' not in commanded(client, "export")[0]
        for words in (["state"], ["blame"], ["explain", proposals["kid"]], ["trace", proposals["kid"]], ["worlds"]):
            assert commanded(client, *words)[2] == "RIGHT_MISSING", words
        assert commanded(client, "inbox")[2] == "RIGHT_MISSING"
        assert commanded(client, "log", "--follow")[2] == "RIGHT_MISSING"
    with served.client("clerk") as client:  # approves nothing of these
        assert commanded(client, "inbox", "--json")[0] == "[]\n"


def found(served: Served, actor: str, kind: str, begins: str) -> list[str]:
    with served.client(actor) as client:
        ids: list[str] = client.get(f"{PATH}/names", params={"kind": kind, "begins": begins}).json()["ids"]
    return ids


def test_names_are_found_among_what_a_caller_may_read_alone(served: Served, proposals: dict[str, str]) -> None:
    with served.client("all") as client:
        for place in ("FILE:/x", "FILE:/y"):
            assert commanded(client, "lease", "acquire", place, "--session", "s")[2] == 0
        ids = [one["leaseId"] for one in client.get(f"{PATH}/leases").json()["leases"]]
        head = client.get(f"{PATH}/branches").json()["branches"][0]["head"]
    assert found(served, "all", "lease", ids[0][:4]) == sorted(ids)
    assert found(served, "all", "lease", ids[0]) == [ids[0]]
    assert found(served, "kid", "lease", ids[0][:4]) == found(served, "kid", "world", head) == []
    assert found(served, "kid", "proposal", proposals["kid"][:2]) == [proposals["kid"]]
    assert set(proposals.values()) <= set(found(served, "all", "proposal", proposals["kid"][:2]))
    assert found(served, "all", "world", "main") == found(served, "all", "world", head[:12]) == [head]
    assert found(served, "guest", "proposal", proposals["kid"]) == []  # its inputs are hidden from this reader
    assert found(served, "guest", "lease", ids[0]) == []
