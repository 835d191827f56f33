"""Upstreams over streamable HTTP: calls, headers, and a server that dies before it answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.proxy.proxied import agent, is_in_doubt, pinned_by_command, proposals, status, told, until
from tests.cli.realm import environment
from tests.server.served import Served

pytestmark = pytest.mark.slow

UPSTREAM = Path(__file__).resolve().parent / "http_upstream.py"


@contextmanager
def upstream(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the server; its URL and its process."""
    process = subprocess.Popen(
        [sys.executable, str(UPSTREAM), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment() | {"PYTHONWARNINGS": "default"},
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp", process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_calls_reach_an_upstream_over_http_and_one_that_dies_leaves_them_in_doubt(
    served: Served, tmp_path: Path
) -> None:
    with upstream(tmp_path) as (url, process):
        pinned_by_command(served, "sums", [url])
        with agent(served, "sums", [url], "--silence", "1") as one:
            assert set(one.tools) == {"add", "hang"}
            assert one.call("add", a=2, b=3)[:2] == (False, "5")
            assert status(served, "sums") == "completed"
            number = one.start("hang")
            calls = tmp_path / "calls"
            until(lambda: "hang" in calls.read_text())
            process.kill()
            is_error, words, details = told(one.answer(number))
            assert (is_error, details["code"]) == (True, "IN_DOUBT")
            assert "not known whether this call was made" in words
            until(lambda: is_in_doubt(served, details["proposalId"]))
            assert one.call("add", a=1, b=1)[0] is True
    assert [made["status"] for made in proposals(served, "sums")] == ["completed", "executing"]
