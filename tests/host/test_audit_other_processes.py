"""In-process interception of what reaches other processes and the machine: signals, limits, priorities, its clock."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.intercepting import Site, blocked
from tests.support.patience import PATIENCE_S


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def other() -> Iterator[int]:
    """A process that no session started, which leads its own group."""
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as started:
        try:
            yield started.pid
            assert started.poll() is None
        finally:
            started.kill()


def by_descriptor(pid: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    finally:
        os.close(handle)


REACHES: dict[str, Callable[[int], Any]] = {
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "killpg": lambda pid: os.killpg(pid, signal.SIGTERM),
    "kill a group": lambda pid: os.kill(-pid, signal.SIGTERM),
    "pidfd_send_signal": by_descriptor,
    "setpriority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "setpriority of a group": lambda pid: os.setpriority(os.PRIO_PGRP, pid, 19),
    "sched_setaffinity": lambda pid: os.sched_setaffinity(pid, {0}),
    "sched_setscheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "sched_setparam": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "prlimit": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
}


def shape(pid: int) -> tuple[Any, ...]:
    return (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid))


@pytest.mark.requirement("KO-2.1", "KO-3")
@pytest.mark.parametrize("how", REACHES)
def test_a_process_that_the_session_did_not_start_is_not_reached(site: Site, other: int, how: str) -> None:
    before = shape(other)
    told = f"MUTATES on process group {other}" if "group" in how or how == "killpg" else f"MUTATES on process {other}"
    with blocked(told), site.session("MUTATES /*", "PROVIDES PROCESS:sleep"):
        REACHES[how](other)
    (violation,) = site.watch.violations
    assert (violation.blocked, violation.depth) == (True, "process")
    assert shape(other) == before


@pytest.mark.parametrize("pid", [0, -1])
def test_the_group_of_the_engine_and_all_processes_are_not_signalled(site: Site, pid: int) -> None:
    with blocked("MUTATES on"), site.session("MUTATES /*"):
        os.kill(pid, signal.SIGCONT)


def test_to_ask_whether_a_process_is_there_is_no_effect(site: Site, other: int) -> None:
    with site.session():
        os.kill(other, 0)
        assert resource.prlimit(other, resource.RLIMIT_CORE)
    assert site.observed() == set()


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.terminate])
def test_a_process_that_the_session_started_is_its_own_to_end(site: Site, end: Callable[[Any], None]) -> None:
    with site.session("PROVIDES PROCESS:sleep"), subprocess.Popen(["/bin/sleep", "600"]) as own:
        os.sched_setaffinity(own.pid, os.sched_getaffinity(0))
        end(own)
        assert own.wait(PATIENCE_S) < 0


def test_the_group_of_a_process_that_the_session_started_is_its_own(site: Site) -> None:
    with site.session("PROVIDES PROCESS:sleep"):
        own = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ, setsid=True)
        os.killpg(own, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(own, 0)[1])


def test_a_session_ends_no_process_of_another_session(site: Site) -> None:
    with site.session("PROVIDES PROCESS:sleep"):
        started = subprocess.Popen(["/bin/sleep", "600"])
    with started:
        try:
            with blocked(f"process {started.pid}"), site.session("PROVIDES PROCESS:sleep"):
                os.kill(started.pid, signal.SIGKILL)
            assert started.poll() is None
        finally:
            started.kill()


def test_the_engines_own_process_is_not_held(site: Site) -> None:
    """Code in a process can always end it; it is then as after a crash."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with site.session():
            os.kill(os.getpid(), signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1] * 3


MACHINE: dict[str, tuple[Callable[[], Any], str]] = {
    "clock": (  # one that no process can set
        lambda: time.clock_settime(time.CLOCK_MONOTONIC, 0),
        "clock",
    ),
    "host name": (lambda: socket.sethostname("x" * 65), "host name"),  # longer than the kernel takes
    "typed input": (lambda: fcntl.ioctl(0, 0x5412, b"x"), "ioctl"),
    "file attributes": (lambda: fcntl.ioctl(0, 0x40086602, 0), "ioctl"),
}


@pytest.mark.requirement("KO-3")
@pytest.mark.parametrize("what", MACHINE)
def test_what_changes_the_machine_or_the_interpreter_is_refused(site: Site, what: str) -> None:
    call, told = MACHINE[what]
    with blocked("cannot be observed", told) as caught, site.session("CONSUMES /a.txt"):
        call()
    assert caught.value.code == "KLIS_UNOBSERVABLE"
    assert site.watch.violations[0].blocked


def test_a_session_adds_no_audit_hook(site: Site) -> None:
    """The interpreter swallows the refusal; the violation is recorded, and the hook hears nothing."""
    heard: list[str] = []
    with site.session():
        sys.addaudithook(lambda event, _: heard.append(event))
    sys.audit("worldprotocol.test")
    assert heard == []
    assert "audit hook" in site.watch.violations[0].error.message
