"""What an agent is told of a side effect outside of its declaration, sentence by sentence; hosts and ports of URLs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tables import for_each
from world.klis.observation import OUTSIDE, Declaration, Seen, outside_resource, shown, violation
from world.klis.predicate import Predicate
from world.klis.resources.resource_reading import canonical_resource, read_resource
from world.klis.triple import Triple


def triple(text: str) -> Triple:
    predicate, resource = text.split(" ", 1)
    return Triple(Predicate(predicate), canonical_resource(resource))


def seen(text: str, **more: Any) -> Seen:
    one = triple(text)
    return Seen(one.predicate, one.resource, **more)


FOLDER = "Tools that write a new file and put it in place need its folder declared, with /*. "
READ = "What agents need to read there is named in [workspace] read of world.toml, or by --allow-read. "


@pytest.mark.requirement("KO-3.1")
@for_each(
    ("declared", "attempted", "sentence"),
    [
        ([], "MUTATES FILE:/a", "MUTATES on /a but declared nothing there. "),
        ([], "CONSUMES URL:http://h/", "CONSUMES on URL:http://h/ but declared nothing there. "),
        (["CONSUMES FILE:/a"], "MUTATES FILE:/a", "MUTATES on /a but only declared CONSUMES. "),
        (
            ["CONSUMES FILE:/a", "DEPENDS_ON FILE:/a"],
            "MUTATES FILE:/a",
            "MUTATES on /a but only declared CONSUMES and DEPENDS_ON. ",
        ),
        (["CONSUMES FILE:/a/*"], "MUTATES FILE:/a/b", "MUTATES on /a/b but only declared CONSUMES on /a/*. "),
        (["CONSUMES FILE:/a"], "MUTATES FILE:/a/*", "MUTATES on /a/* but only declared CONSUMES on /a. "),
        (
            ["CONSUMES FILE:/a/*", "CONSUMES FILE:/a/b"],
            "MUTATES FILE:/a/b",
            "MUTATES on /a/b but only declared CONSUMES on /a/*, CONSUMES on /a/b. ",
        ),
        (
            [f"CONSUMES FILE:/a/{name}" for name in "bcd"],
            "DELETES FILE:/a/*",
            "DELETES on /a/* but only declared CONSUMES on /a/b, CONSUMES on /a/c, CONSUMES on /a/d. ",
        ),
        (
            [f"CONSUMES FILE:/a/{name}" for name in "bcdef"],
            "DELETES FILE:/a/*",
            "DELETES on /a/* but only declared CONSUMES on /a/b, CONSUMES on /a/c, CONSUMES on /a/d and 2 more. ",
        ),
        (["DELETES FILE:/a"], "MUTATES FILE:/a/b", "MUTATES on /a/b but only declared DELETES on /a. "),
        (["MUTATES FILE:/a/b"], "PROVIDES FILE:/a/c", f"PROVIDES on /a/c but declared nothing there. {FOLDER}"),
        (["MUTATES FILE:/b/b"], "PROVIDES FILE:/a/c", "PROVIDES on /a/c but declared nothing there. "),
        (["MUTATES FILE:/a/b"], "MUTATES FILE:/a/c", "MUTATES on /a/c but declared nothing there. "),
        (["MUTATES SYMBOL:x"], "PROVIDES SYMBOL:y", "PROVIDES on SYMBOL:y but declared nothing there. "),
    ],
)
def test_a_violation_says_what_was_declared_and_what_helps(declared: list[str], attempted: str, sentence: str) -> None:
    declaration = Declaration("ann", "s1", map(triple, declared))
    error = violation(declaration, seen(attempted))
    assert error.code == "KLIS_SCOPE_VIOLATION"
    assert error.message == f"Agent attempted {sentence}The agent is 'ann', its session s1."
    predicate, resource = attempted.split(" ")
    assert error.details["agent_id"] == "ann"
    assert error.details["session_id"] == "s1"
    assert (error.details["predicate"], error.details["resource"]) == (predicate, resource)
    assert {"call", "path"}.isdisjoint(error.details)
    found = [f"{one['predicate']} {one['resource']}" for one in error.details["declared"]]
    assert found == ([] if "nothing there" in sentence else declared)


@pytest.mark.requirement("KO-3.1")
def test_a_violation_outside_of_the_workspace_names_the_path_and_the_call() -> None:
    declaration = Declaration("ann", "s1", [triple("MUTATES FILE:/a")])
    there = outside_resource("/etc/passwd")
    assert (there.type, there.text, there.depth) == (OUTSIDE, "OUTSIDE:/etc/passwd", 0)
    for predicate, help_ in ((Predicate.CONSUMES, READ), (Predicate.MUTATES, "")):
        told = Seen(predicate, there, "open('x')", outside="/etc/passwd")
        error = violation(declaration, told)
        assert error.message == (
            f"Agent attempted {predicate} on /etc/passwd but that lies outside of the workspace. {help_}"
            "The agent is 'ann', its session s1."
        )
        assert (error.details["path"], error.details["call"]) == ("/etc/passwd", "open('x')")
    engines = Seen(Predicate.CONSUMES, there, outside="/w.db", is_engines=True)
    assert "but that is the engine's own. The agent" in violation(declaration, engines).message
    assert shown(read_resource("FILE:/a/*")) == "/a/*"
    assert shown(read_resource("SYMBOL:a")) == "SYMBOL:a"


@pytest.mark.requirement("KO-3", "KO-2.1")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h/a", ("h", 80)),
        ("https://h/a", ("h", 443)),
        ("ws://h/", ("h", 80)),
        ("wss://h/*", ("h", 443)),
        ("ftp://h/", ("h", 21)),
        ("http://h:8080/", ("h", 8080)),
        ("https://[::1]:7/", ("::1", 7)),
        ("gopher://h/", None),
        ("gopher://h:70/", ("h", 70)),
    ],
)
def test_a_url_lets_its_host_and_port_be_reached(url: str, address: tuple[str, int] | None) -> None:
    declaration = Declaration("ann", "s1", [triple(f"CONSUMES URL:{url}")])
    assert declaration.hosts == ({address} if address else set())
    promise = Declaration("ann", "s1", [triple(f"DEPENDS_ON URL:{url}"), triple("MUTATES FILE:/a")])
    assert promise.hosts == set()
    if address is not None:
        host, port = address
        for where, reached in (((host, port), True), ((host, port + 1), False), (("other", port), False)):
            one = seen("CONSUMES PROCESS:x", address=where)
            assert declaration.covers(one) is reached
            assert (declaration.unused([one]) == []) is reached
        assert declaration.declared_at(seen("CONSUMES PROCESS:x", address=("other", 1))) == list(declaration.triples)
    assert promise.declared_at(seen("CONSUMES PROCESS:x", address=("other", 1))) == [promise.triples[0]]


@pytest.mark.requirement("KO-3.2b")
def test_a_declaration_is_widened_once_by_each_triple() -> None:
    declaration = Declaration("ann", "s1", [triple("CONSUMES FILE:/a")] * 2)
    assert len(declaration.triples) == 1
    declaration.add(triple("CONSUMES FILE:/a"))
    declaration.add(triple("MUTATES FILE:/b/c"))
    assert [one.resource.text for one in declaration.triples] == ["FILE:/a", "FILE:/b/c"]
    assert declaration.covers(seen("MUTATES FILE:/b/c"))
    for place, looked in (("/", True), ("/b", True), ("/b/c", True), ("/c", False), ("/b/d", False)):
        assert declaration.covers(seen(f"CONSUMES FILE:{place}", looks=True)) is looked


@pytest.mark.requirement("KO-5.1")
def test_what_something_else_holds_is_not_judged_and_a_process_is_judged_by_hand_or_by_what_it_may_do() -> None:
    process, place = read_resource("PROCESS:make"), "MUTATES FILE:/src/*"
    told = [seen("PROVIDES PROCESS:make"), seen(place, opaque_of=process)]
    for declared, outside in (([], [told[1]]), (["PROVIDES PROCESS:make"], []), ([place], []),
                              (["CONSUMES FILE:/src/*"], [told[1]])):  # fmt: skip
        assert Declaration("ann", "s1", map(triple, declared)).outside(told) == outside
    held = [seen("MUTATES FILE:/x", is_held=True), seen("MUTATES FILE:/y")]
    assert Declaration("ann", "s1", ()).outside(held) == [held[1]]


@pytest.mark.requirement("KM-3.1")
def test_what_is_provided_may_be_changed_and_read_without_a_further_declaration() -> None:
    declaration = Declaration("ann", "s1", [triple("PROVIDES FILE:/a")])
    for attempted, covered in (("PROVIDES", True), ("MUTATES", True), ("CONSUMES", True), ("DELETES", False)):
        assert declaration.covers(seen(f"{attempted} FILE:/a")) is covered
        assert not declaration.covers(seen(f"{attempted} FILE:/b"))


@pytest.mark.requirement("KM-3.2")
def test_what_may_be_changed_may_be_read_and_not_the_other_way_round() -> None:
    for declared, attempted, covered in (("MUTATES", "CONSUMES", True), ("CONSUMES", "MUTATES", False)):
        declaration = Declaration("ann", "s1", [triple(f"{declared} FILE:/a/*")])
        assert declaration.covers(seen(f"{attempted} FILE:/a/b")) is covered
