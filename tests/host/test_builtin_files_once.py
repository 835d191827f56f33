"""File effects that are cut off, killed, and made again: whatever must happen once happens once."""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host import EffectFailure
from host.builtin import prune_notes
from tests.host.effect_calls import HANDLERS, Files, call_of, make
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path / "root")
    yield made
    made.workspace.close()


def code_of(answer: Any) -> str:
    assert isinstance(answer, EffectFailure), answer
    return answer.code


def tree(root: Path) -> dict[str, Any]:
    """Return all that stands below a folder, but for the engine's own."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if ".klock" not in path.relative_to(root).parts
    }


def prepare(root: Path) -> None:
    (root / "old").write_text("old\n")
    (root / "tree/sub").mkdir(parents=True)
    for name in "abc":
        (root / "tree/sub" / name).write_text(name)


CASES: list[tuple[str, dict[str, Any]]] = [
    ("file.append", {"path": "/old", "text": "line\n"}),
    ("file.append", {"path": "/new", "text": "line\n" * 3}),
    ("file.write", {"path": "/old", "text": "changed"}),
    ("file.write", {"path": "/new", "text": "made", "mode": "600"}),
    ("file.create", {"path": "/new", "text": "made"}),
    ("file.delete", {"path": "/old"}),
    ("file.delete", {"path": "/tree", "tree": True}),
    ("file.delete", {"path": "/absent", "missingOk": True}),
    ("file.rename", {"from": "/old", "to": "/tree/moved"}),
    ("file.rename", {"from": "/old", "to": "/tree/sub/a", "replace": True}),
    ("file.rename", {"from": "/tree", "to": "/moved"}),
    ("file.mkdir", {"path": "/folder"}),
    ("file.mkdir", {"path": "/x/y/z", "parents": True}),
]


@pytest.mark.requirement("HC-journal")
@pytest.mark.parametrize(("effect", "params"), CASES)
def test_a_repeated_effect_answers_the_same_and_changes_nothing(
    files: Files, effect: str, params: dict[str, Any]
) -> None:
    prepare(files.root)
    first = make(effect, params, files.workspace)
    after = tree(files.root)
    assert not isinstance(first, EffectFailure)
    for _ in range(3):
        assert make(effect, params, files.workspace) == first
        assert tree(files.root) == after


KILLED = textwrap.dedent(
    """
    import ctypes, json, os, signal, sys
    from pathlib import Path
    from tests.host.effect_calls import make
    from tests.host.test_builtin_files_once import CASES, prepare, tree
    from host import EffectFailure
    from host.workspace import Workspace

    CALLS = ("fsync", "write", "pwrite", "ftruncate", "rename", "unlink", "rmdir", "mkdir", "open", "fchmod")
    effect, params = CASES[int(sys.argv[2])]
    base = Path(sys.argv[1])

    def child(root, point, after):
        seen = 0
        def counted(real):
            def call(*given, **named):
                nonlocal seen
                seen += 1
                mine = seen
                if mine == point and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    return real(*given, **named)
                finally:
                    if mine == point:
                        os.kill(os.getpid(), signal.SIGKILL)
            return call
        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        with Workspace(root) as workspace:
            make(effect, params, workspace)
        os._exit(0)

    def rest(root):
        return {name: value for name, value in tree(root).items() if not name.rpartition("/")[2].startswith(".klock-")}

    expected_root = base / "expected"
    expected_root.mkdir()
    prepare(expected_root)
    with Workspace(expected_root) as workspace:
        expected = make(effect, params, workspace)
    assert not isinstance(expected, EffectFailure), expected
    killed, point, faults = 0, 0, []
    ended = False
    while not ended:
        point += 1
        for after in (False, True):
            root = base / f"{point}-{after}"
            root.mkdir()
            prepare(root)
            pid = os.fork()
            if pid == 0:
                child(root, point, after)
            status = os.waitpid(pid, 0)[1]
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                ended = True
            else:
                assert os.WTERMSIG(status) == signal.SIGKILL
                killed += 1
            with Workspace(root) as workspace:
                answer = make(effect, params, workspace)
            if answer != expected or rest(root) != rest(expected_root):
                faults.append([point, after, str(answer), str(rest(root))])
    print(json.dumps({"killed": killed, "points": point, "faults": faults}))
    """
)


@pytest.mark.requirement("HC-journal")
@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=[f"{effect} {number}" for number, (effect, _) in enumerate(CASES)]
)
@pytest.mark.slow
def test_an_effect_killed_before_or_after_any_of_its_system_calls_happens_once_when_it_is_repeated(
    tmp_path: Path, number: int
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(number)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["faults"] == []
    assert told["killed"] >= 12  # the note alone is more than three calls


APPENDING = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from tests.host.effect_calls import make
    from host.workspace import Workspace

    root, journal = Path(sys.argv[1]), Path(sys.argv[2])
    done = len(journal.read_bytes().splitlines()) if journal.exists() else 0
    with Workspace(root) as workspace, journal.open("ab", buffering=0) as log:
        print("ready", flush=True)
        for number in range(done, 120):
            report = lambda: print("about to append", flush=True)
            given = {"path": "/log", "text": f"line {number}\\n"}
            answer = make("file.append", given, workspace, f"key {number}", check=report)
            assert isinstance(answer, dict), answer
            print("appended", flush=True)
            log.write(b"done\\n")
            print("noted", flush=True)
    """
)


@pytest.mark.requirement("HC-journal")
@pytest.mark.slow
def test_appends_of_a_process_that_is_killed_again_and_again_are_counted_once_each_from_outside(tmp_path: Path) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    dice, killed = random.Random(3), 0
    while True:
        with subprocess.Popen(
            [sys.executable, "-c", APPENDING, str(root), str(journal)], cwd=ROOT, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            reported = [child.stdout.readline() for _ in range(dice.randint(2, 60))]
            if reported[-1]:  # it goes on, so it is killed in the middle of whatever comes next
                child.send_signal(signal.SIGKILL)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        killed += 1
    assert killed >= 2
    assert (root / "log").read_text() == "".join(f"line {number}\n" for number in range(120))


# --- between the attempts ---------------------------------------------------------------------------


def cut_off(files: Files, effect: str, params: dict[str, Any]) -> None:
    """Begin an effect that is stopped after its note."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(effect, params, files.workspace, check=stop)


@given(before=st.binary(max_size=8), data=st.binary(min_size=1, max_size=8), done=st.integers(0, 8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_an_append_goes_on_where_it_was_cut_off(files: Files, before: bytes, data: bytes, done: int) -> None:
    for note in (files.root / ".klock/effects").glob("*"):
        note.unlink()
    path, params = files.root / "a", {"path": "/a", "base64": base64.b64encode(data).decode()}
    path.write_bytes(before)
    cut_off(files, "file.append", params)
    path.write_bytes(before + data[:done])
    answer = make("file.append", params, files.workspace)
    assert path.read_bytes() == before + data
    assert (answer["offset"], answer["size"]) == (len(before), len(before + data))


@pytest.mark.parametrize(
    ("effect", "params", "meanwhile"),
    [
        ("file.append", {"path": "/old", "text": "line"}, lambda root: (root / "old").write_text("old\nother")),
        ("file.append", {"path": "/old", "text": "line"}, lambda root: (root / "old").write_text("")),
        ("file.append", {"path": "/old", "text": "l"}, lambda root: (root / "old").write_text("old\nll")),
        ("file.create", {"path": "/new", "text": "1"}, lambda root: (root / "new").write_text("2")),
        ("file.delete", {"path": "/old"}, lambda root: (root / "old").write_text("another")),
        ("file.delete", {"path": "/tree", "tree": True}, lambda root: replaced(root / "tree")),
        ("file.rename", {"from": "/old", "to": "/new"}, lambda root: (root / "old").write_text("another")),
        ("file.rename", {"from": "/old", "to": "/new"}, lambda root: (root / "old").unlink()),
        ("file.mkdir", {"path": "/new"}, lambda root: (root / "new").write_text("2")),
    ],
)
def test_what_somebody_else_did_meanwhile_is_left_as_it_is(
    files: Files, effect: str, params: dict[str, Any], meanwhile: Any
) -> None:
    prepare(files.root)
    cut_off(files, effect, params)
    meanwhile(files.root)
    there = tree(files.root)
    assert code_of(make(effect, params, files.workspace)) in ("FILE_CHANGED_MEANWHILE", "FILE_EXISTS")
    assert tree(files.root) == there


def replaced(folder: Path) -> None:
    folder.rename(folder.with_name("kept"))
    folder.mkdir()
    (folder / "precious").write_text("1")


def test_a_deletion_that_found_nothing_takes_nothing_when_it_is_repeated(files: Files) -> None:
    params = {"path": "/a", "missingOk": True}
    assert make("file.delete", params, files.workspace)["deleted"] is False
    (files.root / "a").write_text("later")
    assert make("file.delete", params, files.workspace)["deleted"] is False
    assert (files.root / "a").exists()


def test_two_attempts_at_one_effect_never_work_at_the_same_time(files: Files) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)

    answers: list[Any] = []
    params = {"path": "/a", "text": "line\n"}
    first = threading.Thread(target=lambda: answers.append(make("file.append", params, files.workspace, check=wait)))
    first.start()
    assert entered.wait(PATIENCE_S)
    looks = iter([False, False])
    assert code_of(make("file.append", params, files.workspace, is_cancelled=lambda: next(looks, True))) == (
        "EFFECT_CANCELLED"
    )
    go_on.set()
    first.join(PATIENCE_S)
    assert make("file.append", params, files.workspace) == answers[0]
    assert (files.root / "a").read_text() == "line\n"


def test_old_notes_are_pruned_by_age_and_those_in_use_stay(files: Files) -> None:
    class At:
        def __init__(self, now: int) -> None:
            self.now = now

        def now_ms(self) -> int:
            return self.now

    scratch = files.root.parent / "scratch"
    for key, at in (("old", 1_000), ("young", 9_000)):
        make("file.append", {"path": "/a", "text": "1"}, files.workspace, key, scratch=scratch, clock=At(at))
    assert prune_notes(scratch, now=10_000, max_age=5_000) == 1
    assert len(list(scratch.iterdir())) == 1

    def prune() -> None:
        assert prune_notes(scratch, now=10**15, max_age=0) == 0

    make("file.append", {"path": "/a", "text": "1"}, files.workspace, "young", scratch=scratch, check=prune)
    in_use = call_of("file.append", files.workspace, "third", scratch=scratch, check=lambda: pruned(scratch))
    HANDLERS["file.append"]({"path": "/a", "text": "1"}, in_use)
    assert prune_notes(files.root / "no such folder", now=0, max_age=0) == 0


def pruned(scratch: Path) -> None:
    before = {path.name for path in scratch.iterdir()}
    assert prune_notes(scratch, now=10**15, max_age=0) == len(before) - 1  # all but the one that is being used
