"""Projections that are not trusted: what they may not do is found, named and ended."""

from __future__ import annotations

import cProfile
import functools
import gc
import io
import json
import logging
import os
import random
import re
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from time import monotonic as the_clock
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pydantic import BaseModel, TypeAdapter, create_model

from projections import (
    FunctionProjection,
    Guard,
    NoIntent,
    ProjectionRegistry,
    ProjectionRequest,
    Select,
    ask,
    guarded,
    projection,
)
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

SCHEMA = "5c" * 32
ANN = ActorRef(actor_id="ann", kind="human", meta={"roles": ["editor"]})
CLICK = SourceEvent(kind="ui", event_id="click-1", payload={"button": "save", "at": [1, 2]}, occurred_at=17)
VIEW = SnapshotView(FrozenDict({"todos": {"b": {"n": 1}, "a": {"n": 2}}}), FrozenDict({"computed.open": 2}))
REQUEST = ProjectionRequest(SCHEMA, VIEW, ANN, CLICK)


class AtTheEnd:
    """Reads the clock when it is thrown away."""

    def __del__(self) -> None:
        time.time()


class StampedDate(datetime):
    """Somebody's own kind of date."""


def called(name: str, function: Callable[[ProjectionRequest], Any]) -> FunctionProjection:
    return projection(name)(function)


def refused(code: str, call: Callable[[], Any]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def opened_database() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", check_same_thread=False)


@pytest.fixture(autouse=True)
def everything_is_as_before() -> Iterator[None]:
    """Nothing stays behind: no profiler, no switched-off collector, no patched function."""
    functions = (time.time, random.random, os.urandom, uuid.uuid4, open, print)
    before = (sys.getprofile(), sys.gettrace(), gc.isenabled())
    yield
    assert (sys.getprofile(), sys.gettrace(), gc.isenabled()) == before
    assert (time.time, random.random, os.urandom, uuid.uuid4, open, print) == functions
    assert "PROJECTED" not in os.environ
    assert time.time() > 0


# What is impure

SHARED_RANDOM = random.Random(4)
DATABASE = opened_database()
POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()

IMPURE: list[tuple[str, str, Callable[[ProjectionRequest], Any]]] = [
    ("clock", "time.time", lambda req: time.time()),
    ("clock", "time.monotonic", lambda req: the_clock()),
    ("clock", "time.time_ns", lambda req: time.time_ns()),
    ("clock", "time.gmtime", lambda req: time.gmtime()),
    ("clock", "time.sleep", lambda req: time.sleep(0)),
    ("clock", "datetime.now", lambda req: datetime.now(UTC)),
    ("clock", "StampedDate.utcnow", lambda req: StampedDate.utcnow()),
    ("clock", "date.today", lambda req: date.today()),  # noqa: DTZ011
    ("clock", "time.perf_counter", lambda req: [time.perf_counter() for _ in range(2)]),
    ("randomness", "random.random", lambda req: random.random()),
    ("randomness", "random.getrandbits", lambda req: random.choice([1, 2])),
    ("randomness", "random.seed", lambda req: random.seed(5)),
    ("randomness", "random.Random", lambda req: random.Random().random()),
    ("randomness", "random.Random (made or seeded before the call)", lambda req: SHARED_RANDOM.random()),
    ("randomness", "os.urandom", lambda req: os.urandom(4)),
    ("randomness", "os.urandom", lambda req: random.SystemRandom().random()),
    ("randomness", "secrets.token_hex", lambda req: secrets.token_hex()),
    ("randomness", "uuid.uuid4", lambda req: uuid.uuid4()),
    ("randomness", "uuid.uuid1", lambda req: uuid.uuid1()),
    ("environment", "os.getenv", lambda req: os.getenv("HOME")),
    ("environment", "os.environ", lambda req: os.environ["HOME"]),
    ("environment", "os.environ", lambda req: os.environ.get("HOME")),
    ("environment", "os.environ", lambda req: "HOME" in os.environ),
    ("environment", "os.environ", lambda req: dict(os.environ)),
    ("environment", "os.environ", lambda req: os.environ.update(PROJECTED="1")),
    ("environment", "os.getcwd", lambda req: os.getcwd()),
    ("environment", "os.getpid", lambda req: os.getpid()),
    ("network", "socket.__new__", lambda req: socket.socket()),
    ("network", "socket.gethostname", lambda req: socket.gethostname()),
    ("network", "socket.getaddrinfo", lambda req: socket.create_connection(("localhost", 9))),
    ("network", "urllib.request.urlopen", lambda req: urllib.request.urlopen("http://localhost:9/")),
    ("files", "open('/dev/null')", lambda req: open("/dev/null")),  # noqa: SIM115
    ("files", "open('/dev/null')", lambda req: Path("/dev/null").read_text()),
    ("files", "os.stat", lambda req: Path("/dev/null").exists()),
    ("files", "os.listdir", lambda req: os.listdir("/")),
    ("files", "os.unlink", lambda req: os.unlink("/nowhere/at/all")),
    ("files", "shutil.rmtree", lambda req: shutil.rmtree("/nowhere/at/all")),
    ("files", "Connection.execute", lambda req: DATABASE.execute("select 1")),
    ("files", "input", lambda req: input()),
    ("processes", "subprocess.Popen", lambda req: subprocess.run(["true"], check=False)),
    ("processes", "os.system", lambda req: os.system("true")),
    ("processes", "os.fork", lambda req: os.fork()),
    ("threads", "threading.Thread.start", lambda req: threading.Thread(target=int).start()),
    ("threads", "ThreadPoolExecutor.submit", lambda req: POOL.submit(int).result()),
    ("output", "print", lambda req: print("x")),
    ("output", "logging", lambda req: logging.getLogger("projection").warning("x")),
    ("mutation", "a frozen value", lambda req: req.snapshot.data.update(x=1)),
    ("mutation", "a frozen value", lambda req: req.source.payload["at"].append(3)),
    ("mutation", "a frozen value", lambda req: setattr(req, "schema_hash", "")),
    ("mutation", "a frozen value", lambda req: setattr(req.snapshot, "data", FrozenDict())),
    ("mutation", "a frozen value", lambda req: setattr(req.actor, "kind", "system")),
    ("mutation", "what it was given", lambda req: dict.__setitem__(req.snapshot.data, "x", 1)),
    ("mutation", "what it was given", lambda req: dict.__setitem__(req.source.payload, "x", object())),
    ("mutation", "what it was given", lambda req: list.append((req.actor.meta or {})["roles"], "admin")),
    ("mutation", "what it was given", lambda req: object.__setattr__(req, "schema_hash", "")),
    ("mutation", "what it was given", lambda req: object.__setattr__(req.snapshot, "data", None)),
    ("mutation", "what it was given", lambda req: structs.force_setattr(req.source, "event_id", "other")),
    ("interpreter", "sys.setprofile", lambda req: sys.setprofile(None)),
    ("interpreter", "sys.setprofile", lambda req: partial(sys.setprofile, None)()),
    ("interpreter", "sys.settrace", lambda req: sys.settrace(None)),
    ("interpreter", "sys.addaudithook", lambda req: sys.addaudithook(lambda *_: None)),
]


@pytest.mark.requirement("INT-9.2", "INT-11.3", "INT-10.1", "INV-P1", "INV-P3", "INV-P5")
@pytest.mark.parametrize(
    ("kind", "attempt", "function"), IMPURE, ids=[f"{at}-{kind}-{what}" for at, (kind, what, _) in enumerate(IMPURE)]
)
def test_what_a_projection_may_not_do_is_refused_and_named(kind, attempt, function):
    fault = refused("PROJECTION_IMPURE", partial(guarded, called("careless", function), REQUEST))
    assert (fault.details["kind"], fault.details["attempt"]) == (kind, attempt)
    assert fault.details["projection"] == "careless"
    assert "'careless'" in fault.message
    assert attempt in fault.message
    if attempt != "what it was given":
        assert re.fullmatch(rf"{re.escape(__name__)}:\d+", fault.details["where"])
        assert fault.details["where"] in fault.message


@pytest.mark.requirement("INT-9.2", "INV-P1")
def test_nothing_impure_comes_to_pass(tmp_path):
    target = tmp_path / "written"
    for function in (
        lambda req: target.write_text("x"),
        lambda req: target.mkdir(),
        lambda req: subprocess.run(["touch", str(target)], check=False),
        lambda req: os.system(f"touch {target}"),
        lambda req: tempfile.mkdtemp(dir=tmp_path),
        lambda req: sqlite3.connect(target),
    ):
        refused("PROJECTION_IMPURE", partial(guarded, called("p", function), REQUEST))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("INT-9.2", "INV-P5")
def test_an_attempt_is_told_even_if_the_projection_hides_it():
    def hides(req: ProjectionRequest) -> Any:
        try:
            return {"kind": "none", "reason": str(time.time())}
        except BaseException:  # noqa: BLE001
            return NoIntent("all is well")

    def turns_it_into_something_else(req: ProjectionRequest) -> Any:
        try:
            open("/dev/null")  # noqa: SIM115
        finally:
            raise ValueError("all is well")

    def leaves(req: ProjectionRequest) -> Any:
        try:
            os.environ["HOME"]
        finally:
            sys.exit()

    attempts = [
        refused("PROJECTION_IMPURE", partial(guarded, called("p", function), REQUEST)).details["attempt"]
        for function in (hides, turns_it_into_something_else, leaves)
    ]
    assert attempts == ["time.time", "open('/dev/null')", "os.environ"]


@pytest.mark.requirement("INT-9.2")
def test_the_first_of_several_attempts_is_told():
    both = called("p", lambda req: (uuid.uuid4(), time.time()))
    fault = refused("PROJECTION_IMPURE", partial(guarded, both, REQUEST))
    assert fault.details["attempt"] == "uuid.uuid4"


@pytest.mark.requirement("INT-9.2")
def test_a_function_built_into_the_interpreter_is_seen_where_only_the_system_is_reached():
    # map calls sqlite3.connect without the profiler seeing it; the audit hook does.
    function = partial(lambda paths, req: list(map(sqlite3.connect, paths)), [":memory:"])
    assert refused("PROJECTION_IMPURE", partial(guarded, called("p", function), REQUEST)).details["kind"] == "files"


# What is not deterministic

COUNT: Iterator[int] = iter(range(10_000))
KEPT: list[object] = []
"""Objects that stay alive, so that each has an address of its own."""


@pytest.mark.requirement("INT-11.1", "INT-11.3", "INT-9.2", "INV-P2", "INV-P5")
@pytest.mark.parametrize(
    "function",
    [
        lambda req: IntentBody(type="t", input=next(COUNT)),
        lambda req: IntentBody(type=f"t{next(COUNT)}"),
        lambda req: IntentBody(type="t") if next(COUNT) % 2 else None,
        lambda req: {"kind": "intent", "body": {"type": "t", "scopeProposal": {"allowedPaths": [f"a{next(COUNT)}"]}}},
        lambda req: 1 // (next(FAILING)) and None,
        lambda req: {"kind": "none", "reason": str((KEPT.__iadd__([object()]))[-1])} if next(COUNT) else None,
        lambda req: IntentBody(type="t", input=functools.partial(time.perf_counter_ns)()),
    ],
)
def test_different_answers_to_equal_requests_are_refused(function):
    fault = refused("PROJECTION_NOT_DETERMINISTIC", partial(guarded, called("moody", function), REQUEST))
    assert fault.details["projection"] == "moody"
    assert fault.details["first"] != fault.details["second"]
    assert "'moody'" in fault.message


FAILING: Iterator[int] = iter([1, 0])


def test_members_of_the_payload_have_an_order_that_answers_may_depend_on():
    function = called("p", lambda req: NoIntent(",".join(req.source.payload)))
    assert guarded(function, REQUEST) == NoIntent("at,button")


# What is pure


def parses_and_shapes(req: ProjectionRequest) -> Any:
    """Do what a projection may do, with what the library has for it."""
    import colorsys  # noqa: F401  # a module that nothing else has loaded
    import xml.dom.minidom as minidom

    day = datetime.strptime("Mon 2 Jan 2023 +0000", "%a %d %b %Y %z")
    lines = io.StringIO("a\nb").readlines()
    return {
        "kind": "intent",
        "body": {
            "type": "t",
            "input": {
                "day": day.isoformat(),
                "instant": datetime.fromtimestamp(5, UTC).isoformat(),
                "lines": lines,
                "seeded": random.Random(json.dumps(req.source.payload, sort_keys=True)).random(),
                "named": str(uuid.uuid5(uuid.NAMESPACE_URL, req.source.event_id)),
                "xml": minidom.parseString("<a/>").toxml(),
                "words": re.findall(r"\w+", "one two"),
                "sorted": sorted(req.snapshot.data["todos"]),
                "path": os.path.join("a", "b"),
            },
        },
    }


@pytest.mark.requirement("INT-9.1", "INT-11.1", "INV-P4")
def test_a_pure_projection_answers_under_guard_as_it_does_without():
    for name in [name for name in sys.modules if name == "colorsys" or name.startswith("xml")]:
        del sys.modules[name]
    form = called("form", parses_and_shapes)
    guarded_answer = guarded(form, REQUEST)
    assert isinstance(guarded_answer, Select)
    assert guarded_answer == ask(form, REQUEST)


class Reply(BaseModel):
    later: Later | None = None


class Later(BaseModel):
    n: int


def uses_models(req: ProjectionRequest) -> Any:
    """Complete a model on its first use, make one, and adapt a type."""
    made = create_model("Made", n=(int, 1))
    return NoIntent(
        f"{Reply.model_validate({'later': {'n': 1}})} {made()} {TypeAdapter(list[int]).validate_python([1])}"
    )


def uses_time_zones(req: ProjectionRequest) -> Any:
    """Read a time zone of which nothing is kept from an earlier use."""
    return NoIntent(datetime(2020, 7, 1, tzinfo=ZoneInfo.no_cache("Europe/Berlin")).isoformat())


@pytest.mark.requirement("INT-9.1", "INT-11.1", "INV-P4")
@pytest.mark.parametrize(
    ("function", "answer"),
    [(uses_models, "later=Later(n=1) n=1 [1]"), (uses_time_zones, "2020-07-01T00:00:00+02:00")],
)
def test_what_libraries_read_of_their_own_is_no_impurity(function, answer):
    assert guarded(called("pure", function), REQUEST) == NoIntent(answer)


@pytest.mark.requirement("INV-P3")
def test_a_time_zone_file_may_be_read_and_not_changed(tmp_path, monkeypatch):
    (tmp_path / "Zone").write_bytes(b"x")
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))

    def opens(path: Path, mode: str) -> Any:
        return lambda req: path.open(mode)

    for path, mode in ((tmp_path / "Zone", "ab"), (tmp_path / ".." / "other", "rb")):
        refused("PROJECTION_IMPURE", partial(guarded, called("p", opens(path, mode)), REQUEST))


def test_a_module_that_starts_something_while_it_is_imported_is_refused(tmp_path, monkeypatch):
    (tmp_path / "reads_the_clock.py").write_text("import time, os\nNOW = time.time()\nHOME = os.environ.get('HOME')\n")
    (tmp_path / "asks_the_network.py").write_text("import socket\nsocket.gethostname()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def imports(name: str, req: ProjectionRequest) -> Any:
        __import__(name)

    assert guarded(called("p", partial(imports, "reads_the_clock")), REQUEST) == NoIntent()
    fault = refused("PROJECTION_IMPURE", partial(guarded, called("p", partial(imports, "asks_the_network")), REQUEST))
    assert fault.details["attempt"] == "socket.gethostname"
    assert fault.details["where"] == "asks_the_network:2"


def test_a_program_that_runs_while_it_is_imported_is_guarded_like_any_other(tmp_path, monkeypatch):
    (tmp_path / "runs_on_import.py").write_text(
        "import time\n"
        "from projections import guarded, projection\n"
        "def run(request):\n    return guarded(projection('p')(lambda req: time.time()), request)\n"
    )
    (tmp_path / "main_program.py").write_text(
        "import builtins, runs_on_import\nrunning = runs_on_import.run(builtins.request_under_test)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.request_under_test", REQUEST, raising=False)
    refused("PROJECTION_IMPURE", lambda: __import__("main_program"))


@pytest.mark.requirement("INT-11.1", "INV-P2", "INV-P3")
@given(
    payload=st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=4).filter(
        lambda payload: all(not isinstance(item, int) or abs(item) < 2**53 for item in payload.values())
    ),
    known=st.dictionaries(st.text(max_size=4), st.booleans(), max_size=4),
)
def test_the_guard_changes_neither_the_answer_nor_the_request(payload, known):
    @projection("form")
    def form(req: ProjectionRequest) -> Any:
        chosen = [key for key in sorted(req.source.payload) if req.snapshot.data.get(key)]
        return {"kind": "intent", "body": {"type": "pick", "input": chosen}} if chosen else NoIntent("nothing chosen")

    source = SourceEvent(kind="ui", event_id="e", payload=payload)
    req = ProjectionRequest(SCHEMA, SnapshotView(FrozenDict(known), FrozenDict()), ANN, source)
    before = repr(req)
    assert guarded(form, req) == form(req)
    assert repr(req) == before


def test_a_projection_that_raises_is_refused_as_it_is_without_guard():
    failing = called("p", lambda req: req.source.payload["missing"])
    messages = {refused("PROJECTION_FAILED", partial(way, failing, REQUEST)).message for way in (guarded, ask)}
    assert messages == {"The projection 'p' raised KeyError: 'missing'."}
    refused("INVALID_PROJECTION_RESULT", partial(guarded, called("p", lambda req: 5), REQUEST))
    refused("INVALID_PROJECTION", lambda: guarded(5, REQUEST))  # type: ignore[arg-type]


# What is not the projection's doing


def test_only_the_thread_that_asks_is_watched():
    go, done = threading.Event(), threading.Event()
    seen: list[Any] = []

    def other() -> None:
        go.wait(PATIENCE_S)
        seen.extend([time.time(), random.random(), os.urandom(2), os.environ.get("HOME"), uuid.uuid4()])
        with open("/dev/null") as null:
            seen.append(null.read())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def waits(req: ProjectionRequest) -> Any:
        go.set()
        return None if done.wait(PATIENCE_S) else NoIntent("the other thread was kept from its work")

    assert guarded(called("p", waits), REQUEST) == NoIntent()
    thread.join()
    assert len(seen) == 6


def test_many_threads_may_be_watched_at_once():
    # An impure projection is ended in its first run, so it is asked twice: all eight meet twice.
    barrier = threading.Barrier(8)
    watchdog = threading.Timer(30, barrier.abort)
    watchdog.start()

    def pure(number: int) -> list[str]:
        def meets(req: ProjectionRequest) -> Any:
            barrier.wait()
            return NoIntent(str(number))

        return [str(guarded(called("p", meets), REQUEST).to_wire()["reason"])]

    def impure(number: int) -> list[str]:
        def meets(req: ProjectionRequest) -> Any:
            barrier.wait()
            return time.time()

        ask_it = partial(guarded, called("p", meets), REQUEST)
        return [str(refused("PROJECTION_IMPURE", ask_it).details["attempt"]) for _ in range(2)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: (impure if number % 2 else pure)(number), range(8)))
    watchdog.cancel()
    watchdog.join()
    assert answers == [["time.time"] * 2 if number % 2 else [str(number)] for number in range(8)]
    assert gc.isenabled()


def test_what_is_thrown_away_by_others_meanwhile_is_not_the_projections_doing():
    def makes_garbage(req: ProjectionRequest) -> Any:
        for _ in range(5_000):
            cycle: list[Any] = []
            cycle.append(cycle)
        return NoIntent("done")

    for _ in range(50):
        circle: list[Any] = [AtTheEnd()]
        circle.append(circle)
        del circle
    assert guarded(called("p", makes_garbage), REQUEST) == NoIntent("done")
    gc.collect()


def test_a_guard_within_a_guard_finds_what_is_in_it_and_the_outer_one_goes_on():
    inner: list[str] = []

    def outer(req: ProjectionRequest) -> Any:
        try:
            guarded(called("inner", lambda req: time.time()), req)
        except RefusedError as fault:
            inner.append(fault.code)
        return os.getpid()

    fault = refused("PROJECTION_IMPURE", partial(guarded, called("outer", outer), REQUEST))
    assert inner == ["PROJECTION_IMPURE"]
    assert (fault.details["projection"], fault.details["attempt"]) == ("outer", "os.getpid")


def test_a_profiler_that_ran_before_runs_on_afterwards():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        guarded(called("p", lambda req: None), REQUEST)
        refused("PROJECTION_IMPURE", partial(guarded, called("p", lambda req: time.time()), REQUEST))
        time.gmtime()
    finally:
        profiler.disable()
    assert any("gmtime" in str(entry.code) for entry in profiler.getstats())
    seen: list[str] = []
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        guarded(called("p", lambda req: None), REQUEST)
        seen.clear()
        len("")
    finally:
        sys.setprofile(None)
    assert "c_call" in seen


def test_an_interrupt_passes_and_leaves_everything_as_it_was():
    def stopped(req: ProjectionRequest) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(called("p", stopped), REQUEST)
    assert time.time() > 0


# In a registry


@pytest.mark.requirement("INT-9.2", "INV-P5")
@pytest.mark.parametrize(
    ("accepts", "code"),
    [
        (lambda source: time.time() > 0, "PROJECTION_IMPURE"),
        (lambda source: bool(source.payload.update(x=1)), "PROJECTION_IMPURE"),
        (lambda source: bool(dict.__setitem__(source.payload, "x", 1)), "PROJECTION_IMPURE"),
        (lambda source: next(COUNT) % 2 == 0, "PROJECTION_NOT_DETERMINISTIC"),
    ],
)
def test_accepting_is_guarded_too(accepts, code):
    registry = ProjectionRegistry(invocation_mode=Guard())
    registry.add(called("p", lambda req: None), accepts=accepts)
    assert refused(code, partial(registry.route, REQUEST)).details["projection"] == "p"


@pytest.mark.requirement("INT-9.2", "INT-11.1")
def test_a_registry_may_ask_under_guard():
    pure, impure = called("a", lambda req: None), called("b", lambda req: time.time())
    assert ProjectionRegistry([pure], invocation_mode=Guard()).route(REQUEST).considered == ("a",)
    fault = refused(
        "PROJECTION_IMPURE", partial(ProjectionRegistry([pure, impure], invocation_mode=Guard()).route, REQUEST)
    )
    assert fault.details["projection"] == "b"
