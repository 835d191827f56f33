"""Files of a user that have the names of our packages: found when the engine is imported, with what to rename."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.realm import COUNTER, ROOT, CliRealm
from tests.documents import PAGES, blocks

NAMES = ("world", "projections", "authority", "host")
TAKEN = (*NAMES, "worldprotocol")
PROGRAM = "from worldprotocol import Realm\nprint(Realm.__name__)\n"


def ended(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run Python in a folder as a user does: the engine is installed behind the program's own folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WORLD_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_beside_a_file_of_our_name_is_told_which_file_to_rename(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('it was run')\n")
    (tmp_path / "app.py").write_text(PROGRAM)
    code, out, err = ended(tmp_path, "app.py")
    assert (code, out) == (1, "")
    assert last_line(err).startswith("ImportError: ")
    assert f"{tmp_path / f'{name}.py'} has the name of the package {name!r}" in last_line(err)
    assert f"Rename {name}.py" in last_line(err)


def test_a_program_that_has_our_name_itself_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(PROGRAM)
    code, out, err = ended(tmp_path, "world.py")
    assert (code, out) == (1, "")
    assert "Rename world.py" in last_line(err)


def test_a_file_of_our_name_that_was_imported_before_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "host.py").write_text("mine = 1\n")
    (tmp_path / "app.py").write_text("import host, sys\nsys.path.pop(0)\n" + PROGRAM)
    code, _, err = ended(tmp_path, "app.py")
    assert code == 1
    assert "Rename host.py" in last_line(err)


def test_a_package_of_our_name_is_found_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "__init__.py").touch()
    (tmp_path / "app.py").write_text(PROGRAM)
    code, _, err = ended(tmp_path, "app.py")
    assert code == 1
    assert f"{tmp_path / 'world'} has the name of the package 'world'" in last_line(err)
    assert "Rename world" in last_line(err)


@pytest.mark.slow
def test_a_folder_of_our_name_without_modules_shadows_nothing(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "map.txt").touch()
    (tmp_path / "app.py").write_text(PROGRAM)
    assert ended(tmp_path, "app.py") == (0, "Realm\n", "")


def test_a_file_of_our_name_elsewhere_shadows_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for name in NAMES:
        (tmp_path / "shop" / f"{name}.py").touch()
    (tmp_path / "shop" / "__init__.py").write_text(PROGRAM)
    assert ended(tmp_path, "-c", "import shop, shop.world") == (0, "Realm\n", "")


@pytest.mark.parametrize("arguments", [("-m", "app"), ("-c", PROGRAM), ("-m", "worldprotocol", "--help")])
def test_modules_run_by_name_find_a_file_in_the_current_folder(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "authority.py").touch()
    (tmp_path / "app.py").write_text(PROGRAM)
    code, out, err = ended(tmp_path, *arguments)
    assert (code, out) == (1, "")
    assert last_line(err).startswith("ImportError: ")
    assert "Rename authority.py" in last_line(err)


def test_no_module_of_a_user_is_run_to_find_out(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text("open('it-was-run', 'w')\n")
    (tmp_path / "app.py").write_text(PROGRAM)
    ended(tmp_path, "app.py")
    assert not (tmp_path / "it-was-run").exists()


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.slow
def test_worldctl_acts_in_a_folder_with_such_a_file_and_does_not_run_it(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('it was run')\n")
    realm = CliRealm(tmp_path)
    realm("init", "--domain", f"{COUNTER}:counter")
    realm("actor", "add", "ann", "--kind", "human")
    assert realm("--json", "state").json["data"]["sold"] == 0


@pytest.mark.parametrize("name", TAKEN)
def test_a_reference_to_a_module_of_our_name_says_which_file_to_rename(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('it was run')\n")
    said = CliRealm(tmp_path)("init", "--domain", f"{name}:shop", code=2)
    assert "[NOT_LOADED]" in said.err
    assert f"comes before {tmp_path / f'{name}.py'}. Rename {tmp_path / f'{name}.py'}" in said.err
    assert "it was run" not in said.err


def test_no_page_and_no_example_uses_a_name_of_ours() -> None:
    """A file in a page, in a reference such as ``x.py:name``, or among the examples; the changelog shows no program."""
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    named = re.compile(rf"(?<![\w./-])(?:{'|'.join(TAKEN)})\.py\b")
    wrong = [
        f"{page.name}: {found.group()}" for page in pages for found in named.finditer(page.read_text(encoding="utf-8"))
    ]
    wrong += [
        f"{page.name}: {block.mark}"
        for page in pages
        for block in blocks(page)
        if block.mark.startswith("file: ")
        and Path(block.mark.removeprefix("file: ")).parts[0].removesuffix(".py") in TAKEN
    ]
    for folder in (ROOT / "examples", ROOT / "docs"):
        wrong += [str(path.relative_to(ROOT)) for path in folder.rglob("*") if path.name.removesuffix(".py") in TAKEN]
    templates = [*(ROOT / "worldprotocol").rglob("*.py"), *(ROOT / "examples").rglob("*.toml")]
    reference = re.compile(rf"[\"'](?:{'|'.join(TAKEN)})\.py[:\"']")
    wrong += [f"{path.relative_to(ROOT)}" for path in templates if reference.search(path.read_text(encoding="utf-8"))]
    assert wrong == []
