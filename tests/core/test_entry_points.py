"""Entry points of installed distributions are read once, and again after an installation."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from world.code.entry_points import entry_points

GROUP = "worldprotocol.tried"


def install(site: Path, name: str) -> Path:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}:all\n")
    return info


def found() -> set[str]:
    return {point.name for point in entry_points(GROUP)}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_is_installed_or_removed_is_found_with_the_next_call(site: Path) -> None:
    assert found() == set()
    info = install(site, "first")
    assert found() == {"first"}
    install(site, "second")
    assert found() == {"first", "second"}
    shutil.rmtree(info)
    assert found() == {"second"}


def test_a_folder_that_joins_or_leaves_the_path_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "first")
    assert found() == set()
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        assert found() == {"first"}
    assert found() == set()
    monkeypatch.syspath_prepend("")
    assert found() == set()
    monkeypatch.chdir(tmp_path)  # which the empty entry now names
    assert found() == {"first"}


def test_distributions_are_read_once_for_all_groups(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "first")
    reads: list[Any] = []
    read = metadata.entry_points

    def noted(**groups: Any) -> Any:
        reads.append(groups)
        return read(**groups)

    monkeypatch.setattr(metadata, "entry_points", noted)
    for _ in range(3):
        assert found() == {"first"}
        entry_points("worldprotocol.rules")
    assert reads == [{}]
