"""Blame of every value below a path, against a naive model: a dict from path to last writer, kept going forward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.notebook import drop, merged, opened, put, write
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import Patch, apply_patch
from world.model.paths import look_up, parse_path
from world.read_models.blame import blame_values
from world.read_models.value_tracking import NOBODY, Tracker, leaves
from worldprotocol.testing import strategies as wp

Place = tuple[str, ...]

NAMES = st.sampled_from(["a", "b", "0", "1", "2"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(".".join)
VALUES = st.recursive(
    st.sampled_from([None, 0, 1, "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
PATCHES = wp.patches(at=PATHS, values=VALUES, keys=NAMES)
WORLDS = st.lists(st.lists(PATCHES, max_size=3), max_size=8)


def endings(value: Any, at: Place = ()) -> Iterator[Place]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not members or not value:
        yield at
        return
    for name, item in members:
        yield from endings(item, (*at, str(name)))


class Naive:
    """Who wrote what last: going forward, one patch after the other."""

    def __init__(self, data: FrozenDict) -> None:
        self.data = data
        self.last = dict.fromkeys(endings(data), 0)

    def take(self, patch: Patch, writer: int) -> None:
        after = apply_patch(self.data, patch)
        at = parse_path(patch.path)
        if patch.op == "merge":
            for key, value in patch.value.items():
                self.put((*at, key), value, writer)
            if not patch.value and look_up(after, at) == {}:
                self.put(at, {}, writer)
        elif patch.op == "set":
            self.put(at, patch.value, writer)
        else:
            self.drop(at, writer)
        self.data = after

    def put(self, at: Place, value: Any, writer: int) -> None:
        self.last = {
            place: by for place, by in self.last.items() if place[: len(at)] != at and at[: len(place)] != place
        }
        self.last |= {(*at, *below): writer for below in endings(value)}

    def drop(self, at: Place, writer: int) -> None:
        parent, name = look_up(self.data, at[:-1]), at[-1]
        if isinstance(parent, list) and int(name) < len(parent):
            self.last = {moved: by for place, by in self.last.items() if (moved := self.moved(place, at)) is not None}
        else:
            self.last = {place: by for place, by in self.last.items() if place[: len(at)] != at}
        if isinstance(parent, dict | list) and (
            not parent or list(parent) == [name] or len(parent) == 1 == self.at(at)
        ):
            self.last[at[:-1]] = writer

    def at(self, at: Place) -> int:
        """Return 1 where the place is the one element of a list."""
        parent = look_up(self.data, at[:-1])
        return int(isinstance(parent, list) and len(parent) == 1 and at[-1] == "0")

    @staticmethod
    def moved(place: Place, gone: Place) -> Place | None:
        depth = len(gone) - 1
        if place[:depth] != gone[:depth] or len(place) <= depth or int(place[depth]) < int(gone[-1]):
            return place
        if place[depth] == gone[-1]:
            return None
        return (*place[:depth], str(int(place[depth]) - 1), *place[depth + 1 :])


def played(worlds: list[list[Patch]], start: Any) -> tuple[Naive, list[list[tuple[Patch, int]]]]:
    """Make the patches that fit, and return the model with those of each world, numbered from 1."""
    model, number = Naive(freeze(start)), 0
    made: list[list[tuple[Patch, int]]] = []
    for patches in worlds:
        fitting = []
        for patch in patches:
            try:
                model.take(patch, number + 1)
            except RefusedError:
                continue
            number += 1
            fitting.append((patch, number))
        made.append(fitting)
    return model, made


def followed(model: Naive, made: list[list[tuple[Patch, int]]], at: Place = ()) -> tuple[Tracker, dict[str, int]]:
    tracker = Tracker()
    tracker.follow(model.data, at)
    for world in reversed(made):
        tracker.undo([patch for patch, _ in world], [number for _, number in world])
    tracker.take_rest(0)
    value = look_up(model.data, at)
    found = [path for path, _ in leaves(value, ".".join(at))]
    return tracker, dict(zip(found, tracker.owners, strict=True))


@pytest.mark.requirement("IC-audit")
@given(WORLDS, VALUES)
def test_every_value_is_of_the_patch_that_a_naive_model_names(worlds: list[list[Patch]], start: Any) -> None:
    model, made = played(worlds, {"a": start})
    tracker, found = followed(model, made)
    assert found == {".".join(place): by for place, by in model.last.items()}
    assert tracker.remaining == 0
    assert NOBODY not in tracker.owners


@given(WORLDS, VALUES, st.data())
def test_a_value_is_of_the_same_patch_whichever_path_was_asked_about(
    worlds: list[list[Patch]], start: Any, data: st.DataObject
) -> None:
    model, made = played(worlds, {"a": start})
    place = data.draw(st.sampled_from(sorted(model.last)))
    at = place[: data.draw(st.integers(0, len(place)))]
    _, found = followed(model, made, at)
    assert found == {".".join(place): by for place, by in model.last.items() if place[: len(at)] == at}


@given(WORLDS, VALUES, st.data())
def test_values_that_are_followed_together_do_not_disturb_each_other(
    worlds: list[list[Patch]], start: Any, data: st.DataObject
) -> None:
    model, made = played(worlds, {"a": start})
    chosen = data.draw(st.lists(st.sampled_from(sorted(model.last)), unique=True))
    tracker = Tracker()
    numbers = [tracker.follow(model.data, place) for place in chosen if place]
    for world in reversed(made):
        tracker.undo([patch for patch, _ in world], [number for _, number in world])
    tracker.take_rest(0)
    assert [tracker.owners[at] for those in numbers for at in those] == [model.last[place] for place in chosen if place]


@given(WORLDS, PATHS)
def test_what_is_absent_is_of_a_patch_that_touches_its_place(worlds: list[list[Patch]], path: str) -> None:
    model, made = played(worlds, {"a": {}})
    place, tracker = parse_path(path), Tracker()
    tracker.follow(model.data, place)
    tracker.undo([patch for world in made for patch, _ in world], [number for world in made for _, number in world])
    patches = {number: patch for world in made for patch, number in world}
    for owner in tracker.owners:
        if owner != NOBODY:
            at = parse_path(patches[owner].path)
            assert at[: len(place) - 1] == place[: len(at[: len(place) - 1])]


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_arrays_merges_and_removals_keep_the_writers_apart(tmp_path: Path) -> None:
    with opened(tmp_path / "world.db", data={"tags": ["red", "green"]}) as world:
        first = write(world, put("tags.2", "blue"), put("doc.lamp", {"on": True, "watt": 40}), by="ann")
        second = write(world, drop("tags.0"), merged("doc.lamp", {"watt": 60}), by="bob")
        third = write(world, drop("doc.lamp.on"), put("count", 0), by="eve")
        world.act("eve", "edit", {"fail": True})
        genesis = world.sealed(first).parent
        found = blame_values(world.archive, "", world.branch().head)
        assert {one.path: (one.value, origin.cause.sealed.world_id) for one, origin in found.with_origins()} == {
            "count": (0, third),
            "doc.lamp.watt": (60, second),
            "tags.0": ("green", genesis),
            "tags.1": ("blue", first),
        }
        assert [one.path for one in found] == [path for path, _ in leaves(world.data())]
        gone = blame_values(world.archive, "doc.lamp.on", world.branch().head)
        assert (gone.present, len(gone)) == (False, 1)
        assert [origin.cause.sealed.world_id for _, origin in gone.with_origins()] == [third]
        again = write(world, put("doc.lamp.on", False), by="ann")
        back = blame_values(world.archive, "data.doc.lamp.on", again)
        [(one, origin)] = back.with_origins()
        assert (one.value, origin.cause.sealed.world_id) == (False, again)
        assert origin.patch == Patch("set", "doc.lamp.on", False)
        assert origin.cause.submitted is not None
        assert origin.cause.submitted.actor.actor_id == "ann"
        then = blame_values(world.archive, "doc", second)
        assert [one.path for one in then] == ["doc.lamp.on", "doc.lamp.watt"]
