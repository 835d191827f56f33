"""The workspace: whatever happens inside, nothing outside is touched."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.workspace import Workspace
from tests.host.folders import everything, open_descriptors, refused, without_privileges
from world.errors import RefusedError
from world.klis.resources.names import NameComparison


@pytest.fixture
def place(tmp_path):
    """Return a folder with the workspace in it and something beside it."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path


@pytest.fixture
def ws(place):
    with Workspace(place / "ws") as workspace:
        yield workspace


# Links


def test_links_are_followed_inside(place, ws):
    ws.mkdir(b"a/b", parents=True)
    ws.write(b"a/b/file", b"1")
    (place / "ws" / "a" / "up").symlink_to("../a/./b/../b")
    (place / "ws" / "file").symlink_to("a/up/file")
    (place / "ws" / "dangling").symlink_to("a/made")
    assert ws.read(b"file") == b"1"
    ws.write(b"file", b"2")
    assert ws.read(b"a/b/file") == b"2"
    ws.write(b"dangling", b"3")
    assert ws.read(b"a/made") == b"3"
    assert stat.S_ISLNK(ws.lstat(b"file").st_mode)
    assert [entry.name for entry in ws.list(b"a/up")] == [b"file"]


@pytest.mark.parametrize("target", ["{outside}", "../outside", "a/../../outside", "{ws}/a", "/", ".."])
def test_a_link_that_is_absolute_or_leads_out_is_refused(place, ws, target):
    ws.mkdir(b"a")
    (place / "ws" / "link").symlink_to(target.format(outside=place / "outside", ws=place / "ws"))
    (place / "ws" / "file").symlink_to(target.format(outside=place / "outside", ws=place / "ws") + "/secret")
    before = everything(place / "outside")
    for work in (
        lambda: ws.read(b"link/secret"),
        lambda: ws.read(b"file"),
        lambda: ws.write(b"link/secret", b"x"),
        lambda: ws.write(b"file", b"x"),
        lambda: ws.append(b"file", b"x"),
        lambda: ws.open(b"file", os.O_WRONLY),
        lambda: ws.remove(b"link/secret"),
        lambda: ws.remove_tree(b"link/outside"),
        lambda: ws.rename(b"a", b"link/a", replace=True),
        lambda: ws.mkdir(b"link/new/b", parents=True),
        lambda: ws.list(b"link"),
        lambda: list(ws.walk(b"link")),
        lambda: ws.lstat(b"link/secret"),
        lambda: ws.parent(b"link/new", make=True).__enter__(),
    ):
        with refused("LINK_OUT_OF_WORKSPACE"):
            work()
    assert everything(place / "outside") == before


def test_a_link_itself_can_be_removed_and_renamed_wherever_it_leads(place, ws):
    (place / "ws" / "link").symlink_to(place / "outside")
    ws.rename(b"link", b"other", replace=False)
    assert os.readlink(place / "ws" / "other") == str(place / "outside")
    ws.remove_tree(b"other")
    assert ws.list() == []
    assert (place / "outside" / "secret").read_text() == "secret"


def test_links_in_a_circle_come_to_an_end(place, ws):
    (place / "ws" / "a").symlink_to("b")
    (place / "ws" / "b").symlink_to("a")
    (place / "ws" / "c").symlink_to("c/c")
    for path in (b"a", b"b/x", b"c"):
        with pytest.raises(OSError, match="symbolic links") as caught:
            ws.read(path)
        assert caught.value.errno == errno.ELOOP
    assert ws.relative(place / "ws" / "a", follow=True) is not None


@pytest.mark.parametrize("path", [b"..", b"../outside/secret", b"a/../../outside", b"a\0b"])
def test_a_path_that_leads_out_is_refused(ws, path):
    ws.mkdir(b"a")
    for work in (ws.read, ws.lstat, ws.remove, ws.remove_tree, ws.list, ws.mkdir):
        with refused("OUTSIDE_WORKSPACE"):
            work(path)


def test_the_root_itself_is_neither_removed_nor_renamed(ws):
    for path in (b"", b".", b"/"):
        for work in (ws.remove, ws.remove_tree, lambda path: ws.rename(path, b"x", replace=True)):
            with refused("OUTSIDE_WORKSPACE"):
                work(path)
    assert stat.S_ISDIR(ws.lstat(b"").st_mode)


def test_a_write_replaces_a_file_and_leaves_its_second_name_alone(place, ws):
    other = place / "outside" / "secret"
    for work, expected in (
        (lambda: ws.write(b"name", b"new"), b"new"),
        (lambda: ws.append(b"name", b"+"), b"secret+"),
        (lambda: os.close(ws.open(b"name", os.O_WRONLY | os.O_TRUNC)), b""),
        (lambda: os.close(ws.open(b"name", os.O_RDWR | os.O_CREAT)), b"secret"),
    ):
        os.link(other, place / "ws" / "name")
        os.chmod(other, 0o640)
        work()
        assert other.read_text() == "secret"
        assert other.stat().st_nlink == 1
        assert ws.read(b"name") == expected
        assert stat.S_IMODE(ws.lstat(b"name").st_mode) == 0o640
        ws.remove(b"name")


def test_reading_leaves_a_second_name_as_it_is(place, ws):
    os.link(place / "outside" / "secret", place / "ws" / "name")
    assert ws.read(b"name") == b"secret"
    assert ws.lstat(b"name").st_nlink == 2


# The engine's own folder


def test_the_engines_own_folder_cannot_be_reached(place, ws):
    (place / "ws" / ".klock" / "backups").mkdir(parents=True)
    (place / "ws" / "a").mkdir()
    (place / "ws" / "link").symlink_to(".klock")
    (place / "ws" / "a" / "link").symlink_to("../.klock/backups")

    def parent(path):
        with ws.parent(path):
            pass

    for path in (b".klock", b".klock/backups", b"./.klock/x", b"a/../.klock/x", b"link/x", b"a/link/x"):
        for work in (ws.lstat, ws.read, ws.remove_tree, lambda path: ws.write(path, b"x"), parent):
            with refused("PRIVATE_PATH"):
                work(path)
    for path in (b"link", b"a/link"):
        with refused("PRIVATE_PATH"):
            ws.list(path)
    with refused("PRIVATE_PATH"):
        ws.rename(b"a", b".klock", replace=True)
    assert [entry.name for entry in ws.list()] == [b"a", b"link"]
    assert [found for found, _ in ws.walk()] == [b"a", b"link", b"a/link"]
    ws.mkdir(b"a/.klock")
    assert ws.lstat(b"a/.klock") is not None


def test_the_engines_own_folder_has_no_second_spelling_where_case_does_not_count(place):
    (place / "ws" / ".klock").mkdir()
    (place / "ws" / ".KLOCK").mkdir()
    with Workspace(place / "ws", names=NameComparison(ignores_case=True)) as ws:
        for path in (b".KLOCK/x", b".Klock", ".\u212aLOCK".encode()):
            with refused("PRIVATE_PATH"):
                ws.write(path, b"x")
        assert ws.list() == []
        assert list(ws.walk()) == []


# Where a path leads


def test_a_path_is_told_by_where_it_leads(place, ws):
    root = place / "ws"
    (root / "dir").mkdir()
    (root / "link").symlink_to("dir")
    (root / "out").symlink_to(place / "outside")
    (place / "alias").symlink_to("ws")
    (place / "outside" / "back").symlink_to("../ws/dir")
    cwd = os.fsencode(root / "dir")
    assert ws.relative(root) == b""
    assert ws.relative(root / "no" / "such") == b"no/such"
    assert ws.relative(f"{root}/dir/../link/file") == b"dir/file"
    assert ws.relative(root / "link") == b"link"
    assert ws.relative(f"{root}/link/") == b"dir"
    assert ws.relative(root / "link", follow=True) == b"dir"
    assert ws.relative(root / "out") == b"out"
    assert ws.relative(root / "out", follow=True) is None
    assert ws.relative(root / "out" / "secret") is None
    assert ws.relative(root / "out" / "back" / "x") == b"dir/x"
    assert ws.relative(place / "alias" / "x") == b"x"
    assert ws.relative("x", cwd=cwd) == b"dir/x"
    assert ws.relative("../../ws/x", cwd=cwd) == b"x"
    assert ws.relative("../..", cwd=cwd) is None
    assert ws.relative(b"\xff\n", cwd=cwd) == b"dir/\xff\n"
    assert ws.relative(place / "ws2") is None
    assert ws.relative("/") is None


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), max_size=6).map("/".join).map("./".__add__)
LINKS = st.dictionaries(st.tuples(NAMES, NAMES), st.tuples(st.booleans(), STEPS), max_size=6)


MOST_LINKS = 40
"""Links that Linux follows in one path."""


def leads_nowhere(named: str) -> bool:
    """Tell whether more links are on the way than the system follows, as where they go in a circle.

    Names that do not exist are passed, as ``os.path.realpath`` does; in circles behind them its results mean nothing.
    """
    left, real, links = named.split("/")[::-1], list[str](), 0
    while left:
        step = left.pop()
        if step == "..":
            del real[-1:]
        elif step not in ("", "."):
            if not os.path.islink(place := "/".join(["", *real, step])):
                real.append(step)
                continue
            links += 1
            if links > MOST_LINKS:
                return True
            target = os.readlink(place)
            real = [] if target.startswith("/") else real
            left += target.split("/")[::-1]
    return False


@given(links=LINKS, path=STEPS, cwd=st.sampled_from(["", "/a", "/b"]))
def test_a_path_leads_where_the_system_finds_it(links, path, cwd):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        real = os.path.realpath(folder)
        root = f"{real}/ws"
        for name in "abc":
            os.makedirs(f"{root}/{name}")
        for (above, name), (absolute, target) in links.items():
            os.symlink(f"{root}/{target}" if absolute else target, f"{root}/{above}/{name}")
        ws = stack.enter_context(Workspace(root))
        named = f"{root}{cwd}/{path}"
        if leads_nowhere(named):
            return
        expected = os.path.realpath(named)
        found = ws.relative(path, cwd=f"{root}{cwd}".encode(), follow=True)
        inside = expected == root or expected.startswith(f"{root}/")
        assert found == (os.fsencode(expected[len(root) + 1 :]) if inside else None)


def test_names_with_newlines_and_bytes_that_are_no_text_have_resources(ws):
    for name in (b"a\nb", b"\xff\xfe", b"*", b"%0A", "\u2028".encode()):
        ws.write(name, name)
        resource_ = ws.resource_at(name)
        assert ws.path_of(resource_) == name
        assert ws.path_of(resource_.text) == name
        assert ws.resource(ws.root_bytes + b"/" + name) == resource_
        assert ws.read(ws.path_of(resource_)) == name
        subtree = ws.resource_at(name, subtree=True)
        assert subtree.subtree
        assert ws.path_of(subtree) == name
    assert len(ws.list()) == 5
    assert ws.resource_at(b"", subtree=True).text == "FILE:/*"
    assert ws.path_of("FILE:/*") == b""


def test_what_names_no_file_of_the_workspace_has_no_path(ws):
    with refused("NOT_A_FILE_RESOURCE"):
        ws.path_of("SYMBOL:User.authenticate")
    with refused("AMBIGUOUS_RESOURCE"):
        ws.path_of("FILE:/%C3%A9")


def test_where_case_does_not_count_the_existing_spelling_is_found(place):
    with Workspace(place / "ws", names=NameComparison(ignores_case=True)) as ws:
        ws.mkdir(b"Src")
        ws.write(b"Src/READ\nME", b"1")
        found = ws.resource_at(b"SRC/read\nme")
        assert found == ws.resource_at(b"Src/READ\nME")
        assert ws.path_of(found) == b"Src/READ\nME"
        assert ws.path_of("FILE:/src/New") == b"Src/new"
        assert not ws.exists("FILE:/src/new")
        assert ws.exists(found)


# Operations


def test_a_file_is_written_read_added_to_renamed_and_removed(ws):
    ws.mkdir(b"a/b", parents=True)
    ws.write(b"a/b/f", [b"1", b"", b"23"])
    ws.append(b"a/b/f", b"4")
    ws.append(b"a/b/new", [b"5", b"6"])
    assert ws.read(b"a/b/f") == b"1234"
    assert ws.read(b"a/b/f", limit=2) == b"12"
    assert ws.read(b"a/b/new") == b"56"
    ws.rename(b"a/b/f", b"g", replace=False)
    with pytest.raises(FileExistsError):
        ws.rename(b"a/b/new", b"g", replace=False)
    assert ws.read(b"g") == b"1234"
    ws.rename(b"a/b/new", b"g", replace=True)
    assert ws.read(b"g") == b"56"
    assert [(entry.name, entry.kind) for entry in ws.list()] == [(b"a", "dir"), (b"g", "file")]
    with pytest.raises(OSError, match="not empty"):
        ws.remove(b"a")
    ws.remove(b"a/b")
    ws.remove(b"g")
    ws.remove_tree(b"a")
    assert ws.list() == []


def test_what_is_missing_or_in_the_way_is_said_by_the_system(ws):
    ws.write(b"file", b"")
    for work in (
        lambda: ws.read(b"no"),
        lambda: ws.write(b"no/f", b""),
        lambda: ws.write(b"no", b"", must="exist"),
        lambda: ws.remove(b"no"),
        lambda: ws.remove_tree(b"no"),
        lambda: ws.rename(b"no", b"x", replace=True),
        lambda: ws.mkdir(b"no/x"),
        lambda: ws.list(b"no"),
        lambda: list(ws.walk(b"no")),
    ):
        with pytest.raises(FileNotFoundError):
            work()
    for work in (
        lambda: ws.write(b"file", b"", must="not exist"),
        lambda: ws.mkdir(b"file"),
        lambda: ws.mkdir(b"file", parents=True),
    ):
        with pytest.raises(FileExistsError):
            work()
    for work in (lambda: ws.read(b"file/x"), lambda: ws.list(b"file"), lambda: ws.write(b"file/x", b"")):
        with pytest.raises(NotADirectoryError):
            work()
    ws.mkdir(b"dir")
    for work in (lambda: ws.read(b"dir"), lambda: ws.write(b"dir", b""), lambda: ws.append(b"dir", b"")):
        with pytest.raises(IsADirectoryError):
            work()
    assert ws.lstat(b"no") is None
    assert ws.lstat(b"no/no") is None
    assert ws.lstat(b"file/no") is None


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(ws):
    def pieces():
        yield b"half"
        raise RuntimeError("the rest never came")

    ws.write(b"a", b"old")
    with pytest.raises(RuntimeError):
        ws.write(b"a", pieces())
    assert ws.read(b"a") == b"old"
    assert [entry.name for entry in ws.list()] == [b"a"]


def test_a_write_keeps_permissions_and_owner_and_takes_set_id_bits_away(ws):
    ws.write(b"a", b"")
    with ws.parent(b"a") as (folder, name):
        if os.geteuid() == 0:
            os.chown(name, 12, 34, dir_fd=folder)
        os.chmod(name, 0o4751, dir_fd=folder)
    before = ws.lstat(b"a")
    ws.write(b"a", b"new")
    after = ws.lstat(b"a")
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert stat.S_IMODE(after.st_mode) == 0o751
    ws.write(b"a", b"new", mode=0o600)
    assert stat.S_IMODE(ws.lstat(b"a").st_mode) == 0o600


def test_a_new_file_has_the_permissions_that_the_process_gives_or_those_asked_for(place, ws):
    (place / "outside" / "usual").write_text("")
    ws.write(b"usual", b"")
    ws.write(b"asked", b"", mode=0o604)
    assert ws.lstat(b"usual").st_mode == (place / "outside" / "usual").stat().st_mode
    assert stat.S_IMODE(ws.lstat(b"asked").st_mode) == 0o604


def test_a_pipe_is_neither_waited_for_nor_written_over(ws, place):
    os.mkfifo(place / "ws" / "pipe")
    with refused("NOT_A_REGULAR_FILE"):
        ws.read(b"pipe")
    with refused("NOT_A_REGULAR_FILE"):
        ws.write(b"pipe", b"")
    assert ws.list()[0].kind == "other"


def test_permission_denied_is_said_and_changes_nothing(place, ws):
    ws.mkdir(b"dir")
    ws.write(b"dir/file", b"old", mode=0o600)
    os.chmod(place / "ws" / "dir", 0o555)
    with without_privileges():
        for work in (
            lambda: ws.write(b"dir/file", b"new"),
            lambda: ws.write(b"dir/new", b"new"),
            lambda: ws.append(b"dir/file", b"new"),
            lambda: ws.remove(b"dir/file"),
            lambda: ws.remove_tree(b"dir"),
            lambda: ws.rename(b"dir/file", b"dir/new", replace=True),
            lambda: ws.mkdir(b"dir/sub/x", parents=True),
        ):
            with pytest.raises(PermissionError):
                work()
    assert ws.read(b"dir/file") == b"old"
    assert [found for found, _ in ws.walk()] == [b"dir", b"dir/file"]


def test_a_folder_that_may_not_be_listed_is_told_or_raised(place, ws):
    ws.mkdir(b"a/b", parents=True)
    ws.write(b"a/b/hidden", b"")
    ws.mkdir(b"c")
    ws.write(b"c/seen", b"")
    os.chmod(place / "ws", 0o755)
    os.chmod(place / "ws" / "a", 0o000)
    told = []
    with without_privileges():
        found = [each for each, _ in ws.walk(unreadable=lambda path, error: told.append((path, error.errno)))]
        with pytest.raises(PermissionError):
            list(ws.walk())
    assert found == [b"a", b"c", b"c/seen"]
    assert told == [(b"a", errno.EACCES)]


def test_a_folder_that_may_be_written_but_not_listed_can_be_written_to(place, ws):
    ws.mkdir(b"drop")
    os.chmod(place / "ws", 0o755)
    os.chmod(place / "ws" / "drop", 0o733)
    with without_privileges():
        ws.write(b"drop/letter", b"hello")
    assert ws.read(b"drop/letter") == b"hello"


@pytest.mark.slow
def test_a_tree_of_any_depth_is_made_walked_and_removed_with_few_descriptors(ws):
    depth = 3_000  # deeper than a path may be long, and than there may be descriptors
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(len(open_descriptors()) + 60, hard), hard))
    try:
        ws.mkdir(b"/".join([b"d"] * depth), parents=True)
        ws.write(b"/".join([b"d"] * depth + [b"file"]), b"")
        for above in (1, 1_000, 2_990):
            ws.mkdir(b"/".join([b"d"] * above + [b"other"]))
        found = [each for each, _ in ws.walk()]
        assert len(found) == depth + 4
        assert max(map(len, found)) == 2 * depth - 1 + 5
        ws.remove_tree(b"d")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ws.list() == []


def test_a_walk_goes_on_when_what_it_is_about_to_see_vanishes(ws):
    for folder in (b"a", b"b", b"c"):
        ws.mkdir(folder)
        ws.write(folder + b"/f", b"")
    walk = ws.walk()
    seen = [next(walk)[0] for _ in range(4)]  # the root's entries, and a's first
    ws.remove_tree(b"b")
    seen += [found for found, _ in walk]
    assert seen == [b"a", b"b", b"c", b"a/f", b"c/f"]


def test_no_descriptor_is_left_open(ws, place):
    (place / "ws" / "out").symlink_to(place / "outside")
    ws.mkdir(b"a/b", parents=True)
    ws.write(b"a/b/f", b"1")
    before = open_descriptors()
    for path in (b"a/b/f", b"a/b", b"a/no/x", b"out/x", b".klock/x", b"../x", b"a/b/f/x", b""):
        for work in (
            ws.read,
            ws.lstat,
            ws.list,
            lambda path: ws.write(path, b"2"),
            lambda path: ws.append(path, b"2"),
            lambda path: next(ws.walk(path), None),
            lambda path: ws.rename(path, path, replace=False),
            lambda path: ws.mkdir(path, parents=True),
        ):
            with contextlib.suppress(OSError, RefusedError):
                work(path)
    assert open_descriptors() <= before


def test_a_closed_workspace_touches_nothing(place):
    ws = Workspace(place / "ws")
    ws.close()
    ws.close()
    other = os.open(place / "outside", os.O_RDONLY)  # it may get the number of the root's handle
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            ws.write(b"a", b"")
    finally:
        os.close(other)
    assert sorted(path.name for path in (place / "outside").iterdir()) == ["secret"]


def test_a_workspace_is_an_existing_folder(place):
    with refused("WORKSPACE_MISSING"):
        Workspace(place / "no")
    with refused("NOT_A_FOLDER"):
        Workspace(place / "outside" / "secret")
    (place / "alias").symlink_to("ws")
    with Workspace(place / "alias") as ws:
        assert ws.root == place / "ws"
        assert ws.private == place / "ws" / ".klock"
