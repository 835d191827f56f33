"""Files of code that several threads load at once: each thread gets the complete module."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S
from world.code.references import load_reference
from worldprotocol import Realm

THREADS = 3
PAIRS = 100
"""Files that load each other; for about one pair of seven, Python refuses to wait."""

BANK = """\
import os

from pydantic import BaseModel

from worldprotocol import Domain

for _ in range(2_000):
    os.sched_yield()  # other threads run while this module is half executed


class Bank(BaseModel):
    balance: int = 0


bank = Domain("urn:test:bank", version="1.0.0", state=Bank)


class Amount(BaseModel):
    amount: int


@bank.action("deposit", version="1")
def deposit(ctx, input: Amount):
    return []
"""


def at_once(*calls: Any) -> list[Any]:
    """Call functions in threads that begin together; return what each returned or raised."""
    together, found = threading.Barrier(len(calls)), list[Any]([None] * len(calls))

    def run(number: int) -> None:
        together.wait(PATIENCE_S)
        try:
            found[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 - the test compares it
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return found


def test_threads_that_create_realms_with_one_file_of_code_all_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bank.py").write_text(BANK)
    monkeypatch.chdir(tmp_path)

    def create(number: int) -> dict[str, Any]:
        with Realm.create(f"{number}.db", domain="bank.py:bank") as realm:
            return dict(realm.data())

    assert at_once(*(lambda number=number: create(number) for number in range(THREADS))) == [{"balance": 0}] * THREADS


def test_a_file_is_executed_once_whichever_threads_load_it(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text("import os\nfor _ in range(2_000): os.sched_yield()\nvalue = object()\n")
    found = at_once(*[lambda: load_reference("once.py:value", base=tmp_path)] * THREADS)
    assert len(set(map(id, found))) == 1


def test_a_file_whose_code_raises_is_loaded_anew_by_each_thread_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    for attempt in range(PAIRS):
        file.write_text(f"import os\nfor _ in range(200): os.sched_yield()\nraise ValueError('not today {attempt}')\n")
        found = at_once(*[lambda: load_reference("bad.py:value", base=tmp_path)] * THREADS)
        assert [(f"not today {attempt}" in str(one), one.code) for one in found] == [(True, "NOT_LOADED")] * THREADS
    file.write_text("value = 3\n")
    assert load_reference("bad.py:value", base=tmp_path) == 3


def test_two_files_that_load_each_other_in_two_threads_do_not_wait_for_ever(tmp_path: Path) -> None:
    load = "from pathlib import Path\nfrom world.code.references import load_reference\n"
    here = "Path(__file__).parent"
    for pair in range(PAIRS):
        base = tmp_path / str(pair)
        base.mkdir()
        for own, other in (("left", "right"), ("right", "left")):
            text = f"{load}value = 1\nother = load_reference('{other}.py:*', base={here})\n"
            (base / f"{own}.py").write_text(text)
        both = [
            lambda name=name, base=base: load_reference(f"{name}.py:value", base=base) for name in ("left", "right")
        ]
        assert at_once(*both) == [1, 1]
