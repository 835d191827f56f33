"""A proxy, a server of the realm or an upstream that dies between the forwarding of a call and its answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agents.proxy.proxied import (
    Agent,
    Script,
    agent,
    answered,
    is_in_doubt,
    pinned,
    proposals,
    status,
    told,
    tool,
    until,
)
from tests.server.served import PATH, Served, serving
from world.events.claim_events import EffectExtended, EffectLapsed

pytestmark = pytest.mark.slow

SILENCE = ("--silence", "1")


def killed(agent: Agent) -> None:
    os.kill(agent.process.pid, signal.SIGKILL)
    agent.process.wait()


def stored(served: Served, proposal: str, kind: type[EffectExtended | EffectLapsed]) -> int:
    """Return how many events of a kind there are of the claims of a call."""
    with served.place.realm() as realm:
        found = [event for _, event in realm.events() if isinstance(event, kind)]
    return sum(one.proposal_id == proposal for one in found)


def resolved(served: Served, proposal: str, choice: str) -> None:
    with served.client("ann") as client:
        done = client.post(f"{PATH}/proposals/{proposal}:settle", json={"choice": choice, "reason": "looked"})
        assert done.is_success, done.text


def test_a_call_whose_proxy_was_killed_is_in_doubt_and_never_sent_twice(served: Served, tmp_path: Path) -> None:
    tools = [tool("hang")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "writes", *tools)
    with agent(served, "writes", script.words, *SILENCE) as first:
        first.start("hang", row=1)
        until(lambda: len(script.calls), 1)
        killed(first)

    with agent(served, "writes", script.words, *SILENCE) as second:
        is_error, words, details = second.call("hang", row=1)
        assert (is_error, details["code"]) == (True, "IN_DOUBT")
        assert "not known whether it was made" in words
        assert second.call("hang", row=1)[2] == details
        name = details["proposalId"]
        assert [one["proposalId"] for one in proposals(served, "writes")] == [name]
        assert len(script.calls) == 1

        resolved(served, name, "fail")
        until(lambda: status(served, "writes"), "failed")
        number = second.start("hang", row=1)  # a person has said that it was not made
        until(lambda: len(script.calls), 2)
        killed(second)
    assert second.answers[number].empty()
    assert [one["status"] for one in proposals(served, "writes")] == ["failed", "executing"]


def test_a_call_that_is_pinned_as_repeatable_is_sent_again(served: Served, tmp_path: Path) -> None:
    tools = [tool("hang", readOnlyHint=True)]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "reads", *tools)
    with agent(served, "reads", script.words, *SILENCE) as first:
        first.start("hang", row=2)
        until(lambda: len(script.calls), 1)
        killed(first)
    name = proposals(served, "reads")[-1]["proposalId"]
    until(lambda: stored(served, name, EffectLapsed), 1)
    with agent(served, "reads", script.words, *SILENCE) as second:
        number = second.start("hang", row=2)
        until(lambda: len(script.calls), 2)
        killed(second)
    assert second.answers[number].empty()
    assert [one["status"] for one in proposals(served, "reads")] == ["executing"]


def test_hints_that_are_not_pinned_permit_no_repetition(served: Served, tmp_path: Path) -> None:
    tools = [tool("hang")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "liar", *tools)
    with agent(served, "liar", script.words, *SILENCE) as first:
        first.start("hang", row=3)
        until(lambda: len(script.calls), 1)
        killed(first)
    script.write(tool("hang", readOnlyHint=True, idempotentHint=True))
    with agent(served, "liar", script.words, *SILENCE) as second:
        is_error, _, details = second.call("hang", row=3)
    assert is_error
    assert details["code"] in ("REJECTED", "IN_DOUBT")
    assert len(script.calls) == 1


def test_an_upstream_that_dies_leaves_its_call_in_doubt(served: Served, tmp_path: Path) -> None:
    tools = [tool("die"), tool("append")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "dies", *tools)
    with agent(served, "dies", script.words, *SILENCE) as one:
        is_error, words, details = one.call("die")
        assert (is_error, details["code"]) == (True, "IN_DOUBT")
        assert "It is not known whether this call was made" in words
        until(lambda: is_in_doubt(served, details["proposalId"]))
        is_error, words, _ = one.call("append")  # the client hears about it, and nothing hangs
        assert is_error
        assert "ended" in words
        assert one.close() == 1
    assert len(script.calls) == 1


def test_a_call_that_the_client_gives_up_after_its_forwarding_is_in_doubt(served: Served, tmp_path: Path) -> None:
    tools = [tool("hang")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "slow", *tools)
    with agent(served, "slow", script.words, *SILENCE) as one:
        number = one.start("hang", row=4)
        until(lambda: len(script.calls), 1)
        one.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        name = proposals(served, "slow")[-1]["proposalId"]
        until(lambda: is_in_doubt(served, name))
        assert told(one.answer(one.start("hang", row=4)))[2]["code"] == "IN_DOUBT"
    assert len(script.calls) == 1


def test_a_call_that_the_client_gives_up_before_is_withdrawn(served: Served, tmp_path: Path) -> None:
    tools = [tool("asked")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "waits", *tools)
    with agent(served, "waits", script.words) as one:
        number = one.start("asked", row=5)
        until(lambda: status(served, "waits"), "evaluating")
        one.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        until(lambda: status(served, "waits"), "superseded")
    assert script.calls == []


def test_a_result_that_comes_just_after_the_end_of_the_client_is_recorded(served: Served, tmp_path: Path) -> None:
    script = Script(tmp_path / "up").write(tool("held"))
    pinned(served, "late", tool("held"))
    with agent(served, "late", script.words) as one:
        one.start("held")
        until(lambda: len(script.calls), 1)
        assert one.process.stdin is not None
        one.process.stdin.close()
        (script.folder / "go").touch()
        assert one.close() == 0
    assert status(served, "late") == "completed"


def test_sigterm_ends_the_proxy_and_its_upstream(served: Served, tmp_path: Path) -> None:
    tools = [tool("asked")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "ended", *tools)
    with agent(served, "ended", script.words) as one:
        one.start("asked", row=6)
        until(lambda: status(served, "ended"), "evaluating")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(30) == 128 + signal.SIGTERM
        until(lambda: status(served, "ended"), "superseded")


def test_a_call_that_takes_longer_than_the_permitted_silence_is_still_being_made(
    served: Served, tmp_path: Path
) -> None:
    script = Script(tmp_path / "up").write(tool("held"))
    pinned(served, "long", tool("held"))
    with agent(served, "long", script.words, *SILENCE) as one:
        number = one.start("held")
        until(lambda: status(served, "long"), "executing")
        name = proposals(served, "long")[-1]["proposalId"]
        until(lambda: stored(served, name, EffectExtended) > 3)
        (script.folder / "go").touch()
        assert told(one.answer(number))[0] is False
    assert status(served, "long") == "completed"


def test_a_result_is_reported_when_the_server_is_back(served: Served, tmp_path: Path) -> None:
    place, socket = served.place, str(tmp_path / "own.sock")  # a second server of the same realm
    script = Script(tmp_path / "up").write(tool("held"))
    with serving(place, "--socket", socket) as first:
        pinned(first, "back", tool("held"))
        with agent(first, "back", script.words) as one:
            number = one.start("held")
            until(lambda: len(script.calls), 1)
            first.process.kill()
            first.process.wait()
            (script.folder / "go").touch()
            with serving(place, "--socket", socket, "--port", first.url.rpartition(":")[2]) as second:
                assert told(one.answer(number))[0] is False
                assert status(second, "back") == "completed"
                assert one.call("held")[0] is False


def test_a_call_whose_time_was_over_before_it_was_forwarded_is_not_made(served: Served, tmp_path: Path) -> None:
    tools = [tool("asked")]
    script = Script(tmp_path / "up").write(*tools)
    pinned(served, "late", *tools)
    with agent(served, "late", script.words, *SILENCE) as one:
        number = one.start("asked")
        until(lambda: status(served, "late"), "evaluating")
        script.write(*tools, holds=True)  # the tools are listed again before the call is forwarded
        name = proposals(served, "late")[-1]["proposalId"]
        answered(served, name)
        until(lambda: status(served, "late"), "executing")
        one.process.send_signal(signal.SIGSTOP)
        until(lambda: is_in_doubt(served, name))
        one.process.send_signal(signal.SIGCONT)
        (script.folder / "go").touch()
        is_error, words, details = told(one.answer(number))
        assert (is_error, details["code"]) == (True, "TOOL_NOT_CALLED")
        assert "before it was forwarded" in words
    assert script.calls == []
