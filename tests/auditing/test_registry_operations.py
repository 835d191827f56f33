"""Policies, actors, keys, rights and runs over HTTP: as the command line lists them, also in the past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.auditing.audited import founded_audited, ordered, worldctl
from tests.server.served import PATH, Served, serving

pytestmark = pytest.mark.slow

LIMITS = "requests_per_second = 10000\nburst = 10000"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server of a realm with policies, keys and runs."""
    place = founded_audited(tmp_path_factory.mktemp("audited"), LIMITS)
    for agent, session, program, code in (
        ("kid", "s-1", "true", 0),
        ("kid", "s-1", "false", 1),
        ("mule", "s-2", "true", 0),
    ):
        words = ("--agent", agent, "--session", session, "--reads", "rules.toml", "--permissive")
        worldctl(place)("run", *words, "--", program, code=code)
    with serving(place) as running:
        ordered(running, "pol", "tea", "one")
        ordered(running, "pol", "milk", "two")
        yield running


def read(served: Served, path: str, **query: Any) -> Any:
    with served.client("aud") as aud:
        answer = aud.get(f"{PATH}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def told(served: Served, *words: str) -> Any:
    return worldctl(served.place)(*words, "--json").json


def test_policies_are_those_of_the_command_line(audited: Served) -> None:
    found = read(audited, "/policies")
    assert found["states"] == told(audited, "policy", "list")
    assert found["history"] == told(audited, "policy", "list", "--all")
    assert [one["event"] for one in found["history"]] == ["adopted", "adopted"]
    [in_force] = found["policies"]
    assert in_force["policyHash"] == found["history"][-1]["hash"]


def test_the_past_of_policies_is_that_of_the_command_line(audited: Served) -> None:
    first, second = read(audited, "/policies")["history"]
    at = str(second["position"] - 1)
    found = read(audited, "/policies", at=at)
    assert found["states"] == told(audited, "policy", "list", "--at", at)
    assert found["history"] == [first]
    assert [one["policyHash"] for one in found["policies"]] == [first["hash"]]
    assert read(audited, "/policies/house", at=at)["hash"] == first["hash"]


def test_a_policy_is_found_by_its_name_and_by_its_hash(audited: Served) -> None:
    first, second = read(audited, "/policies")["history"]
    shared = ("name", "hash", "version", "combination", "rules")
    for named, position in (
        ("house", second["position"]),
        (f"house@{first['hash'][:9]}", first["position"]),
        (first["hash"], first["position"]),
    ):
        found = read(audited, f"/policies/{named}")
        shown = told(audited, "policy", "show", named if named.startswith("house") else f"house@{named}")
        assert {name: found[name] for name in shared} == {name: shown[name] for name in shared}
        assert shown["position"] == position
    with audited.client("aud") as aud:
        for named in ("none", "house@0000000", "0000000", "a" * 900, "house@", "rules.toml", "os:system"):
            answer = aud.get(f"{PATH}/policies/{named}")
            assert answer.status_code == 404, (named, answer.text)


def test_actors_rights_and_keys_are_those_of_the_command_line(audited: Served) -> None:
    actors = read(audited, "/actors")["actors"]
    assert actors == told(audited, "actor", "list")
    keys = read(audited, "/keys")["keys"]
    assert keys == told(audited, "keys", "list")
    assert [one["revoked"] for one in keys] == [True]
    rights = read(audited, "/rights")["rights"]
    assert rights == told(audited, "rights", "list")
    for one in actors:
        found = read(audited, f"/actors/{one['actorId']}")
        assert {name: found[name] for name in one} == one
        assert found["rights"] == [right for right in rights if right["actorId"] == one["actorId"]]
        assert found["keys"] == [key for key in keys if key["agentId"] == one["actorId"]]
    with audited.client("aud") as aud:
        missing = aud.get(f"{PATH}/actors/nobody")
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("what", ["actors", "keys", "rights"])
def test_the_past_of_the_registry_is_that_of_the_command_line(audited: Served, what: str) -> None:
    words = {"actors": "actor", "keys": "keys", "rights": "rights"}[what]
    size = read(audited, "")["position"]
    seen = set()
    for at in ("3", "9", str(size // 2), str(size - 6), str(size)):
        found = read(audited, f"/{what}", at=at)[what]
        assert found == told(audited, words, "list", "--at", at)
        seen.add(str(found))
    assert len(seen) > 1


def test_runs_are_those_of_the_command_line(audited: Served) -> None:
    runs = told(audited, "runs")
    found = read(audited, "/runs")
    assert [{name: one[name] for name in runs[0]} for one in found["runs"]] == runs
    assert (found["more"], found["next"], len(runs)) == (False, None, 3)
    for words, query in (
        (["--agent", "kid"], {"agent": "kid"}),
        (["--open"], {"open": "true"}),
        (["--at", "HEAD"], {"at": "HEAD"}),
    ):
        answer = read(audited, "/runs", **query)["runs"]
        assert [one["runId"] for one in answer] == [one["runId"] for one in told(audited, "runs", *words)]
    for one in runs:
        shown = told(audited, "show", one["runId"])
        assert read(audited, f"/runs/{one['runId']}") == shown["verification"]
    with audited.client("aud") as aud:
        assert aud.get(f"{PATH}/runs/none").json()["code"] == "UNKNOWN_RUN"


def test_runs_are_listed_page_by_page(audited: Served) -> None:
    everything = [one["runId"] for one in read(audited, "/runs")["runs"]]
    pages: list[str] = []
    cursor: dict[str, int] = {}
    while True:
        page = read(audited, "/runs", limit=1, **cursor)
        pages += [one["runId"] for one in page["runs"]]
        if page["next"] is None:
            break
        cursor = {"before": page["next"]}
    assert pages == everything
    assert not page["more"]


def test_the_past_needs_the_right_to_read_everything(audited: Served) -> None:
    with audited.client("ops") as ops, audited.client("aud") as aud:
        assert ops.get(f"{PATH}/rights", params={"at": "9"}).status_code == 200
        for at in ("", "999999", "2200-01-01T00:00:00Z", "nothing", "-1", "\u202e\u0000é" * 20):
            refused = aud.get(f"{PATH}/actors", params={"at": at})
            assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND"), refused.text
        assert aud.get(f"{PATH}/actors", params={"at": "9" * 201}).status_code == 400
