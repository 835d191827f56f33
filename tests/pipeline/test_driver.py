"""The driver: the one place that says which stage follows which, and what a source event costs on its way."""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, get_type_hints

import grimp
import pytest

import world.pipeline.driver as driver
from tests.pipeline.shop import open_shop
from tests.pipeline.test_sources import click, till
from world.pipeline.driver import STAGES, advance
from world.pipeline.unit_of_work import UnitOfWork
from worldprotocol.api.realm import Realm

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = ROOT / "world" / "pipeline"
ROOMS = ("world", "projections", "authority", "host", "worldprotocol")

STAGE_MODULES = (
    "project",
    "submit",
    "judge",
    "arbitrate",
    "decide",
    "execute",
    "seal",
    "recover",
    "effects.external_effects",
)

MAX_LINES = 200
MAX_DEPTH = 10
MAX_CALLS = 875
MAX_MODULES = 124
"""What a source event costs as the engine is; lower these with the cost."""

NO_CALLS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
"""Frames that newer versions of Python inline."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a function of the product.

    Args:
        path: the module's file, from the root of the project.
        name: qualified name of the function.
        depth: frames of the product from the first call of the trace, both included.
        caller: file and name of the calling function.
        stack: names of the frames, the innermost first.
        topic: for an event that is appended to the unit, its topic.
    """

    path: str
    name: str
    depth: int
    caller: tuple[str, str]
    stack: tuple[str, ...]
    topic: str = ""


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(tuple(f"{ROOT / room}/" for room in ROOMS)):
            yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> tuple[str, str]:
    return str(Path(frame.f_code.co_filename).relative_to(ROOT)), frame.f_code.co_qualname


@contextmanager
def traced() -> Iterator[list[Called]]:
    """Record the calls of functions of the product, in order; a generator that is resumed is not called again."""
    calls: list[Called] = []
    begun: list[FrameType] = []  # generators, kept so that no other frame gets their address

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name in NO_CALLS or frame in begun:
            return
        stack = list(_frames(frame))
        if not stack or stack[0] is not frame:
            return
        if frame.f_code.co_flags & 0x20:
            begun.append(frame)
        places = [_place(one) for one in stack]
        topic = frame.f_locals["event"].TOPIC if frame.f_code is UnitOfWork.emit.__code__ else ""
        caller = places[1] if len(places) > 1 else ("", "")
        calls.append(Called(*places[0], len(stack), caller, tuple(name for _, name in places), topic))

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> list[Called]:
    """Return the calls of a source event that is approved and sealed at once, on a log that was used before.

    Of five such events, it is the one with the fewest calls: a value that is computed once, or memory that is freed
    meanwhile, adds calls to some. Hashes of the Merkle tree, of which there are more or fewer with the size of the log,
    are not among them.
    """
    address = f"sqlite:///{tmp_path_factory.mktemp('driver') / 'shop.db'}"
    with open_shop(address, projections=[till]) as world:
        world.project(click(1, button="sell", item="tea"), "ann")
        walks = [_walk(world, number) for number in range(2, 7)]
    return min(walks, key=len)


def _walk(world: Realm, number: int) -> list[Called]:
    """Return the calls of one source event."""
    with traced() as calls:
        came = world.project(click(number, button="sell", item="tea"), "ann")
    assert came.proposal is not None
    assert came.proposal.status == "completed"
    return [call for call in calls if call.name != "node_hash"]


def test_the_driver_fits_on_a_page() -> None:
    assert len((PIPELINE / "driver.py").read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_no_stage_imports_another_one_and_a_contract_says_so() -> None:
    graph = grimp.build_graph("world", cache_dir=None)
    stages = {f"world.pipeline.{name}" for name in STAGE_MODULES}
    assert {stage.__module__ for stage in STAGES.values()} - {driver.__name__} <= stages
    assert stages < graph.find_modules_directly_imported_by(driver.__name__)
    for name in stages:
        assert graph.find_modules_directly_imported_by(name).isdisjoint({*stages, driver.__name__})
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (one for one in pyproject["tool"]["importlinter"]["contracts"] if one["id"] == "stages")
    assert (contract["type"], set(contract["modules"])) == ("independence", stages)


def test_no_stage_is_called_but_by_the_table() -> None:
    stages = {stage.__name__ for stage in STAGES.values()}
    for name in (*STAGE_MODULES, "driver"):
        tree = ast.parse((PIPELINE / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
        called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "id")}
        assert called.isdisjoint(stages)


def test_every_stage_takes_the_step_of_its_row() -> None:
    for step, stage in STAGES.items():
        assert [*get_type_hints(stage).values()][:2] == [UnitOfWork, step]


def test_what_follows_from_a_step_comes_before_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Split(str):
        __slots__ = ()

    class Whole(str):
        __slots__ = ()

    def split(_: UnitOfWork, step: Split) -> Iterator[Any]:
        for letter in step:
            yield Whole(letter)
            done.append(f"after {letter}")  # a stage that yields sees what its earlier steps did

    def whole(_: UnitOfWork, step: Whole) -> tuple[()]:
        done.append(str(step))
        return ()

    stages: dict[Any, Callable[..., Any]] = {Split: split, Whole: whole}
    monkeypatch.setattr(driver, "STAGES", stages)
    steps: Any = (Split("ab"), Whole("c"))
    work: Any = SimpleNamespace(observer=None)  # no stage here needs more of a unit of work
    advance(work, steps)
    assert done == ["a", "after a", "b", "after b", "c"]


def test_a_source_event_is_appended_ten_frames_deep_at_most(walk: list[Called]) -> None:
    append = [call for call in walk if call.name == "EventLog.insert_events"]
    assert len(append) == 1
    assert append[0].stack[-1] == "Realm.project"
    assert append[0].depth <= MAX_DEPTH  # the public call to the bytes of the commit
    emitted = [call for call in walk if call.topic]
    assert len(emitted) == 9
    for call in emitted:  # the command to the event
        from_command = call.stack.index("_outcome")
        assert from_command <= MAX_DEPTH, call.stack[:from_command]


def test_a_source_event_costs_no_more_calls_than_it_did(walk: list[Called]) -> None:
    modules = {call.path for call in walk}
    assert {"world/pipeline/driver.py", "world/pipeline/seal.py", "world/log/transaction.py"} <= modules
    assert len(walk) <= MAX_CALLS
    assert len(modules) <= MAX_MODULES


def test_a_source_event_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    with open_shop(f"sqlite:///{tmp_path / 'shop.db'}", projections=[till]) as world:
        for number in range(3):
            world.project(click(number, button="sell", item="tea"), "ann")
        gc.collect()
        gc.disable()
        try:
            came = world.project(click(3, button="sell", item="tea"), "ann")
            left = gc.collect()
        finally:
            gc.enable()
    assert came.proposal is not None
    assert left == 0  # a reference cycle keeps the events of the whole unit until the collector runs


def _rows() -> list[tuple[str, str, str, list[str]]]:
    """Return the rows of the walk in docs/architecture.md: step or caller, called function, file, topics."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("<!-- walk: begin -->")[2].partition("<!-- walk: end -->")[0]
    rows: list[tuple[str, str, str, list[str]]] = []
    for line in table.strip().splitlines()[2:]:
        by, called, path, _, topics = (cell.strip() for cell in line.strip("|").split(" | "))
        by = by.strip("`") or rows[-1][0]
        rows.append((by, called.strip("`"), "world/pipeline/" + path.strip("`"), re.findall(r"`([^`]+)`", topics)))
    return rows


def test_the_walk_in_the_docs_is_what_the_driver_does(walk: list[Called]) -> None:
    step_of = {stage.__name__: step.__name__ for step, stage in STAGES.items()}
    stage_files = {f"world/pipeline/{name}.py" for name in STAGE_MODULES}
    done: list[tuple[str, str, str, list[str]]] = []
    for call in walk:
        if call.caller[0] == "world/pipeline/driver.py" and call.path in stage_files:
            by = next(name for name in call.stack[1:] if name != "advance")
            done.append((step_of.get(call.name, by), call.name, call.path, []))
        if call.topic:
            done[-1][-1].append(call.topic)
    assert done == _rows()
