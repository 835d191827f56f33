"""Landlock holds a process to exactly what was declared, whatever the process does."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from host.confinement import Access, Rules, landlock
from tests.host.confining import Ground, allow, can_hold, ground, triples
from tests.support.patience import PATIENCE_S

__all__ = ["ground"]


def test_elsewhere_it_says_why_not(monkeypatch):
    monkeypatch.setattr(landlock, "IS_LINUX", False)
    assert landlock.available() == landlock.Support(0, "Landlock needs Linux, and this is another system.")


def test_a_kernel_without_it_says_why_not(monkeypatch, ground):
    def missing(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(landlock, "system_call", missing)
    support = landlock.available()
    assert support.abi == 0
    assert "Function not implemented" in str(support.why_not)
    assert ground.shell("true", "CONSUMES /*") is None


def test_it_says_what_it_does_not_hold():
    support = landlock.available()
    assert (support.abi > 0) is (support.why_not is None)
    assert (landlock.ALWAYS_NOT_HELD in support.not_held) is (support.abi > 0)


def test_an_old_kernel_is_told_to_hold_less(monkeypatch):
    for abi, count in ((1, 5), (2, 5), (3, 4), (4, 3), (5, 2), (6, 1), (7, 1)):
        monkeypatch.setattr(landlock, "system_call", lambda *_, abi=abi: abi)
        assert len(landlock.available().not_held) == count


def test_rules_are_made_for_every_version_up_to_this_kernels(ground):
    ground.file("a.txt")
    rules = ground.rules("MUTATES /a.txt", "CONSUMES URL:http://localhost:8080/")
    for abi in range(1, landlock.available().abi + 1):
        os.close(landlock.ruleset(rules, abi))


@pytest.mark.requirement("KO-5.2")
def test_nothing_is_readable_that_was_not_declared(ground):
    ground.file("a.txt", "declared")
    ground.file("b.txt", "not declared")
    secret = ground.outside / "secret"
    secret.write_text("outside")
    ended = ground.shell(f"cat a.txt; cat b.txt; cat {secret}; cat ../outside/secret", "CONSUMES /a.txt")
    if ended is not None:
        assert ended.out == "declared"
        assert ended.err.count("Permission denied") == 3


ATTEMPTS = {
    "write another": "open('b.txt', 'w')",
    "append to another": "open('b.txt', 'a')",
    "read another": "open('b.txt')",
    "make": "open('c.txt', 'x')",
    "make a folder": "os.mkdir('d')",
    "make a pipe": "os.mkfifo('p')",
    "make a link": "os.symlink('a.txt', 'l')",
    "make a hard link": "os.link('a.txt', 'h')",
    "make a socket": "__import__('_socket').socket(1, 1).bind('s')",
    "remove another": "os.unlink('b.txt')",
    "remove it": "os.unlink('a.txt')",
    "rename": "os.rename('b.txt', 'a.txt')",
    "rename it": "os.rename('a.txt', 'c.txt')",
    "cut another off": "os.truncate('b.txt', 0)",
    "remove a folder": "os.rmdir('empty')",
}


@pytest.mark.requirement("KO-5.2", "KO-3")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_who_may_change_one_file_may_do_nothing_else(ground, attempt):
    ground.file("a.txt")
    ground.file("b.txt")
    (ground.root / "empty").mkdir()
    code = f"""
import os
open('a.txt', 'w').write('after')
try:
    {ATTEMPTS[attempt]}
except PermissionError:
    print('denied')
except OSError as error:
    print('denied' if error.errno == 18 else error)
"""
    ended = ground.python(code, "MUTATES /a.txt")
    if ended is not None:
        assert (ended.code, ended.out, ended.err) == (0, "denied\n", "")
        assert ended.rules is not None
        assert ended.rules.widened == ()
        assert (ground.root / "a.txt").read_text() == "after"
        assert (ground.root / "b.txt").read_text() == "before"
        assert sorted(os.listdir(ground.root)) == ["a.txt", "b.txt", "empty"]


def test_a_new_file_is_made_exclusively_where_it_is_provided(ground):
    code = "import os; os.write(os.open('new.txt', os.O_CREAT | os.O_EXCL | os.O_WRONLY), b'made')"
    ended = ground.python(code, "PROVIDES /new.txt")
    if ended is not None:
        assert (ended.code, ended.err) == (0, "")
        assert (ground.root / "new.txt").read_text() == "made"


@pytest.mark.parametrize("declared", ["MUTATES /src/*", "PROVIDES /src/*"])
def test_a_declared_subtree_is_free_to_be_written(ground, declared):
    ground.file("src/a.py")
    ended = ground.shell("cd src && echo 1 > a.py && mkdir -p x/y && echo 2 > x/y/z && cat a.py x/y/z", declared)
    if ended is not None:
        assert (ended.code, ended.out, ended.err) == (0, "1\n2\n", "")


def test_an_atomic_save_works_in_a_subtree(ground):
    ground.file("src/a.py")
    code = """
import os
for turn in range(3):
    with open('src/.a.py.tmp', 'x') as file:
        file.write(f'turn {turn}')
        file.flush()
        os.fsync(file.fileno())
    os.replace('src/.a.py.tmp', 'src/a.py')
os.mkdir('src/sub')
open('src/.b.lock', 'x').close()
os.rename('src/.b.lock', 'src/sub/b')
"""
    ended = ground.python(code, "MUTATES /src/*", "RENAMES /src/*")
    if ended is not None:
        assert (ended.code, ended.err) == (0, "")
        assert (ground.root / "src/a.py").read_text() == "turn 2"
        assert (ground.root / "src/sub/b").exists()


def test_a_tree_is_removed_with_its_folder(ground):
    ground.file("build/x/y.o")
    ground.file("kept.txt")
    ended = ground.shell("rm -rf build && ! rm -f kept.txt", "DELETES /build/*")
    if ended is not None:
        assert ended.code == 0
        assert os.listdir(ground.root) == ["kept.txt"]


@pytest.mark.requirement("KO-5.2")
def test_a_hard_link_neither_leaves_nor_enters_the_workspace(ground):
    ground.file("src/a.txt")
    (ground.outside / "secret").write_text("before")
    code = f"""
import os
for old, new in (('src/a.txt', {str(ground.outside / "taken")!r}), ({str(ground.outside / "secret")!r}, 'src/h')):
    try:
        os.link(old, new)
    except OSError as error:
        print(error.errno in (1, 13, 18))
"""
    ended = ground.python(code, "PROVIDES /src/*", "RENAMES /src/*")
    if ended is not None:
        assert ended.out == "True\nTrue\n"
        assert os.listdir(ground.outside) == ["secret"]


def test_a_link_grants_nothing_by_itself(ground):
    (ground.outside / "secret").write_text("outside")
    (ground.root / "link").symlink_to(ground.outside / "secret")
    (ground.root / "door").symlink_to(ground.outside)
    ended = ground.shell(
        "cat link; cat door/secret; echo x > link; echo y > door/new", "MUTATES /link", "MUTATES /door/*"
    )
    if ended is not None:
        assert ended.out == ""
        assert ended.err.count("denied") == 4
        assert (ground.outside / "secret").read_text() == "outside"
        assert os.listdir(ground.outside) == ["secret"]


def test_a_swapped_folder_leads_nowhere(ground):
    """One thread opens, another swaps the folder for a link: the kernel looks at what was opened."""
    ground.file("in/f", "inside")
    (ground.outside / "f").write_text("outside")
    code = f"""
import os, _thread, time
over = False
def swap():
    while not over:
        os.rename('in', 'was'); os.symlink({str(ground.outside)!r}, 'in')
        os.unlink('in'); os.rename('was', 'in')
_thread.start_new_thread(swap, ())
read, turns, until = set(), 0, time.monotonic() + {PATIENCE_S}
while (13 not in read or turns < 500) and time.monotonic() < until:
    turns += 1
    for how in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_TRUNC):
        try:
            file = os.open('in/f', how)
        except OSError as error:
            read.add(error.errno)
            continue
        if how == os.O_RDONLY:
            read.add(os.read(file, 10))
        os.close(file)
over = True
print(b'outside' in read, 13 in read)
"""
    everything = ("MUTATES /*", "RENAMES /*", "DELETES /*")
    ended = ground.python(code, *everything, decide=allow if can_hold(None, allow) else None)
    if ended is not None:
        assert (ended.out, ended.err) == ("False True\n", "")
        assert (ground.outside / "f").read_text() == "outside"
        assert os.listdir(ground.outside) == ["f"]


@pytest.mark.requirement("KO-5.2")
def test_memory_of_others_and_of_itself_opens_no_door(ground):
    (ground.outside / "secret").write_text("outside")
    code = f"""
import os
for path in ('/proc/{os.getpid()}/mem', '/proc/{os.getpid()}/root{ground.outside}/secret',
             '/proc/self/root{ground.outside}/secret'):
    try:
        open(path, 'rb')
        print('opened', path)
    except OSError as error:
        print('denied')
try:
    os.kill({os.getpid()}, 0)
    print('signalled')
except PermissionError:
    print('denied')
"""
    ended = ground.python(code, "CONSUMES /*")
    if ended is not None:
        held = 4 if landlock.available().abi >= 6 else 3
        assert ended.out.count("denied") == held


def test_tcp_leads_to_declared_ports_only(ground):
    with socket.create_server(("127.0.0.1", 0)) as declared, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (declared, other)]
        code = f"""
import _socket
for port in {ports}:
    try:
        _socket.socket(2, 1).connect(('127.0.0.1', port))
        print('connected')
    except PermissionError:
        print('denied')
"""
        ended = ground.python(code, f"CONSUMES URL:http://127.0.0.1:{ports[0]}/")
    if ended is not None:
        assert ended.err == ""
        assert ended.out == "connected\ndenied\n" if landlock.available().abi >= 4 else "connected\nconnected\n"


# What is granted for which declaration


def at(ground: Ground, rules: Rules, name: str) -> Access:
    return rules.grants.get(os.fsencode(ground.root / name), Access(0))


def test_single_names_widen_their_folder_and_say_so(ground):
    ground.file("d/a.txt")
    ground.file("d/e/f")
    folder = os.fsencode(ground.root / "d")
    for declared, granted in (
        ("PROVIDES /d/new", Access.MAKE | Access.WRITE),
        ("DELETES /d/a.txt", Access.REMOVE_FILE),
        ("DELETES /d/e/*", Access.REMOVE_DIR),
        ("PROVIDES /d/x/y/z", Access.MAKE),
    ):
        rules = ground.rules(declared)
        assert rules.widened == (folder,)
        assert at(ground, rules, "d") & granted == granted
    assert Access.REMOVE_FILE not in at(ground, ground.rules("DELETES /d/e/*"), "d")


def test_what_a_declared_subtree_grants_anyway_is_not_widened(ground):
    ground.file("d/a.txt")
    alone = ground.rules("PROVIDES /d/*").widened  # what a command makes there it may remove again
    assert ground.rules("PROVIDES /d/*", "PROVIDES /d/new").widened == alone == (os.fsencode(ground.root / "d"),)


def test_moving_between_folders_is_granted_to_renames_alone(ground):
    ground.file("a/x")
    ground.file("b/y")
    assert Access.REFER not in at(ground, ground.rules("PROVIDES /b/new", "DELETES /a/*"), "b")
    rules = ground.rules("RENAMES /a/x", "PROVIDES /b/x")
    assert Access.REFER in at(ground, rules, "a") & at(ground, rules, "b")
    ended = ground.shell("mv a/x b/x", "RENAMES /a/x", "PROVIDES /b/x")
    if ended is not None:
        assert (ended.code, ended.err) == (0, "")
        assert (ground.root / "b/x").read_text() == "before"


def test_a_folder_of_the_system_that_holds_the_workspace_is_not_granted(ground):
    runtime = landlock_runtime(ground)
    rules = runtime("CONSUMES /a")
    assert os.fsencode(ground.root.parent) not in rules.grants


def landlock_runtime(ground: Ground):
    from host.confinement import Runtime, rules_for

    runtime = Runtime.standard(read=[str(ground.root.parent)])
    return lambda *declared: rules_for(triples(*declared), ground.workspace, runtime)


@pytest.mark.parametrize(
    ("declared", "ports"),
    [
        ("CONSUMES /*", []),
        ("CONSUMES URL:https://example.com/x", [53, 443]),
        ("CONSUMES URL:http://example.com:8080/", [53, 8080]),
        ("MUTATES DB:postgres://db/x", [53, 5432]),
        ("CONSUMES URL:gopher://example.com/", None),
    ],
)
def test_ports_are_those_of_declared_places(ground, declared, ports):
    found = ground.rules(declared).net_ports
    assert (None if found is None else sorted(found)) == ports


def test_rules_from_lists_of_paths(ground):
    path = os.fsencode(ground.root)
    rules = Rules.of(read=[path], write=[path], execute=[path], make_in=[path], net_ports=[80])
    assert rules.net_ports == frozenset({80})
    assert rules.grants[path] & Access.MAKE == Access.MAKE


def test_rules_hold_in_every_thread_of_the_supervisor(ground):
    """The rules are made here and adopted there: this process stays as it is."""
    ground.file("a.txt")
    done: list[int] = []

    def work():
        ended = ground.shell("cat a.txt", "CONSUMES /a.txt")
        done.append(0 if ended is None else ended.code)
        (ground.outside / "free").write_text("still")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [0]
    assert (ground.outside / "free").read_text() == "still"
