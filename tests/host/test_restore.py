"""Rollback: whatever was done to a workspace, what was saved comes back, and nothing outside of it is touched."""

from __future__ import annotations

import os
import random
import resource
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.backups import Backups, Restored, resources_to_save
from host.workspace import Workspace
from tests.host.trees import as_somebody_else, file, make, tree_of, workspace
from world.errors import RefusedError
from world.klis.predicate import Predicate
from world.klis.resources.names import NameComparison
from world.klis.triple import Triple

pytestmark = pytest.mark.requirement("KO-3.3")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "ws/.klock").mkdir(parents=True)
    with workspace(tmp_path) as found:
        yield found


def saved(place: Workspace, *names: str) -> Backups:
    backups = Backups(place)
    backups.take("one", [file(name) for name in names], at=1, note={})
    return backups


def swap_for_link(path: Path, target: str | Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    path.symlink_to(target)


def test_bytes_mode_and_time_come_back(place: Workspace) -> None:
    path = place.root / "a.sh"
    make(place.root, {"a.sh": "echo"})
    path.chmod(0o750)
    os.utime(path, ns=(5, 7_000_000_123))
    backups, before = saved(place, "/a.sh"), tree_of(path.parent)[b"a.sh"]
    path.write_text("rm -rf /")
    path.chmod(0o777)
    done = backups.restore("one")
    assert (done.restored, done.removed, done.failed) == (["/a.sh"], [], [])
    assert tree_of(place.root)[b"a.sh"] == before


def test_what_is_as_it_was_is_not_touched(place: Workspace) -> None:
    make(place.root, {"d/a": "a", "d/b": "b"})
    backups = saved(place, "/d/*")
    (place.root / "d/b").write_text("changed")
    before = os.stat(place.root / "d/a")
    assert backups.restore("one").restored == ["/d/b"]
    after = os.stat(place.root / "d/a")
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_only_a_mode_that_differs_is_set_without_a_new_file(place: Workspace) -> None:
    make(place.root, {"a": "a"})
    backups, inode = saved(place, "/a"), os.stat(place.root / "a").st_ino
    (place.root / "a").chmod(0o600)
    assert backups.restore("one").restored == ["/a"]
    seen = os.stat(place.root / "a")
    assert (seen.st_ino, stat.S_IMODE(seen.st_mode)) == (inode, 0o644)


def test_the_same_size_and_time_do_not_hide_another_content(place: Workspace) -> None:
    path = place.root / "a"
    make(place.root, {"a": "good"})
    backups, seen = saved(place, "/a"), os.stat(path)
    path.write_text("evil")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    backups.restore("one")
    assert path.read_text() == "good"


def test_a_subtree_that_was_missing_is_removed_with_everything_below(place: Workspace) -> None:
    backups = saved(place, "/new/*", "/deep/er/new")
    make(place.root, {"new/a/b": "b", "deep/er/new": "x"})
    done = backups.restore("one", also_remove=[b"deep"])
    assert done.removed == ["/deep", "/new"]
    assert os.listdir(place.root) == [".klock"]


def test_what_came_to_be_in_a_saved_directory_is_removed_and_what_is_beside_it_stays(place: Workspace) -> None:
    make(place.root, {"d/a": "a", "beside": "b"})
    backups = saved(place, "/d/*")
    make(place.root, {"d/new": "n", "d/more/new": "n", "new": "n"})
    assert backups.restore("one").removed == ["/d/more", "/d/new"]
    assert sorted(os.listdir(place.root)) == [".klock", "beside", "d", "new"]


def test_further_paths_are_removed_but_nothing_that_the_backup_knows(place: Workspace) -> None:
    make(place.root, {"d/a": "a", "made/x": "x", ".klock/mine": "m"})
    backups = saved(place, "/d/a")
    further = [b"made", b"d", b"d/a", b"", b"gone", b".klock/mine", b".klock", b"d/../made", b"./made"]
    assert backups.restore("one", also_remove=further).removed == ["/made"]
    assert (place.root / "d/a").read_text() == "a"
    assert (place.root / ".klock/mine").exists()


def test_a_directory_without_its_subtree_is_only_itself(place: Workspace) -> None:
    make(place.root, {"d/a": "a"})
    (place.root / "d").chmod(0o700)
    backups = saved(place, "/d")
    (place.root / "d").chmod(0o755)
    make(place.root, {"d/b": "another agent's"})
    backups.restore("one")
    assert sorted(os.listdir(place.root / "d")) == ["a", "b"]
    assert stat.S_IMODE(os.stat(place.root / "d").st_mode) == 0o700


@pytest.mark.parametrize("kind", ["file", "dir", "link", "pipe", "missing"])
@pytest.mark.parametrize("turned_into", ["file", "dir", "link", "link to a directory", "pipe", "socket", "missing"])
def test_every_kind_comes_back_whatever_stands_there_now(place: Workspace, kind: str, turned_into: str) -> None:
    path = place.root / "x"
    make(place.root, {"other/y": "y"})
    build(path, kind)
    backups, before = saved(place, "/x/*"), tree_of(place.root)
    demolish(path)
    build(path, turned_into)
    done = backups.restore("one")
    after = tree_of(place.root)
    del before[b""], after[b""]  # the root was not saved
    assert (after, done.failed) == (before, [])


def build(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("content")
        case "dir":
            make(path, {"a": "a", "b/c": "c"})
        case "link":
            path.symlink_to("nowhere")
        case "link to a directory":
            path.symlink_to("other")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                here = os.getcwd()
                os.chdir(path.parent)  # names of sockets are short
                try:
                    made.bind(path.name)
                finally:
                    os.chdir(here)


def demolish(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def test_a_directory_that_was_swapped_for_a_link_outside_is_a_directory_again(place: Workspace, tmp_path: Path) -> None:
    make(tmp_path, {"outside/a": "theirs", "outside/only": "theirs"})
    make(place.root, {"d/a": "ours", "d/e/b": "ours"})
    backups, before, outside = saved(place, "/d/a", "/d/e/*"), tree_of(place.root), tree_of(tmp_path / "outside")
    swap_for_link(place.root / "d", tmp_path / "outside")
    done = backups.restore("one")
    assert done.failed == []
    assert tree_of(tmp_path / "outside") == outside
    assert tree_of(place.root) == {**before, b"": tree_of(place.root)[b""]}


def test_a_link_in_a_saved_directory_is_a_link_and_not_where_it_leads(place: Workspace, tmp_path: Path) -> None:
    make(tmp_path, {"outside/a": "theirs"})
    make(place.root, {"d/a": "ours"})
    (place.root / "d/out").symlink_to(tmp_path / "outside")
    (place.root / "d/odd").symlink_to(b'a"\\%41\xff\n')
    backups, before = saved(place, "/d/*"), tree_of(place.root / "d")
    (place.root / "d/out").unlink()
    make(place.root, {"d/out/a": "b"})
    (place.root / "d/odd").unlink()
    backups.restore("one")
    assert tree_of(place.root / "d") == before
    assert (tmp_path / "outside/a").read_text() == "theirs"


def test_names_may_be_any_bytes(place: Workspace) -> None:
    folder = os.fsencode(place.root) + b"/d"
    os.mkdir(folder)
    names = [b"new\nline", b"\xff\xfe", b"a*b", b"%2A", "ü\u2028".encode(), b'"digest":"', b" ", b"x" * 255]
    for name in names:
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(name)
    backups, before = saved(place, "/d/*"), tree_of(folder)
    shutil.rmtree(folder)
    backups.restore("one")
    assert tree_of(folder) == before


def test_a_tree_deeper_than_any_path_may_be_long_comes_back(place: Workspace) -> None:
    def dig(handle: int, depth: int) -> None:
        for _ in range(depth):
            os.mkdir("n" * 100, dir_fd=handle)
            below = os.open("n" * 100, os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = below
        os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        os.close(handle)

    (place.root / "d").mkdir()
    dig(os.open(place.root / "d", os.O_RDONLY), 60)
    backups = saved(place, "/d/*")
    shutil.rmtree(place.root / "d")
    done = backups.restore("one")
    assert (len(done.restored), done.failed) == (62, [])
    assert backups.restore("one").restored == []


def test_hard_links_are_one_file_again(place: Workspace) -> None:
    make(place.root, {"d/a": "shared"})
    os.link(place.root / "d/a", place.root / "d/b")
    os.link(place.root / "d/a", place.root / "c")
    backups, before = saved(place, "/d/*", "/c"), tree_of(place.root)
    for name in ("c", "d/b"):
        (place.root / name).unlink()
        (place.root / name).write_text("parted")
    backups.restore("one")
    assert tree_of(place.root) == {**before, b"": tree_of(place.root)[b""]}
    (place.root / "d/a").write_text("all of them")
    backups.restore("one")
    assert tree_of(place.root) == {**before, b"": tree_of(place.root)[b""]}


def test_a_further_name_that_a_session_gave_a_file_is_parted_from_it(place: Workspace, tmp_path: Path) -> None:
    """Or whoever holds the other name could change the file after the rollback."""
    make(place.root, {"a": "ours"})
    backups = saved(place, "/a")
    os.link(place.root / "a", tmp_path / "mine")
    backups.restore("one")
    (tmp_path / "mine").write_text("changed")
    assert (place.root / "a").read_text() == "ours"


def test_extended_attributes_come_back(place: Workspace) -> None:
    make(place.root, {"a": "a", "d/b": "b"})
    try:
        os.setxattr(place.root / "a", "user.kind", b"\x00one")
        os.setxattr(place.root / "d", "user.kind", b"two")
    except OSError:
        return  # this file system has none
    backups = saved(place, "/a", "/d/*")
    os.setxattr(place.root / "a", "user.more", b"x")
    os.removexattr(place.root / "d", "user.kind")
    backups.restore("one")
    assert os.listxattr(place.root / "a") == ["user.kind"]
    assert os.getxattr(place.root / "a", "user.kind") == b"\x00one"
    assert os.getxattr(place.root / "d", "user.kind") == b"two"


def test_only_what_is_asked_for_is_restored(place: Workspace) -> None:
    make(place.root, {"d/a": "a", "d/e/b": "b", "f": "f"})
    backups = saved(place, "/*")
    for name in ("d/a", "d/e/b", "f", "d/e/new", "new"):
        make(place.root, {name: "changed"})
    done = backups.restore("one", only=[file("/d/e/*"), file("/f")])
    assert done.removed == ["/d/e/new"]
    assert {name: (place.root / name).read_text() for name in ("d/a", "d/e/b", "f", "new")} == {
        "d/a": "changed",
        "d/e/b": "b",
        "f": "f",
        "new": "changed",
    }


def test_where_case_does_not_count_every_spelling_is_the_resource(tmp_path: Path) -> None:
    with workspace(tmp_path, names=NameComparison(ignores_case=True)) as place:
        make(place.root, {"ReadMe": "1", "Src/A": "2", "src/a": "3"})
        backups = Backups(place)
        backups.take("one", [file("/readme"), file("/src/a"), file("/new")], at=1, note={})
        for name in ("ReadMe", "Src/A", "src/a", "README", "NEW"):
            make(place.root, {name: "changed"})
        assert backups.restore("one").removed == ["/NEW", "/README"]
        assert [(place.root / name).read_text() for name in ("ReadMe", "Src/A", "src/a")] == ["1", "2", "3"]


def test_a_rollback_may_be_repeated(place: Workspace) -> None:
    make(place.root, {"d/a": "a"})
    backups = saved(place, "/d/*", "/new")
    shutil.rmtree(place.root / "d")
    assert backups.restore("one").restored == ["/d", "/d/a"]
    assert backups.restore("one") == Restored([], [], [], "one")


@pytest.mark.slow
def test_without_the_right_to_write_a_directory_it_is_restored_all_the_same() -> None:
    done = as_somebody_else(_restore_in_closed_directories)
    assert done == "d/a=a closed=0o500"


def _restore_in_closed_directories(folder: Path) -> str:
    with workspace(folder) as place:
        make(place.root, {"d/a": "a"})
        (place.root / "d").chmod(0o500)
        backups = saved(place, "/d/*")
        (place.root / "d").chmod(0o700)
        (place.root / "d/a").write_text("changed")
        make(place.root, {"d/new/x": "x"})
        (place.root / "d/new").chmod(0o500)
        (place.root / "d").chmod(0)
        done = backups.restore("one")
        assert done.failed == [], done
        assert os.listdir(place.root / "d") == ["a"]
        return f"d/a={(place.root / 'd/a').read_text()} closed={stat.S_IMODE(os.stat(place.root / 'd').st_mode):#o}"


@pytest.mark.slow
def test_what_cannot_be_restored_is_told_and_the_rest_is_done() -> None:
    assert as_somebody_else(_restore_what_is_too_large) == "['/large'] large=x small=ours again=[]"


def _restore_what_is_too_large(folder: Path) -> str:
    with workspace(folder) as place:
        make(place.root, {"large": "large" * 20_000, "small": "ours"})
        backups = saved(place, "/large", "/small")
        make(place.root, {"large": "x", "small": "changed"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        done = backups.restore("one")
        assert "too large" in done.reasons["/large"], done
        large, small = (_read(place.root / name) for name in ("large", "small"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return f"{done.failed} large={large} small={small} again={backups.restore('one').failed}"


def _read(path: Path) -> str:
    return path.read_text()


# damaged backups


def objects_of(place: Workspace) -> list[Path]:
    return sorted((place.private / "backups/objects").glob("*/*"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1 << (at % 8)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["flipped", "cut off", "missing"])
def test_a_damaged_content_is_named_and_nothing_is_changed(place: Workspace, damage: str) -> None:
    make(place.root, {"a": "first", "b": "second"})
    backups = saved(place, "/a", "/b")
    make(place.root, {"a": "changed", "b": "changed"})
    victim = next(path for path in objects_of(place) if path.read_text() == "second")
    match damage:
        case "flipped":
            flip(victim, 3)
        case "cut off":
            os.truncate(victim, 2)
        case _:
            victim.unlink()
    with pytest.raises(RefusedError, match="/b") as refused:
        backups.restore("one")
    assert (refused.value.code, refused.value.details["name"]) == ("BACKUP_DAMAGED", "/b")
    assert refused.value.details["object"] == victim.name
    assert (place.root / "a").read_text() == "changed"
    assert backups.finish_interrupted() == []


@given(at=st.integers(0, 100_000))
@pytest.mark.slow
def test_a_flipped_bit_in_a_set_is_always_found(at: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with workspace(folder) as place:
            make(place.root, {"d/a": "first", "d/b": "second"})
            backups = saved(place, "/d/*")
            flip(place.private / "backups/sets/one.json", at)
            make(place.root, {"d/a": "changed"})
            with pytest.raises(RefusedError) as refused:
                backups.restore("one")
            assert refused.value.code == "BACKUP_DAMAGED"
            assert "sets/one.json" in refused.value.message
            assert (place.root / "d/a").read_text() == "changed"
            assert [info.state for info in backups.list()] == ["damaged"]
    finally:
        shutil.rmtree(folder)


def test_a_backup_that_is_not_there_is_refused(place: Workspace) -> None:
    with pytest.raises(RefusedError, match="Backup two does not exist") as refused:
        Backups(place).restore("two")
    assert refused.value.code == "NO_SUCH_BACKUP"
    with pytest.raises(RefusedError) as refused:
        Backups(place).restore("../one")
    assert refused.value.code == "INVALID_BACKUP_ID"


# against a thread that changes things meanwhile


def test_nothing_outside_is_changed_while_somebody_swaps_directories_for_links(
    place: Workspace, tmp_path: Path
) -> None:
    make(tmp_path, {f"outside/{name}": "theirs" for name in "abcdefgh"})
    make(place.root, {f"d/{name}": "ours" for name in "abcdefgh"})
    backups, outside = saved(place, "/d/*"), tree_of(tmp_path / "outside")
    stop = threading.Event()

    def swap() -> None:
        folder, aside = place.root / "d", place.root / "aside"
        while not stop.is_set():
            try:
                os.rename(folder, aside)
                os.symlink(tmp_path / "outside", folder)
                os.unlink(folder)
                os.rename(aside, folder)
            except OSError:
                shutil.rmtree(aside, ignore_errors=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for turn in range(60):
            for name in "abcdefgh":
                try:
                    handle = os.open(place.root / "d", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                    os.close(os.open(f"new{turn}", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
                    os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, dir_fd=handle))
                    os.close(handle)
                except OSError:
                    continue
            backups.restore("one")
    finally:
        stop.set()
        thread.join()
    assert tree_of(tmp_path / "outside") == outside
    backups.restore("one", also_remove=[b"aside"])
    assert {name: _read(place.root / "d" / name) for name in os.listdir(place.root / "d")} == dict.fromkeys(
        "abcdefgh", "ours"
    )


# properties

NAMES = ("a", "b", "c-d", "d", "ü", "e\n")


class Vandal:
    """Makes random trees and does random damage to them, by links to the outside too."""

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self.root = root
        self.outside = outside
        self.random = random.Random(seed)

    def some_path(self) -> Path:
        depth = self.random.choice((1, 1, 2, 2, 3))
        return self.root.joinpath(*(self.random.choice(NAMES) for _ in range(depth)))

    def act(self) -> None:
        path = self.some_path()
        acts = (
            self.write, self.write, self.mkdir, self.symlink, self.hard_link, self.remove, self.rename, self.chmod,
            self.touch, self.pipe,
        )  # fmt: skip
        if self.is_outside(path):
            return
        try:
            self.random.choice(acts)(path)
        except OSError:
            return

    def is_outside(self, path: Path) -> bool:
        """Tell whether a link leads there: a confined program could not go that way."""
        return not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(self.root))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            return
        path.write_bytes(self.random.randbytes(self.random.choice((0, 1, 10, 3_000))))

    def mkdir(self, path: Path) -> None:
        path.mkdir(parents=True)

    def symlink(self, path: Path) -> None:
        targets = (self.outside, self.outside / "a", "a", "../b", ".", "nowhere")
        path.symlink_to(self.random.choice(targets))

    def hard_link(self, path: Path) -> None:
        other = self.some_path()
        if not self.is_outside(other):
            os.link(other, path, follow_symlinks=False)

    def remove(self, path: Path) -> None:
        demolish(path)

    def rename(self, path: Path) -> None:
        target = self.some_path()
        if not self.is_outside(target):
            os.rename(path, target)

    def chmod(self, path: Path) -> None:
        if not path.is_symlink():
            path.chmod(self.random.choice((0o600, 0o644, 0o755, 0o700, 0o4755)))

    def touch(self, path: Path) -> None:
        os.utime(path, ns=(0, self.random.randrange(1 << 60)), follow_symlinks=False)

    def pipe(self, path: Path) -> None:
        os.mkfifo(path)


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), whole=st.booleans(), rounds=st.integers(1, 3))
@pytest.mark.slow
def test_whatever_is_done_to_a_tree_it_comes_back_and_nothing_outside_changes(
    seed: int, whole: bool, rounds: int
) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        make(folder, {"outside/a": "theirs", "outside/b/c": "theirs"})
        with workspace(folder) as place:
            place.private.mkdir()
            base = place.root if whole else place.root / "part"
            base.mkdir(exist_ok=True)
            vandal = Vandal(base, folder / "outside", seed)
            for _ in range(25):
                vandal.act()
            backups = Backups(place)
            wanted = file("/*" if whole else "/part/*")
            if seed % 2:
                backups.prepare([wanted])
            backups.take("one", [wanted], at=1, note={})
            before, outside = tree_of(base), tree_of(folder / "outside")
            for _ in range(rounds):
                for _ in range(25):
                    vandal.act()
                done = backups.restore("one")
                assert done.failed == [], done
                assert tree_of(base) == before
                assert tree_of(folder / "outside") == outside
                assert backups.restore("one") == Restored([], [], [], "one")
    finally:
        shutil.rmtree(folder)


@pytest.mark.requirement("KO-7")
def test_what_a_manifest_may_change_is_what_is_saved() -> None:
    triples = [
        Triple(Predicate.MUTATES, file("/a")),
        Triple(Predicate.PROVIDES, file("/new")),
        Triple(Predicate.CONSUMES, file("/read")),
        Triple(Predicate.DEPENDS_ON, file("/lib/*")),
        Triple(Predicate.DELETES, file("/dir")),
        Triple(Predicate.RENAMES, file("/old")),
        Triple(Predicate.MUTATES, file("/src/*")),
    ]
    found = [found.text for found in resources_to_save(triples)]
    assert found == ["FILE:/a", "FILE:/new", "FILE:/dir/*", "FILE:/old/*", "FILE:/src/*"]


def test_files_that_became_one_are_two_again(place: Workspace) -> None:
    make(place.root, dict.fromkeys("abcd", "same"))
    for one, two in (("a", "b"), ("c", "d")):
        (place.root / two).unlink()
        os.link(place.root / one, place.root / two)
    os.mkfifo(place.root / "p")
    os.mkfifo(place.root / "q")
    backups, before = saved(place, "/*"), tree_of(place.root)
    (place.root / "c").unlink()
    os.link(place.root / "a", place.root / "c")
    (place.root / "b").unlink()
    (place.root / "q").unlink()
    os.link(place.root / "p", place.root / "q")
    os.utime(place.root / "p", ns=(3, 3))
    assert backups.restore("one").failed == []
    assert tree_of(place.root) == before
