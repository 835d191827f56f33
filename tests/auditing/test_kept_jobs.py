"""Which jobs are kept, which results, and what becomes of output that no process of ours writes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import orjson
import pytest

from worldprotocol.operations.jobs import JobKind, JobRequest
from worldprotocol.server.jobs import job as jobs_module
from worldprotocol.server.jobs import realm_jobs
from worldprotocol.server.jobs.job import Job
from worldprotocol.server.jobs.program import RealmProgram
from worldprotocol.server.jobs.realm_jobs import RealmJobs, Slots
from worldprotocol.server.problems import TooManyRequestsError

WAITS = "import sys; sys.stdin.read()"


def program(lines: list[Any], code: int = 0) -> str:
    """Return a program that writes lines and ends."""
    text = "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in lines)
    return f"import sys; sys.stdout.write({text!r}); sys.stdout.flush(); sys.exit({code})"


def jobs(slots: Slots | None = None) -> RealmJobs:
    return RealmJobs(RealmProgram("none.db"), slots or Slots(), lambda: 7)


async def ended(found: RealmJobs, job: Job) -> dict[str, Any]:
    await found.join()
    assert not job.is_running
    state: dict[str, Any] = orjson.loads(msgspec.json.encode(job.shown()))
    return state


def request(number: int = 0, kind: JobKind = "verify", key: str | None = None) -> JobRequest:
    return JobRequest(kind, {"number": number}, "aud", key)


@pytest.mark.parametrize(
    ("lines", "exit_code", "status", "code"),
    [
        ([{"progress": [1, 2]}, {"result": {"ok": True}}], 0, "done", None),
        ([{"error": {"code": "NOT_FOUND", "message": "m", "details": {}}}], 0, "failed", "NOT_FOUND"),
        ([], 3, "failed", "PROCESS_LOST"),
        (["no json\n"], 0, "failed", "SERVER_FAILED"),
        (['{"line": NaN}\n'], 0, "failed", "SERVER_FAILED"),
        (['{"result": {"a": "\\ud800"}}\n'], 0, "failed", "SERVER_FAILED"),
    ],
    ids=["result", "error", "exit", "no-json", "nan", "surrogate"],
)
def test_every_output_ends_a_job(
    monkeypatch: pytest.MonkeyPatch, lines: list[Any], exit_code: int, status: str, code: str | None
) -> None:
    monkeypatch.setattr(jobs_module, "START", program(lines, exit_code))

    async def run() -> dict[str, Any]:
        found = jobs()
        return await ended(found, found.start("j", request()))

    state = asyncio.run(run())
    assert (state["status"], state["error"] and state["error"]["code"]) == (status, code)
    assert (state["result"] is None) == (status == "failed")
    if code == "PROCESS_LOST":
        assert "exit code 3" in state["error"]["message"]


def test_lines_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{"line": {"number": number}} for number in range(10)]
    monkeypatch.setattr(jobs_module, "START", program([*lines, {"result": {"kind": "summary"}}]))

    async def run() -> Any:
        found = jobs()
        found.program = RealmProgram("none.db", config=object())  # type: ignore[arg-type]  # it is not loaded
        monkeypatch.setattr(RealmProgram, "to_wire", lambda _: {})
        state = await ended(found, found.start("j", request(kind="backtest")))
        return state["result"]

    assert asyncio.run(run()) == {
        "lines": [one["line"] for one in lines], "moreLines": 0, "summary": {"kind": "summary"}
    }  # fmt: skip
    monkeypatch.setattr(jobs_module, "MAX_LINES", 4)
    assert [len((found := asyncio.run(run()))["lines"]), found["moreLines"]] == [4, 6]
    monkeypatch.setattr(jobs_module, "MAX_RESULT_BYTES", 25)
    assert [len((found := asyncio.run(run()))["lines"]), found["moreLines"]] == [2, 8]


def test_the_oldest_ended_jobs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "START", program([{"result": {"text": "x" * 100}}]))
    monkeypatch.setattr(realm_jobs, "MAX_KEPT", 3)

    async def run() -> list[str]:
        found = jobs()
        for number in range(6):
            await ended(found, found.start(f"j{number}", request(number, key=f"k{number}")))
        again = found.start("new", request(5, key="k5"))
        assert again.job_id == "j5"
        return [one.job_id for one in found.listed]

    assert asyncio.run(run()) == ["j5", "j4", "j3"]
    monkeypatch.setattr(realm_jobs, "MAX_KEPT_BYTES", 250)
    assert asyncio.run(run()) == ["j5", "j4"]
    monkeypatch.setattr(realm_jobs, "MAX_KEPT_BYTES", 1)
    assert asyncio.run(run()) == ["j5"]


def test_the_jobs_of_a_server_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "START", WAITS)

    async def run() -> None:
        slots = Slots(2)
        realms = [jobs(slots) for _ in range(3)]
        running = [one.start(f"j{place}", request()) for place, one in enumerate(realms[:2])]
        with pytest.raises(TooManyRequestsError, match="2 jobs run on this server"):
            realms[2].start("j2", request())
        running[0].end("cancelled", 8)
        await realms[0].join()
        running.append(realms[2].start("j2", request()))
        for one in realms:
            one.begin_stop()
            await one.join()
        assert [one.status for one in running] == ["cancelled", "failed", "failed"]
        assert slots.running == 0

    asyncio.run(run())
