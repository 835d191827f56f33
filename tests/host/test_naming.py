"""Names are looked up through opened folders: where that fails for another reason than absence, nothing is allowed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from host.confinement.naming import Named, UnknowableError, find, held, here
from host.observation import Operations
from host.observation.audit import Interception
from host.observation.session_watch import Watch
from host.workspace import Workspace
from world.errors import ScopeViolationError
from world.klis.observation import Declaration

NOBODY = 65534


ATTEMPTS: Final[tuple[Callable[[str], object], ...]] = (
    lambda name: os.chmod(name, 0o777),
    lambda name: os.truncate(name, 0),
    os.utime,
    open,
)


def found(name: bytes, *, follow: bool = True) -> Named | None:
    with here() as view:
        return find(view, name, follow=follow)


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Let modes of folders count, whoever runs the tests."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_that_is_closed_from_above_hides_nothing_from_who_is_in_it(tmp_path: Path) -> None:
    """The working directory is used and not looked for; its absolute name cannot be looked up (EACCES)."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    with contextlib.chdir(inner):
        (tmp_path / "closed").chmod(0)
        try:
            with without_privileges():
                named = found(b"file")
                with pytest.raises(UnknowableError) as unknowable:
                    found(os.fsencode(inner / "file"))
                gone = found(b"missing")
        finally:
            (tmp_path / "closed").chmod(0o700)
    assert named is not None
    assert named.is_there
    assert named.path == os.fsencode(os.path.realpath(inner / "file"))
    assert unknowable.value.errno == errno.EACCES
    assert gone == Named(os.fsencode(os.path.realpath(inner)) + b"/missing", None)


@pytest.mark.requirement("KO-3")
def test_a_session_changes_nothing_outside_by_a_name_that_is_too_long(tmp_path: Path) -> None:
    secret, root = tmp_path / "secret", tmp_path / "w"
    secret.write_text("s")
    secret.chmod(0o600)
    root.mkdir()
    declared = Declaration("agent", "session", [])
    deep = tmp_path / "deep"
    deep.mkdir()
    with contextlib.chdir(deep):
        for size in (*[250] * 15, 4040 - len(os.fsencode(os.path.realpath(deep))) - 15 * 251 - 1):
            os.mkdir("d" * size)
            os.chdir("d" * size)
        os.mkdir("e" * 50)
        os.symlink(secret, "e" * 50 + "/link")
        with Workspace(root) as workspace, Interception(Watch(declared), Operations(workspace)):
            for attempt in ATTEMPTS:
                with pytest.raises(ScopeViolationError, match="outside of the workspace"):
                    attempt("e" * 50 + "/link")
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("s", 0o600)


def test_what_has_no_name_is_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        assert held(reading) is None
        assert found(b"/proc/self/fd/%d" % writing) is None
    finally:
        os.close(reading)
        os.close(writing)
    with (tmp_path / "f").open("w") as file:
        (tmp_path / "f").unlink()
        assert held(file.fileno()) is None
    with pytest.raises(UnknowableError):
        held(1 << 20)


def test_links_that_lead_in_circles_are_no_absence(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "a/x"):
        with pytest.raises(UnknowableError) as unknowable:
            found(os.fsencode(tmp_path / name))
        assert unknowable.value.errno == errno.ELOOP
    named = found(os.fsencode(tmp_path / "a"), follow=False)
    assert named is not None
    assert named.is_there
