"""The addresses of executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.support.tables import for_each
from world.errors import RefusedError
from worldprotocol.analysis.work.workers import Workers, dask_address


@for_each(
    "text",
    ["", "dask", "dask://", "dask://host", "dask://host:port", "dask://host:99999", "dask://:8786", "tcp://host:8786",
     "dask://ann:word@host:8786", "dask://host:8786/path", "dask://host:8786?a=b", "dask://[::1:8786"],
)  # fmt: skip
def test_what_is_no_address_of_a_scheduler_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(RefusedError, match=r"write dask://HOST:PORT") as refused:
        Workers(executor=text)
    assert refused.value.code == "INVALID_EXECUTOR"
    assert "word" not in refused.value.message


def test_addresses_become_those_of_dask() -> None:
    assert dask_address("dask://host:8786") == "tcp://host:8786"
    assert dask_address("dask+tls://[::1]:8786/") == "tls://[::1]:8786"


def test_commands_refuse_what_contradicts(tmp_path: Path) -> None:
    cli = Inside(tmp_path)
    assert "[INVALID_EXECUTOR]" in cli("recheck", "--executor", "host:8786", code=2).err
    assert "--upto is a position of one log" in cli("recheck", "a.db", "b.db", "--upto", "3", code=2).err
    assert "leave one of them out" in cli("recheck", "a.db", "--log", "b.db", code=2).err
    assert "for one log" in cli("recheck", "--runs", "2", "--executor", "dask://127.0.0.1:1", code=2).err
