"""The wheel of the distribution has every file that the program reads, such as the templates."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.cli.realm import ROOT, environment

pytestmark = pytest.mark.slow


def packaged_files() -> set[str]:
    """Return the files of the packages of the distribution, as the source has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = (one for package in packages for one in (ROOT / package).rglob("*") if one.is_file())
    return {str(one.relative_to(ROOT)) for one in files if "__pycache__" not in one.parts}


def test_a_project_is_founded_from_the_wheel(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        assert packaged_files() - set(archive.namelist()) == set()
        archive.extractall(tmp_path / "installed")
    variables = environment() | {"PYTHONPATH": str(tmp_path / "installed")}
    words = [sys.executable, "-m", "worldprotocol", "new", "here", "--template", "coding-agents", "--person", "ann"]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"domain.yaml", "policy.toml", "policy.cases.toml", "world.db"} <= set(os.listdir(tmp_path / "here"))
