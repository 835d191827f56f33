"""`worldctl mcp pin`: its questions, and upstreams that cannot be asked."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from worldprotocol.agents.proxy import serving
from worldprotocol.agents.proxy.pins import Pins
from worldprotocol.agents.proxy.serving import UpstreamWords
from worldprotocol.agents.proxy.upstream import UpstreamError

WORDS = ("mcp", "pin", "--name", "git", "--", "mcp-server-git")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """Return a folder where an upstream with one tool has no pins, and none may be proposed."""

    def proposed(*given: Any) -> None:
        raise AssertionError(given)

    tool = {"name": "status", "inputSchema": {"type": "object"}}
    monkeypatch.setattr(serving, "described", lambda upstream: Pins.listed([tool], None))
    monkeypatch.setattr(serving, "pins_of", lambda realm, server: None)
    monkeypatch.setattr(serving, "propose", proposed)
    return Inside(tmp_path)


def test_nothing_is_pinned_without_an_answer(shell: Inside) -> None:
    said = shell(*WORDS, code=2)
    assert "status" in said.out
    assert "Nothing was pinned: stdin has no answer; --yes pins" in said.err
    assert shell(*WORDS, given="n\n", code=1).out == said.out


def test_json_asks_no_question(shell: Inside) -> None:
    assert "add --yes to pin, or --dry-run" in shell(*WORDS[:2], "--json", *WORDS[2:], code=2).err
    assert '"tools":["status"]' in shell(*WORDS[:2], "--json", "--dry-run", *WORDS[2:]).out


def test_the_server_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "described", lambda upstream: Pins.listed([], None))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    assert f"{url} does not answer" in Inside(tmp_path)(*WORDS, WORLDCTL_SERVER=url, code=2).err


def test_an_upstream_that_cannot_be_reached_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"
    with pytest.raises(UpstreamError, match=f"{url} cannot be reached"):
        serving.described(UpstreamWords("git", [f"{url}?secret=1"]))
