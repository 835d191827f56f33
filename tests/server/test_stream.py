"""The log over HTTP: pages, event streams, redaction, receipts; and two servers on one PostgreSQL."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.kiosk import kiosk
from tests.server.served import ORDER, PATH, Served, founded, serving
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from worldprotocol.api.callers.keyed import key_of
from worldprotocol.api.realm import Realm
from worldprotocol.export.proofs.checkpoint import Trusted, read_checkpoint
from worldprotocol.export.proofs.receipt import check_proof
from worldprotocol.server.log_watch import WINDOW

pytestmark = pytest.mark.slow

CLIENTS = 8
"""Callers of each of two servers."""

EACH = 3
"""Intents of each caller."""


def events(stream: httpx.Response) -> Iterator[tuple[int, str, Any]]:
    """Yield position, kind and content of the events of a stream."""
    told: dict[str, str] = {}
    for line in stream.iter_lines():
        name, _, value = line.partition(": ")
        if line:
            told[name] = value
        elif "data" in told:
            yield int(told["id"]), told["event"], json.loads(told["data"])
            told = {}


def test_a_stream_that_was_to_begin_after_more_events_than_the_log_has_is_refused(served: Served) -> None:
    with served.client("bot") as bot:
        end = bot.get(PATH).json()["position"]
        for more in ({"params": {"after": end + 1_000}}, {"headers": {"Last-Event-ID": str(end + 1_000)}}):
            refused = bot.get(f"{PATH}/log/stream", **more)
            assert (refused.status_code, refused.json()["code"]) == (409, "CONSUMER_AHEAD")


def test_a_stream_goes_on_from_the_last_event_id_without_a_gap(served: Served) -> None:
    for number in range(3):
        served.submit("kid", ORDER | {"input": {"item": "tea", "number": f"s{number}"}})
    with served.client("bot") as bot:
        whole = bot.get(f"{PATH}/log", params={"limit": 500}).json()["events"]
        assert [one["position"] for one in whole] == list(range(1, len(whole) + 1))
        with bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            first = list(itertools.islice(events(stream), 5))
        with bot.stream("GET", f"{PATH}/log/stream", headers={"Last-Event-ID": "5"}) as stream:
            rest = list(itertools.islice(events(stream), len(whole) - 5))
        assert [one for _, _, one in first + rest] == whole
        assert [kind for _, kind, _ in first + rest] == [one["topic"] for one in whole]
        with bot.stream("GET", f"{PATH}/log/stream", params={"types": "proposal.submitted"}) as stream:
            served.submit("kid", ORDER, "live-1")
            position, kind, content = next(events(stream))
        assert (kind, content["state"]["verified"]["key"]) == ("proposal.submitted", "live-1")
        assert position > len(whole)
        page = bot.get(f"{PATH}/log", params={"after": 2, "limit": 3}).json()
        assert ([one["position"] for one in page["events"]], page["next"]) == ([3, 4, 5], 5)


def test_a_receipt_over_http_proves_an_event(served: Served) -> None:
    with served.client("bot") as bot:
        registered = bot.get(f"{PATH}/log", params={"types": "actor.registered", "limit": 1}).json()["events"][0]
        data = bot.get(f"{PATH}/receipts/{registered['position']}").content
        checkpoint = bot.get(f"{PATH}/checkpoint")
    with served.place.realm() as realm:
        made = read_checkpoint(checkpoint.content)
        assert realm.log.root_at(made.head.size) == made.head
    proof = check_proof(data, Trusted((), made.origin))
    assert proof.event is not None
    assert (proof.event["position"], proof.checkpoints[0].head.size) == (registered["position"], made.head.size)
    assert b"human" in data
    with pytest.raises(RefusedError):
        check_proof(data.replace(b"human", b"agent"), Trusted((), made.origin))


@pytest.fixture
def redacted(tmp_path: Path) -> Iterator[Served]:
    """Return a server where ann reads without inputs."""
    place = founded(tmp_path)
    with Realm.open(place.log, domain=kiosk) as realm:
        realm.access.grant("ann", "reader", by="operator", redaction=["inputs"])
    with serving(place) as served:
        yield served


def test_a_reader_with_redaction_sees_no_input_anywhere(redacted: Served) -> None:
    done = redacted.submit("kid", ORDER | {"input": {"item": "secret-item"}}).json()
    with redacted.client("ann") as ann, redacted.client("aud") as aud:
        pages = [f"{PATH}/log", f"{PATH}/proposals", f"{PATH}/proposals/{done['proposalId']}", f"{PATH}/worlds"]
        pages += [f"{PATH}/worlds/{done['worldId']}", f"{PATH}/branches", PATH, "/v1/realms", f"{PATH}/checkpoint"]
        for page in pages:
            has_limit = page.endswith(("/log", "/proposals", "/worlds"))
            answer = ann.get(page, params={"limit": 500} if has_limit else {})
            assert answer.status_code == 200, page
            assert "secret-item" not in answer.text, page
        for page in (
            "worlds/HEAD/state",
            "worlds/HEAD/diff?with=HEAD",
            "worlds/HEAD/blame?path=orders",
            "leases",
            "actions?actor=kid",
        ):
            assert ann.get(f"{PATH}/{page}").json()["code"] == "RIGHT_MISSING", page
            assert aud.get(f"{PATH}/{page}").status_code == 200, page
        assert "secret-item" in aud.get(f"{PATH}/log", params={"limit": 500}).text
        told = ann.get(f"{PATH}/log", params={"limit": 500}).json()["events"]
        hidden = [one["position"] for one in told if one.get("redacted")]
        assert [one["position"] for one in told] == list(range(1, len(told) + 1))
        with redacted.place.realm() as realm:
            topics = {position: event.TOPIC for position, event in realm.events()}
        assert {topics[position] for position in hidden} >= {"proposal.submitted", "world.sealed"}
        for position in hidden:
            assert ann.get(f"{PATH}/receipts/{position}").json()["code"] == "RIGHT_MISSING"
        assert ann.get(f"{PATH}/log", params={"types": "world.sealed"}).json()["events"] == []
        assert ann.get(f"{PATH}/log", params={"text": "secret-item"}).json()["events"] == []
        with ann.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
            shown = list(itertools.islice(events(stream), len(told)))
        assert [one for _, _, one in shown] == told
        assert {kind for position, kind, _ in shown if position in hidden} == {"redacted"}


def test_two_servers_on_one_postgresql_give_every_event_in_order_to_all(postgres_url: str, tmp_path: Path) -> None:
    place = founded(tmp_path, f"{postgres_url}#servers-{tmp_path.name}", server="burst = 10000")
    total = 2 * CLIENTS * EACH
    with serving(place) as one, serving(place) as other, ThreadPoolExecutor(2 * CLIENTS + 2) as pool:
        assert one.socket is None
        begun = threading.Barrier(3)

        def read(served: Served) -> list[int]:
            with served.client("bot") as bot, bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
                positions, ended = [], 0
                begun.wait(60)
                for position, kind, _ in events(stream):
                    positions.append(position)
                    ended += kind == "proposal.completed"
                    if ended == total:
                        break
            return positions

        def write(served: Served, writer: str) -> list[tuple[str, str]]:
            answers = []
            for number in range(EACH):
                key = f"{writer}-{number}"
                for _ in range(2):  # each request is repeated
                    answer = served.submit("kid", ORDER | {"input": {"item": "tea", "number": key}}, key)
                    assert answer.status_code == 200, answer.text
                answers.append((key, answer.json()["proposalId"]))
            return answers

        readers = [pool.submit(read, served) for served in (one, other)]
        begun.wait(60)
        writers = [
            pool.submit(write, served, f"{name}{number}")
            for name, served in (("a", one), ("b", other))
            for number in range(CLIENTS)
        ]
        acknowledged = dict(pair for writer in writers for pair in writer.result())
        seen = [reader.result() for reader in readers]
    assert seen[0] == list(range(1, len(seen[0]) + 1))
    assert seen[1] == list(range(1, len(seen[1]) + 1))
    with place.realm() as realm:
        submitted = [event for _, event in realm.events() if isinstance(event, ProposalSubmitted)]
        assert {key_of(event): event.proposal_id for event in submitted} == acknowledged
        assert len(submitted) == total
        assert verify(realm.log).ok


def test_a_reader_that_is_far_behind_reads_from_the_log_without_a_gap(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with (
        serving(place) as served,
        served.client("bot") as bot,
        bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream,
    ):
        arriving = events(stream)
        assert next(arriving)[0] == 1
        with Realm.open(place.log, domain=kiosk) as realm:
            for number in range(WINDOW // 2):  # two events each, while this reader takes none
                name = f"actor-{number}"
                realm.register(name, "agent", binding={"kind": "auto_approve"})
            size = realm.log.head().size
        positions = [position for position, _, _ in itertools.islice(arriving, size - 1)]
    assert positions == list(range(2, size + 1))
