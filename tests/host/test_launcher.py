"""A command starts as it would without us, and never without the confinement that was asked for."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.confinement import Rules, landlock, launch
from host.confinement.descendants import MARK
from tests.host.confining import ENV, PYTHON, Ground, allow, can_hold, ground
from tests.host.folders import open_descriptors
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError

__all__ = ["ground"]

KINDS = {
    "free": lambda ground: {},
    "Landlock": lambda ground: {"rules": ground.rules("MUTATES /*")},
    "watched": lambda ground: {"decide": allow},
    "both": lambda ground: {"rules": ground.rules("MUTATES /*"), "decide": allow},
}


@pytest.fixture(params=KINDS)
def held(request, ground):
    """How the command is held, as far as this kernel can."""
    given = KINDS[request.param](ground)
    return given if can_hold(given.get("rules"), given.get("decide")) else {}


def run(ground: Ground, argv, **given):
    with (ground.temporary / "out").open("w+b") as out:
        with ground.start(argv, stdin=-3, stdout=out, stderr=out, **given) as running:
            code = running.wait(PATIENCE_S)
        out.seek(0)
        return code, out.read()


def refusal(ground: Ground, argv, **given) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        ground.start(argv, **given)
    return refused.value


def test_exit_codes_are_the_commands_own(ground, held):
    for code in (0, 1, 42, 255):
        assert run(ground, ["/bin/sh", "-c", f"exit {code}"], **held) == (code, b"")


def test_a_signal_that_ends_it_is_told(ground, held):
    assert run(ground, ["/bin/sh", "-c", "kill -TERM $$"], **held)[0] == -signal.SIGTERM


def test_a_missing_command_is_refused(ground, held):
    for argv in ([], [""], ["no-such-command"], ["./missing"], ["/no/such/command"]):
        assert refusal(ground, argv, **held).code == "COMMAND_NOT_FOUND"


def test_what_cannot_be_executed_is_refused(ground, held):
    ground.file("plain.txt")
    ground.file("empty.sh", "echo no first line").chmod(0o755)
    for argv in (["./plain.txt"], ["./empty.sh"], ["."]):
        assert refusal(ground, argv, **held).code == "COMMAND_NOT_EXECUTABLE"


def test_a_missing_interpreter_is_a_missing_command(ground, held):
    ground.file("script", "#!/no/such/interpreter\n").chmod(0o755)
    assert refusal(ground, ["./script"], **held).code == "COMMAND_NOT_FOUND"


def test_a_script_runs_by_its_first_line(ground, held):
    ground.file("bin/script", "#!/bin/sh\necho $0 $1\n").chmod(0o755)
    assert run(ground, ["bin/script", "x"], **held) == (0, os.fsencode(ground.root / "bin/script") + b" x\n")


def test_a_command_is_found_on_its_own_path(ground, held):
    ground.file("bin/tool", "#!/bin/sh\necho found\n").chmod(0o755)
    assert run(ground, ["tool"], env={"PATH": f"/nowhere:{ground.root}/bin"}, **held) == (0, b"found\n")


def test_a_program_that_was_not_declared_is_not_executed(ground):
    (ground.outside / "tool").write_text("#!/bin/sh\necho ran\n")
    (ground.outside / "tool").chmod(0o755)
    rules = ground.rules("MUTATES /*")
    expected = "COMMAND_NOT_EXECUTABLE" if can_hold(rules) else "CONFINEMENT_UNAVAILABLE"
    assert refusal(ground, [str(ground.outside / "tool")], rules=rules).code == expected


def test_a_missing_folder_is_refused(ground, held):
    assert refusal(ground, ["true"], cwd=ground.root / "missing", **held).code == "NOT_A_FOLDER"


def test_it_starts_in_its_folder_with_its_environment(ground, held):
    (ground.root / "in").mkdir()
    code, out = run(ground, [PYTHON, "-I", "-S", "-c", "import os; print(os.getcwd(), sorted(os.environ))"],
                    cwd=ground.root / "in", env={"A": "1", "B": "2"}, **held)  # fmt: skip
    assert code == 0
    names, _, rest = out.decode().partition(" ")
    assert names == str(ground.root / "in")
    assert [name for name in eval(rest) if name != "LC_CTYPE"] == ["A", "B", MARK]


def test_arguments_may_be_many_long_and_no_text(ground, held):
    argv = [b"\xff\xfe", b"", b"a b\n", *[b"x" * 1000] * 1500]
    program = "import sys, os; a = list(map(os.fsencode, sys.argv[1:])); print(len(a), a[:3], sum(map(len, a)))"
    code, out = run(ground, [PYTHON, "-I", "-S", "-c", program, *argv], **held)
    assert (code, out) == (0, b"1503 [b'\\xff\\xfe', b'', b'a b\\n'] 1500006\n")


def test_too_many_arguments_are_refused(ground, held):
    assert refusal(ground, ["true", "x" * 10_000_000], **held).code == "COMMAND_NOT_EXECUTABLE"


def test_no_descriptor_of_ours_is_left_open(ground, held):
    code, out = run(ground, [PYTHON, "-I", "-S", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], **held)
    assert (code, out) == (0, b"['0', '1', '2', '3']\n")  # the last is the listing itself


@pytest.mark.requirement("KO-5.2")
@pytest.mark.parametrize("at", ["stdin", "stdout", "stderr"])
def test_an_open_folder_is_not_handed_on(ground, held, at):
    """Names below an inherited folder would lead around the command's own tree: such a command is not started."""
    folder = os.open(ground.outside, os.O_RDONLY)
    try:
        assert refusal(ground, ["true"], **held, **{at: folder}).code == "CONFINEMENT_FAILED"
    finally:
        os.close(folder)


def test_signals_are_as_they_are_without_us(ground, held):
    looked = ["/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    without_us = subprocess.run(looked, capture_output=True, check=True).stdout
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    try:
        assert run(ground, looked, **held) == (0, without_us)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_limits_hold(ground, held):
    code, out = run(ground, ["/bin/sh", "-c", "ulimit -n"], limits={resource.RLIMIT_NOFILE: (50, 50)}, **held)
    assert (code, out) == (0, b"50\n")


def test_an_impossible_limit_is_refused(ground, held):
    assert refusal(ground, ["true"], limits={resource.RLIMIT_NOFILE: (50, 20)}, **held).code == "CONFINEMENT_FAILED"


def test_a_confined_command_gains_no_privileges(ground, held):
    code, out = run(ground, ["/bin/grep", "NoNewPrivs", "/proc/self/status"], **held)
    assert (code, out) == (0, b"NoNewPrivs:\t%d\n" % bool(held))


def test_it_leads_a_group_of_its_own(ground, held):
    with ground.start(["/bin/sleep", "60"], **held) as running:
        assert os.getpgid(running.pid) == running.pid
        assert os.getsid(running.pid) == os.getsid(0)


def test_unconfined_is_without_anything(ground):
    code, out = run(ground, ["/bin/grep", "-E", "NoNewPrivs|Seccomp:", "/proc/self/status"])
    assert code == 0
    assert out.split()[1::2][0] == b"0"


# When the confinement cannot be put on, nothing runs


def test_nothing_runs_when_landlock_fails(ground, monkeypatch):
    monkeypatch.setattr(landlock, "available", lambda: landlock.Support(1))
    monkeypatch.setattr(landlock, "ruleset", lambda *_: os.open("/dev/null", os.O_RDONLY))
    refused = refusal(ground, ["/bin/sh", "-c", "touch made"], rules=Rules())
    assert refused.code == "CONFINEMENT_FAILED"
    assert "Landlock" in refused.message
    assert os.listdir(ground.root) == []


def test_nothing_runs_when_the_rules_cannot_be_made(ground, monkeypatch):
    def full(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(landlock, "available", lambda: landlock.Support(1))
    monkeypatch.setattr(landlock, "ruleset", full)
    assert refusal(ground, ["true"], rules=Rules()).code == "CONFINEMENT_FAILED"


def test_nothing_runs_when_the_filter_fails(ground, monkeypatch):
    monkeypatch.setattr(launch, "program", lambda _: b"\0" * 8)
    expected = "CONFINEMENT_FAILED" if can_hold(None, allow) else "CONFINEMENT_UNAVAILABLE"
    assert refusal(ground, ["/bin/sh", "-c", "touch made"], decide=allow).code == expected
    assert os.listdir(ground.root) == []


def test_nothing_runs_when_the_watch_cannot_be_taken_over(ground, monkeypatch):
    def closed(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(launch, "pidfd_getfd", closed)
    expected = "CONFINEMENT_FAILED" if can_hold(None, allow) else "CONFINEMENT_UNAVAILABLE"
    assert refusal(ground, ["/bin/sh", "-c", "touch made"], decide=allow).code == expected
    assert os.listdir(ground.root) == []


@pytest.mark.parametrize("interpreter", ["/bin/false", "/no/such/python"])
def test_a_launcher_that_does_not_start_is_told(ground, monkeypatch, interpreter):
    monkeypatch.setattr(sys, "executable", interpreter)
    assert refusal(ground, ["true"]).code == "CONFINEMENT_FAILED"


def test_refusals_leave_no_descriptor_and_no_process(ground, held):
    before = open_descriptors()
    others = {child.pid for child in psutil.Process().children()}
    refusal(ground, ["./missing"], **held)
    refusal(ground, ["true"], cwd=ground.root / "missing", **held)
    refusal(ground, ["true", "x" * 10_000_000], **held)
    assert open_descriptors() <= before
    assert {child.pid for child in psutil.Process().children()} <= others


@settings(max_examples=10)
@given(argument=st.binary(max_size=50).filter(lambda given: b"\0" not in given))
def test_every_argument_arrives_as_it_was_given(tmp_path_factory, argument):
    ground = Ground(tmp_path_factory.mktemp("ground"))
    assert run(ground, ["/usr/bin/printf", "%s", argument], env=ENV) == (0, argument)
