"""A workshop: a folder that actions change by effects they declared; for tests of effects under watch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from host.confinement.namespaces import Wanted
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, EffectFailedError, effect, set_
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.config import WorkspaceConfig
from worldprotocol.api.realm import Realm

PREDICATES = ("CONSUMES", "PROVIDES", "MUTATES", "DELETES", "DEPENDS_ON")


class Bench(BaseModel):
    told: list[Any] = []


class Move(BaseModel):
    old: str
    new: str


class Plan(BaseModel):
    """What is declared, by predicate, and the effects that are asked for one after the other."""

    consumes: list[str] = []
    provides: list[str] = []
    mutates: list[str] = []
    deletes: list[str] = []
    depends_on: list[str] = []
    renames: list[Move] = []
    steps: list[dict[str, Any]] = []
    give_up: bool = False


workshop = Domain("urn:test:workshop", version="1.0.0", state=Bench)

_DECLARED = [
    *(
        {"predicate": name, "resource": "{$item}", "each": {"kind": "get", "path": f"input.{name.lower()}"}}
        for name in PREDICATES
    ),
    {
        "predicate": "RENAMES",
        "resource": "{$item.old}",
        "to": "{$item.new}",
        "each": {"kind": "get", "path": "input.renames"},
    },
]


@workshop.action("run", version="1", manifest=_DECLARED)
def run(ctx: ActionContext, input: Plan) -> Any:  # noqa: A002
    told = []
    for step in input.steps:
        told += [(yield effect(step["effect"], **step["params"]))]
    if input.give_up:
        ctx.fail("GIVEN_UP", "after all this")
    return [set_("told", told)]


@workshop.action("shout", version="1", manifest=_DECLARED)
def shout(ctx: ActionContext, input: Plan) -> Any:  # noqa: A002
    for step in input.steps:
        yield effect(step["effect"], **step["params"])
    ctx.fail("LOUD", "a" * (9 << 20))


@workshop.action("insist", version="1", manifest=_DECLARED)
def insist(ctx: ActionContext, input: Plan) -> Any:  # noqa: A002
    told = []
    for step in input.steps:
        try:
            told.append((yield effect(step["effect"], **step["params"])))
        except EffectFailedError as failed:
            told.append(failed.code)
    return [set_("told", told)]


def a_workshop(
    address: str, root: Path, *, effects: Iterable[Any] = (), namespaces: Wanted = "auto", **parts: Any
) -> Realm:
    """Found a realm with a workspace and its actors; time and ids are the test's own."""
    root.mkdir(exist_ok=True)
    given = {"clock": ManualClock(1_000, 1), "ids": SequentialIds(), "domain": workshop, **parts}
    given.setdefault("limits", Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=4)))
    workspace = WorkspaceConfig(root=str(root.resolve()), namespaces=namespaces)
    world = Realm.create(address, effects=effects, workspace=workspace, **given)
    for name in ("ann", "bob"):
        world.register(name, "human", binding={"kind": "auto_approve"})
    return world


def step(effect_type: str, **params: Any) -> dict[str, Any]:
    """Return one effect of a plan; ``from_`` stands for ``from``."""
    return {"effect": effect_type, "params": {name.rstrip("_"): value for name, value in params.items()}}


def contents(root: Path) -> Mapping[str, str]:
    """Return what stands in the workspace, but for what is the engine's own."""
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else "/"
        for path in sorted(root.rglob("*"))
        if ".klock" not in path.relative_to(root).parts
    }


ALL: dict[str, Any] = {
    "consumes": ["FILE:/a.txt"],
    "mutates": ["FILE:/b.txt", "FILE:/new.txt"],
    "provides": ["FILE:/made.txt", "FILE:/folder"],
    "deletes": ["FILE:/sub/*"],
    "renames": [{"old": "FILE:/a.txt", "new": "FILE:/moved.txt"}],
}
STEPS = [
    step("file.read", path="/a.txt"),
    step("file.append", path="/b.txt", text="b"),
    step("file.write", path="/new.txt", text="new"),
    step("file.create", path="/made.txt", text="made"),
    step("file.mkdir", path="/folder"),
    step("file.delete", path="/sub", tree=True),
    step("file.rename", from_="/a.txt", to="/moved.txt"),
]
BEFORE = {"a.txt": "a", "b.txt": "b", "sub": "/", "sub/deep.txt": "deep"}
AFTER = {"b.txt": "bb", "folder": "/", "made.txt": "made", "moved.txt": "a", "new.txt": "new"}


def furnished(folder: Path) -> Path:
    """Return a new workspace with what ``BEFORE`` says in it."""
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.txt").write_text("deep")
    return folder
