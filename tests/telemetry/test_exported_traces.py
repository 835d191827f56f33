"""Traces of a server and of a worker, as a receiver of OTLP gets them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.realm import COMMAND, environment
from tests.server.served import ORDER, PATH, founded, serving, stopped
from tests.support.patience import PATIENCE_S
from tests.telemetry.collector import Collector, collecting
from worldprotocol.api.telemetry.provider import is_wanted

pytestmark = pytest.mark.slow

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = PARENT.split("-")[1]
LATER = "00-11111111111111111111111111111111-2222222222222222-01"


def variables(collector: Collector) -> dict[str, str]:
    """Return what a server is told about the receiver, by the standard variables."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}


def test_the_traces_of_a_server_reach_a_receiver_and_join_with_its_log(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with collecting() as collector, serving(place, **variables(collector)) as served:
        with served.client("bot") as client:
            asked = client.post(f"{PATH}/intents", json=ORDER, headers={"traceparent": PARENT})
            assert asked.status_code == 202
            proposal = asked.json()["proposalId"]
        with served.client("ann") as client:
            told = client.post(
                f"{PATH}/proposals/{proposal}:answer", json={"choice": "approve"}, headers={"traceparent": LATER}
            )
            assert told.json()["status"] == "completed", told.text
            refused = client.post(f"{PATH}/intents", json=ORDER)
            assert refused.status_code == 403
        assert stopped(served) == 0  # the last spans are sent before the process ends
    (submitted, refusal) = collector.named("POST /v1/realms/{realm}/intents")
    assert (submitted.trace_id, submitted.parent_id) == (TRACE, PARENT.split("-")[2])
    assert submitted.attributes["http.response.status_code"] == 202
    assert submitted.attributes["http.route"] == "/v1/realms/{realm}/intents"
    assert (refusal.attributes["http.response.status_code"], refusal.parent_id, refusal.is_error) == (403, "", False)
    assert {one.service for one in collector.spans} == {"world-protocol"}
    (answered,) = collector.named("POST /v1/realms/{realm}/proposals/{proposal_id}:answer")
    judged, again = collector.named("judge")
    assert (judged.trace_id, judged.parent_id, judged.links) == (TRACE, submitted.span_id, [])
    assert judged.attributes["world_protocol.decision"] == "wait"
    assert (again.trace_id, again.parent_id, again.links) == (LATER.split("-")[1], answered.span_id, [TRACE])
    (executed,) = collector.named("execute")
    assert (executed.parent_id, executed.links) == (answered.span_id, [TRACE])
    assert executed.attributes["gen_ai.tool.name"] == "order.place"
    assert executed.attributes["world_protocol.realm"] == "main"
    assert len(collector.named("commit")) == 2
    with place.realm() as realm:
        assert realm.proposal(proposal).submitted.trace == {"traceparent": PARENT}


@pytest.mark.parametrize("path", ["/healthz", "/realms/main/sign-in?code=wrong", "/v1/realms/main/log/stream?after=0"])
def test_secrets_probes_and_streams_have_no_span(tmp_path: Path, path: str) -> None:
    with collecting() as collector, serving(founded(tmp_path), **variables(collector)) as served:
        with served.client("aud") as client:
            with client.stream("GET", path) as answer:
                assert answer.status_code in (200, 401)
            assert client.get("/v1/realms/main").status_code == 200
        assert stopped(served) == 0
    assert [one.name for one in collector.spans] == ["GET /v1/realms/{realm}"]


def test_a_projected_event_records_the_traceparent_of_its_request(tmp_path: Path) -> None:
    event = {"kind": "api", "eventId": "1", "payload": {"item": "tea"}}
    with serving(founded(tmp_path)) as served, served.client("kid") as client:
        headers = {"traceparent": PARENT}
        posted = client.post(f"{PATH}/events", json=event, headers=headers)
        assert posted.status_code == 200, posted.text
        done = posted.json()["proposal"]
        assert done["trace"] == {"traceparent": PARENT}
        other = client.post(f"{PATH}/events", json=event | {"eventId": "2"}, headers={"traceparent": "nonsense"})
        assert other.json()["proposal"].get("trace") is None


def test_a_worker_exports_its_effects(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with serving(place) as served:
        body = {"type": "order.bake", "input": {"item": "tea"}, "scopeProposal": {"allowedPaths": ["orders"]}}
        with served.client("kid") as kid:
            asked = kid.post(f"{PATH}/intents", json=body, headers={"traceparent": PARENT})
        assert asked.status_code == 202
        (tmp_path / "token").write_text(place.tokens["mule"])
        (tmp_path / "token").chmod(0o600)
        (tmp_path / "oven.py").write_text(
            "from worldprotocol import handler\n\n\n"
            "@handler('oven.bake', idempotent=True, time_limit_ms=1000)\ndef bake(params, call):\n    return 'baked'\n"
        )
        with collecting() as collector:
            arguments = ["--server", served.url, "--token-file", "token", "--handlers", "oven.py", "--once"]
            done = subprocess.run(
                [*COMMAND, "worker", *arguments],
                cwd=tmp_path,
                env=environment() | variables(collector) | {"OTEL_SERVICE_NAME": "baker"},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    (effect,) = collector.named("effect")
    assert (effect.service, effect.attributes["world_protocol.effect.type"]) == ("baker", "oven.bake")
    assert effect.attributes["world_protocol.realm"] == "main"
    assert effect.links == [TRACE]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
        ({"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_the_standard_variables_decide_whether_traces_are_made(
    given: dict[str, str], wanted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert is_wanted(given) is wanted
    assert [one.levelname for one in caplog.records] == (
        ["WARNING"] if {"zipkin", "grpc"} & set(given.values()) else []
    )


@pytest.mark.parametrize("package", ["opentelemetry", "opentelemetry.sdk"])
def test_without_the_extra_everything_works_and_a_wish_for_traces_is_warned_about(tmp_path: Path, package: str) -> None:
    program = (
        "import importlib.abc, os, sys\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {package!r} or name.startswith({package + '.'!r}):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from worldprotocol.api.telemetry.provider import traces_from_environment\n"
        "from worldprotocol import Domain, Realm\n"
        "from tests.pipeline.shop import open_shop\n"
        "with traces_from_environment(), open_shop('shop.db') as realm:\n"
        "    print(realm.act('ann', 'sell', {'item': 'tea'}).status, realm.parts.tracing)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment() | {"OTEL_TRACES_EXPORTER": "otlp", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout == "completed None\n", done.stderr
    assert "pip install 'world-protocol[telemetry]'" in done.stderr


def test_what_serves_without_traces_imports_nothing_of_them(tmp_path: Path) -> None:
    program = (
        "import sys, json\n"
        "from tests.pipeline.shop import open_shop\n"
        "with open_shop('shop.db') as realm:\n"
        "    realm.act('ann', 'sell', {'item': 'tea'})\n"
        "print(json.dumps([one for one in sys.modules if one.startswith('opentelemetry')]))\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert json.loads(done.stdout) == [], done.stderr
