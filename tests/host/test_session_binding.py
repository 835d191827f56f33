"""Whose code is running: threads, tasks and work for pools belong to the session of whoever started them."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from host.observation.audit import current, exempt
from host.observation.session_binding import engaged
from tests.host.intercepting import Site, blocked, outcome
from tests.support.patience import PATIENCE_S

STOPPED = "KLIS_SCOPE_VIOLATION"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.chdir(made.root)
    return made


def write() -> str:
    """Try to write an undeclared file."""
    return outcome(lambda: Path("made").write_text("x"))


def into(told: SimpleQueue[str]) -> Callable[[], None]:
    return lambda: told.put(write())


# --- threads --------------------------------------------------------------------------------------


def by_thread(told: SimpleQueue[str]) -> None:
    thread = threading.Thread(target=into(told))
    thread.start()
    thread.join()


def by_subclass(told: SimpleQueue[str]) -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            told.put(write())

    own = Own()
    own.start()
    own.join()


def by_timer(told: SimpleQueue[str]) -> None:
    timer = threading.Timer(0, into(told))
    timer.start()
    timer.join()


def by_raw_thread(told: SimpleQueue[str]) -> None:
    _thread.start_new_thread(into(told), ())


def by_grandchild(told: SimpleQueue[str]) -> None:
    thread = threading.Thread(target=lambda: by_thread(told))
    thread.start()
    thread.join()


def by_pool(told: SimpleQueue[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(into(told)).result()


def by_pool_initializer(told: SimpleQueue[str]) -> None:
    with ThreadPoolExecutor(1, initializer=into(told)) as pool:
        pool.submit(lambda: None).result()


def by_empty_context(told: SimpleQueue[str]) -> None:
    contextvars.Context().run(into(told))


def by_empty_context_in_a_thread(told: SimpleQueue[str]) -> None:
    thread = threading.Thread(target=lambda: contextvars.Context().run(into(told)))
    thread.start()
    thread.join()


def by_loop(told: SimpleQueue[str]) -> None:
    async def work() -> None:
        told.put(write())

    asyncio.run(work())


def by_worker_of_a_loop(told: SimpleQueue[str]) -> None:
    async def work() -> None:
        await asyncio.get_running_loop().run_in_executor(None, into(told))

    asyncio.run(work())


@pytest.mark.requirement("KO-3", "KO-2.1")
@pytest.mark.parametrize(
    "way",
    [
        by_thread,
        by_subclass,
        by_timer,
        by_raw_thread,
        by_grandchild,
        by_pool,
        by_pool_initializer,
        by_empty_context,
        by_empty_context_in_a_thread,
        by_loop,
        by_worker_of_a_loop,
    ],
    ids=lambda way: way.__name__,
)
def test_what_a_session_starts_belongs_to_it(site: Site, way: Callable[[SimpleQueue[str]], None]) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    with site.session("CONSUMES /a.txt"):
        way(told)
        assert told.get(timeout=PATIENCE_S) == STOPPED
    assert not Path("made").exists()


@pytest.mark.requirement("KO-3.2a")
def test_a_violation_in_a_child_thread_ends_the_whole_session(site: Site) -> None:
    with site.session("MUTATES /a.txt"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        with blocked("ended by an earlier violation"):
            Path("a.txt").write_text("declared, and yet too late")


class Bystander:
    """A thread that was there before, and does what it is told in its own name."""

    def __init__(self) -> None:
        self._wishes: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while (wish := self._wishes.get()) is not None:
            wish[1].set_result(wish[0]())

    def ask(self, wish: Callable[[], Any]) -> Any:
        answer: Future[Any] = Future()
        self._wishes.put((wish, answer))
        return answer.result(PATIENCE_S)

    def end(self) -> None:
        self._wishes.put(None)
        self._thread.join()


def test_threads_that_were_there_before_are_left_alone(site: Site) -> None:
    bystander = Bystander()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()
        with site.session():
            assert bystander.ask(write) == "done"
            os.stat("made")
            assert bystander.ask(lambda: pool.submit(write).result()) == "done"
            assert pool.submit(lambda: outcome(lambda: os.remove("made"))).result() == STOPPED
        assert pool.submit(write).result() == "done"
    bystander.end()


def test_processes_that_others_fork_meanwhile_are_left_alone(site: Site) -> None:
    def fork() -> int:
        done = subprocess.run(["true"], preexec_fn=lambda: Path("made").touch(), check=True)
        return done.returncode

    bystander = Bystander()
    with site.session():
        assert bystander.ask(fork) == 0
        assert bystander.ask(lambda: os.path.exists("made"))
    bystander.end()


def test_a_pools_thread_that_a_session_started_does_the_work_of_others_in_their_name(site: Site) -> None:
    bystander = Bystander()
    with ThreadPoolExecutor(1) as pool:
        with site.session():
            assert pool.submit(write).result() == STOPPED
            assert bystander.ask(lambda: pool.submit(write).result()) == "done"
            assert pool.submit(lambda: outcome(lambda: os.remove("made"))).result() == STOPPED
        assert pool.submit(write).result() == "done"
    bystander.end()


def test_two_threads_in_two_sessions_do_not_see_each_other(site: Site) -> None:
    barrier = threading.Barrier(2, timeout=PATIENCE_S)

    def work(name: str, other: str) -> tuple[str, str]:
        with site.session(f"MUTATES /{name}"):
            barrier.wait()
            mine = outcome(lambda: Path(name).write_text("x"))
            barrier.wait()
            return mine, outcome(lambda: Path(other).write_text("y"))

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(work, "one", "two"), pool.submit(work, "two", "one")]
        assert [each.result() for each in both] == [("done", STOPPED), ("done", STOPPED)]
    assert Path("one").read_text() + Path("two").read_text() == "xx"


@pytest.mark.requirement("KO-3.2a")
def test_what_outlives_its_session_can_do_nothing_observable(site: Site) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    go_on = threading.Event()

    def outlive() -> None:
        go_on.wait(PATIENCE_S)
        told.put(outcome(lambda: Path("a.txt").write_text("late")))

    with site.session("MUTATES /a.txt") as session:
        thread = threading.Thread(target=outlive)
        thread.start()
    go_on.set()
    thread.join()
    assert told.get() == STOPPED
    assert Path("a.txt").read_text() == "a"
    assert session.watch.violations == ()
    Path("a.txt").write_text("its thread is its own again")


def test_a_thread_is_not_followed_that_starts_by_a_way_unknown(site: Site) -> None:
    with site.session(), blocked("threading.Thread"):
        sys.audit("_thread.start_new_thread", print, (), {})


def test_what_the_engine_starts_in_a_session_is_not_the_sessions(site: Site) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    with site.session():
        with exempt():
            by_thread(told)
            by_pool(told)
        by_thread(told)
    assert [told.get(), told.get(), told.get()] == ["done", "done", STOPPED]


# --- tasks ----------------------------------------------------------------------------------------


@pytest.mark.requirement("KO-3")
def test_tasks_of_one_loop_in_different_sessions_do_not_see_each_other(site: Site) -> None:
    async def work(name: str, other: str, turns: asyncio.Barrier) -> list[str]:
        with site.session(f"MUTATES /{name}"):
            await turns.wait()
            told = [outcome(lambda: Path(name).write_text("x"))]
            await turns.wait()
            told.append(await asyncio.to_thread(lambda: outcome(lambda: Path(name).write_text("x"))))
            await turns.wait()
            told.append(await asyncio.create_task(asyncio.to_thread(lambda: outcome(lambda: os.remove(other)))))
            return told

    async def nobody(turns: asyncio.Barrier) -> list[str]:
        told = []
        for _ in range(3):
            await turns.wait()
            told += [write(), await asyncio.to_thread(write)]
        return told

    async def all_at_once() -> tuple[list[str], list[str], list[str]]:
        turns = asyncio.Barrier(3)
        async with asyncio.TaskGroup() as tasks:
            one, free = tasks.create_task(work("one", "two", turns)), tasks.create_task(nobody(turns))
            two = tasks.create_task(work("two", "one", turns))
        return one.result(), free.result(), two.result()

    one, free, two = asyncio.run(all_at_once())
    assert one == two == ["done", "done", STOPPED]
    assert free == ["done"] * 6


def test_a_task_that_leaves_its_session_is_free_again_and_its_children_are_not(site: Site) -> None:
    async def run() -> tuple[str, str, str, str]:
        go_on = asyncio.Event()

        async def child() -> str:
            await go_on.wait()
            return write()

        async with asyncio.TaskGroup() as tasks:
            before = tasks.create_task(child())
            with site.session("MUTATES /*"):
                task = tasks.create_task(child())
                escaped = contextvars.Context().run(lambda: outcome(lambda: os.remove("a.txt")))
                await asyncio.sleep(0)
            go_on.set()
        return before.result(), task.result(), write(), escaped

    assert asyncio.run(run()) == ("done", STOPPED, "done", STOPPED)
    assert Path("a.txt").exists()


def test_callbacks_and_processes_of_a_task_belong_to_its_session(site: Site) -> None:
    async def run() -> tuple[str, str]:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with site.session("MUTATES /dir/*"):
            asyncio.get_running_loop().call_later(0, lambda: told.set_result(write()))
            called = await told
            with blocked("ended by an earlier violation"):
                await asyncio.create_subprocess_exec("touch", "made")
            return called, write()

    assert asyncio.run(run()) == (STOPPED, STOPPED)


def test_a_session_may_be_left_in_another_context_than_it_was_entered_in(site: Site) -> None:
    async def steps() -> AsyncIterator[str]:
        with site.session():
            yield write()

    async def run() -> list[str]:
        generator = steps()

        async def enter() -> str:
            return await anext(generator)

        told = [await asyncio.create_task(enter(), context=contextvars.copy_context())]
        await generator.aclose()  # type: ignore[attr-defined]
        return [*told, write()]

    assert asyncio.run(run()) == [STOPPED, "done"]


# --- sessions within sessions ---------------------------------------------------------------------


@pytest.mark.requirement("KO-3")
def test_a_session_within_a_session_answers_to_both(site: Site) -> None:
    with site.session("MUTATES /a.txt", "MUTATES /dir/*") as outer:
        with site.session("MUTATES /a.txt", "MUTATES /made") as inner:
            assert current() is inner
            assert outcome(lambda: Path("a.txt").write_text("both")) == "done"
            with blocked("MUTATES on /dir/one"):
                Path("dir/one").write_text("the outer one's alone")
        assert current() is outer
        assert outcome(lambda: Path("dir/one").write_text("x")) == "done"
        with site.session("MUTATES /made"), blocked("PROVIDES on /made"):
            Path("made").write_text("the inner one's alone")
        assert outer.watch.is_over
    assert current() is None


def test_a_session_that_the_engine_opens_for_another_answers_to_itself_alone(site: Site) -> None:
    with site.session():
        with exempt(), site.session("PROVIDES /made"):
            assert write() == "done"
        assert outcome(lambda: os.remove("made")) == STOPPED


# --- cost and traces ------------------------------------------------------------------------------


def test_nothing_holds_a_session_when_all_is_over(site: Site) -> None:
    before = set(engaged)

    def run() -> weakref.ref[Any]:
        told: SimpleQueue[str] = SimpleQueue()
        with site.session() as session:
            by_thread(told)
            by_pool(told)
            by_loop(told)
        return weakref.ref(session)

    ended = run()
    gc.collect()  # loops and their contexts hold each other
    assert ended() is None
    assert set(engaged) <= before


def test_the_wrapped_functions_look_like_those_they_stand_for(site: Site) -> None:
    with site.session():
        pass
    assert os.open.__name__ == "open"
    assert os.open in os.supports_dir_fd
    assert shutil.rmtree.avoids_symlink_attacks
    assert os.open.__wrapped__  # type: ignore[attr-defined]
