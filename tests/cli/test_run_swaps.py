"""A second thread swaps the name of a declared file while the call waits for the watcher, in namespaces and without.

The name is in a page of memory that no one has touched. `/proc/self/pagemap` says when the watcher has read it; the
second thread puts the other name there at that moment, and the kernel takes that one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli import test_run_probes as secluded
from tests.cli import test_run_without_namespaces as bare
from tests.cli.realm import CliRealm
from tests.cli.test_run_probes import CONFINED, SECLUDED, VIOLATED, realm, secret, shape, template

__all__ = ["realm", "secret", "template"]

SWAP = """
import ctypes, mmap, os, struct, _thread
libc = ctypes.CDLL(None, use_errno=True)
pagemap = os.open('/proc/self/pagemap', os.O_RDONLY)
os.chdir('d')
def swapped(before, after, call):
    with open('page', 'wb') as file: file.write(before.encode().ljust(4096, bytes(1)))
    with open('page', 'r+b') as file:
        page = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    other = after.encode() + bytes(1)
    ready, over, ended = _thread.allocate_lock(), [], _thread.allocate_lock()
    ready.acquire(), ended.acquire()
    def swap():
        ready.release()
        while not over and not struct.unpack('Q', os.pread(pagemap, 8, address // 4096 * 8))[0] >> 63: pass
        ctypes.memmove(address, other, len(other))
        ended.release()
    _thread.start_new_thread(swap, ())
    ready.acquire()
    result = call(ctypes.c_void_p(address))
    over.append(1)
    ended.acquire()
    return result
def made(name, mode=0o600):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, mode))
reached = 0
for turn in range(300):  # both are declared: so it is seen that swapping works
    if reached: break
    made('one'), made('two')
    swapped('one', 'two', lambda name: libc.chmod(name, 0o640))
    reached += os.stat('two').st_mode & 0o777 == 0o640
    os.remove('one'), os.remove('two')
print('reached', reached, flush=True)
for turn in range(ROUNDS):
    made('one')
    got = swapped('one', TARGET, lambda name: CALL)
    if OPENS == 'read' and got >= 0: print(os.read(got, 100))
    if OPENS == 'write' and got >= 0: os.write(got, b'x')
"""
ROUNDS = 15
CALLS = {
    "read": "libc.open(name, 0)",
    "write": "libc.open(name, os.O_WRONLY | os.O_TRUNC)",
    "unlink": "libc.unlink(name)",
    "rename": "libc.rename(name, b'three')",
    "link": "libc.link(name, b'three')",
    "chmod": "libc.chmod(name, 0o777)",
    "utime": "libc.utimensat(-100, name, None, 0)",
    "setxattr": "libc.setxattr(name, b'user.eve', b'x', 1, 0)",
}
LANDLOCKS = ("read", "write", "unlink", "rename", "link")
"""Those that Landlock holds; without namespaces the others are the watcher's alone, and a swap reaches them."""


def in_namespaces(realm: CliRealm, code: str) -> tuple[int, str, str]:
    return secluded.attempt(realm, code, "--writes", "d/**", "--deletes", "d/**")


def without(realm: CliRealm, code: str) -> tuple[int, str, str]:
    said = bare.attempt(realm, code, "--writes", "d/**", "--deletes", "d/**")
    return said.code, said.out, said.err


CASES = [*((in_namespaces, call) for call in CALLS), *((without, call) for call in LANDLOCKS)]


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize(("walls", "call"), CASES, ids=[f"{walls.__name__}-{call}" for walls, call in CASES])
@pytest.mark.slow
def test_a_name_that_a_second_thread_swaps_during_a_call_leads_to_nothing_undeclared(
    realm: CliRealm, secret: Path, walls: Callable[[CliRealm, str], tuple[int, str, str]], call: str
) -> None:
    (realm.folder / "d").mkdir()
    before: tuple[Any, ...] = shape(secret), secret.read_text(), os.stat(secret).st_nlink
    code = f"TARGET, ROUNDS, OPENS = {str(secret)!r}, {ROUNDS}, {call!r}{SWAP}"
    ended, out, err = walls(realm, code.replace("CALL", CALLS[call]))
    assert "SECRET" not in out
    if CONFINED and (call in LANDLOCKS or SECLUDED):
        assert (shape(secret), secret.read_text(), os.stat(secret).st_nlink) == before
        # It is stopped where the watcher reads the other name; otherwise all rounds are over.
        assert (ended, "lies outside" in err) in ((0, False), (VIOLATED, True)), err
        assert "reached" in out
        assert int(out.split()[1]) > 0, out
