"""Spans of a realm: which there are, what they say, whose children they are, and what they link to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from host import EffectFailure, handler
from tests.pipeline.shop import house, open_shop, shop
from tests.pipeline.test_sources import click, till
from tests.support.engines import engine_of
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol import Realm, external
from worldprotocol.api.executing.worker import Worker
from worldprotocol.api.telemetry import context
from worldprotocol.api.telemetry.context import TRACES

pytestmark = pytest.mark.slow

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider(shutdown_on_exit=False)
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
TRACER = PROVIDER.get_tracer("test")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Configure a provider, as a program does, for one test; OpenTelemetry allows no second one in a process."""
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: PROVIDER)
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


def named(name: str) -> list[ReadableSpan]:
    return [one for one in EXPORTER.get_finished_spans() if one.name == name]


def names() -> list[str]:
    return [one.name for one in EXPORTER.get_finished_spans()]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def links(span: ReadableSpan) -> list[str]:
    return [f"{one.context.trace_id:032x}" for one in span.links]


@handler("bank.charge", idempotent=True, time_limit_ms=5_000)
def pays(params: Any, call: Any) -> Any:
    return {"receipt": f"{params['amount']}-{params['number']}"}


@handler("bank.charge", time_limit_ms=5_000)
def refuses(params: Any, call: Any) -> Any:
    return EffectFailure("NO_FUNDS", "the account is empty")


def opened(address: str, **parts: Any) -> Realm:
    """Found a shop with an agent whose intents are approved."""
    realm = open_shop(address, **parts)
    realm.register("max", "agent", binding={"kind": "auto_approve"})
    return realm


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_a_source_event_makes_the_spans_of_its_way(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, projections=[till], effects=[pays]) as world:
        spans.clear()
        before = world.log.head().size
        with TRACER.start_as_current_span("caller") as caller:
            came = world.project(click(1, button="sell", item="tea"), "ann")
        assert came.proposal is not None
        logged = came.proposal.submitted.trace
    assert names() == ["project", "judge", "execute", "arbitrate", "commit", "caller"]
    trace_id = caller.get_span_context().trace_id
    assert {one.context.trace_id for one in spans.get_finished_spans() if one.context} == {trace_id}
    own = caller.get_span_context()
    assert logged == {
        "traceparent": f"00-{trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
    }  # the log leads to the trace
    proposal = came.proposal.proposal_id
    about = {
        "world_protocol.realm": "main",
        "world_protocol.intent.type": "sell",
        "world_protocol.actor.kind": "human",
        "world_protocol.proposal.id": proposal,
        "world_protocol.intent.id": came.proposal.submitted.intent.intent_id,
    }
    (projected,), (judged,), (executed,) = named("project"), named("judge"), named("execute")
    assert attributes(projected) == {
        "world_protocol.realm": "main",
        "world_protocol.actor.kind": "human",
        "world_protocol.projection.id": "till",
        "world_protocol.intent.type": "sell",
    }
    assert attributes(judged) == about | {
        "world_protocol.decision": "approve",
        "world_protocol.authority": came.proposal.decision.authority,  # type: ignore[union-attr]
    }
    assert attributes(executed) == about | {"world_protocol.outcome": "completed"}
    (arbitrated,), (committed,) = named("arbitrate"), named("commit")
    assert attributes(arbitrated) == about | {"world_protocol.leases.count": 1, "world_protocol.verdict": "Granted"}
    told = attributes(committed)
    assert (told["world_protocol.commit.events"], told["world_protocol.commit.position"]) == (
        _size(address) - before,
        _size(address),
    )
    assert told["world_protocol.commit.lock_wait"] >= 0
    assert told["world_protocol.commit.duration"] > 0
    assert (committed.end_time or 0) > (committed.start_time or 0)


def _size(address: str) -> int:
    with Realm.open_read_only(address) as reader:
        return reader.log.head().size


def test_an_effect_and_a_tool_call_have_their_attributes(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, effects=[pays]) as world:
        spans.clear()
        done = world.act("max", "charge", {"amount": 5})
    assert names() == ["judge", "execute", "arbitrate", "commit", "effect", "execute", "commit"]
    (effect,) = named("effect")
    told = attributes(effect)
    assert told["world_protocol.effect.type"] == "bank.charge"
    assert told["world_protocol.effect.attempt"] == 1
    assert told["world_protocol.proposal.id"] == done.proposal_id
    for executed, outcome in zip(named("execute"), ("pending", "completed"), strict=True):
        about = attributes(executed)
        assert about["world_protocol.outcome"] == outcome
        assert about["world_protocol.actor.kind"] == "agent"
        assert {name: value for name, value in about.items() if name.startswith("gen_ai.")} == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "charge",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": done.submitted.intent.intent_id,
        }


def test_errors_are_the_status_of_their_spans(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, projections=[till], effects=[refuses]) as world:
        spans.clear()
        failed = world.act("max", "charge", {"amount": 5})
        assert failed.status == "failed"
        sold = world.act("ann", "sell", {"item": "cake", "count": 1})
        assert sold.status == "completed"
        with pytest.raises(RefusedError, match="projection"):
            world.project({"kind": "ui", "eventId": "x", "payload": {"button": "sell"}}, "ann")  # it has no item
    (effect,) = named("effect")
    assert effect.status.status_code is StatusCode.ERROR
    assert attributes(effect)["error.type"] == "NO_FUNDS"
    pending, ended, good = named("execute")
    assert [one.status.status_code for one in (pending, good)] == [StatusCode.UNSET] * 2
    assert ended.status.status_code is StatusCode.ERROR
    assert attributes(ended)["error.type"] == "NO_FUNDS"
    (projected,) = named("project")
    assert projected.status.status_code is StatusCode.ERROR
    assert attributes(projected)["error.type"].startswith("PROJECTION_")


def test_what_a_person_lets_continue_links_to_the_recorded_trace(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, effects=[pays]) as world:
        asked = world.act("bot", "sell", {"item": "tea", "count": 5}, trace={"traceparent": PARENT})
        assert asked.asked is not None
        assert asked.submitted.trace == {"traceparent": PARENT}
        spans.clear()
        with TRACER.start_as_current_span("answering") as answering:
            done = world.decide(asked.proposal_id, "approve", by="ann")
        assert done.status == "completed"
    judged, executed, arbitrated = named("judge"), named("execute"), named("arbitrate")
    assert attributes(judged[0])["world_protocol.answer"] == "approve"
    assert len(executed) == len(arbitrated) == 1
    for span in (*judged, *executed, *arbitrated):
        assert span.context is not None
        assert span.context.trace_id == answering.get_span_context().trace_id
        assert links(span) == [PARENT.split("-")[1]]


def test_commands_that_share_a_commit_stay_with_their_callers(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, effects=[pays]) as world:
        parents: dict[int, str] = {}
        begin = threading.Barrier(4)

        def act(number: int) -> None:
            begin.wait()
            with TRACER.start_as_current_span(f"caller {number}") as caller:
                done = world.act("max", "sell", {"item": "tea"})
            parents[caller.get_span_context().trace_id] = done.proposal_id

        threads = [threading.Thread(target=act, args=(number,)) for number in range(4)]
        spans.clear()
        with engine_of(world)._log.write() as transaction:  # all four wait for one commit
            for thread in threads:
                thread.start()
            assert transaction.head.size > 0
            while len(engine_of(world)._group._queue) < 3:
                threads[0].join(0.01)
        for thread in threads:
            thread.join()
    assert len(named("arbitrate")) == len(parents) == 4
    assert len(named("commit")) < 4
    for span in (*named("arbitrate"), *named("execute"), *named("judge")):
        assert span.context is not None
        assert parents[span.context.trace_id] == attributes(span)["world_protocol.proposal.id"]


def test_a_worker_links_its_effects_to_the_recorded_trace(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, effects=[external("bank.charge", idempotent=True)]) as world:
        world.act("max", "charge", {"amount": 1}, trace={"traceparent": PARENT})
    spans.clear()
    with Realm.open(address, domain=shop, policies=[house], effects=[pays], execute=False) as world:
        Worker(world).run(once=True)
    (effect,) = named("effect")
    assert links(effect) == [PARENT.split("-")[1]]


def test_a_failed_commit_is_an_error(
    spans: InMemorySpanExporter, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address, effects=[pays]) as world:
        spans.clear()

        def commit(_: Any) -> None:
            raise RefusedError(ErrorCode.STORAGE_FULL, "no space")

        monkeypatch.setattr(world.log._store, "commit", commit)
        with pytest.raises(RefusedError):
            world.act("max", "charge", {"amount": 1})
        monkeypatch.undo()
    failed = [one for one in named("commit") if one.status.status_code is StatusCode.ERROR]
    assert [attributes(one)["error.type"] for one in failed] == ["STORAGE_FULL"]


def test_a_span_needs_no_look_at_the_log(spans: InMemorySpanExporter, address: str) -> None:
    with opened(address, effects=[pays]) as world:
        asked = world.act("bot", "sell", {"item": "tea", "count": 5}, trace={"traceparent": PARENT})
        tracing = world.parts.tracing if world.parts is not None else None
        assert tracing is not None
        world.log.close()
        with tracing.span("effect", {}, asked.proposal_id):
            pass
    assert links(named("effect")[-1]) == [PARENT.split("-")[1]]


@pytest.mark.parametrize("text", ["00-" + "0" * 32 + "-b7ad6b7169203331-01", "nonsense", 7, None, PARENT + "-x"])
def test_what_is_no_trace_context_makes_no_link(text: Any) -> None:
    assert context.recorded_context({"traceparent": text}) is None


def test_without_a_provider_nothing_is_traced(address: str) -> None:
    with opened(address) as world:
        assert engine_of(world).observer is None
        assert world.parts is not None
        assert world.parts.tracing is None
        done = world.act("ann", "sell", {"item": "tea"})
        assert done.submitted.trace is None


def test_traces_cost_nothing_where_none_are_made(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(world: Realm) -> int:
        found = 0

        def note(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal found
            found += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            world.act("ann", "sell", {"item": "tea"})
        finally:
            sys.setprofile(None)
        return found

    with open_shop(address) as world:
        for _ in range(3):
            world.act("ann", "sell", {"item": "tea"})
        idle = calls(world)
        monkeypatch.delitem(sys.modules, TRACES)
        absent = calls(world)
    assert absent > 1_000
    assert idle <= 1.01 * absent
