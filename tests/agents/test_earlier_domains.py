"""Over a domain that does not declare what confines commands, hooks refuse, and say what brings it up to date."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.hooked import ACTORS, Claude, proposals
from tests.cli.realm import COMMAND, environment
from tests.server.served import Place, Served, serving
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

EARLIER = Path(__file__).parent / "earlier"


def founded(folder: Path, domain: str | None = None, *, version: str = "1.0.0") -> Place:
    """Found a realm of the template of an earlier release, with another domain where one is given."""
    shutil.copytree(EARLIER / f"coding-agents-{version}", folder / "realm")
    (folder / "project/src").mkdir(parents=True)
    (folder / "project/src/app.py").write_text("x = 1\n")
    config = folder / "realm/world.toml"
    root = json.dumps(str(folder / "project"))
    config.write_text(config.read_text().replace('root = "project"', f"root = {root}").replace("540", "0"))
    if domain is not None:
        (folder / "realm/domain.yaml").write_text(domain)
    place = Place(folder / "realm", str(folder / "realm/world.db"))
    with Realm.from_config(read_config(config), create=True) as realm:
        for name, (kind, rights) in ACTORS.items():
            by_rules = {"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]}
            binding: dict[str, Any] = by_rules if kind == "agent" else {"kind": "auto_approve"}
            realm.register(name, kind, binding=binding)  # type: ignore[arg-type]
            for right in rights:
                realm.access.grant(name, right, by="operator")
            place.tokens[name] = realm.access.create_token(name, by="operator").token
    return place


def refused(served: Served) -> dict[str, Any]:
    """Send the event before a shell command; return the refusal."""
    agent, before = Claude(served), len(proposals(served))
    given = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"}
    answer = agent.event("PreToolUse", **given)
    assert (answer.status_code, answer.json()["code"]) == (409, "HOOKS_NOT_CONFIGURED")
    assert agent.event("SessionEnd").status_code == 200  # what was begun before is given up
    assert len(proposals(served)) == before
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("version", "lack"),
    [("1.0.0", "declare what confines command.run"), ("2.0.0", "take the contents of files")],
)
def test_a_realm_of_an_earlier_template_is_brought_up_to_date_by_the_commands_of_the_refusal(
    tmp_path: Path, version: str, lack: str
) -> None:
    place = founded(tmp_path, version=version)
    (place.folder / "policy.toml").write_text((place.folder / "policy.toml").read_text() + "# ours\n")
    with serving(place) as served:
        told = refused(served)
    assert f"urn:worldprotocol:coding-agents {version}, does not {lack}" in told["detail"]
    commands = re.findall(r"`(worldctl [^`]+)`", told["detail"])
    assert len(commands) == 3
    for line in commands:
        name, *words = shlex.split(line)
        assert name == "worldctl"
        done = subprocess.run(
            [*COMMAND, *words], cwd=place.folder, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "# ours" in (place.folder / "policy.toml.before").read_text()
    config = "confine = false" if version == "1.0.0" else 'confine = "auto"'
    assert config in (place.folder / "world.toml").read_text()  # the operator's
    with serving(place) as served:
        agent = Claude(served)
        assert agent.edit("src/app.py")[0] == "allow"
        decision, reason, _ = agent.before("Bash", command="ls")
        assert (decision, "not confined" in reason or "ann" in reason) == ("deny", True), reason
        [*_, last] = proposals(served)
        assert last["status"] == "evaluating"


def test_a_domain_that_lost_its_declaration_or_weakened_it_takes_no_hooks(tmp_path: Path) -> None:
    template = Path("worldprotocol/templates/coding-agents/domain.yaml").read_text()
    declared = "    confinement: {stated: input.confined, exact: [input.command, input.cwd]}\n"
    for number, other in enumerate(
        (
            "",
            declared.replace("input.confined", "input.guarded"),
            declared.replace("[input.command, input.cwd]", "[input.cwd]"),
        )
    ):
        assert declared in template
        folder = tmp_path / str(number)
        with serving(founded(folder, template.replace(declared, other))) as served:
            assert "does not declare what confines command.run" in refused(served)["detail"]
    base = re.sub(r"\n +base: .*", "", template, count=1)
    with serving(founded(tmp_path / "base", base)) as served:
        assert "give file.edit the input `base` of the template" in refused(served)["detail"]
