"""Bubblewrap as the maker of a command's namespaces: its arguments, which program is trusted, and how commands end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from host.confinement import Confinement, MountTree, RunningCommand, Runtime, bubblewrap, namespaces, start
from host.confinement.launcher.namespaces import arguments
from host.confinement.tree import tree_of
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError

ROOT = Path(__file__).parents[2]
BOTH: list[namespaces.Maker] = ["unshare", "bubblewrap"]
MAKERS = [maker for maker in BOTH if namespaces.available(maker).why_not is None]
"""What makes namespaces on this machine."""


def begun(argv: list[str], maker: str, tree: MountTree, **more: Any) -> RunningCommand:
    """Start a command that nothing but its namespaces holds."""
    confinement = Confinement(tree=tree, namespaces_by=cast("namespaces.Wanted", maker))
    return start(argv, cwd="/", env={"PATH": os.defpath}, confinement=confinement, **more)


def test_a_link_that_climbs_to_the_root_is_followed(tmp_path: Path) -> None:
    """Such as ``/etc/mtab``, which is ``../proc/self/mounts`` on Debian."""
    end = tmp_path / "end"
    end.symlink_to("nothing")
    text = "../" * 40 + str(end)[1:]  # beyond the root too
    climbing = tmp_path / "climbing"
    climbing.symlink_to(text)
    followed = tree_of(Runtime(read=(os.fsencode(climbing),)), network=False)
    assert dict(followed.links) == {os.fsencode(climbing): os.fsencode(text), os.fsencode(end): b"nothing"}


def test_a_tree_becomes_steps_in_their_order() -> None:
    tree = MountTree(
        mounts=((b"/dev/null", True), (b"/usr", False), (b"/w/d", True)),
        covers=(b"/w/d/other",),
        folders=(b"/w", b"/w/e"),
        files=(b"/w/d/in-a-mount", b"/w/x"),
        links=((b"/bin", b"usr/bin"), (b"/proc/mounts", b"self/mounts"), (b"/usr/link", b"x")),
        network=False,
    )
    made, fresh, *rest = bubblewrap.steps(tree)
    assert made[2] == (
        *(b"--unshare-pid", b"--unshare-ipc", b"--unshare-uts", b"--unshare-net"),
        *(b"--as-pid-1", b"--cap-drop", b"ALL", b"--chdir", b"/"),
    )
    assert fresh[2] == (b"--dev", b"/dev", b"--perms", b"1777", b"--tmpfs", b"/dev/shm", b"--proc", b"/proc")
    assert rest == [
        ("words", b"", (b"--dir", b"/w")),
        ("words", b"", (b"--dir", b"/w/e")),
        ("words", b"", (b"--dev-bind-try", b"/dev/null", b"/dev/null")),
        ("mount", b"/usr", (b"--ro-bind-fd",)),
        ("mount", b"/w/d", (b"--bind-fd",)),
        ("words", b"", (b"--symlink", b"usr/bin", b"/bin")),
        ("file", b"/w/x", ()),
        ("cover", b"/w/d/other", ()),
        ("words", b"", (b"--remount-ro", b"/dev", b"--remount-ro", b"/")),
    ]


def test_with_a_declared_url_the_network_is_the_machines() -> None:
    assert b"--unshare-net" not in bubblewrap.steps(MountTree(network=True))[0][2]


def test_names_beyond_what_bubblewrap_takes_are_left_out() -> None:
    tree = MountTree(files=tuple(b"/w/%d" % number for number in range(4_096)))
    found = bubblewrap.steps(tree)
    count = sum(5 if kind == "file" else len(words) for kind, _, words in found)
    assert bubblewrap.MAX_ARGUMENTS - 10 < count < 9_000


def test_what_is_mounted_is_opened_and_what_is_gone_or_behind_a_link_is_not_mounted(tmp_path: Path) -> None:
    there, link, folder = (os.fsencode(tmp_path / name) for name in ("there", "link", "folder"))
    Path(os.fsdecode(there)).write_text("x")
    os.mkdir(folder)
    os.symlink(os.fsencode(tmp_path), link)
    mounted = arguments([("mount", path, (b"--bind-fd",)) for path in (there, link + b"/there", folder + b"/gone")])
    assert (mounted[0], os.readlink(b"/proc/self/fd/" + mounted[1]), mounted[2:]) == (b"--bind-fd", there, [there])
    empty, cover = arguments([("file", there, ())]), arguments([("cover", there, ())])
    assert (empty[:3], empty[4:]) == ([b"--perms", b"0400", b"--file"], [there])
    assert (cover[:3], cover[4:]) == ([b"--perms", b"0400", b"--ro-bind-data"], [there])
    hidden = arguments([("cover", folder, ()), ("cover", folder + b"/gone", ())])
    assert hidden == [b"--perms", b"0755", b"--tmpfs", folder, b"--remount-ro", folder]
    for number in (mounted[1], empty[3], cover[3]):
        assert os.get_inheritable(int(number))
        os.close(int(number))


def test_a_program_is_trusted_only_where_root_alone_can_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "bwrap"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert bubblewrap.program() != str(planted)
    assert bubblewrap.program([str(planted)]) is None  # the folder of temporary files is everyone's
    assert bubblewrap.program([str(tmp_path / "absent"), "/bin/sh"]) == os.path.realpath("/bin/sh")


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_probed", {})


@pytest.mark.usefixtures("untried")
def test_where_bubblewrap_fails_its_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "program", lambda: "/bin/false")
    found = namespaces.available("bubblewrap")
    assert found.maker is None
    if namespaces.likely("unshare") is not None:  # on another system nothing is tried
        assert str(found.why_not).startswith("Bubblewrap cannot create namespaces: making namespaces with bubblewrap (")


@pytest.mark.usefixtures("untried")
def test_where_bubblewrap_is_not_installed_and_asked_for_a_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    with pytest.raises(RefusedError, match="Bubblewrap is not installed") as refused:
        begun(["/bin/true"], "bubblewrap", MountTree())
    assert (refused.value.code, refused.value.details["namespaces"]) == ("CONFINEMENT_FAILED", "not made")
    assert "not installed" in str(namespaces.available("bubblewrap").why_not)
    assert namespaces.are_missing("bubblewrap")


@pytest.mark.usefixtures("untried")
def test_bubblewrap_is_used_where_the_kernel_forbids_namespaces_to_the_engine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespaces, "_made_without", lambda: namespaces.Namespaces(None, "It is forbidden."))
    found = namespaces.available()
    assert found.maker == ("bubblewrap" if "bubblewrap" in MAKERS else None)
    assert "bubblewrap" in MAKERS or str(found.why_not).startswith("It is forbidden. Bubblewrap ")
    assert namespaces.available("unshare").why_not == "It is forbidden."
    assert (namespaces.wrapping(MountTree(), "auto") is not None) == ("bubblewrap" in MAKERS)


@pytest.mark.usefixtures("untried")
def test_unshare_is_used_where_both_work() -> None:
    assert namespaces.wrapping(MountTree(), "auto") is None
    assert "unshare" not in MAKERS or namespaces.available().maker == "unshare"
    assert namespaces.available().recorded in ("namespaces", "namespaces (bubblewrap)")


ADOPTING = """
import ctypes, json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
from host.confinement import Confinement, Runtime, start
from host.confinement.tree import tree_of
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
tree = tree_of(Runtime.standard(), network=False)
script = 'echo $$; read line; exit 3'
confinement = Confinement(tree=tree, namespaces_by=sys.argv[2])
more = {'confinement': confinement, 'stdin': -1, 'stdout': -1}
with start(['/bin/sh', '-c', script], cwd='/', env={'PATH': os.defpath}, **more) as command:
    number = command.streams[1].readline()
    secluded = command.is_secluded
    command.streams[0].write(b'x\\n')
    command.streams[0].close()
    code = command.wait()
try:
    left = os.waitpid(-1, 0)
except ChildProcessError:
    left = None
print(number, secluded, code, left)
"""


@pytest.mark.parametrize("maker", MAKERS)
def test_a_command_is_the_second_process_and_none_is_left_of_it(maker: str) -> None:
    """The process that starts it adopts all that lose their parents; it has no child when the command is closed."""
    import json

    argv = [sys.executable, "-c", ADOPTING, json.dumps([str(ROOT), *sys.path]), maker]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.stdout, ended.stderr) == ("b'2\\n' True 3 None\n", "")


@pytest.mark.parametrize("maker", MAKERS)
def test_the_tree_is_the_same_however_it_is_made(maker: str, tmp_path: Path) -> None:
    work = os.fsencode(tmp_path.resolve())
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "hidden").write_text("secret")
    (tmp_path / "open" / "closed").mkdir()
    (tmp_path / "open" / "closed" / "name").write_text("secret")
    needed = tree_of(Runtime.standard(), network=False)
    tree = MountTree(
        tuple(sorted((*needed.mounts, (work + b"/open", True)))),
        (work + b"/open/closed", work + b"/open/hidden"),
        (work, work + b"/folder"),
        (work + b"/shown",),
        (*needed.links, (work + b"/link", b"open")),
        network=False,
    )
    script = (
        f"cd {tmp_path}; ls -p; ls -A link/closed; cat link/hidden shown; echo x > link/new; "
        "for name in shown made link/hidden link/closed/x /usr/x /dev/x /x; do { echo x > $name; } 2>/dev/null && "
        "echo changed $name; done; echo x > /dev/shm/x && echo x > /dev/null && ls -d /dev/pts/ptmx /proc/[0-9]*"
    )
    out = tmp_path / "out"
    with (
        out.open("wb") as stdout,
        begun(["/bin/sh", "-c", script], maker, tree, stdout=stdout, stderr=stdout) as command,
    ):
        command.wait(PATIENCE_S)
    seen = out.read_text().splitlines()
    assert seen == ["folder/", "link", "open/", "shown", "/dev/pts/ptmx", "/proc/1", "/proc/2"], seen
    assert (tmp_path / "open" / "new").read_text() == "x\n"
    assert (tmp_path / "open" / "hidden").read_text() == "secret"


@pytest.mark.parametrize("maker", MAKERS)
def test_a_file_that_became_a_link_after_it_was_described_is_not_reached(maker: str, tmp_path: Path) -> None:
    secret, swapped = tmp_path.resolve() / "secret", tmp_path.resolve() / "swapped"
    secret.write_text("SECRET\n")
    swapped.symlink_to(secret)
    needed = tree_of(Runtime.standard(), network=False)
    tree = MountTree((*needed.mounts, (os.fsencode(swapped), True)), links=needed.links, network=False)
    out = tmp_path / "out"
    with (
        contextlib.suppress(RefusedError),  # bubblewrap mounts nothing then, and no command is started
        out.open("wb") as stdout,
        begun(["/bin/cat", str(swapped)], maker, tree, stdout=stdout, stderr=stdout) as command,
    ):
        assert command.wait(PATIENCE_S) != 0
    assert "SECRET" not in out.read_text()


@pytest.mark.parametrize("maker", MAKERS)
def test_more_covers_than_bubblewrap_takes_are_never_left_out(maker: str, tmp_path: Path) -> None:
    work = tmp_path.resolve() / "w"
    work.mkdir()
    names = [os.fsencode(work / str(number)) for number in range(1_800)]
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    needed = tree_of(Runtime.standard(), network=False)
    mounts = tuple(sorted((*needed.mounts, (os.fsencode(work), True))))
    tree = MountTree(mounts, tuple(names), links=needed.links, network=False)
    if maker == "bubblewrap":
        with pytest.raises(RefusedError, match="maximum number of arguments") as refused:
            begun(["/bin/true"], maker, tree)
        assert refused.value.code == "CONFINEMENT_FAILED"
    else:
        with begun(["/bin/true"], maker, tree) as command:
            assert command.wait(PATIENCE_S) == 0
