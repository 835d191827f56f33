"""The conformance suite of the protocol (npm `@modelcontextprotocol/conformance`) against `/mcp`.

The suite is written for servers that offer a fixed set of tools, prompts and resources. Those of its tools that can be
actions are actions here (``suite_domain``), under the names that tools of actions have; what remains fails, and is
listed with the reason. A check that begins to fail, or no longer does, fails the test.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from projections.tools import tool_name
from tests.agents.mcp.relay import signed_in
from tests.agents.mcp.suite_domain import policy, suite
from tests.npm.install import NODE, PACKAGES
from tests.server.served import Place, Served, serving
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

DOMAIN = Path(__file__).resolve().parent / "suite_domain.py"
RENAMED = (
    "slow_compute", "failing_job", "test_simple_text", "test_error_handling", "test_logging_tool",
    "test_streaming_elicitation",
)  # fmt: skip
NO_FORMS = "it asks for input by a form; approvals are never given by forms"
OTHER_WORDS = "it expects the words of its own tool, `Hello, World!`, first in the result"
NO_NEED = "no tool needs a capability of the client"
NO_FAILED_TASK = "a task ends as completed or cancelled: what fails is an error of the tool"

SCENARIOS: Mapping[str, Mapping[str, str]] = {
    "server-initialize": {},
    "server-session-lifecycle": {},
    "server-stateless": {
        "sep-2575-server-rejects-undeclared-capability": NO_NEED,
        "sep-2575-missing-capability-http-400": NO_NEED,
    },
    "ping": {},
    "tools-list": {},
    "tools-call-simple-text": {},
    "tools-call-error": {},
    "server-sse-multiple-streams": {},
    "resources-list": {},
    "resources-read-text": {},
    "sep-2164-resource-not-found": {},
    "dns-rebinding-protection": {},
    "caching": {"sep-2549-prompts-list-caching-hints": "there are no prompts"},
    "http-header-validation": {},
    "input-required-result-unsupported-methods": {},
    "tasks-lifecycle": {"sep-2663-tasks-get-status-failed": NO_FAILED_TASK},
    "tasks-capability-negotiation": {},
    "tasks-wire-fields": {},
    "tasks-request-state-removal": {},
    "tasks-request-headers": {"tasks-headers-tolerate-mcp-method-on-tools-call": OTHER_WORDS},
    "tasks-dispatch-and-envelope": {"tasks-result-type-complete-on-non-task-responses": NO_FORMS},
}
"""The scenarios that apply, each with the checks that fail and why. The others are about prompts, completion, logging,
sampling, roots, forms, media, subscriptions to single resources in sessions, and tools that only run as tasks."""


@pytest.fixture(scope="module")
def program() -> Path:
    """Return the suite with the names of its tools written as those of actions."""
    folder = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist"
    text = (folder / "index.js").read_text(encoding="utf-8")
    for name in RENAMED:
        assert name in text
        text = text.replace(name, tool_name(name))
    text = text.replace("test://static-text", "worldprotocol://realm/worlds/HEAD/state")
    renamed = folder / "renamed.js"
    renamed.write_text(text, encoding="utf-8")
    return renamed


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a realm with the actions of the suite."""
    folder: Path = tmp_path_factory.mktemp("suite")
    place = Place(folder, str(folder / "world.db"))
    with Realm.create(place.log, domain=suite, policies=[policy]) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("client", "agent", binding={"kind": "policy_rules", "policy": "suite", "ask": ["ann"]})
        realm.register("worker", "agent", binding={"kind": "auto_approve"})
        for name, right in (("ann", "approver"), ("client", "actor"), ("client", "reader"), ("worker", "worker")):
            realm.access.grant(name, right, by="operator")  # type: ignore[arg-type]
        for name in ("client", "worker"):
            place.tokens[name] = realm.access.create_token(name, by="operator").token
    (folder / "world.toml").write_text(
        f"log = {json.dumps(place.log)}\ndomain = '{DOMAIN}:suite'\npolicies = ['{DOMAIN}:policy']\n"
        f"effects = ['{DOMAIN}:handlers']\n[server]\nrequests_per_second = 100000\nburst = 100000\nmcp_wait_s = 1\n",
        encoding="utf-8",
    )
    with serving(place) as running:
        yield running


class Computer:
    """Performs the effect of a task once its client has looked at the task."""

    def __init__(self, served: Served, tasks: asyncio.TaskGroup) -> None:
        self._served = served
        self._tasks = tasks
        self._looks: dict[str, int] = {}

    def seen(self, body: bytes) -> None:
        """Note a request of the client."""
        asked: Any = json.loads(body)
        if isinstance(asked, dict) and asked.get("method") == "tasks/get":
            name = str(asked["params"].get("taskId"))
            self._looks[name] = self._looks.get(name, 0) + 1
            if self._looks[name] > 1:
                self._tasks.create_task(asyncio.to_thread(self._perform, name))

    def _perform(self, proposal_id: str | None) -> bool:
        """Perform an effect, of a proposal or of any; return whether there was one."""
        with self._served.client("worker") as client:
            body = {"worker": "one", "types": ["suite.compute"]}
            body |= {} if proposal_id is None else {"proposalId": proposal_id}
            claim = client.post("/v1/realms/main/effects:claim", json=body).json().get("claim")
            if claim is None:
                return False
            done = {"claim": claim, "report": {"result": {"value": 42}}}
            assert client.post("/v1/realms/main/effects:complete", json=done).status_code == 200
            return True

    def tidy(self) -> None:
        """Perform the effects that a scenario left."""
        while self._perform(None):
            pass


@asynccontextmanager
async def relayed(served: Served) -> AsyncIterator[str]:
    async with asyncio.TaskGroup() as tasks:
        computer = Computer(served, tasks)
        async with signed_in(served.url, served.place.tokens["client"], computer.seen) as url:
            yield url + "/mcp"
    await asyncio.to_thread(computer.tidy)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_of_the_conformance_suite(served: Served, program: Path, tmp_path: Path, scenario: str) -> None:
    async def run() -> str:
        async with relayed(served) as url:
            words = ["server", "--url", url, "--scenario", scenario, "-o", str(tmp_path)]
            running = await asyncio.create_subprocess_exec(
                NODE, program, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            return (await running.communicate())[0].decode()

    printed = asyncio.run(run())
    (report,) = tmp_path.glob("**/checks.json")
    checks = json.loads(report.read_text(encoding="utf-8"))
    failed = {one["id"] for one in checks if one["status"] == "FAILURE"}
    assert failed == set(SCENARIOS[scenario]), printed
    assert any(one["status"] == "SUCCESS" for one in checks), printed
