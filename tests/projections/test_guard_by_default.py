"""Every call of a projection is guarded: an impure one is refused and recorded, and a recheck refuses it again."""

from __future__ import annotations

import base64
import collections
import decimal
import gc
import hashlib
import hmac
import itertools
import json
import math
import random
import re
import socket
import sys
import textwrap
import threading
import time
import unicodedata
import urllib.parse
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from projections import Guard, NoIntent, Once, ProjectionRegistry, ProjectionRequest, UnsafeUnguarded, ask, projection
from projections.recheck import recheck_projection
from tests.cli.realm import founded
from tests.pipeline.shop import open_shop, shop
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent
from worldprotocol import Realm
from worldprotocol.api.config import Config

ANN = ActorRef(actor_id="ann", kind="human")
VIEW = SnapshotView(FrozenDict({"open": 1}), FrozenDict())
AT = "Mon 2 Jan 2023 +0000"
CLICK = {
    "kind": "ui",
    "eventId": "click-1",
    "payload": {"item": "tea", "day": "2026-02-03", "at": "Mon 2 Jan 2023 +0000"},
}
REQUEST = ProjectionRequest("5c" * 32, VIEW, ANN, SourceEvent.read(CLICK))

SHARED = random.Random(4)

REACHED: list[tuple[str, str, Callable[[], Any]]] = [
    ("clock", "time.time", lambda: time.time()),
    ("clock", "datetime.now", lambda: datetime.now(UTC)),
    ("clock", "date.today", lambda: date.today()),  # noqa: DTZ011
    ("randomness", "random.random", lambda: random.random()),
    ("randomness", "uuid.uuid4", lambda: uuid.uuid4()),
    ("randomness", "random.Random (made or seeded before the call)", lambda: SHARED.random()),
    ("randomness", "random.Random (made or seeded before the call)", lambda: SHARED.choice([1, 2])),
    ("network", "socket.__new__", lambda: socket.socket()),
    ("network", "socket.getaddrinfo", lambda: socket.create_connection(("localhost", 9))),
    ("files", "open('/dev/null')", lambda: open("/dev/null")),  # noqa: SIM115
    ("files", "os.stat", lambda: Path("/dev/null").exists()),
]


def selling(reach: Callable[[], Any]) -> Any:
    @projection("seller", sources=["ui"])
    def seller(request: ProjectionRequest) -> IntentBody:
        reach()
        return IntentBody(type="sell", input={"item": "tea"})

    return seller


def refused(code: str, call: Callable[[], Any]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def records(world: Realm) -> list[ProjectionRecorded]:
    return [event for _, event in world.events() if isinstance(event, ProjectionRecorded)]


@pytest.mark.requirement("INT-9.2", "INT-11.1", "INV-P1", "INV-P5", "INT-12.1")
@pytest.mark.parametrize(("kind", "attempt", "reach"), REACHED, ids=[one[1] for one in REACHED])
@pytest.mark.slow
def test_an_impure_projection_is_refused_and_recorded_with_what_it_reached_and_where(
    log_url: str, kind: str, attempt: str, reach: Callable[[], Any]
) -> None:
    with open_shop(log_url, projections=[selling(reach)]) as world:
        fault = refused("PROJECTION_IMPURE", lambda: world.project(CLICK, "ann"))
        line = reach.__code__.co_firstlineno
        assert fault.details["kind"] == kind
        assert fault.details["attempt"] == attempt
        assert fault.details["where"] == f"{__name__}:{line}"
        assert fault.message.startswith(f"The projection 'seller' uses {attempt} at {__name__}:{line}; ")
        [recorded] = records(world)
        assert recorded.projection_id == "seller"
        assert recorded.considered == ["seller"]
        assert recorded.source.to_wire() == CLICK
        assert recorded.result.to_wire() == {"kind": "none", "reason": f"PROJECTION_IMPURE: {fault.message}"}
        assert recorded.proposal_id is None
        assert world.data()["sold"] == 0


@pytest.mark.requirement("INT-9.2")
@pytest.mark.parametrize("paranoid", [False, True])
def test_paranoid_adds_the_second_question(log_url: str, paranoid: bool) -> None:
    asked = itertools.count()

    @projection("counting")
    def counting(request: ProjectionRequest) -> NoIntent:
        return NoIntent(f"asked {next(asked)} times")

    with open_shop(log_url, projections=[counting], paranoid=paranoid) as world:
        if paranoid:
            refused("PROJECTION_NOT_DETERMINISTIC", lambda: world.project(CLICK, "ann"))
            assert next(asked) == 2
        else:
            assert world.project(CLICK, "ann").reason == "asked 0 times"
            assert next(asked) == 1


@pytest.mark.requirement("INT-9.2")
def test_every_way_to_call_a_projection_is_guarded() -> None:
    impure = selling(time.time)
    picky = projection("picky", accepts=lambda source: time.time() > 0)(lambda request: None)
    calls: list[Callable[[], Any]] = [
        lambda: impure(REQUEST),
        lambda: ask(impure, REQUEST),
        lambda: ProjectionRegistry([impure]).route(REQUEST),
        lambda: ProjectionRegistry([impure]).route_among(["seller"], REQUEST),
        lambda: ProjectionRegistry([impure], invocation_mode=Once()).route(REQUEST),
        lambda: ProjectionRegistry([picky]).route(REQUEST),
    ]
    for call in calls:
        assert refused("PROJECTION_IMPURE", call).details["attempt"] == "time.time"
    with pytest.raises(RefusedError) as caught:
        ProjectionRegistry([projection("a")(lambda request: None), impure]).route(REQUEST)
    assert caught.value.details["considered"] == ["a", "seller"]


def test_only_the_option_that_says_so_takes_the_guard_away(log_url: str, tmp_path: Path) -> None:
    with open_shop(log_url, projections=[selling(time.time)], unsafe_unguarded_projections=True) as world:
        came = world.project(CLICK, "ann")
        assert came.proposal is not None
        assert came.proposal.status == "completed"
    assert (
        ProjectionRegistry([selling(time.time)], invocation_mode=UnsafeUnguarded()).route(REQUEST).projection_id
        == "seller"
    )
    assert Config(domain="x:y").parts()["unsafe_unguarded_projections"] is False
    both: dict[str, Any] = {"paranoid": True, "unsafe_unguarded_projections": True}
    fault = refused("INVALID_CONFIG", lambda: Realm.create(tmp_path / "w.db", domain=shop, **both))
    assert "unsafe_unguarded_projections" in fault.message
    assert not (tmp_path / "w.db").exists()


def computes(request: ProjectionRequest) -> Any:
    """Use what the standard library has for pure work, imported on first use and not."""
    import csv
    import difflib
    import fractions
    import html.parser
    import io
    import statistics
    import string
    import struct
    import tomllib
    import xml.etree.ElementTree as ElementTree
    import zlib

    payload = request.source.payload
    day = datetime.strptime(payload["at"], "%a %d %b %Y %z")
    context = decimal.Context(prec=5)
    with decimal.localcontext(context):
        third = decimal.Decimal(1) / 3
    seeded = random.Random(7)
    words = re.sub(r"\s+", " ", textwrap.dedent("  one  two ")).split()
    return {
        "kind": "intent",
        "body": {
            "type": "t",
            "input": {
                "json": json.loads(json.dumps(json.loads(json.dumps(payload["item"])))),
                "day": date.fromisoformat(payload["day"]).isoformat(),
                "parsed": (day + timedelta(days=1)).strftime("%Y-%m-%d"),
                "iso": datetime.fromisoformat("2026-02-03T04:05:06+00:00").timestamp(),
                "third": str(third),
                "quantized": str(decimal.Decimal("2.675").quantize(decimal.Decimal("0.01"))),
                "sha": hashlib.sha256(b"a").hexdigest(),
                "blake": hashlib.blake2b(b"a", digest_size=4).hexdigest(),
                "hmac": hmac.new(b"k", b"m", "sha256").hexdigest(),
                "crc": zlib.crc32(b"a"),
                "b64": base64.b64encode(b"a").decode(),
                "uuid5": str(uuid.uuid5(uuid.NAMESPACE_URL, "a")),
                "seeded": [seeded.random(), seeded.randint(1, 6)],
                "words": words,
                "match": bool(re.compile(r"(?P<x>t)ea", re.IGNORECASE).fullmatch(payload["item"])),
                "counted": dict(collections.Counter("aab")),
                "url": urllib.parse.urlsplit("https://example.com/a?b=c").query,
                "norm": unicodedata.normalize("NFC", "é"),
                "sqrt": math.isqrt(17),
                "csv": list(csv.reader(io.StringIO("a,b\n"))),
                "median": statistics.median([1, 2, 3]),
                "fraction": str(fractions.Fraction(1, 3)),
                "template": string.Template("$a").substitute(a=1),
                "packed": struct.pack(">H", 258).hex(),
                "toml": tomllib.loads("a = 1"),
                "xml": ElementTree.fromstring("<a><b/></a>")[0].tag,
                "unescaped": html.unescape("&lt;"),
                "close": difflib.get_close_matches("appel", ["ape", "apple"]),
            },
        },
    }


@pytest.mark.requirement("INT-9.1", "INV-P4")
def test_pure_code_answers_under_guard_as_it_does_without_even_with_lazy_imports() -> None:
    lazily = ("csv", "difflib", "fractions", "html", "statistics", "string", "tomllib", "xml", "_strptime", "zlib")
    free = ProjectionRegistry([projection("pure")(computes)], invocation_mode=UnsafeUnguarded()).route(REQUEST)
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in lazily}
    try:
        for name in kept:
            del sys.modules[name]
        guarded = ProjectionRegistry([projection("pure")(computes)]).route(REQUEST)
    finally:
        sys.modules.update(kept)
    assert guarded == free
    assert guarded.projection_id == "pure"
    assert ProjectionRegistry([projection("pure")(computes)], invocation_mode=Guard()).route(REQUEST) == free


def test_a_changed_value_that_the_frozen_request_refuses_is_a_failure_and_no_impurity() -> None:
    def writes(request: Any) -> Any:
        request.snapshot.data["open"] = 2

    refused("PROJECTION_FAILED", lambda: ask(projection("writer")(writes), REQUEST))


def test_the_collector_waits_for_all_calls_that_are_watched_at_once() -> None:
    entered, leave = threading.Event(), threading.Event()

    def first(request: ProjectionRequest) -> None:
        entered.set()
        leave.wait()

    thread = threading.Thread(target=ask, args=(projection("first")(first), REQUEST))
    thread.start()
    assert entered.wait(60)
    ask(projection("second")(lambda request: None), REQUEST)
    during = gc.isenabled()  # the second call has ended, and the first is still watched
    leave.set()
    thread.join()
    assert (during, gc.isenabled()) == (False, True)


# Rechecks


@pytest.mark.requirement("INT-12.2", "INT-9.2")
def test_a_recorded_refusal_is_given_again_by_a_recheck_and_by_nothing_else(log_url: str) -> None:
    with open_shop(log_url, projections=[selling(time.time)]) as world:
        refused("PROJECTION_IMPURE", lambda: world.project(CLICK, "ann"))
        [recorded] = records(world)
        view = world.snapshot().view
        for asking in (Once(), Guard(), UnsafeUnguarded()):
            registry = ProjectionRegistry([selling(time.time)], invocation_mode=asking)
            assert recheck_projection(registry, recorded, view) is None
        mended = ProjectionRegistry([selling(int)])
        difference = recheck_projection(mended, recorded, view)
        assert difference is not None
        assert (difference.code, difference.details["what"]) == ("PROJECTION_DIVERGED", "the result")


@pytest.mark.requirement("INT-12.2")
def test_what_was_recorded_without_a_guard_is_rechecked_by_what_it_answers(log_url: str) -> None:
    with open_shop(log_url, projections=[selling(time.time)], unsafe_unguarded_projections=True) as world:
        world.project(CLICK, "ann")
        [recorded] = records(world)
        assert recheck_projection(ProjectionRegistry([selling(time.time)]), recorded, world.snapshot().view) is None


@pytest.mark.requirement("INT-12.2", "INT-9.2")
@pytest.mark.slow
def test_a_log_with_a_refusal_replays_verifies_and_rechecks(tmp_path: Path) -> None:
    (tmp_path / "luck.py").write_text(
        "import random\n"
        "from worldprotocol import IntentBody, projection\n\n"
        "@projection('luck')\n"
        "def luck(request):\n"
        "    if request.source.payload:\n"
        "        random.random()\n"
        "    return IntentBody(type='sell', input={'item': 'tea', 'count': 1})\n"
    )
    realm = founded(tmp_path)
    config = tmp_path / "world.toml"
    lines = config.read_text().splitlines()
    config.write_text(
        "\n".join('projections = ["luck.py:luck"]' if line.startswith("projections") else line for line in lines) + "\n"
    )
    events = [{"actor": "ann", "source": {"kind": "ui", "eventId": str(n), "payload": n}} for n in (None, 1)]
    said = realm("project", "--events", "-", given="".join(json.dumps(one) + "\n" for one in events), code=1)
    assert [line.get("error", {}).get("code", line["status"]) for line in said.lines] == [
        "completed",
        "PROJECTION_IMPURE",
    ]
    assert said.lines[1]["error"]["details"]["where"] == "luck.py:7"
    for command in ("replay", "verify", "recheck"):
        realm(command)
    assert "luck.py:7" in realm("--json", "log").out
    config.write_text(config.read_text() + "unsafe_unguarded_projections = true\n")
    realm("recheck")
