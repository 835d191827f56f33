"""Python files that an agent leaves in the current folder or beside ``world.toml``: no command of worldctl runs one."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import click
import pytest

from tests.cli.forked import run
from tests.cli.realm import COUNTER, CliRealm, environment, sale
from world.errors import RefusedError
from worldprotocol.cli.registry import COMMANDS
from worldprotocol.cli.support.trust import refuse_untrusted

pytestmark = pytest.mark.slow

MODULES = (
    "html", "json", "typing", "logging", "pkgutil", "multiprocessing", "rich", "yaml", "sqlalchemy", "click",
    "colorama", "IPython", "email_validator", "sitecustomize", "usercustomize", "conftest", "planted",
)  # fmt: skip
PACKAGES = ("tomllib", "decimal", "greenlet")
"""Folders without ``__init__.py``, whose modules are planted, too."""

GROUPS = ("projections", "rules", "effects", "resource_types", "storage", "bindings", "views", "commands")
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
    "project": '\'{"kind": "ui", "eventId": "e1"}\' --actor bot',
    "decide": "{proposal} approve --by ann",
    "branch create": "trial",
    "branch switch": "trial",
    "resolve": "{proposal} --by ann --reason known",
    "cancel": "{proposal} --by ann --reason known",
    "lease acquire": "--agent bot --session one STATE:/main/*",
    "lease heartbeat": "01 --agent bot --session one",
    "lease release": "01 --agent bot --session one",
    "lease revoke": "01 --reason tried",
    "run": "--agent bot --creates /made.py -- true",
    "backups show": "01",
    "backups restore": "01",
    "keys new": "bot.key",
    "keys register": "bot bot.key.pub",
    "keys revoke": "bot --reason tried",
    "show": "HEAD",
    "diff": "1 HEAD",
    "bisect": "--path sold --becomes 1",
    "trace": "{proposal}",
    "blame": "sold",
    "explain": "{proposal}",
    "report": "-o report.html",
    "recheck": "--jobs 2 --vary order --runs 2",
    "whatif": "--from 8 --policy house",
    "checkpoint keygen": "example.com/shop",
    "export": "exported.jsonl",
    "import": "exported.jsonl",
    "salvage": "-o saved.db",
    "simulate": "--steps 20",
    "rights grant": "bot reader",
    "rights revoke": "bot reader --reason tried",
    "token create": "--actor bot --can actor",
    "token revoke": "01 --reason tried",
    "worker": "--once",
    "serve": "--host 0.0.0.0",
    "domain compile": "shop.mel",
    "domain check": "shop.mel",
    "domain format": "shop.mel",
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
FEW = {"settle", "recheck", "run"}
"""Commands that executed a planted file once: `make test` runs these, `make test-all` every one, `test-ci` some."""


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
        (folder / "planted-1.0.dist-info" / "entry_points.txt").write_text(points + "sqlite = planted:all\n")

    def executed(self) -> list[str]:
        """Return which planted modules ran."""
        return self.mark.read_text().splitlines() if self.mark.exists() else []


SCRIPT = "from worldprotocol.cli.main import main\nif __name__ == '__main__':\n    main()\n"
YAML = "id: urn:test:idle\nversion: 1.0.0\nstate: {fields: {}}\nactions: {rest: {flow: {kind: halt}}}\n"


def counter_without_future() -> str:
    """Return the text of the counter's domain, to be put behind other lines."""
    return COUNTER.read_text().replace("from __future__ import annotations\n", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    top = tmp_path_factory.mktemp("planted")
    site = Site(top / "realm", top / "elsewhere", top / "executed", top / "bin" / "worldctl")
    for folder in (site.realm / "shop", site.cwd, site.script.parent):
        folder.mkdir(parents=True)
    site.script.write_text(SCRIPT)
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
    realm = CliRealm(site.realm)
    realm("init", ".", *named)
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm("actor", "add", "bot", "--kind", "agent", "--policy", "house")
    (site.cwd / "sales.jsonl").write_text(sale("bot") + sale("ann"))
    realm("submit", "--intents", str(site.cwd / "sales.jsonl"))
    site.plant(site.cwd)
    site.plant(site.realm)
    return site


@pytest.mark.cases_in_ci(12)
@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)
def test_no_command_runs_a_planted_file(site: Site, name: str) -> None:
    arguments = ARGUMENTS.get(name, "").replace("{proposal}", "0")
    done = site.run(*name.split(), *shlex.split(arguments), cwd=site.realm if name == "run" else None)
    assert site.executed() == []
    assert "Traceback" not in done.stderr
    assert "No such option" not in done.stderr
    assert "Invalid value" not in done.stderr
    assert done.returncode in {0, 1, 2, 120}, done.stderr
    assert "MODULE_SHADOWED" not in done.stderr


def test_commands_do_their_work_beside_planted_files(site: Site) -> None:
    for words in (
        ["settle"],
        ["doctor"],
        ["policy", "list"],
        ["recheck", "--jobs", "2"],
        ["state"],
        ["log"],
        ["verify"],
    ):
        done = site.run(*words)
        assert done.returncode == 0, done.stderr
    assert site.executed() == []


@pytest.mark.parametrize("names", [("html", "json"), ("world",)], ids=["of Python", "of the engine"])
def test_a_file_that_a_governed_command_made_is_not_run_by_the_next_commands(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """The realm is YAML and TOML alone, so no Python has to be loaded at all."""
    (tmp_path / "domain.yaml").write_text(YAML)
    script = tmp_path.parent / f"{tmp_path.name}-worldctl"
    script.write_text(SCRIPT)
    site = Site(tmp_path, tmp_path, tmp_path / "executed", script)
    founded = [sys.executable, str(script), "init", "--domain", "domain.yaml"]
    subprocess.run(founded, cwd=tmp_path, env=environment(), check=True, capture_output=True)
    for name in names:
        (tmp_path / f"{name}.py").write_text("open('executed', 'a').write(__file__)\n")
    for words in (
        ["settle"],
        ["doctor"],
        ["policy", "list"],
        ["recheck"],
        ["whatif", "--from", "1"],
        ["submit", "x"],
    ):
        site.run(*words)
        site.run(*words, PYTHONPATH=f":{environment()['PYTHONPATH']}")  # its empty entry is the current folder
    assert site.executed() == []


def test_a_module_beside_the_named_one_is_not_imported_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    realm = CliRealm(tmp_path)
    (tmp_path / "helping.py").write_text("open('executed', 'a').write(__file__)\n")
    (tmp_path / "shop.py").write_text("import helping\n")
    for reference in ("shop:shop", "shop.py:shop"):
        said = realm("init", "--domain", reference, code=2)
        assert "[NOT_LOADED]" in said.err
        assert (
            f"{tmp_path / 'helping.py'} is not imported, since no reference of the configuration names it" in said.err
        )
        assert "from shop import helping" in said.err
    assert not (tmp_path / "executed").exists()


def test_a_package_without_init_is_loaded_where_a_reference_names_it(tmp_path: Path) -> None:
    (tmp_path / "realm" / "shop").mkdir(parents=True)
    (tmp_path / "realm" / "shop" / "domain.py").write_text("from shop.prices import TEA\n" + counter_without_future())
    (tmp_path / "realm" / "shop" / "prices.py").write_text("TEA = 1\n")
    realm = CliRealm(tmp_path)
    realm("init", "realm", "--domain", "shop.domain:counter")
    assert realm("--config", "realm/world.toml", "--json", "state").json["data"]["sold"] == 0


def test_a_module_of_the_folder_never_comes_before_one_of_python(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("raise SystemExit('it was run')\n")
    said = CliRealm(tmp_path)("init", "--domain", "code:shop", code=2)
    assert f"comes before {tmp_path / 'code.py'}. Rename" in said.err
    assert "it was run" not in said.err


def foreign(tmp_path: Path) -> CliRealm:
    """Return a founded realm whose domain is Python."""
    (tmp_path / "shop.py").write_text(COUNTER.read_text())
    realm = CliRealm(tmp_path)
    realm("init", "--domain", "shop:counter")
    return realm


COMMANDS_WITH_CODE = (["settle"], ["recheck"], ["whatif", "--from", "3"], ["policy", "list"], ["policy", "test"])


@pytest.mark.parametrize("changed", ["world.toml", "shop.py", "."])
def test_code_that_others_may_write_needs_trust(tmp_path: Path, changed: str) -> None:
    realm = foreign(tmp_path)
    (tmp_path / changed).chmod(0o777)
    (tmp_path / "shop.py").write_text("__import__('pathlib').Path('executed').touch()\n" + counter_without_future())
    for words in COMMANDS_WITH_CODE:
        said = realm(*words, code=2)
        assert "can be written by every user" in said.err
        assert "pass --trust (or set WORLD_TRUST=1)" in said.err
        assert "[UNTRUSTED_CODE]" in said.err
    found = next(one for one in realm("doctor", "--json", code=1).json["checks"] if one["check"] == "code")
    assert "[UNTRUSTED_CODE]" in found["found"]
    for words in (["log"], ["show", "HEAD"], ["state"], ["verify"], ["replay"], ["export"]):
        realm(*words)
    assert not (tmp_path / "executed").exists()
    realm("--trust", "settle")
    assert (tmp_path / "executed").exists()
    realm("settle", WORLD_TRUST="1")


def test_code_of_another_user_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "shop.py"
    code.touch()
    references = ["shop.py:shop", "rules.toml"]
    refuse_untrusted(tmp_path / "world.toml", tmp_path, references)
    if os.geteuid() == 0:
        os.chown(code, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(RefusedError, match=r"belongs to .* which would run as you"):
        refuse_untrusted(tmp_path / "world.toml", tmp_path, references)
    refuse_untrusted(tmp_path / "world.toml", tmp_path, ["shop.yaml", "rules.toml"])


def compiled(place: Path, source: str) -> Path:
    """Leave a cache that says of itself that it need not be compared with the source, and return it."""
    cache = Path(importlib.util.cache_from_source(str(place)))
    other = place.with_name("planted-source")
    other.write_text("open('executed', 'a').write('a cache\\n')\n" + source)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), cfile=str(cache), dfile=str(place), invalidation_mode=unchecked, doraise=True)
    other.unlink()
    return cache


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("reference", ["shop.py:counter", "shop:counter", "shop.domain:counter"])
def test_a_planted_cache_of_a_named_module_is_not_run(tmp_path: Path, reference: str) -> None:
    place = tmp_path / ("shop/domain.py" if "." in reference.removeprefix("shop.py") else "shop.py")
    place.parent.mkdir(exist_ok=True)
    (place.parent / "__init__.py").touch()
    place.write_text(counter_without_future())
    realm = CliRealm(tmp_path)
    realm("init", "--domain", reference)
    compiled(place, counter_without_future())
    assert realm("--json", "state").json["data"]["sold"] == 0
    realm("settle")
    assert not (tmp_path / "executed").exists()


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("planted", ["{}/__init__.py", "{}" + EXTENSION_SUFFIXES[0], "{}.abi3.so"])
def test_what_python_prefers_to_a_named_module_is_not_run_in_its_place(
    tmp_path: Path, planted: str, within: bool
) -> None:
    if within:
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "__init__.py").touch()
    place = tmp_path / ("shop/domain.py" if within else "shop.py")
    place.write_text(counter_without_future())
    realm = CliRealm(tmp_path)
    realm("init", "--domain", "shop.domain:counter" if within else "shop:counter")
    other = place.parent / planted.format(place.stem)
    other.parent.mkdir(exist_ok=True)
    other.write_text("open('executed', 'a').write('planted')\n" + counter_without_future())
    said = realm("settle", code=2)
    assert "[NOT_LOADED]" in said.err
    assert f"{place} and {other} all have the name of the module" in said.err
    assert not (tmp_path / "executed").exists()


def test_a_compiled_module_without_source_is_not_found(tmp_path: Path) -> None:
    place = tmp_path / "shop.py"
    place.write_text(COUNTER.read_text())
    py_compile.compile(str(place), cfile=str(tmp_path / "shop.pyc"), doraise=True)
    place.unlink()
    said = CliRealm(tmp_path)("init", "--domain", "shop:counter", code=2)
    assert "No module named 'shop'" in said.err


def test_a_module_within_a_package_is_imported_when_it_is_first_needed(tmp_path: Path) -> None:
    (tmp_path / "shop" / "inner").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "inner" / "prices.py").write_text("TEA = 1\n")
    (tmp_path / "shop" / "domain.py").write_text(
        "def needed():\n    from shop.inner import prices\n    return prices.TEA\n"
        + counter_without_future()
        + "\nassert needed() == 1\n"
    )
    realm = CliRealm(tmp_path)
    realm("init", "--domain", "shop.domain:counter")
    compiled(tmp_path / "shop" / "inner" / "prices.py", "TEA = 2\n")
    assert realm("--json", "state").json["data"]["sold"] == 0
    assert not (tmp_path / "executed").exists()


@pytest.mark.requirement("CARD-audit")
def test_no_program_of_the_current_folder_is_run_for_the_engine(tmp_path: Path) -> None:
    (tmp_path / "domain.yaml").write_text(YAML)
    realm = CliRealm(tmp_path)
    realm("init", "--domain", "domain.yaml")
    (tmp_path / "bin").mkdir()
    for name in ("strace", "locale"):
        for folder in (tmp_path, tmp_path / "bin"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/executed\nexit 1\n")
            (folder / name).chmod(0o755)
    path = f":.:bin:{os.environ['PATH']}"  # an empty entry is the current folder
    realm("recheck", "--vary", "locale", PATH=path)
    argv = ["run", "--agent", "eve", "--unconfined", "--trace", "--writes", "bin/**", "--", "/bin/true"]
    ended, _, err = run(argv, tmp_path, environment() | {"PATH": path}, b"")
    assert ended in (0, 125), err  # 125 where strace is not installed
    assert not (tmp_path / "executed").exists()
