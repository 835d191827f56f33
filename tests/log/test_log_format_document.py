from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from world.log import NewEvent, open_log
from world.log.backends.postgres_lock import LOCK_SPACE
from world.log.tables import METADATA

DOCUMENT = Path("docs/reference/log-format.md")


def documented() -> dict[str, Any]:
    """Run the document's own Python and return what it defines."""
    defined: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(code, defined)
    return defined


@pytest.mark.requirement("CARD-audit")
def test_the_documents_own_code_verifies_a_log(tmp_path: Path) -> None:
    tools = documented()
    with open_log(str(tmp_path / "world.db"), create=True) as log:
        for number in range(9):
            with log.write() as transaction:
                state = b'{"n":%d,"t":"\xc3\xa9"}' % number
                transaction.append([NewEvent(f's"{number % 2}\\ é', "t.☃", 2, state)])
        events = list(log.read())
        for event in events:
            content = event.stream, event.version, event.topic, event.schema_version, event.state.decode()
            assert tools["leaf"](*content) == event.leaf
        assert tools["root"]([event.leaf for event in events]) == log.head().root


def test_the_document_names_every_table_and_column() -> None:
    text = DOCUMENT.read_text()
    for table in METADATA.tables.values():
        assert f"`{table.name}`" in text
        for column in table.columns:
            assert f"`{column.name}`" in text


def test_the_document_names_the_lock() -> None:
    assert str(LOCK_SPACE) in DOCUMENT.read_text()
