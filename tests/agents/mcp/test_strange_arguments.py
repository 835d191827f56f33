"""Arguments of tools that cannot be judged, over HTTP and stdio: each request is answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.agents.mcp.clients import LIMITS, founded
from tests.agents.mcp.test_endpoint import ACCEPT, INITIALIZE
from tests.cli.realm import COMMAND, environment
from tests.server.served import Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A running server of this module."""
    folder: Path = tmp_path_factory.mktemp("served")
    with serving(founded(folder, f"{LIMITS}mcp_wait_s = 1")) as running:
        yield running


@pytest.mark.parametrize(
    "value",
    ['"\\ud83d"', "NaN", "1e400", "123456789012345678901234567890", "9" * 5_000, "[" * 5_000 + "]" * 5_000],
    ids=["half", "NaN", "infinite", "128 bits", "digits", "deep"],
)
@pytest.mark.parametrize("is_http", [True, False])
def test_each_request_is_answered_whatever_its_arguments_are(served: Served, value: str, is_http: bool) -> None:
    params = f'{{"name": "book-add", "arguments": {{"title": {value}}}}}'
    call = f'{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {params}}}'
    token = served.place.tokens["claude"]
    if is_http:
        fields = ACCEPT | {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=served.url, headers=fields, timeout=60, trust_env=False) as client:
            begun = client.post("/mcp", json=INITIALIZE)
            session = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
            found = client.post("/mcp", content=call, headers=session)
        assert '"error"' in found.text or '"isError":true' in found.text
        return
    with subprocess.Popen(
        [*COMMAND, "mcp", "--server", served.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=served.place.folder,
        env=environment() | {"WORLDCTL_TOKEN": token},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(INITIALIZE)}\n{call}\n")
        process.stdin.flush()
        answers = {one["id"]: one for one in (json.loads(process.stdout.readline()) for _ in range(2))}
        process.stdin.close()
    assert "error" in answers[7] or answers[7]["result"]["isError"]
