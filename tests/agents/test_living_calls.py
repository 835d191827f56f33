"""Calls of agents at a real server: they end with connections, sessions, and servers that hold these."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.agents.hooked import Claude, founded, proposals
from tests.agents.test_hooks_command import worldctl
from tests.pages.pages_of import signed_in
from tests.server.served import Place, Served, serving
from tests.support.patience import PATIENCE_S, until
from world.audit.verify import verify
from world.events.base import Event
from world.events.caller_events import CallerLeft, CallerReturned, SessionBegun, SessionMoved
from worldprotocol.agents.hooks.settings import SAYS_GUARDED

pytestmark = [pytest.mark.slow, pytest.mark.requirement("LIVE-caller")]

REALM = "/v1/realms/main"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(founded(tmp_path_factory.mktemp("living")), "--sign-in", "ann") as running:
        yield running


def events(place: Place, kind: type[Event]) -> list[Any]:
    with place.realm() as realm:
        return [one for _, one in realm.events() if isinstance(one, kind)]


def open_calls(place: Place) -> int:
    with place.realm() as realm:
        view = realm.realm()
        return len(view.proposals) + len(view.klis.leases) + len(view.klis.requests)


class Connection:
    """A hook's request that can be cut at any moment."""

    def __init__(self, served: Served, session: str, call_id: str, path: str, *, is_guarded: bool = False) -> None:
        self._url = urlsplit(served.url)
        self._http = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=PATIENCE_S)
        project = served.place.folder.parent / "project"
        body = {
            "session_id": session,
            "cwd": str(project),
            "hook_event_name": "PreToolUse",
            "tool_name": "Edit",
            "tool_input": {"file_path": str(project / path), "old_string": "1", "new_string": "2"},
            "tool_use_id": call_id,
        }
        headers = {"Authorization": f"Bearer {served.place.tokens['claude']}", "Content-Type": "application/json"}
        headers |= {SAYS_GUARDED: "yes"} if is_guarded else {}
        self._http.request("POST", f"{REALM}/hooks/claude-code", json.dumps(body), headers)

    def cut(self) -> None:
        """End the connection."""
        self._http.close()

    def answer(self) -> str:
        """Return the decision."""
        with self._http.getresponse() as response:
            told = json.loads(response.read())["hookSpecificOutput"]
        self.cut()
        return str(told["permissionDecision"])


def asked(served: Served, session: str) -> dict[str, Any]:
    """Return the entry of the inbox for a call of a session, once ann is asked."""

    def look() -> Any:
        with served.client("ann") as client:
            entries = client.get(f"{REALM}/inbox").json()["inbox"]
        return next((one for one in entries if one.get("trace", {}).get("session") == session), None) or (
            entries and entries[-1]
        )

    return dict(until(look, what="ann is not asked"))


def test_a_call_that_waits_for_a_person_ends_with_its_connection(served: Served) -> None:
    waiting = Connection(served, "cut-asked", "toolu_1", ".env")
    name = asked(served, "cut-asked")["proposalId"]
    waiting.cut()
    until(lambda: not open_calls(served.place), what="the call is still open")
    gone = events(served.place, CallerLeft)[-1]
    assert (gone.client, gone.session, gone.calls, gone.noticed_by) == (
        "claude-code",
        "cut-asked",
        [name],
        "connection",
    )
    with served.client("ann") as client:
        late = client.post(f"{REALM}/proposals/{name}:answer", json={"choice": "approve", "reason": "late"})
        assert (late.status_code, late.json()["code"]) == (409, "NOT_WAITING")
        shown = client.get(f"{REALM}/proposals/{name}").json()
    assert shown["status"] == "superseded"


def test_a_lost_connection_may_return_with_its_key(served: Served) -> None:
    first = Connection(served, "returns", "toolu_1", ".env")
    name = asked(served, "returns")["proposalId"]
    first.cut()
    second = Connection(served, "returns", "toolu_1", ".env")
    time.sleep(3)  # longer than a caller has to return
    assert asked(served, "returns")["proposalId"] == name
    with served.client("ann") as client:
        said = {"choice": "approve", "reason": "it may"}
        assert client.post(f"{REALM}/proposals/{name}:answer", json=said).status_code in (200, 202)
    assert second.answer() == "allow"
    Claude(served, session="returns").after("toolu_1")
    assert not open_calls(served.place)


def test_a_session_that_is_not_renewed_any_more_ends(served: Served) -> None:
    agent = Claude(served, session="renewed")
    _, _, told = agent.edit("src/app.py")
    waiting = Connection(served, "renewed", "toolu_2", ".env")
    asked(served, "renewed")
    with served.client("claude") as client:
        for _ in range(2):
            renewed = client.post(f"{REALM}/sessions:renew", json={"sessions": ["renewed", "no calls"]})
            found = renewed.json()
            assert (renewed.status_code, found["renewed"], found["elsewhere"]) == (200, 2, [])
    [begun] = [one for one in events(served.place, SessionBegun) if one.session == "renewed"]
    assert (begun.client, begun.actor_id) == ("claude-code", "claude")
    assert open_calls(served.place) > 1
    until(lambda: not open_calls(served.place), what="the session has not ended")
    gone = events(served.place, CallerLeft)[-1]
    assert (gone.session, gone.noticed_by, len(gone.calls)) == ("renewed", "renewal", 2)
    assert waiting.answer() == "deny"
    agent.after(told["id"])  # too late, and nothing changes
    assert not open_calls(served.place)
    with served.client("claude") as client:  # its guard had been stopped
        assert client.post(f"{REALM}/sessions:renew", json={"sessions": ["renewed"]}).json()["elsewhere"] == []
    assert [one.client for one in events(served.place, SessionBegun) if one.session == "renewed"] == ["claude-code"] * 2
    _, _, told = agent.edit("src/app.py")
    assert open_calls(served.place)
    agent.after(told["id"])
    assert not open_calls(served.place)


def test_a_guard_ends_the_session_of_a_process_that_is_gone(served: Served) -> None:
    agent = Claude(served, session="guarded")
    agent.edit("src/app.py")
    with served.client("other") as client:  # it ends only its own
        ended = client.post(f"{REALM}/sessions:end", json={"session": "guarded", "noticedBy": "process"})
        assert (ended.status_code, ended.json()) == (200, {"calls": []})
    with served.client("claude") as client:
        [name] = client.post(f"{REALM}/sessions:end", json={"session": "guarded", "noticedBy": "process"}).json()[
            "calls"
        ]
    gone = events(served.place, CallerLeft)[-1]
    assert (gone.calls, gone.noticed_by, gone.verified.actor_id) == ([name], "process", "claude")
    assert not open_calls(served.place)


def test_a_session_that_was_never_renewed_stays(served: Served) -> None:
    agent = Claude(served, session="http")
    _, _, told = agent.edit("src/app.py")
    time.sleep(17)
    assert open_calls(served.place)
    agent.after(told["id"])
    assert not open_calls(served.place)
    with served.place.realm() as realm:
        assert verify(realm.log).ok


def test_a_session_with_a_guard_of_which_no_renewal_arrives_ends(served: Served) -> None:
    """The network of its machine was cut after the answer, and before the first renewal."""
    allowed = Connection(served, "unheard", "toolu_1", "src/app.py", is_guarded=True)
    assert allowed.answer() == "allow"
    assert open_calls(served.place) == 2
    until(lambda: not open_calls(served.place), what="the call is still open")
    gone = events(served.place, CallerLeft)[-1]
    assert (gone.session, len(gone.calls), gone.noticed_by) == ("unheard", 1, "renewal")


def test_a_person_sees_that_the_caller_left(served: Served) -> None:
    waiting = Connection(served, "seen", "toolu_1", ".env")
    name = asked(served, "seen")["proposalId"]
    waiting.cut()
    until(lambda: not open_calls(served.place), what="the call is still open")
    with served.client("ann") as client:
        shown = client.get(f"{REALM}/proposals/{name}").json()
        assert (shown["status"], shown["endedReason"]) == ("superseded", "caller left")
        late = client.post(f"{REALM}/proposals/{name}:answer", json={"choice": "approve", "reason": "late"}).json()
        assert (late["code"], "its caller left" in late["detail"]) == ("NOT_WAITING", True)
    with signed_in(served, "ann") as browser:
        for page in ("proposals?status=superseded", f"proposals/{name}"):
            assert "caller left" in browser.get(f"/realms/main/{page}").text, page
        assert "/realms/main/inbox?caller-left=true" in browser.get("/realms/main/inbox").text
        listed = browser.get("/realms/main/inbox?caller-left=true").text
        assert f"/realms/main/proposals/{name}" in listed
        assert "Caller left" in listed
    place = served.place.folder
    for words in (("explain", name), ("show", name)):
        told = worldctl("--config", str(place / "world.toml"), *words).stdout
        assert "caller left" in told, told
    here = ["--config", str(place / "world.toml")]
    for there in (here, ["--server", served.url, "--token-file", str(token_of(served, "ann"))]):
        told = worldctl(*there, "inbox", "--caller-left").stdout
        assert "caller left" in told, told
        assert name in told, told
        [one, *_] = json.loads(worldctl(*there, "inbox", "--caller-left", "--json").stdout)
        assert (one["proposalId"], one["status"], one["endedReason"]) == (name, "superseded", "caller left")
        assert one["trace"] == {"client": "claude-code", "session": "seen"}


def token_of(served: Served, actor: str) -> Path:
    """Return a file with the token of an actor."""
    file = served.place.folder / f"{actor}.token"
    file.write_text(served.place.tokens[actor])
    file.chmod(0o600)
    return file


STAGES = ("asked", "waits for leases", "approved", "allowed")


@pytest.mark.parametrize("stage", STAGES)
def test_a_connection_that_is_cut_at_any_stage_leaves_nothing(served: Served, stage: str) -> None:
    session = f"stage {stage}"
    other = Claude(served, "other", session="other")
    held = other.edit("src/app.py")[2] if stage == "waits for leases" else None
    path = "src/app.py" if stage in ("waits for leases", "allowed") else ".env"
    cut = Connection(served, session, "toolu_1", path)
    if stage in ("asked", "approved"):
        name = asked(served, session)["proposalId"]
        if stage == "approved":  # the answer may arrive before or after the connection ends
            with served.client("ann") as client:
                said = {"choice": "approve", "reason": "it may"}
                cut.cut()
                client.post(f"{REALM}/proposals/{name}:answer", json=said)
    elif stage == "waits for leases":
        until(lambda: len(proposals(served)) and open_calls(served.place) > 2, what="nothing waits")
    else:
        until(lambda: proposals(served)[-1]["trace"]["session"] == session, what="it is not proposed")
    cut.cut()
    if held is not None:
        until(lambda: open_calls(served.place) == 2, what="the call still waits for leases")
        other.after(held["id"])
    if stage == "allowed":  # whether the answer arrived is not known
        with served.client("claude") as client:
            time.sleep(3)
            client.post(f"{REALM}/sessions:end", json={"session": session, "noticedBy": "process"})
    until(lambda: not open_calls(served.place), what=f"{stage}: something is left")
    with served.place.realm() as realm:
        assert verify(realm.log).ok


def test_another_server_takes_the_sessions_of_one_that_was_killed_over(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with serving(place) as first:
        agent = Claude(first, session="moved")
        agent.edit("src/app.py")
        with first.client("claude") as client:
            client.post(f"{REALM}/sessions:renew", json={"sessions": ["moved"]})
        first.process.kill()
        first.process.wait()
    assert open_calls(place) == 2
    with serving(place):
        until(lambda: not open_calls(place), what="the session was not taken over")
        begun, moved = events(place, SessionBegun), events(place, SessionMoved)
        assert [one.session for one in (*begun, *moved)] == ["moved", "moved"]
        assert begun[0].server != moved[0].server
        [gone] = events(place, CallerLeft)
        assert (gone.noticed_by, gone.client) == ("renewal", "claude-code")
    with place.realm() as realm:
        assert verify(realm.log).ok


def test_a_session_moves_to_another_server_where_the_renewal_says_so(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with serving(place) as first, serving(place, "--socket", str(tmp_path / "second.sock")) as second:
        agent = Claude(first, session="both")
        _, _, told = agent.edit("src/app.py")
        with first.client("claude") as one, second.client("claude") as two:
            one.post(f"{REALM}/sessions:renew", json={"sessions": ["both"]})
            stays = two.post(f"{REALM}/sessions:renew", json={"sessions": ["both"]}).json()
            assert (stays["elsewhere"], events(place, SessionMoved)) == (["both"], [])
            end = time.monotonic() + 20
            while time.monotonic() < end:  # longer than the first server waits
                moved = two.post(f"{REALM}/sessions:renew", json={"sessions": ["both"], "moves": True}).json()
                assert (moved["renewed"], moved["elsewhere"]) == (1, [])
                time.sleep(1)
        assert events(place, CallerLeft) == []
        assert len(events(place, SessionMoved)) == 1
        agent.after(told["id"])


def test_a_lost_connection_may_return_to_another_server(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with (
        serving(place, "--sign-in", "ann") as first,
        serving(place, "--socket", str(tmp_path / "second.sock")) as second,
    ):
        cut = Connection(first, "elsewhere", "toolu_1", ".env")
        name = asked(first, "elsewhere")["proposalId"]
        cut.cut()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(Claude(second, session="elsewhere").edit, ".env", call_id="toolu_1")
            until(lambda: events(place, CallerReturned), what="the second server does not have the call")
            time.sleep(3)  # longer than a caller has to return
            with first.client("ann") as client:
                said = {"choice": "approve", "reason": "it may"}
                told = client.post(f"{REALM}/proposals/{name}:answer", json=said)
                assert told.status_code in (200, 202), told.text
            assert answer.result(PATIENCE_S)[0] == "allow"
        Claude(second, session="elsewhere").after("toolu_1")
        assert not open_calls(place)
    with place.realm() as realm:
        assert verify(realm.log).ok


def test_a_caller_has_no_more_sessions_than_an_actor_may_have(served: Served) -> None:
    with served.client("other") as client:
        invented = client.post(f"{REALM}/sessions:renew", json={"sessions": [f"s{one}" for one in range(101)]})
    assert (invented.status_code, invented.json()["code"]) == (409, "TOO_MANY_OPEN")
    told = []
    for session in ("s1", "fresh"):
        agent = Claude(served, "other", session=session)
        _, reason, answer = agent.edit(f"src/{session}.py")
        told.append(reason)
        agent.after(answer["id"])
    assert [("This session is not renewed" in one, "an actor of their own" in one) for one in told] == [
        (True, True),
        (False, False),
    ]


def test_a_late_report_of_the_end_of_a_process_leaves_what_the_next_one_calls(served: Served) -> None:
    agent = Claude(served, session="continued")
    agent.edit("src/earlier.py")
    with served.client("claude") as client:
        now = client.post(f"{REALM}/sessions:renew", json={"sessions": ["continued"]}).json()["now"]
        later = agent.edit("src/later.py")[2]["id"]
        end = {"session": "continued", "noticedBy": "process", "endedAt": now}
        ended = client.post(f"{REALM}/sessions:end", json=end).json()["calls"]
    [stays] = [one for one in proposals(served) if one["trace"].get("callId") == later]
    assert (len(ended), stays["status"]) == (1, "executing")
    agent.after(later)


def test_a_late_report_leaves_an_undecided_call_that_the_next_process_asks_again(served: Served) -> None:
    first = Connection(served, "joined", "toolu_1", ".env")
    name = asked(served, "joined")["proposalId"]
    with served.client("claude") as client:
        now = client.post(f"{REALM}/sessions:renew", json={"sessions": ["joined"]}).json()["now"]
        second = Connection(served, "joined", "toolu_2", ".env")
        first.cut()
        time.sleep(3)  # longer than a caller has to return
        end = {"session": "joined", "noticedBy": "process", "endedAt": now}
        assert client.post(f"{REALM}/sessions:end", json=end).json() == {"calls": []}
    with served.client("ann") as client:
        said = {"choice": "approve", "reason": "it may"}
        assert client.post(f"{REALM}/proposals/{name}:answer", json=said).status_code in (200, 202)
    assert second.answer() == "allow"
    Claude(served, session="joined").after("toolu_2")
    assert not open_calls(served.place)
