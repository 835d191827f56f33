"""Leases on files whose names differ in case or normalisation, where the file system ignores that and where not."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from host.workspace.comparison import FolderNames
from tests.runs.realm import a_workspace, opened, text_of
from world.errors import RefusedError, ScopeViolationError
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol import Realm

COMPOSED, DECOMPOSED = "caf\u00e9.txt", "cafe\u0301.txt"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer the probe as a file system does that ignores normalisation."""

    def has(self: FolderNames, name: str) -> bool:
        return unicodedata.normalize("NFC", name) in {
            unicodedata.normalize("NFC", path.name) for path in self.folder.iterdir()
        }

    monkeypatch.setattr(FolderNames, "has", has)


def names_in(world: Realm) -> NameComparison:
    return world.realm().klis.in_force.names


def code_of(world: Realm, agent: str, name: str) -> str:
    """Return what asking for a lease gives: granted, or the code of the refusal."""
    try:
        world.leases.acquire(agent=agent, resource=f"FILE:/{name}", timeout=0)
    except RefusedError as refused:
        return refused.code
    return "granted"


@pytest.mark.requirement("KM-4.2b")
def test_the_answer_of_the_file_system_is_recorded_at_founding_and_leases_follow_it(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        folding(patch)
        with opened(tmp_path) as world:
            assert names_in(world) == NameComparison(ignores_normal_form=True)
            assert not list(root.glob(".klock/names-*"))
    with opened(tmp_path) as world:  # which goes by what is recorded
        assert code_of(world, "ann", COMPOSED) == "granted"
        assert code_of(world, "bob", COMPOSED) == "DIED"
        assert code_of(world, "bob", DECOMPOSED) == "AMBIGUOUS_RESOURCE"  # which names the one form
        with pytest.raises(RefusedError) as refused, world.host.session(agent="cid", writes=[f"/{DECOMPOSED}"]):
            raise AssertionError("the file is leased under its other form")
        assert refused.value.code == "DIED"


@pytest.mark.requirement("KM-4.2b")
def test_where_the_file_system_tells_the_forms_apart_both_are_leased(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        assert names_in(world) == BYTE_WISE
        assert [code_of(world, agent, name) for agent, name in (("ann", COMPOSED), ("bob", DECOMPOSED))] == [
            "granted",
            "granted",
        ]


@pytest.mark.requirement("KM-4.2b", "KO-3")
def test_a_session_works_on_the_file_that_is_there_and_gets_it_back_after_a_violation(
    tmp_path: Path, root: Path
) -> None:
    (root / DECOMPOSED).write_text("before")
    before = text_of(root)
    with opened(tmp_path, limits=Limits(klis=KlisSettings(normal_form=True))) as world:
        with world.host.session(agent="ann", writes=[f"/{COMPOSED}"]) as session:
            (root / DECOMPOSED).write_text("after")
        assert session.outcome == "completed"
        assert text_of(root) == before | {DECOMPOSED: "after"}
        with pytest.raises(ScopeViolationError), world.host.session(agent="ann", writes=[f"/{COMPOSED}"]):
            (root / DECOMPOSED).write_text("undone")
            (root / "notes.txt").write_text("never")
    assert text_of(root) == before | {DECOMPOSED: "after"}


@pytest.mark.requirement("KM-4.2b")
def test_configuring_adds_what_the_file_system_ignores_and_the_workspace_follows_at_once(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as world:
        assert names_in(world) == BYTE_WISE
        folding(monkeypatch)
        assert world.leases.desk.configure(by="ann")
        assert names_in(world) == NameComparison(ignores_normal_form=True)
        assert not world.leases.desk.configure(by="ann")
        assert world.host.premises.workspace.names == names_in(world)
        assert world.host.premises.workspace.resource_at(DECOMPOSED.encode()).text == f"FILE:/{COMPOSED}"
