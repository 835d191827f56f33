"""Forms of commands that hide what they do, run as the most trusting preset allows: the boundary holds them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from tests.agents.hooked import Claude
from tests.agents.test_bypass_forms import FORMS, make_project
from tests.agents.test_confined_commands import started
from tests.agents.test_presets import place_of
from tests.server.served import Served, serving

pytestmark = [pytest.mark.slow, pytest.mark.requirement("WALL-words")]

SECRET: Final = "SECRET=x-of-the-project"
TOKEN: Final = "SECRET-token-of-x"
ENDLESS_S: Final = 20
"""Time after which a command that does not end is ended, in seconds; what it did until then is compared."""

GUARDED: Final = (".claude/settings.json", ".env", ".git/config", ".git/hooks", "evil/config", "evil/hooks")
"""Files and folders of the project that no confined command changes, or none without a person."""

FORMS_THAT_RUN: Final = [form for forms in FORMS.values() for form in forms if "\0" not in form]
"""No process is started with a text that holds the byte 0."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(place_of(tmp_path_factory.mktemp("runs"), '"auto"')) as running:
        yield running


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with all that the forms name."""
    root = tmp_path_factory.mktemp("original") / "project"
    make_project(root, SECRET)
    return root


@pytest.fixture
def agent(served: Served, original: Path) -> Claude:
    """An agent in a fresh copy of the project."""
    found = Claude(served, "trusting", is_rewritten=True)
    for one in found.project.iterdir():
        shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
    shutil.copytree(original, found.project, symlinks=True, dirs_exist_ok=True)
    (found.project / "d/d/d/top").symlink_to(found.project)
    (found.project.parent / "claude.token").write_text(TOKEN)
    return found


def contents(*places: Path) -> Mapping[str, str]:
    """Return the digest of each file at or below some places; the target of a link."""
    files = [path for place in places for path in (place, *sorted(place.rglob("*"))) if path.exists()]
    return {
        str(path): os.readlink(path) if path.is_symlink() else sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.cases_in_ci(16)
@pytest.mark.parametrize("form", FORMS_THAT_RUN)
def test_a_form_that_runs_changes_nothing_outside_of_its_declaration(agent: Claude, form: str) -> None:
    agent.session = f"runs {form}"
    places = [agent.project / name for name in GUARDED]
    beside = agent.project.parent / "claude.token"
    before = contents(*places, beside)
    decision, _, answer = agent.before("Bash", command=form, description="x")
    if decision == "allow":
        process = started(agent, answer["updatedInput"]["command"])
        try:
            out, err = process.communicate(timeout=ENDLESS_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        agent.after(str(answer["id"]), "Bash", {"stdout": out, "stderr": err})
        for secret in (SECRET, TOKEN, agent.served.place.tokens["trusting"]):
            assert secret not in out + err
    assert agent.event("SessionEnd").status_code == 200
    assert contents(*places, beside) == before
    assert {one.name for one in agent.project.parent.iterdir()} == {"project", "realm", "claude.token"}
