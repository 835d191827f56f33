"""Races: somebody puts links in the place of folders and files while the workspace is worked on."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest

from host.workspace import Workspace, take
from tests.host.folders import everything
from world.errors import RefusedError

EXCHANGE = 2
AT_FDCWD = -100


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


class Swapping:
    """A thread that puts a link where a folder is, and the folder back, as fast as it can."""

    def __init__(self, folder: Path, link: Path) -> None:
        self._names = os.fsencode(folder), os.fsencode(link)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap, daemon=True)

    def _swap(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        one, other = self._names
        while not self._stop.is_set():
            libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


ATTACKED = {
    "write": lambda ws: ws.write(b"dir/secret", b"overwritten"),
    "write below": lambda ws: ws.write(b"dir/sub/secret", b"overwritten"),
    "append": lambda ws: ws.append(b"dir/secret", b"overwritten"),
    "open": lambda ws: os.close(ws.open(b"dir/secret", os.O_WRONLY | os.O_TRUNC)),
    "mkdir": lambda ws: (ws.mkdir(b"dir/new/deep", parents=True), ws.remove_tree(b"dir/new")),
    "remove": lambda ws: (ws.remove(b"dir/secret"), ws.write(b"dir/secret", b"again")),
    "remove_tree": lambda ws: (ws.remove_tree(b"dir/sub"), ws.mkdir(b"dir/sub"), ws.write(b"dir/sub/secret", b"again")),
    "rename": lambda ws: (
        ws.rename(b"dir/secret", b"dir/moved", replace=True),
        ws.rename(b"dir/moved", b"dir/secret", replace=False),
    ),
}


@pytest.mark.parametrize("target", ["../outside", "{outside}"])
@pytest.mark.parametrize("attacked", ATTACKED)
@pytest.mark.slow
def test_a_folder_that_is_swapped_for_a_link_leads_nothing_out(place, ws, attacked, target):
    for above in (place / "ws" / "dir", place / "outside"):
        (above / "sub").mkdir(parents=True)
        (above / "secret").write_text("secret")
        (above / "sub" / "secret").write_text("secret")
    (place / "ws" / "link").symlink_to(target.format(outside=place / "outside"))
    before = everything(place / "outside")
    done = stopped = 0
    codes = set()
    with Swapping(place / "ws" / "dir", place / "ws" / "link"):
        for _ in range(20_000):
            try:
                ATTACKED[attacked](ws)
                done += 1
            except RefusedError as error:
                codes.add(error.code)
                stopped += 1
            except (FileNotFoundError, FileExistsError, NotADirectoryError):
                # The swap left a work of two steps half done; it begins anew.
                for mend in (
                    lambda: ws.mkdir(b"dir/sub"),
                    lambda: ws.remove_tree(b"dir/new"),
                    lambda: ws.write(b"dir/secret", b"again"),
                ):
                    with contextlib.suppress(OSError, RefusedError):
                        mend()
            if done > 40 and stopped > 40:
                break
    assert done
    assert codes == {"LINK_OUT_OF_WORKSPACE"}
    assert everything(place / "outside") == before


@pytest.mark.parametrize("target", ["../outside/secret", "{outside}/secret"])
@pytest.mark.slow
def test_a_file_that_is_swapped_for_a_link_leads_nothing_out(place, ws, target):
    ws.write(b"file", b"")
    (place / "ws" / "link").symlink_to(target.format(outside=place / "outside"))
    before = everything(place / "outside")
    done = dict.fromkeys(("append", "truncate", "read"), 0)
    codes = set()
    with Swapping(place / "ws" / "file", place / "ws" / "link"):
        for _ in range(20_000):
            for work in done:
                try:
                    if work == "append":
                        ws.append(b"file", b"+")
                    elif work == "truncate":
                        os.close(ws.open(b"file", os.O_WRONLY | os.O_TRUNC | os.O_CREAT))
                    else:
                        assert b"secret" not in ws.read(b"file")
                    done[work] += 1
                except RefusedError as error:
                    codes.add(error.code)
            if codes and min(done.values()) > 100:
                break
    assert all(done.values())
    assert codes == {"LINK_OUT_OF_WORKSPACE"}
    assert everything(place / "outside") == before


@pytest.mark.slow
def test_a_walk_and_a_removal_never_stray_through_a_swapped_folder(place, ws):
    (place / "outside" / "sub").mkdir()
    (place / "outside" / "sub" / "private").write_text("private")
    (place / "ws" / "dir" / "sub").mkdir(parents=True)
    (place / "ws" / "link").symlink_to("../outside")
    before = everything(place / "outside")
    with Swapping(place / "ws" / "dir", place / "ws" / "link"):
        for _ in range(300):
            ws.write(b"a/b", b"") if ws.lstat(b"a") else ws.mkdir(b"a")
            names = {found.rpartition(b"/")[2] for found, _ in ws.walk()}
            assert not names & {b"secret", b"private"}
            ws.remove_tree(b"a")
    ws.remove_tree(b"dir")
    ws.remove_tree(b"link")
    assert everything(place / "outside") == before


def test_one_of_many_who_create_a_file_wins(ws):
    won = []

    def create(number: int) -> None:
        with contextlib.suppress(FileExistsError):
            ws.write(b"new", b"%d" % number, must="not exist")
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert ws.read(b"new") == b"%d" % won[0]
    assert [entry.name for entry in ws.list()] == [b"new"]


@pytest.mark.slow
def test_a_reader_sees_the_old_content_or_the_new_one(ws):
    contents = [bytes([number]) * 100_000 for number in range(5)]
    ws.write(b"a", contents[0])
    over = threading.Event()
    seen = []

    def look() -> None:
        while not over.is_set():
            seen.append(ws.read(b"a"))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(100):
            ws.write(b"a", contents[number % 5])
    finally:
        over.set()
        reader.join()
    assert set(seen) <= set(contents)


def test_what_never_stands_still_is_told_as_unreadable(place, ws, monkeypatch):
    (place / "ws" / "restless").symlink_to("x")

    def gone_again(*_, **__):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "readlink", gone_again)
    seen = take(ws, cache=None)
    assert seen.unreadable == (b"restless",)
    assert seen[b"restless"].content is None


@pytest.mark.parametrize("other", ["link", "folder", "pipe", "socket"])
@pytest.mark.slow
def test_a_look_goes_on_when_a_file_becomes_something_else(place, ws, other):
    ws.write(b"file", b"inside")
    swapped = place / "ws" / "other"
    if other == "link":
        swapped.symlink_to("../outside/secret")
    elif other == "folder":
        swapped.mkdir()
    elif other == "pipe":
        os.mkfifo(swapped)
    else:
        os.mknod(swapped, 0o600 | stat.S_IFSOCK)
    inside = hashlib.sha256(b"inside").hexdigest()
    with Swapping(place / "ws" / "file", swapped):
        for _ in range(1_000):
            seen = take(ws, cache=None)
            assert {each.sha256 for each in seen.values()} <= {None, inside}
