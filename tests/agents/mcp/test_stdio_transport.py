"""The stdin and stdout of a process as a transport of MCP: signals end it at once, though its client still waits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from mcp_types import PARSE_ERROR

from tests.cli.realm import ROOT, environment

pytestmark = pytest.mark.slow

ECHO = """
import asyncio, subprocess, sys
from worldprotocol.agents.mcp.stdio_transport import stdio_transport

async def main():
    async with stdio_transport() as transport:
        child = subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(repr(sys.stdin.read()))"])
        sys.stderr.write("\\n")
        sys.stderr.flush()
        async for message in transport.receive:
            if not isinstance(message, Exception):
                await transport.send.send(message)
    return transport.exit_code

sys.exit(asyncio.run(main()))
"""


def echoing() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", ECHO],
        cwd=ROOT,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509  # one thread
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_the_client_keeps_stdin_open(number: signal.Signals) -> None:
    with echoing() as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stdin is not None
        process.stdin.close()


def test_lines_pass_until_the_end_of_stdin_which_other_processes_do_not_read() -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    long = {"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {"ü": "ü" * 200_000}}
    lines = [json.dumps(ping).encode() + b"\r\n", b"\xff\n", b"\n", json.dumps(long, ensure_ascii=False).encode()]
    with echoing() as process:
        out, err = process.communicate(b"".join(lines), timeout=30)
    found = [json.loads(line) for line in out.splitlines()]
    assert [one for one in found if "error" not in one] == [ping, long]
    assert [(one["id"], one["error"]["code"]) for one in found if "error" in one] == [(None, PARSE_ERROR)] * 2
    assert (process.returncode, err) == (0, b"''\n")
