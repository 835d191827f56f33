"""How a workspace's file system compares names: asked of the real one, and of simulated ones that fold."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from host.workspace import Workspace
from host.workspace.comparison import FolderNames, compared_names
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource_reading import canonical_resource
from worldprotocol.cli.support.health.workspace import names_check

CASE, FORM, BOTH = NameComparison(True, False), NameComparison(False, True), NameComparison(True, True)
COMPOSED, DECOMPOSED = "caf\u00e9.txt", "cafe\u0301.txt"


class Folding:
    """A file system that takes names for one that its function takes for one."""

    def __init__(self, fold: Callable[[str], str]) -> None:
        self.fold = fold
        self.names: set[str] = set()

    def make(self, name: str) -> None:
        self.names.add(self.fold(name))

    def has(self, name: str) -> bool:
        return self.fold(name) in self.names

    def remove(self, name: str) -> None:
        self.names.remove(self.fold(name))


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize(
    ("fold", "case", "normal_form"),
    [
        (str, False, False),
        (str.lower, True, False),
        (decomposed, False, True),
        (lambda text: decomposed(text.casefold()), True, True),
    ],
)
def test_the_probe_finds_what_a_file_system_ignores(fold: Callable[[str], str], case: bool, normal_form: bool) -> None:
    system = Folding(fold)
    assert compared_names(system) == NameComparison(case, normal_form)
    assert system.names == set()


def test_this_machines_file_system_is_compared_as_it_answers_itself(tmp_path: Path) -> None:
    found = compared_names(FolderNames(tmp_path))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / COMPOSED).touch()
    assert found.ignores_normal_form == (tmp_path / DECOMPOSED).exists()
    assert found.ignores_case == (tmp_path / COMPOSED.upper()).exists()


def test_where_names_are_bytes_both_forms_are_two_files_and_two_resources(tmp_path: Path) -> None:
    if compared_names(FolderNames(tmp_path)) != NameComparison(False, False):
        raise AssertionError("these tests need a file system that compares bytes")
    with Workspace(tmp_path) as workspace:
        for text, name in (("one", COMPOSED), ("two", DECOMPOSED)):
            (tmp_path / name).write_text(text)
        resources = [workspace.resource(tmp_path / name) for name in (COMPOSED, DECOMPOSED)]
        assert None not in resources
        first, second = (one for one in resources if one is not None)
        assert not first.overlaps(second)
        assert [os.fsdecode(workspace.path_of(one)) for one in (first, second)] == [COMPOSED, DECOMPOSED]
        assert canonical_resource(f"FILE:/{DECOMPOSED}") == second


@pytest.mark.parametrize(
    ("found", "followed", "ok", "words"),
    [
        (BYTE_WISE, BYTE_WISE, True, "the file system and leases compare byte by byte"),
        (CASE, CASE, True, "the file system and leases ignore case"),
        (CASE, BYTE_WISE, False, "ignores case, but leases compare byte by byte"),
        (FORM, CASE, False, "ignores Unicode normalisation, but leases ignore case"),
        (FORM, BYTE_WISE, False, "run `worldctl klis configure`"),
        (BYTE_WISE, CASE, True, "compares byte by byte; leases ignore case"),
        (FORM, BOTH, True, "leases ignore case and Unicode normalisation"),
    ],
)
def test_doctor_says_where_resources_and_the_file_system_differ(
    found: NameComparison, followed: NameComparison, ok: bool, words: str
) -> None:
    told = names_check(found, followed)
    assert told.ok is ok
    assert words in f"{told.facts} {told.advice}"
