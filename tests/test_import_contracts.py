"""Who may import whom: the contracts in pyproject.toml hold, and the graph they see is not an empty one."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from importlinter import cli as import_linter

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("projections", "authority", "host")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return which of our modules imports which, and which library."""
    packages = ("world", *ROOMS, "worldprotocol", "conformance")
    return grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)


def packages_imported_by(package: str, graph: grimp.ImportGraph) -> set[str]:
    """Return the top-level packages that any module of the package imports."""
    modules = {package} | graph.find_descendants(package)
    imported = {name for module in modules for name in graph.find_modules_directly_imported_by(module)}
    return {name.partition(".")[0] for name in imported} - {package}


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Enable the loggers again that import-linter disables when it configures its own."""
    before = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    enabled = [one for one in before if not one.disabled]
    yield
    for one in enabled:
        one.disabled = False


def test_every_contract_about_imports_is_kept(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = import_linter.lint_imports(no_cache=True)
    assert status == import_linter.EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_the_world_imports_nothing_of_the_host_nor_of_any_other_room(graph):
    imported = packages_imported_by("world", graph)
    assert "pydantic" in imported or "msgspec" in imported  # the graph sees imports at all
    assert imported.isdisjoint({*ROOMS, "worldprotocol", "conformance"})


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_the_floor_and_no_other_room(graph, room):
    assert packages_imported_by(room, graph).isdisjoint({*ROOMS, "worldprotocol", "conformance"} - {room})


def test_the_product_imports_nothing_of_the_programs_for_other_implementations(graph):
    assert "worldprotocol" in packages_imported_by("conformance", graph)
    assert "conformance" not in packages_imported_by("worldprotocol", graph)


def test_the_contracts_name_every_package_that_ships_and_the_programs_beside_them():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    shipped = pyproject["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted([*shipped, "conformance"]) == sorted(pyproject["importlinter"]["root_packages"])
