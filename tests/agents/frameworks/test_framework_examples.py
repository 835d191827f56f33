"""The examples of agents: each goes on in another process, once the person who was asked has decided."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.frameworks.desk import desk_realm
from tests.cli.realm import environment

pytestmark = pytest.mark.slow

EXAMPLES = ["plain_python", "langchain_agent", "openai_agent", "pydantic_agent", "claude_agent"]


def run(example: str, folder: Path) -> str:
    """Run an example in a process of its own, without the settings of this machine for agents and models."""
    foreign = ("ANTHROPIC", "CLAUDE", "LANGCHAIN", "LANGSMITH", "OPENAI", "HTTP", "http")
    clean = {name: value for name, value in environment().items() if not name.startswith(foreign)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.frameworks.{example}", str(folder)],
        capture_output=True,
        text=True,
        env={**clean, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_call_waits_over_a_restart_and_all_calls_are_made_once(example: str, tmp_path: Path):
    first = run(example, tmp_path)
    books = tmp_path / "books.txt"
    assert sorted(books.read_text().splitlines()) == ["published home", "refunded 30 for o-1"]
    assert "decide it: worldctl" in first
    with desk_realm(tmp_path) as realm:
        [waiting] = realm.inbox()
        assert waiting.proposal_id in first
        realm.decide(waiting.proposal_id, "approve", by="ann")
    second = run(example, tmp_path)
    assert "refunded 300 for o-2" in second
    assert sorted(books.read_text().splitlines()) == [
        "published home",
        "refunded 30 for o-1",
        "refunded 300 for o-2",
    ]
    assert "agents make no refunds above 1000" in first + second
    with desk_realm(tmp_path) as realm:
        proposals = list(realm.proposals(actor="bot"))
        assert sorted(one.status for one in proposals) == ["completed", "completed", "completed", "rejected"]
        assert realm.proposal(waiting.proposal_id).status == "completed"
