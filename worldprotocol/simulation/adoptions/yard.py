"""Scenario of adoptions: a yard whose model has constraints, migrations between versions, and programs that differ.

What states, inputs and migrations must come to is said by plain functions that share no code with the domains.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, field_validator

from authority import Approve, Policy, Reject, rule
from world.core import ActionContext, Domain, set_
from worldprotocol.simulation.scenario import DrawnIntent, Edition, Player, Scenario, SimulatedProgram

__all__ = ["scenario", "yard"]

PLACES: Final = ("a", "b")
MOST: Final = 30
FEW: Final = 12
UNLUCKY: Final = 13


class Yard(BaseModel):
    """The state of the first version."""

    counters: dict[str, Annotated[int, Field(ge=0, le=MOST)]] = {"a": 0, "b": 0}
    notes: dict[Annotated[str, Field(pattern="^[a-z]$")], Annotated[str, Field(max_length=5)]] = {}

    @field_validator("counters")
    @classmethod
    def is_lucky(cls, counters: dict[str, int]) -> dict[str, int]:
        """Refuse one number, which no schema says."""
        if UNLUCKY in counters.values():
            raise ValueError("13 is unlucky")
        return counters


class Note(BaseModel):
    """A note of the second version."""

    at: str
    text: str


class ListedYard(BaseModel):
    """The state of the second version: notes in a list."""

    counters: dict[str, Annotated[int, Field(ge=0, le=MOST)]]
    notes: list[Note]
    unit: str


class SmallYard(BaseModel):
    """The state of the third version: smaller counters, and no notes."""

    counters: dict[str, Annotated[int, Field(ge=0, le=FEW)]]


class YardAdding(BaseModel):
    """How much is added to what."""

    to: Annotated[str, Field(pattern="^[ab]$")]
    by: Annotated[int, Field(ge=-20, le=20)]


class YardNoting(BaseModel):
    """What is noted."""

    at: str
    text: str


def add(ctx: ActionContext, given: YardAdding) -> Any:
    """Add to a counter."""
    return [set_(f"counters.{given.to}", ctx.data["counters"][given.to] + given.by)]


# The text is that of the adopted function, since it is part of the schema; only the code differs.
def add_twice(ctx: ActionContext, given: YardAdding) -> Any:
    """Add to a counter."""
    return [set_(f"counters.{given.to}", ctx.data["counters"][given.to] + 2 * given.by)]


def note(ctx: ActionContext, given: YardNoting) -> Any:
    """Note something, in the form of the version."""
    notes = ctx.data.get("notes")
    if notes is None:
        return None
    if isinstance(notes, Mapping):
        return [set_(f"notes.{given.at}", given.text)]
    return [set_("notes", [*notes, {"at": given.at, "text": given.text}][-3:])]


def _version(version: str, state: type[BaseModel], adding: Any = add) -> Domain:
    domain = Domain("urn:worldprotocol:yard", version=version, state=state)
    domain.action("add", version="1")(adding)
    domain.action("note", version="1")(note)
    return domain


yard = _version("1.0.0", Yard)
listed = _version("2.0.0", ListedYard)
small = _version("3.0.0", SmallYard)


@yard.migration("2.0.0")
def to_a_map(data: Any) -> Any:
    """Return to the first version; texts are cut, and counters that are refused stay."""
    return {"counters": data["counters"], "notes": {one["at"]: one["text"][:5] for one in data["notes"]}}


@yard.migration("3.0.0")
def with_notes(data: Any) -> Any:
    """Return to the first version without notes."""
    return {"counters": data["counters"], "notes": {}}


@listed.migration("1.0.0")
def to_a_list(data: Any) -> Any:
    """Put notes into a list."""
    notes = [{"at": at, "text": text} for at, text in sorted(data["notes"].items())]
    return {"counters": data["counters"], "notes": notes, "unit": "pieces"}


@small.migration("2.0.0")
def without_notes(data: Any) -> Any:
    """Forget the notes; counters may be too large."""
    return {"counters": data["counters"]}


def _fits_first(data: Any) -> bool:
    if not isinstance(data.get("notes"), dict):
        return False
    numbers = data["counters"].values()
    is_noted = all(len(at) == 1 and "a" <= at <= "z" and len(text) <= 5 for at, text in data["notes"].items())
    return set(data) == {"counters", "notes"} and is_noted and all(0 <= n <= MOST and n != UNLUCKY for n in numbers)


def _fits_second(data: Any) -> bool:
    return set(data) == {"counters", "notes", "unit"} and all(0 <= n <= MOST for n in data["counters"].values())


def _fits_third(data: Any) -> bool:
    return set(data) == {"counters"} and all(0 <= n <= FEW for n in data["counters"].values())


def _listed(data: Any) -> Any:
    notes = [{"at": at, "text": data["notes"][at]} for at in sorted(data["notes"])]
    return {"counters": data["counters"], "notes": notes, "unit": "pieces"}


def _mapped(data: Any) -> Any:
    notes: dict[str, str] = {}
    for one in data["notes"]:
        notes[one["at"]] = one["text"][:5]
    return {"counters": data["counters"], "notes": notes}


def _takes(action: str, given: Any) -> bool:
    """Say which inputs fit."""
    if not isinstance(given, dict):
        return False
    if action == "add":
        is_whole = type(given.get("by")) is int and -20 <= given["by"] <= 20
        return set(given) == {"to", "by"} and given["to"] in PLACES and is_whole
    return set(given) == {"at", "text"} and all(type(value) is str for value in given.values())


def _ends(action: str, given: Any, data: Any) -> str:
    """Say which code an action ends with, empty for none."""
    if action == "add":
        after = {**data, "counters": {**data["counters"], given["to"]: data["counters"][given["to"]] + given["by"]}}
    elif "notes" not in data:
        return ""
    elif isinstance(data["notes"], dict):
        after = {**data, "notes": {**data["notes"], given["at"]: given["text"]}}
    else:
        after = data
    fits = _fits_first if isinstance(data.get("notes"), dict) else _fits_second if "unit" in data else _fits_third
    return "" if fits(after) else "INVALID_STATE"


def _adds(action: str, given: Any) -> Mapping[str, int]:
    return {f"counters.{given['to']}": given["by"]} if action == "add" else {}


def _draw(chance: Random) -> DrawnIntent:
    if chance.random() < 0.25:
        text = chance.choice(("x", "four", "longer than five", 7))
        return DrawnIntent("note", {"at": chance.choice(("a", "k", "Z", "zz")), "text": text})
    by = chance.choice((1, 2, 3, 5, 8, 13, -1, -4, 20, 21, "3", 1.5, None))
    return DrawnIntent("add", {"to": chance.choice((*PLACES, *PLACES, "c")), "by": by})


@rule("house")
def approves_small(case: Any) -> Any:
    """Approve what is small."""
    return Approve("small") if abs(int((case.intent.body.input or {}).get("by", 0))) < 9 else Reject("large")


@rule("house")
def approves_smaller(case: Any) -> Any:
    """Approve what is smaller."""
    return Approve("smaller") if abs(int((case.intent.body.input or {}).get("by", 0))) < 3 else Reject("not so small")


house = Policy("house", [approves_small])
_BOUND: Final = {"kind": "policy_rules", "policy": "house"}
_ASKED: Final = {"kind": "hitl", "ask": ["ann"], "timeoutMs": 60_000}

scenario = Scenario(
    domain=yard,
    actors=(
        Player("ann", "human", {"kind": "auto_approve"}),
        Player("bot-1", "agent", _BOUND),
        Player("bot-2", "agent", _BOUND),
        Player("cyd", "human", _ASKED),
    ),
    draw=_draw,
    editions=(
        Edition(yard, _fits_first, {"2.0.0": _mapped, "3.0.0": lambda data: {**data, "notes": {}}}),
        Edition(listed, _fits_second, {"1.0.0": _listed}),
        Edition(small, _fits_third, {"2.0.0": lambda data: {"counters": data["counters"]}}),
    ),
    policies=(house,),
    bindings=({"kind": "auto_approve"}, _BOUND, _ASKED),
    programs=(
        SimulatedProgram((Policy("house", [approves_smaller]),)),
        SimulatedProgram((house,), _version("1.0.0", Yard, add_twice)),
    ),
    adds=_adds,
    takes=_takes,
    ends=_ends,
)
