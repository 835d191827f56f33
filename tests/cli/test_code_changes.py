"""What ``doctor`` and ``recheck`` say of code: whatever a function reaches in its own package counts, and no layout."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import COMMAND, CliRealm, environment

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = """
from pydantic import BaseModel, Field
from world.core import Domain, set_
from reach.helping import added


class State(BaseModel):
    total: int = 0


class Add(BaseModel):
    by: int = Field(default=1, le=100)


counter = Domain("urn:test:reaching", version="1.0.0", state=State)
STEP = {"by": 1}


def step():
    return STEP["by"]


@counter.action("add", version="1")
def add(ctx, new: Add):
    return [set_("total", added(ctx.data["total"], new.by * step()))]


@counter.action("reset", version="1")
def reset(ctx):
    return [set_("total", 0)]
"""


@pytest.fixture
def reaching(tmp_path: Path) -> CliRealm:
    realm = CliRealm(tmp_path)
    (tmp_path / "reach").mkdir()
    (tmp_path / "reach" / "domain.py").write_text(DOMAIN)
    (tmp_path / "reach" / "helping.py").write_text("def added(one, other):\n    return one + other\n")
    realm("init", "--domain", "reach.domain:counter")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm("submit", "add", "--actor", "ann", "--input", '{"by": 2}')
    return realm


def domain_check(realm: CliRealm, *, ok: bool = True) -> Any:
    """Return what doctor says of the domain."""
    checks = realm("doctor", "--json", code=0 if ok else 1).json["checks"]
    assert {one["check"] for one in checks if not one["ok"]} == (set() if ok else {"domain"})
    return next(one for one in checks if one["check"] == "domain")


def rewrite(realm: CliRealm, file: str, old: str, new: str) -> None:
    text = (realm.folder / file).read_text()
    assert text.count(old) == 1
    (realm.folder / file).write_text(text.replace(old, new))


@pytest.mark.requirement("CARD-replay", "CARD-audit")
@pytest.mark.parametrize(
    ("file", "old", "new", "differs"),
    [
        ("reach/domain.py", 'return STEP["by"]', 'return 3 * STEP["by"]', True),
        ("reach/domain.py", '{"by": 1}', '{"by": 2}', True),
        ("reach/helping.py", "one + other", "one - other", True),
    ],
    ids=["helper", "constant", "module"],
)
@pytest.mark.slow
def test_a_change_of_what_an_action_reaches_is_reported(
    reaching: CliRealm, file: str, old: str, new: str, differs: bool
) -> None:
    rewrite(reaching, file, old, new)
    found = domain_check(reaching, ok=False)
    assert found["found"] == "code has changed since it was adopted: action:add"
    told = reaching("recheck", "--json", code=1).json["divergences"]
    assert (told[0]["code"], told[0]["details"]["changed"]) == ("CODE_CHANGED", ["action:add"])
    changed = [one["changedSince"] for one in told[1:]]
    assert changed == [{"schema": False, "code": ["action:add"], "policies": []}] * differs
    said = reaching("recheck", code=1).out
    assert ("since this was recorded, the code of action:add changed" in said) is differs
    reaching("submit", "add", "--actor", "ann", "--input", '{"by": 2}', code=5)  # the realm opens as it did
    assert reaching("adopt", "--json").json["adopted"] is True
    assert domain_check(reaching)["ok"]
    assert reaching("adopt", "--json").json["adopted"] is False


@pytest.mark.requirement("CARD-replay")
def test_a_change_of_a_constraint_is_a_change_of_the_schema(reaching: CliRealm) -> None:
    rewrite(reaching, "reach/domain.py", "le=100", "le=99")
    found = domain_check(reaching, ok=False)["found"]
    assert found.startswith("schema ")
    assert found.endswith(" in force")
    assert reaching("adopt", "--json").json["adopted"] is True


@pytest.mark.requirement("CARD-replay")
@pytest.mark.slow
def test_layout_and_comments_are_no_change(reaching: CliRealm) -> None:
    rewrite(reaching, "reach/domain.py", 'return STEP["by"]', '# by how much\n    return (STEP["by"])')
    rewrite(reaching, "reach/helping.py", "other):\n", 'other):\n    """Add them."""\n')
    found = domain_check(reaching)["found"]
    assert f"Python {platform.python_version()}" in found
    assert f"pydantic {metadata.version('pydantic')}" in found
    assert reaching("recheck", "--json").json["ok"] is True


@pytest.mark.requirement("CARD-replay")
@pytest.mark.slow
def test_another_version_of_a_distribution_is_named(reaching: CliRealm) -> None:
    adopted = reaching("log", "--topic", "domain.adopted", "--json").lines[0]["state"]["distributions"]
    assert adopted["pydantic"] == metadata.version("pydantic")
    package = reaching.folder / "site-packages"
    (package / "helping").mkdir(parents=True)
    (reaching.folder / "reach" / "helping.py").rename(package / "helping" / "__init__.py")
    rewrite(reaching, "reach/domain.py", "from reach.helping", "from helping")
    info = package / "helping_kit-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: helping-kit\nVersion: 1.5\n")
    (info / "top_level.txt").write_text("helping\n")
    path = f"{package}:{ROOT}"

    def run(*arguments: str) -> Any:
        """Run a command in a new process, which reads what is installed anew."""
        command = [*COMMAND, *arguments, "--json"]
        done = subprocess.run(
            command, cwd=reaching.folder, env=environment() | {"PYTHONPATH": path}, capture_output=True, check=False
        )
        return json.loads(done.stdout)

    assert run("adopt")["adopted"] is True
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: helping-kit\nVersion: 1.6\n")
    found = next(one for one in run("doctor")["checks"] if one["check"] == "domain")
    assert found["ok"]
    assert "helping-kit 1.6 (1.5 when adopted)" in found["found"]
    (package / "helping" / "__init__.py").write_text("def added(one, other):\n    return 0\n")
    run("submit", "add", "--actor", "ann", "--input", '{"by": 2}')
    (package / "helping" / "__init__.py").write_text("def added(one, other):\n    return 1\n")
    last = run("recheck", "--all")["divergences"][-1]["changedSince"]
    assert last == {
        "schema": False, "code": [], "policies": [], "distributions": ["helping-kit 1.6 (1.5 when adopted)"],
    }  # fmt: skip


@pytest.mark.requirement("CARD-replay")
@pytest.mark.slow
def test_identities_of_the_first_kind_are_compared_by_their_own_rule(tmp_path: Path) -> None:
    realm = CliRealm(tmp_path)
    realm("import", str(ROOT / "tests" / "golden" / "garden.jsonl"))
    for folder in ("golden", "cli"):
        shutil.copytree(ROOT / "tests" / folder, tmp_path / "mine" / folder, ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "world.toml").write_text(
        'domain = "mine.golden.garden:garden"\npolicies = ["mine.golden.garden:rules"]\n'
        'projections = ["mine.golden.garden:sensor"]\n'
    )
    assert [one["code"] for one in realm("recheck", "--json", code=1).json["divergences"]] == ["POLICY_CHANGED"]
    found = next(one for one in realm("doctor", "--json", code=1).json["checks"] if one["check"] == "domain")
    assert found["ok"]
    assert "of its code only each function's own source was recorded" in found["found"]
    file = "mine/golden/garden.py"
    rewrite(realm, file, "class Plant(BaseModel):\n", "class Plant(BaseModel, frozen=True):\n")
    assert [one["code"] for one in realm("recheck", "--json", code=1).json["divergences"]] == ["POLICY_CHANGED"]
    rewrite(realm, file, "is planted", "was planted")
    codes = [one["code"] for one in realm("recheck", "--json", code=1).json["divergences"]]
    assert codes[:2] == ["CODE_CHANGED", "POLICY_CHANGED"]
