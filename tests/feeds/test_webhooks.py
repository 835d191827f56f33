"""Messages to receivers: their form and signature, repetition, pauses, and what is never done."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import formatdate

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from eventsourcing.persistence import Tracking
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.feeds.feeding import (
    OTHER_SECRET,
    SECRET,
    SIGNED,
    Feeding,
    act,
    deliver,
    delivering,
    progress,
    receiving,
    state_of,
)
from world.clock import ManualClock, SystemClock
from world.errors import RefusedError
from worldprotocol.api.consumers import consumer_name
from worldprotocol.api.sections.feeds import FeedConfig
from worldprotocol.export.feeds import delivery
from worldprotocol.export.feeds.delivery import wait_ms
from worldprotocol.export.feeds.running import feed_status, opened_state
from worldprotocol.export.feeds.sinks import signature_headers

pytestmark = pytest.mark.slow


def test_each_event_is_a_signed_message_with_a_stable_id_in_the_order_of_the_log(fed: Feeding) -> None:
    act(fed.realm)
    with receiving() as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\nheaders = {{ X-Realm = "depot" }}\n{SIGNED}')
        deliver(feed)
        again = fed.feed(f'url = "{receiver.url}"\n{SIGNED}', name="other")
        deliver(again)
    first, second = receiver.requests[: fed.size], receiver.requests[fed.size :]
    for path, headers, body in first:
        assert path == "/hook"
        assert headers["x-realm"] == "depot"
        assert "." not in headers["webhook-id"]
        Webhook(SECRET).verify(body, headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(OTHER_SECRET).verify(body, headers)
        event = from_http_event(HTTPMessage({"content-type": headers["content-type"]}, body))
        assert headers["webhook-id"] == f"hook-{event.get_source().rpartition(':')[2]}-{event.get_id()}"
    assert [json.loads(body)["id"] for _, _, body in first] == [str(n + 1) for n in range(fed.size)]
    assert [body for _, _, body in first] == [body for _, _, body in second]
    assert len(set(receiver.ids)) == 2 * fed.size  # ids of another feed are others
    told = state_of(feed)
    assert (told["state"], told["position"], told["lag"], told["sent"]) == ("current", fed.size, 0, fed.size)


def test_a_batch_is_a_message_of_several_events(fed: Feeding) -> None:
    act(fed.realm)
    with receiving(500) as receiver:
        deliver(fed.feed(f'url = "{receiver.url}"\nbatch = 4\n{SIGNED}'))
    repeated, *rest = receiver.requests
    assert (repeated[1]["webhook-id"], repeated[2]) == (rest[0][1]["webhook-id"], rest[0][2])
    assert {headers["content-type"] for _, headers, _ in rest} == {"application/cloudevents-batch+json"}
    structured = {"content-type": "application/cloudevents+json"}
    found = [
        from_http_event(HTTPMessage(structured, json.dumps(one).encode()))
        for _, _, body in rest
        for one in json.loads(body)
    ]
    assert [int(one.get_id()) for one in found] == list(range(1, fed.size + 1))
    assert rest[0][1]["webhook-id"].endswith("-1-4")


def test_a_batch_that_was_begun_has_the_same_events_after_the_log_has_grown(fed: Feeding) -> None:
    feed = fed.feed('url = "http://127.0.0.1:9/"\nbatch = 100\nmax_attempts = 1\n' + SIGNED)
    begun = fed.size
    deliver(feed)  # nothing listens there
    assert state_of(feed)["underWay"] == begun
    act(fed.realm)
    with receiving() as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\nbatch = 100\n{SIGNED}')
        with opened_state(feed) as state:
            state.resume()
        deliver(feed)
    sizes = [len(json.loads(body)) for _, _, body in receiver.requests]
    assert sizes == [begun, fed.size - begun]


def test_a_message_is_signed_with_each_of_several_secrets(fed: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_NEW", OTHER_SECRET)
    with receiving() as receiver:
        deliver(fed.feed(f'url = "{receiver.url}"\nsecret = "${{secret:NEW}} ${{secret:HOOK}}"'))
    for secret in (SECRET, OTHER_SECRET):
        for _, headers, body in receiver.requests:
            Webhook(secret).verify(body, headers)


def test_a_signature_is_that_of_the_specification() -> None:
    key, body = b"k" * 24, b'{"test": 2432232314}'
    headers = signature_headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-timestamp"] == "1614265330"
    signed = Webhook(key).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", datetime.fromtimestamp(1614265330, UTC), body.decode())
    assert headers["webhook-signature"] == signed


def test_a_failed_message_is_repeated_and_none_overtakes_it(fed: Feeding) -> None:
    with receiving(204, 500, 503, 404, 302) as receiver:
        reports = deliver(fed.feed(f'url = "{receiver.url}"\n{SIGNED}'))
    positions = [int(one.rpartition("-")[2]) for one in receiver.ids]
    assert positions == [1, 2, 2, 2, 2, *range(2, fed.size + 1)]
    failed = [one for one in reports if one.kind == "failed"]
    assert [one.attempts for one in failed] == [1, 2, 3, 4]
    assert {one.failure.code for one in failed if one.failure} == {"HTTP_STATUS"}


def test_waits_double_up_to_a_bound_and_are_never_shorter_than_the_receiver_asks_for() -> None:
    config = FeedConfig(file="x", first_wait_ms=100, longest_wait_ms=1_000)
    assert [wait_ms(config, n, 0, lambda below: 0) for n in (1, 2, 3, 4, 5, 99)] == [100, 200, 400, 800, 1_000, 1_000]
    assert [wait_ms(config, n, 0, lambda below: below - 1) for n in (1, 2, 99)] == [50, 100, 500]
    assert wait_ms(config, 1, 7.5) == 7_500


@pytest.mark.parametrize("form", ["seconds", "date", "far"])
def test_the_wait_that_a_receiver_asks_for_is_kept(fed: Feeding, form: str) -> None:
    clock = ManualClock(1_700_000_000_000)
    in_an_hour = formatdate(clock.now_ms() / 1_000 + 3_600, usegmt=True)
    asked = {"seconds": "3600", "date": in_an_hour, "far": "999999999"}[form]
    with receiving((429, {"retry-after": asked})) as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\n{SIGNED}')
        with delivering(feed, clock) as steps:
            assert steps.wait("failed").wait_ms == {"far": 86_400_000}.get(form, 3_600_000)
    assert len(receiver.requests) == 1  # stopping does not wait for the hour
    assert state_of(feed)["state"] == "retrying"


def test_a_receiver_that_is_gone_pauses_the_feed_until_it_is_resumed(
    fed: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "RESUME_POLL_S", 0.01)
    with receiving(204, 410) as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\n{SIGNED}')
        with delivering(feed) as steps:
            paused = steps.wait("paused")
            assert (paused.position, paused.failure and paused.failure.code) == (1, "HTTP_STATUS")
            told = state_of(feed)
            assert (told["state"], told["position"]) == ("paused", 1)
            assert told["lastFailure"]["message"] == "The receiver answered 410."
            with opened_state(feed) as state:
                state.resume()
            steps.wait("resumed")
            steps.wait("delivered", fed.size)
    assert [int(one.rpartition("-")[2]) for one in receiver.ids] == [1, 2, *range(2, fed.size + 1)]


def test_a_feed_whose_messages_fail_too_often_is_paused_and_stays_so(fed: Feeding) -> None:
    with receiving(*[500] * 10) as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\nmax_attempts = 3\n{SIGNED}')
        assert [one.kind for one in deliver(feed)] == ["failed", "failed", "paused"]
        assert [one.kind for one in deliver(feed)] == ["paused"]
    assert len(receiver.requests) == 3
    assert (state_of(feed)["attempts"], progress(feed).paused) == (3, True)


def test_attempts_are_counted_over_restarts(fed: Feeding) -> None:
    with receiving((500, {"retry-after": "3600"})) as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\nmax_attempts = 2\n{SIGNED}')
        with delivering(feed) as steps:
            steps.wait("failed")
        receiver.answers.append((500, {}))
        assert [one.kind for one in deliver(feed)] == ["paused"]


def test_redirects_are_not_followed(fed: Feeding) -> None:
    with receiving() as other, receiving((307, {"location": other.url})) as receiver:
        deliver(fed.feed(f'url = "{receiver.url}"\nmax_attempts = 1\n{SIGNED}'))
    assert (len(receiver.requests), other.requests) == (1, [])


def test_proxies_of_the_environment_are_not_used(fed: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy, receiving() as receiver:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        deliver(fed.feed(f'url = "{receiver.url}"\n{SIGNED}'))
    assert (len(receiver.requests), proxy.requests) == (fed.size, [])


def test_no_secret_is_in_what_a_feed_stores_or_reports(fed: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_TOKEN", "tok-12345678")
    header = 'headers = { Authorization = "Bearer ${secret:TOKEN}" }'
    with receiving(500) as receiver:
        feed = fed.feed(f'url = "{receiver.url}/${{secret:TOKEN}}"\n{header}\n{SIGNED}')
        reports = deliver(feed)
    assert receiver.requests[0][0] == "/hook/tok-12345678"
    assert receiver.requests[0][1]["authorization"] == "Bearer tok-12345678"
    broken = fed.feed(f'url = "http://127.0.0.1:9/${{secret:TOKEN}}"\nmax_attempts = 1\n{header}', name="broken")
    reports += deliver(broken)
    told = f"{reports} {feed_status(feed)} {feed_status(broken)} {feed!r} {feed.sink(SystemClock())!r}"
    stored = b"".join(path.read_bytes() for path in fed.folder.glob("world.db.feed-*"))
    for secret in ("tok-12345678", SECRET.removeprefix("whsec_")):
        assert secret not in told
        assert secret.encode() not in stored
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in fed.folder.glob("world.db.feed-*"))


@pytest.mark.parametrize("secret", ["whsec_c2hvcnQ=", "not base64 at all!"])
def test_a_secret_that_cannot_sign_is_refused(fed: Feeding, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("FEED_HOOK", secret)
    with pytest.raises(RefusedError) as caught:
        deliver(fed.feed(f'url = "https://example.com/"\n{SIGNED}'))
    assert caught.value.code == "INVALID_CONFIG"
    assert secret not in caught.value.message


def test_a_second_process_of_a_feed_is_refused(fed: Feeding) -> None:
    with receiving() as receiver:
        feed = fed.feed(f'url = "{receiver.url}"\n{SIGNED}')
        with delivering(feed) as steps:
            steps.wait("delivered", fed.size)
            with pytest.raises(RefusedError) as caught:
                deliver(feed)
    assert caught.value.code == "FEED_BUSY"


def test_a_feed_that_is_ahead_of_its_log_is_refused(fed: Feeding) -> None:
    feed = fed.feed('file = "x.jsonl"')
    deliver(feed)
    with opened_state(feed) as state:
        state.insert_tracking(Tracking(consumer_name(fed.realm.log), 1_000))
    with pytest.raises(RefusedError) as caught, delivering(feed):
        pass
    assert caught.value.code == "CONSUMER_AHEAD"


def test_a_receiver_that_does_not_answer_delays_its_own_feed_only(fed: Feeding) -> None:
    dead = f'[feeds.dead]\nurl = "http://127.0.0.1:9/"\nmax_attempts = 1000000\n{SIGNED}'
    first, second = fed.configure(dead, '[feeds.lines]\nfile = "lines.jsonl"')
    with delivering(first) as failing, delivering(second) as steps:
        failing.wait("failed")
        act(fed.realm)
        steps.wait("delivered", fed.size)
    assert (state_of(first)["position"], state_of(second)["lag"]) == (0, 0)
