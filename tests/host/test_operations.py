"""What IO calls do, as predicates on resources: on real files in a real workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.confinement import Runtime
from host.observation import Operations, RuntimePaths
from host.workspace import Workspace
from world.klis.observation import Seen

WRITES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "src" / "b.py").write_text("b")
    (folder / ".klock").mkdir()
    return folder


@pytest.fixture
def operations(root: Path) -> Iterator[Operations]:
    with Workspace(root) as workspace:
        runtime = RuntimePaths.standard(private=[root / "world.db"])
        yield Operations(workspace, runtime=runtime, hosts=["localhost"])


def told(seen: list[Seen]) -> list[str]:
    return [f"{one.predicate} {one.name}" for one in seen]


@pytest.mark.requirement("KO-2.1")
def test_files_are_read_written_made_removed_renamed_listed_and_linked(operations: Operations, root: Path) -> None:
    cwd = os.fsencode(root)
    assert told(operations.opened("a.txt", os.O_RDONLY, cwd=cwd)) == ["CONSUMES /a.txt"]
    assert told(operations.opened("a.txt", WRITES, cwd=cwd)) == ["MUTATES /a.txt"]
    assert told(operations.opened("a.txt", os.O_RDWR, cwd=cwd)) == ["MUTATES /a.txt"]
    assert told(operations.opened("new.txt", WRITES, cwd=cwd)) == ["PROVIDES /new.txt"]
    assert told(operations.opened(root / "src", os.O_RDONLY | os.O_DIRECTORY)) == ["CONSUMES /src"]
    assert told(operations.listed("src", cwd=cwd)) == ["CONSUMES /src"]
    assert told(operations.deleted("a.txt", cwd=cwd)) == ["DELETES /a.txt"]
    assert told(operations.deleted("src", tree=True, cwd=cwd)) == ["DELETES /src/*"]
    assert told(operations.renamed("a.txt", "c.txt", cwd=cwd)) == ["RENAMES /a.txt", "PROVIDES /c.txt"]
    assert told(operations.renamed("a.txt", "src/b.py", cwd=cwd)) == ["RENAMES /a.txt", "MUTATES /src/b.py"]
    assert told(operations.renamed("a.txt", "src/b.py", exchange=True, cwd=cwd)) == [
        "RENAMES /a.txt",
        "RENAMES /src/b.py",
    ]
    assert told(operations.made("dir", cwd=cwd)) == ["PROVIDES /dir"]
    assert told(operations.changed("a.txt", cwd=cwd)) == ["MUTATES /a.txt"]
    assert told(operations.linked("/etc/hosts", "link", symbolic=True, cwd=cwd)) == ["PROVIDES /link"]
    assert told(operations.linked("a.txt", "hard", symbolic=False, cwd=cwd)) == ["MUTATES /a.txt", "PROVIDES /hard"]


def test_what_must_fail_because_nothing_is_there_is_no_side_effect(operations: Operations, root: Path) -> None:
    cwd = os.fsencode(root)
    assert operations.opened("missing", os.O_RDONLY, cwd=cwd) == []
    assert operations.deleted("missing", cwd=cwd) == []
    assert operations.renamed("missing", "x", cwd=cwd) == []
    assert operations.changed("missing", cwd=cwd) == []
    assert operations.listed("missing", cwd=cwd) == []
    assert operations.made("a.txt", cwd=cwd) == []
    assert operations.opened("a.txt", os.O_PATH, cwd=cwd) == []
    assert operations.opened(".", os.O_TMPFILE | os.O_WRONLY, cwd=cwd) == []


@pytest.mark.requirement("KO-3")
def test_a_link_stands_for_what_it_leads_to_and_outside_is_outside(operations: Operations, root: Path) -> None:
    cwd = os.fsencode(root)
    outside = root.parent / "secret"
    outside.write_text("s")
    (root / "out").symlink_to(outside)
    (root / "in").symlink_to("a.txt")
    (root / "up").symlink_to("..")
    assert told(operations.opened("in", os.O_RDONLY, cwd=cwd)) == ["CONSUMES /a.txt"]
    (seen,) = operations.opened("out", WRITES, cwd=cwd)
    assert (seen.predicate, seen.outside, seen.resource.type) == ("MUTATES", str(outside), "OUTSIDE")
    (seen,) = operations.opened("up/secret", os.O_RDONLY, cwd=cwd)
    assert seen.outside == str(outside)
    assert told(operations.deleted("out", cwd=cwd)) == ["DELETES /out"]  # the link itself
    (seen,) = operations.opened("../secret", os.O_RDONLY, cwd=cwd)
    assert seen.outside == str(outside)


@pytest.mark.requirement("KO-3")
def test_the_engines_own_files_are_nobodys_to_touch(operations: Operations, root: Path) -> None:
    (root / "world.db").write_text("log")
    for path in (".klock/backups", "world.db"):
        (seen,) = operations.opened(path, WRITES, cwd=os.fsencode(root))
        assert seen.outside is not None


def test_what_an_interpreter_needs_is_not_worth_observing(operations: Operations, root: Path) -> None:
    assert operations.opened(os.__file__, os.O_RDONLY) == []
    assert operations.opened("/dev/null", os.O_WRONLY) == []
    assert operations.opened("/etc/hosts", os.O_RDONLY) == []
    (seen,) = operations.opened("/etc/hosts", os.O_WRONLY)
    assert (seen.predicate, seen.name) == ("MUTATES", "/etc/hosts")


def test_a_folder_of_the_system_that_holds_the_workspace_frees_nothing_in_it(root: Path) -> None:
    with Workspace(root) as workspace:
        runtime = RuntimePaths(read=(os.fsencode(root.parent),), modules=(os.fsencode(root / "src"),))
        operations = Operations(workspace, runtime=runtime)
        assert told(operations.opened(root / "a.txt", os.O_RDONLY)) == ["CONSUMES /a.txt"]
        assert told(operations.opened(root / "src" / "b.py", os.O_RDONLY)) == ["CONSUMES /src/b.py"]
        (root.parent / "beside").write_text("x")
        assert operations.opened(root.parent / "beside", os.O_RDONLY) == []
        inside = RuntimePaths(read=(os.fsencode(root / "src"),))
        assert Operations(workspace, runtime=inside).opened(root / "src" / "b.py", os.O_RDONLY) == []


@pytest.mark.requirement("KO-2.1")
def test_databases_open_their_file_for_writing_unless_they_say_otherwise(operations: Operations, root: Path) -> None:
    assert operations.database(":memory:") == []
    assert operations.database("") == []
    assert told(operations.database(str(root / "a.txt"))) == ["MUTATES /a.txt"]
    assert told(operations.database(f"file:{root / 'a.txt'}?mode=ro")) == ["CONSUMES /a.txt"]
    assert told(operations.database(f"file:{root / 'new.db'}")) == ["PROVIDES /new.db"]
    assert operations.database("file::memory:?cache=shared") == []


@pytest.mark.requirement("KO-2.1")
def test_connections_requests_and_local_sockets(operations: Operations, root: Path) -> None:
    (one,) = operations.connected("example.com", 443)
    assert (one.predicate, one.resource.text, one.address) == (
        "CONSUMES",
        "URL:https://example.com/",
        ("example.com", 443),
    )
    (local,) = operations.connected("127.0.0.1", 8080)
    assert local.address == ("localhost", 8080)  # the declared name of that address
    assert operations.connected("9.9.9.9", 53) == []  # names have to be looked up
    assert told(operations.bound("127.0.0.1", 8080)) == ["PROVIDES URL:tcp://127.0.0.1:8080/"]
    assert operations.bound("0.0.0.0", 0) == []
    assert told(operations.requested("get", "https://Example.com/api/../v1")) == ["CONSUMES URL:https://example.com/v1"]
    for method, predicate in (("POST", "MUTATES"), ("PUT", "MUTATES"), ("PATCH", "MUTATES"), ("DELETE", "DELETES")):
        assert told(operations.requested(method, "https://example.com/v1")) == [
            f"{predicate} URL:https://example.com/v1"
        ]
    assert operations.local_socket("\0abstract")[0].outside == "abstract socket abstract"


@pytest.mark.requirement("KO-5.1")
def test_a_process_may_do_anything_where_it_works(operations: Operations, root: Path) -> None:
    seen = operations.started("/usr/bin/make", ["make"], cwd=os.fsencode(root / "src"))
    assert told(seen) == ["PROVIDES PROCESS:make", "MUTATES /src/*"]
    assert seen[1].opaque_of == seen[0].resource
    assert operations.started("sh", cwd=b"/")[1].outside == "/"
    with Workspace(root) as workspace:
        (held,) = Operations(workspace, confined=True).started(sys.executable, cwd=os.fsencode(root))
    assert held.is_held


def test_names_that_are_no_text_have_resources_too(operations: Operations, root: Path) -> None:
    name = os.path.join(os.fsencode(root), b"new\nline\xff")
    (seen,) = operations.opened(name, WRITES)
    assert seen.resource.text == "FILE:/new%0Aline%FF"


def test_walls_and_watch_agree_on_what_belongs_to_the_system(root: Path) -> None:
    with Workspace(root) as workspace:
        operations = Operations(workspace, runtime=RuntimePaths.standard())
        granted = Runtime.standard()
        for folder in (*granted.execute, *granted.read, *granted.devices):
            if os.path.isdir(folder):
                assert operations.listed(folder) == [], folder
