"""Which projection answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import world.code.references
from projections import (
    ENTRY_POINTS,
    ROUTER,
    FunctionProjection,
    Guard,
    NoIntent,
    Once,
    ProjectionRegistry,
    ProjectionRequest,
    Select,
    UnsafeUnguarded,
    find_projections,
    load_projections,
    projection,
)
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

ANN = ActorRef(actor_id="ann", kind="human")
VIEW = SnapshotView(FrozenDict(), FrozenDict())


def request(kind: str = "ui", payload: Any = None) -> ProjectionRequest:
    return ProjectionRequest("5c" * 32, VIEW, ANN, SourceEvent.read({"kind": kind, "eventId": "e", "payload": payload}))


def selecting(name: str, **when: Any) -> FunctionProjection:
    """Return a projection that selects an intent called like itself."""
    return projection(name, **when)(lambda req: IntentBody(type=name))


def silent(name: str, reason: str | None = None, **when: Any) -> FunctionProjection:
    return projection(name, **when)(lambda req: NoIntent(reason))


def refused(code: str, call: Callable[[], Any]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


# Order


@pytest.mark.requirement("INT-7.1", "INT-11.1")
def test_the_first_that_selects_an_intent_answers_and_the_rest_is_not_asked():
    asked = []

    def noting(name: str, answer: Any) -> FunctionProjection:
        def note(req: ProjectionRequest) -> Any:
            asked.append(name)
            return answer

        return projection(name)(note)

    registry = ProjectionRegistry([noting("c", None), noting("b", IntentBody(type="t")), noting("a", None)])
    routed = registry.route(request())
    assert (routed.projection_id, routed.considered) == ("b", ("a", "b"))
    assert asked == ["a", "b"]
    assert isinstance(routed.result, Select)


def test_a_higher_priority_is_asked_earlier_and_equal_ones_by_id():
    registry = ProjectionRegistry(
        [selecting("b"), selecting("a"), selecting("z", priority=1), selecting("y", priority=-1)]
    )
    assert [known.projection_id for known in registry] == ["z", "a", "b", "y"]
    assert (len(registry), "z" in registry, "x" in registry) == (4, True, False)


entries = st.lists(
    st.tuples(
        st.text("abc\uff21\U0001f600", min_size=1, max_size=3),
        st.integers(-1, 1),
        st.sampled_from(["intent", "reason", "none"]),
        st.none() | st.sets(st.sampled_from(["ui", "api", "agent", "system"])),
        st.booleans(),
    ),
    unique_by=lambda entry: entry[0],
    max_size=6,
)


def made(entry: tuple[str, int, str, set[str] | None, bool]) -> FunctionProjection:
    name, priority, answer, sources, accepting = entry
    when: dict[str, Any] = {"priority": priority, "sources": sources, "accepts": lambda source: accepting}
    if answer == "intent":
        return selecting(name, **when)
    return silent(name, f"{name} says no" if answer == "reason" else None, **when)


@pytest.mark.requirement("INT-11.1", "INV-P2")
@given(given_entries=entries, kind=st.sampled_from(["ui", "api", "agent", "system"]), order=st.randoms())
def test_who_answers_does_not_depend_on_who_was_registered_first(given_entries, kind, order):
    shuffled = list(given_entries)
    order.shuffle(shuffled)
    one = ProjectionRegistry(map(made, given_entries)).route(request(kind))
    other = ProjectionRegistry(map(made, shuffled), invocation_mode=Guard()).route(request(kind))
    assert one == other
    wanted = [entry for entry in given_entries if (entry[3] is None or kind in entry[3]) and entry[4]]
    wanted.sort(key=lambda entry: (-entry[1], entry[0].encode("utf-16-be")))
    answering = [entry[0] for entry in wanted if entry[2] == "intent"]
    assert one.projection_id == (answering[0] if answering else None)
    names = [entry[0] for entry in wanted]
    assert list(one.considered) == (names[: names.index(answering[0]) + 1] if answering else names)


# Who is asked


def test_a_projection_is_asked_about_its_own_kinds_of_events_only():
    registry = ProjectionRegistry([selecting("clicks", sources=["ui"]), selecting("calls", sources=["api", "agent"])])
    answers = {kind: registry.route(request(kind)).projection_id for kind in ("ui", "api", "agent", "system")}
    assert answers == {"ui": "clicks", "api": "calls", "agent": "calls", "system": None}


@pytest.mark.parametrize("mode", [None, Once(), Guard(), UnsafeUnguarded()])
def test_a_projection_is_asked_about_events_that_it_accepts_only(mode):
    def saves(source: SourceEvent) -> bool:
        return source.payload == "save"

    registry = ProjectionRegistry([selecting("saving", accepts=saves)], invocation_mode=mode)
    assert registry.route(request(payload="save")).projection_id == "saving"
    routed = registry.route(request(payload="load"))
    assert (routed.projection_id, routed.considered) == (None, ())


@pytest.mark.requirement("INT-11.3")
def test_accepting_does_not_see_when_something_occurred_either():
    seen: list[Any] = []

    def accepts(source: SourceEvent) -> bool:
        seen.append(source.occurred_at)
        return True

    registry = ProjectionRegistry([selecting("p", accepts=accepts)])
    source = SourceEvent(kind="ui", event_id="e", occurred_at=9)
    registry.route(ProjectionRequest("5c" * 32, VIEW, ANN, source))
    assert seen == [None]


@pytest.mark.parametrize(
    ("accepts", "code"),
    [(lambda source: None, "INVALID_PROJECTION_RESULT"), (lambda source: 1 / 0, "PROJECTION_FAILED")],
)
def test_accepting_answers_true_or_false_and_does_not_raise(accepts, code):
    for asking in (None, Guard(), UnsafeUnguarded()):
        registry = ProjectionRegistry([selecting("p", accepts=accepts)], invocation_mode=asking)
        fault = refused(code, partial(registry.route, request()))
        assert fault.details["projection"] == "p"


def test_what_is_chosen_at_registration_goes_before_what_the_projection_says():
    registry = ProjectionRegistry()
    registry.add(selecting("p", sources=["ui"], priority=5), sources=["api"], accepts=lambda source: True, priority=0)
    registry.add(selecting("o"))
    assert [known.projection_id for known in registry] == ["o", "p"]
    assert registry.route_among(["p"], request("ui")).projection_id is None
    assert registry.route_among(["p"], request("api")).projection_id == "p"


def test_any_object_with_an_id_and_project_is_a_projection():
    class Form:
        projection_id = "form"
        sources = ("ui",)
        priority = 3

        def project(self, req: ProjectionRequest) -> Any:
            return {"kind": "intent", "body": {"type": "form.submit"}}

    registry = ProjectionRegistry([Form(), selecting("a")])
    assert registry.route(request("ui")).projection_id == "form"
    assert registry.route(request("api")).projection_id == "a"


# Nothing


@pytest.mark.parametrize(
    ("projections", "reason", "recorded_as"),
    [
        ([], "no projection takes this event of kind ui", ROUTER),
        ([selecting("a", sources=["api"])], "no projection takes this event of kind ui", ROUTER),
        ([silent("a")], None, "a"),
        ([silent("a", "not now")], "not now", "a"),
        ([silent("a"), silent("b")], None, ROUTER),
        ([silent("a", "not now"), silent("b"), silent("c", "not here")], "a: not now; c: not here", ROUTER),
    ],
)
def test_where_none_answers_their_reasons_are_told(projections, reason, recorded_as):
    routed = ProjectionRegistry(projections).route(request())
    assert routed.projection_id is None
    assert routed.result == NoIntent(reason)
    assert routed.recorded_as == recorded_as


# Faults


def test_a_projection_at_fault_ends_the_routing():
    def divides(req: ProjectionRequest) -> Any:
        return 1 / 0

    registry = ProjectionRegistry([projection("a")(divides), selecting("b")])
    assert refused("PROJECTION_FAILED", lambda: registry.route(request())).details["projection"] == "a"


def test_an_id_is_given_once():
    registry = ProjectionRegistry([selecting("a")])
    refused("DUPLICATE_PROJECTION", lambda: registry.add(silent("a")))
    assert registry.route(request()).projection_id == "a"


class _Nameless:
    def project(self, req: Any) -> None:
        return None


class _Urgent(_Nameless):
    projection_id = "urgent"
    priority = "high"


@pytest.mark.parametrize("thing", [None, 5, lambda req: None, _Nameless, _Nameless(), _Urgent(), FunctionProjection])
def test_what_is_no_projection_is_refused(thing):
    refused("INVALID_PROJECTION", lambda: ProjectionRegistry([thing]))


def test_asking_among_projections_that_are_not_there_is_refused():
    registry = ProjectionRegistry([selecting("a")])
    assert refused("UNKNOWN_PROJECTION", lambda: registry.route_among(["a", "b"], request())).details["known"] == ["a"]


# Finding


def test_projections_are_found_by_reference(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from projections import ProjectionRegistry, projection\n"
        "@projection('one')\ndef one(req): return None\n"
        "@projection('two')\ndef two(req): return None\n"
        "both = [one, two]\nregistry = ProjectionRegistry(both)\nclass Box: inner = one\n"
        "def plain(req): return None\n"
    )
    for reference, names in (
        ("one", ["one"]),
        ("both", ["one", "two"]),
        ("registry", ["one", "two"]),
        ("Box.inner", ["one"]),
    ):
        found = load_projections(f"mine.py:{reference}", base=tmp_path)
        assert [given.projection_id for given in found] == names
    registry = find_projections(["mine.py:both"], base=tmp_path, entry_points=False, invocation_mode=Guard())
    assert [known.projection_id for known in registry] == ["one", "two"]
    fault = refused("INVALID_PROJECTION", lambda: load_projections("mine.py:plain", base=tmp_path))
    assert "mine.py:plain" in fault.message
    assert "@projection" in fault.message
    refused("DUPLICATE_PROJECTION", lambda: find_projections(["mine.py:one", "mine.py:both"], base=tmp_path))
    refused("NOT_LOADED", lambda: find_projections(["mine.py:three"], base=tmp_path))
    refused("BAD_REFERENCE", lambda: find_projections(["mine"], base=tmp_path))


def test_installed_packages_offer_projections_as_entry_points(monkeypatch):
    offered = sys.modules[__name__]
    monkeypatch.setattr(offered, "package_offer", [selecting("offered")], raising=False)
    points = [EntryPoint("some-package", f"{__name__}:package_offer", ENTRY_POINTS)]
    monkeypatch.setitem(sys.modules, __name__, offered)
    monkeypatch.setattr(world.code.references, "entry_points", lambda group: points if group == ENTRY_POINTS else [])
    assert [known.projection_id for known in find_projections()] == ["offered"]
    assert len(find_projections(entry_points=False)) == 0
    monkeypatch.setattr(offered, "package_offer", 5)
    assert "'some-package'" in refused("INVALID_PROJECTION", find_projections).message
