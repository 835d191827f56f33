"""Python files that an agent leaves in the current folder or beside ``world.toml``: no command of worldctl runs one."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tests.cli.realm import COUNTER, environment, sale
from worldprotocol.cli.table import COMMANDS

MODULES = (
    "html", "json", "typing", "logging", "pkgutil", "multiprocessing", "rich", "yaml", "sqlalchemy", "click",
    "colorama", "IPython", "email_validator", "sitecustomize", "usercustomize", "conftest", "planted",
)  # fmt: skip
PACKAGES = ("tomllib", "decimal", "greenlet")
"""Folders without ``__init__.py``, whose modules are planted, too."""

GROUPS = ("projections", "rules", "effects", "resource_types")
SALE = '{"type": "sell", "input": {"item": "tea"}}'

ARGUMENTS = {
    "init": "other --domain shop.domain:counter",
    "actor add": "eve --kind agent --policy house",
    "actor bind": "eve --policy house",
    "policy show": "house",
    "policy shadow on": "house",
    "policy ask": f"--actor bot --intent '{SALE}'",
    "policy backtest": "--with house --jobs 2",
    "policy adopt": "house",
    "policy retire": "house --reason tried",
    "submit": 'sell --actor bot --input \'{"item": "tea"}\'',
    "decide": "{proposal} approve --by ann",
    "branch create": "trial",
    "branch switch": "trial",
    "resolve": "{proposal} --by ann --reason known",
    "cancel": "{proposal} --by ann --reason known",
    "lease acquire": "--agent bot --session one STATE:/main/*",
    "lease heartbeat": "01 --agent bot --session one",
    "lease release": "01 --agent bot --session one",
    "lease revoke": "01 --reason tried",
    "run": "--agent bot --creates html.py -- true",
    "backups show": "01",
    "backups restore": "01",
    "keys new": "bot.key",
    "keys register": "bot bot.key.pub",
    "keys revoke": "bot --reason tried",
    "show": "HEAD",
    "diff": "1 HEAD",
    "bisect": "--good 1 --bad HEAD 'data.sold == 0'",
    "trace": "{proposal}",
    "blame": "sold",
    "explain": "{proposal}",
    "report": "-o report.html",
    "recheck": "--jobs 2 --vary order --runs 2",
    "whatif": "--without 8",
    "checkpoint keygen": "example.com/shop",
    "export": "exported.jsonl",
    "import": "exported.jsonl",
    "salvage": "-o saved.db",
    "simulate": "--steps 20",
    "id": "intent",
    "klis sign": "--key bot.key",
    "klis verify": "--public bot.key.pub",
}
"""What a command needs to come as far as possible; the others are called by their names alone."""


def leaves(name: str, found: click.Command) -> Iterator[str]:
    """Yield the names of all commands that do something."""
    if not isinstance(found, click.Group):
        yield name
        return
    if found.invoke_without_command:
        yield name
    for inner, command in found.commands.items():
        yield from leaves(f"{name} {inner}", command)


EVERY = [leaf for name, entry in COMMANDS.items() for leaf in leaves(name, entry.load())]


@dataclass(frozen=True)
class Site:
    """A realm, a folder elsewhere that commands are run in, and the file in which planted modules leave their names."""

    realm: Path
    cwd: Path
    mark: Path
    script: Path

    def run(self, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``worldctl`` by its script in a new process."""
        return subprocess.run(
            [sys.executable, str(self.script), "--config", str(self.realm / "world.toml"), *words],
            cwd=cwd or self.cwd,
            env=environment() | {"PYTHONWARNINGS": "default"} | variables,
            input="",
            capture_output=True,
            text=True,
            check=False,
        )

    def plant(self, folder: Path) -> None:
        """Put modules into a folder, and what an installed distribution would have."""
        code = f"open({str(self.mark)!r}, 'a').write(__file__ + chr(10))\nraise SystemExit('it was run')\n"
        for name in MODULES:
            (folder / f"{name}.py").write_text(code)
        for name in PACKAGES:
            (folder / name).mkdir()
            (folder / name / "inner.py").write_text(code)
        (folder / "planted-1.0.dist-info").mkdir()
        (folder / "planted-1.0.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n"
        )
        points = "".join(f"[worldprotocol.{group}]\nplanted = planted:all\n" for group in GROUPS)
        (folder / "planted-1.0.dist-info" / "entry_points.txt").write_text(points)

    def executed(self) -> list[str]:
        """Return which planted modules ran."""
        return self.mark.read_text().splitlines() if self.mark.exists() else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    top = tmp_path_factory.mktemp("planted")
    site = Site(top / "realm", top / "elsewhere", top / "executed", top / "bin" / "worldctl")
    for folder in (site.realm / "shop", site.cwd, site.script.parent):
        folder.mkdir(parents=True)
    site.script.write_text("from worldprotocol.cli import main\nmain()\n")
    (site.realm / "shop" / "__init__.py").touch()
    (site.realm / "shop" / "domain.py").write_text(
        "from shop import prices\n" + COUNTER.read_text().replace("from __future__ import annotations\n", "")
    )
    (site.realm / "shop" / "prices.py").write_text("TEA = 1\n")
    named = [
        f"--{option}=shop.domain:{name}"
        for option, name in {
            "domain": "counter",
            "policy": "house",
            "effects": "handlers",
            "projection": "orders",
        }.items()
    ]
    founded = [sys.executable, str(site.script), "init", str(site.realm), *named]
    subprocess.run(founded, cwd=site.cwd, env=environment(), check=True, capture_output=True)
    site.run("actor", "add", "ann", "--kind", "human", "--auto-approve").check_returncode()
    site.run("actor", "add", "bot", "--kind", "agent", "--policy", "house").check_returncode()
    (site.cwd / "sales.jsonl").write_text(sale("bot") + sale("ann"))
    site.run("submit", "--intents", "sales.jsonl").check_returncode()
    site.plant(site.cwd)
    site.plant(site.realm)
    return site


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("name", EVERY)
def test_no_command_runs_a_planted_file(site: Site, name: str) -> None:
    arguments = ARGUMENTS.get(name, "").replace("{proposal}", "0")
    done = site.run(*name.split(), *shlex.split(arguments))
    assert site.executed() == []
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 1, 2, 120}, done.stderr
    assert "MODULE_SHADOWED" not in done.stderr
