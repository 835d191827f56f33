"""Jobs over HTTP: verify, recheck, what-if and backtest as the command line does them; floods, cancellation."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.auditing.audited import founded_audited, ordered, worldctl
from tests.server.served import PATH, Served, serving, stopped
from tests.support.patience import until

pytestmark = pytest.mark.slow

LIMITS = "requests_per_second = 10000\nburst = 10000"
DRAFT = 'name = "draft"\n[[rules]]\nid = "nothing"\nverdict = "reject"\n'
ENDLESS = {"all": True, "runs": 10, "vary": ["hashseed", "order", "timezone"]}
"""Options of a recheck that starts processes for minutes."""


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server of a realm with judged orders."""
    place = founded_audited(tmp_path_factory.mktemp("jobs"), LIMITS)
    with serving(place) as running:
        for number in range(6):
            ordered(running, "pol", "tea" if number % 3 else "milk", f"n{number}")
        yield running


def started(served: Served, kind: str, body: Any, actor: str = "aud", key: str | None = None) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    with served.client(actor) as client:
        answer = client.post(f"{PATH}/{kind}", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def followed(served: Served, job: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return name and state of every event of a job's stream."""
    with served.client("aud") as client:
        text = client.get(f"{PATH}/jobs/{job['jobId']}/stream").text
    lines = [line.partition(": ") for line in text.splitlines() if line.startswith(("event:", "data:"))]
    names = [value for name, _, value in lines if name == "event"]
    states = [json.loads(value) for name, _, value in lines if name == "data"]
    return list(zip(names, states, strict=True))


def ended(served: Served, kind: str, body: Any) -> dict[str, Any]:
    """Start a job and return its last state."""
    events = followed(served, started(served, kind, body))
    assert [name for name, _ in events] == ["progress"] * (len(events) - 1) + ["ended"]
    state = events[-1][1]
    with served.client("aud") as client:
        assert client.get(f"{PATH}/jobs/{state['jobId']}").json() == state
    return state


def refused(served: Served, kind: str, body: Any, actor: str = "aud") -> tuple[int, str]:
    with served.client(actor) as client:
        answer = client.post(f"{PATH}/{kind}", json=body)
    return answer.status_code, answer.json()["code"]


def test_a_verification_says_what_the_command_says(audited: Served) -> None:
    with audited.place.realm() as realm:
        head = realm.log.head()
    for saved, code in ((f"{head.size}:{head.root_hex}", 0), (f"3:{'0' * 64}", 3)):
        state = ended(audited, "verify", {"against": [saved]})
        assert state["status"] == "done"
        said = worldctl(audited.place)("verify", "--against", saved, "--json", code=code)
        assert state["result"] == said.json
        assert state["done"] == state["total"] > 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, []),
        ({"all": True, "upto": 95}, ["--all", "--upto", "95"]),
        ({"at": "HEAD", "jobs": 2}, ["--at", "HEAD", "--jobs", "2"]),
        pytest.param(
            {"runs": 1, "vary": ["order"]}, ["--runs", "1", "--vary", "order"], marks=pytest.mark.slow, id="varied"
        ),
    ],
    ids=str,
)
def test_a_recheck_says_what_the_command_says(audited: Served, body: Any, words: list[str]) -> None:
    state = ended(audited, "recheck", body)
    assert (state["status"], state["error"]) == ("done", None)
    assert state["result"] == worldctl(audited.place)("recheck", *words, "--json").json
    assert state["result"]["ok"]
    assert state["result"]["steps"]


def test_a_recheck_of_a_proposal_performs_its_steps_alone(audited: Served) -> None:
    with audited.client("aud") as aud:
        found = aud.get(f"{PATH}/proposals", params={"actor": "pol"}).json()["proposals"][-1]["proposalId"]
    with audited.place.realm() as realm:
        own = [event.position for event in realm.log.stream(found)]
        size = realm.log.head().size
    state = ended(audited, "recheck", {"proposal": found})
    assert state["status"] == "done", state["error"]
    result = state["result"]
    assert (result["ok"], result["after"], result["position"]) == (True, own[0] - 2, own[-1])
    assert 0 < sum(result["steps"].values()) <= len(own)
    assert state["total"] == own[-1] - own[0] + 2 < size
    assert ended(audited, "recheck", {"proposal": "none"})["error"]["code"] == "UNKNOWN_PROPOSAL"
    assert refused(audited, "recheck", {"proposal": found, "upto": 3}) == (400, "INVALID_VALUE")


def test_a_job_with_numbers_beyond_64_bits_is_answered(audited: Served) -> None:
    insert = {"actor": "pol", "type": "order.place", "input": {"item": 10**20}}  # which a double prints
    with audited.client("aud") as client:
        answer = client.post(f"{PATH}/whatif", json={"insert": [insert]})
    assert answer.status_code == 202
    assert answer.json()["options"]["insert"][0]["input"] == {"item": 10**20}
    assert followed(audited, answer.json())[-1][0] == "ended"  # one job of a kind runs at a time
    insert["input"] = {"item": [1, 2**70]}  # which no log can hold
    with audited.client("aud") as client:
        problem = client.post(f"{PATH}/whatif", json={"insert": [insert]}).json()
    assert (problem["code"], "$.input.item[1]" in problem["detail"]) == ("NOT_CANONICAL", True)


def test_a_what_if_says_what_the_command_says(audited: Served) -> None:
    with audited.client("aud") as client:
        orders = client.get(f"{PATH}/proposals", params={"actor": "pol"}).json()["proposals"]
    first = orders[0]["proposalId"]
    insert = {"actor": "pol", "type": "order.place", "input": {"item": "tea", "number": "new"}}
    insert["scopeProposal"] = {"allowedPaths": ["orders"]}
    body = {"drop": [first], "insert": [insert]}
    state = ended(audited, "whatif", body)
    assert state["status"] == "done", state["error"]
    given = json.dumps(insert) + "\n"
    said = worldctl(audited.place)("whatif", "--drop", first, "--insert", "-", "--json", given=given, code=1)
    assert without_new_ids([*state["result"]["lines"], state["result"]["summary"]]) == without_new_ids(said.lines)
    assert state["result"]["moreLines"] == 0
    state = ended(audited, "whatif", {"from": "HEAD", "policies": ["house"]})
    said = worldctl(audited.place)("whatif", "--from", "HEAD", "--policy", "house", "--json")
    assert [*state["result"]["lines"], state["result"]["summary"]] == said.lines


def without_new_ids(lines: list[Any]) -> list[Any]:
    """Return lines without the ids of inserted proposals, which are new each time."""
    return [{name: value for name, value in one.items() if name != "proposalId"} for one in lines]


def test_a_backtest_says_what_the_command_says(audited: Served) -> None:
    (audited.place.folder / "policy.toml").write_text(DRAFT)
    for body, words, code in (
        ({"policyText": DRAFT}, ["--with", "policy.toml"], 1),
        ({"policyText": DRAFT, "of": "house", "branch": "main", "since": "1d"},
         ["--with", "policy.toml", "--of", "house", "--branch", "main", "--since", "1d"], 1),
        ({"policyText": DRAFT, "last": 3}, ["--with", "policy.toml", "--last", "3"], 1),
        ({"policy": "house"}, ["--with", "house"], 0),
        ({"policy": "house", "until": "2020-01-01", "jobs": 2}, ["--with", "house", "--until", "2020-01-01"], 0),
    ):  # fmt: skip
        state = ended(audited, "backtest", body)
        assert state["status"] == "done", state["error"]
        said = worldctl(audited.place)("policy", "backtest", *words, "--json", code=code)
        assert [*state["result"]["lines"], state["result"]["summary"]] == said.lines


def test_no_text_of_a_request_is_taken_for_code_or_a_file(audited: Served, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\npolicy = 1\n")
    for name in (f"{tmp_path}/evil.py:policy", "os:system", "rules.toml", f"{audited.place.folder}/rules.toml", ""):
        expected = (400, "INVALID_VALUE") if not name else (404, "UNKNOWN_POLICY")
        assert refused(audited, "backtest", {"policy": name})[1] == expected[1]
        assert refused(audited, "whatif", {"from": "HEAD", "policies": [name]})[1] == expected[1]
    for text in ("import os", "name = 'x'\n[[rules]]\nid = 'a'\nverdict = 'approve'\nwhen = '__import__(\"os\")'\n"):
        assert refused(audited, "backtest", {"policyText": text})[1] == "INVALID_POLICY"
    assert refused(audited, "backtest", {"policy": "house", "policyText": DRAFT}) == (400, "INVALID_VALUE")
    assert refused(audited, "whatif", {"domains": ["os:system"]}) == (400, "INVALID_VALUE")
    assert not mark.exists()


def test_a_job_that_is_refused_says_why(audited: Served) -> None:
    for kind, body, code in (
        ("recheck", {"at": "nothing"}, "NOT_FOUND"),
        ("recheck", {"upto": 2**53}, "NO_SUCH_EVENT"),
        ("whatif", {}, "INVALID_VALUE"),
        ("whatif", {"drop": ["\u202eé"]}, "UNKNOWN_PROPOSAL"),
        ("backtest", {"policy": "house", "of": "none"}, "UNKNOWN_POLICY"),
        ("backtest", {"policy": "house", "branch": "none"}, "UNKNOWN_BRANCH"),
        ("backtest", {"policy": "house", "since": "never"}, "INVALID_VALUE"),
    ):
        state = ended(audited, kind, body)
        assert (state["status"], state["error"]["code"], state["result"]) == ("failed", code, None)
        assert state["error"]["message"]


def test_what_if_and_backtest_are_for_auditors(audited: Served) -> None:
    job = started(audited, "backtest", {"policy": "house"})
    with audited.client("ops") as ops:
        assert ops.get(f"{PATH}/jobs/{job['jobId']}").json()["code"] == "RIGHT_MISSING"
        assert ops.post(f"{PATH}/jobs/{job['jobId']}:cancel", json={}).json()["code"] == "RIGHT_MISSING"
        assert {one["kind"] for one in ops.get(f"{PATH}/jobs").json()["jobs"]} <= {"verify", "recheck"}
    with audited.client("aud") as aud:
        listed = aud.get(f"{PATH}/jobs").json()["jobs"]
    assert listed[0]["jobId"] == job["jobId"]
    assert "result" not in listed[0]
    followed(audited, job)


def test_one_job_of_a_kind_runs_at_a_time_and_can_be_cancelled(audited: Served) -> None:
    job = started(audited, "recheck", ENDLESS, key="key-1")
    same = started(audited, "recheck", ENDLESS)
    repeated = started(audited, "recheck", ENDLESS, key="key-1")
    assert {one["jobId"] for one in (same, repeated)} == {job["jobId"]}
    with audited.client("aud") as aud:
        flood = [aud.post(f"{PATH}/recheck", json={"upto": 1 + number}) for number in range(30)]
        assert {(one.status_code, one.json()["code"]) for one in flood} == {(429, "TOO_MANY_REQUESTS")}
        assert all(int(one.headers["retry-after"]) > 0 for one in flood)
        conflict = aud.post(f"{PATH}/recheck", json={}, headers={"Idempotency-Key": "key-1"})
        assert (conflict.status_code, conflict.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")
        with audited.client("ops") as ops:  # the key of another actor
            other = ops.post(f"{PATH}/recheck", json={}, headers={"Idempotency-Key": "key-1"})
        assert other.json()["code"] == "TOO_MANY_REQUESTS"
        until(lambda: bool(job_processes(audited)), what="the process of the job runs")
        cancelled = [aud.post(f"{PATH}/jobs/{job['jobId']}:cancel", json={}).json() for _ in range(3)]
        assert {one["status"] for one in cancelled} == {"cancelled"}
        assert aud.get(f"{PATH}/jobs/none").status_code == 404
    until(lambda: not job_processes(audited), what="the process of the job and its children have ended")
    assert followed(audited, job) == [("ended", {**cancelled[0]})]
    assert started(audited, "recheck", ENDLESS, key="key-1")["status"] == "cancelled"


def test_a_request_waits_for_the_end_of_a_job(audited: Served) -> None:
    job = started(audited, "recheck", {"upto": 3})
    with audited.client("aud") as aud:
        done = aud.get(f"{PATH}/jobs/{job['jobId']}", params={"wait": 60}).json()
        assert (done["status"], done["result"]["position"]) == ("done", 3)
        job = started(audited, "recheck", ENDLESS)
        assert aud.get(f"{PATH}/jobs/{job['jobId']}", params={"wait": 0.3}).json()["status"] == "running"
        assert aud.post(f"{PATH}/jobs/{job['jobId']}:cancel").json()["status"] == "cancelled"
        assert aud.get(f"{PATH}/jobs/{job['jobId']}", params={"wait": 60}).json()["status"] == "cancelled"
    until(lambda: not job_processes(audited), what="the process of the job and its children have ended")


def test_a_cancellation_that_races_with_the_end_leaves_one_outcome(audited: Served) -> None:
    seen = set()
    for number in range(4):
        job = started(audited, "backtest", {"policy": "house", "since": f"{number + 1}d"})
        with audited.client("aud") as aud:
            if number % 2:
                followed(audited, job)
            state = aud.post(f"{PATH}/jobs/{job['jobId']}:cancel", json={}).json()
        last = followed(audited, job)[-1][1]
        assert last == state
        assert (last["result"] is None) == (last["status"] == "cancelled")
        seen.add(last["status"])
    assert seen == {"cancelled", "done"}


def job_processes(served: Served) -> list[psutil.Process]:
    """Return the processes that a server's jobs started."""
    try:
        return [one for one in psutil.Process(served.process.pid).children(recursive=True) if one.is_running()]
    except psutil.NoSuchProcess:
        return []


def test_a_process_that_is_killed_fails_its_job(audited: Served) -> None:
    until(lambda: not job_processes(audited), what="the processes of earlier jobs have ended")
    job = started(audited, "recheck", ENDLESS)
    until(lambda: bool(job_processes(audited)), what="the process of the job runs")
    psutil.Process(audited.process.pid).children()[0].kill()
    last = followed(audited, job)[-1][1]
    assert (last["status"], last["error"]["code"]) == ("failed", "PROCESS_LOST")
    assert "SIGKILL" in last["error"]["message"]
    until(lambda: not job_processes(audited), what="its children have ended")


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_a_job_ends_with_its_server_and_says_so(tmp_path: Path, signal_number: int) -> None:
    with serving(founded_audited(tmp_path, LIMITS), TMPDIR=str(tmp_path)) as served:
        job = started(served, "recheck", ENDLESS)
        with served.client("aud") as aud, aud.stream("GET", f"{PATH}/jobs/{job['jobId']}/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: progress"
            until(lambda: bool(job_processes(served)), what="the process of the job runs")
            processes = job_processes(served)
            if signal_number == signal.SIGTERM:
                assert stopped(served) == 0
                last = [line for line in lines if line.startswith("data: ")][-1]
                state = json.loads(last.removeprefix("data: "))
                assert (state["status"], state["error"]["code"]) == ("failed", "SERVER_STOPPING")
            else:
                os.kill(served.process.pid, signal.SIGKILL)
        until(lambda: not any(one.is_running() for one in processes), what="all processes have ended")
        until(lambda: not list(tmp_path.glob("worldprotocol-job-*")), what="the temporary files are removed")
    with serving(served.place) as again, again.client("aud") as aud:
        answer = aud.get(f"{PATH}/jobs/{job['jobId']}")
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert aud.get(f"{PATH}/jobs").json() == {"jobs": []}
