from __future__ import annotations

import pytest

from world.errors import RefusedError
from world.log import parse_address
from world.log.values import TreeHead


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("world.db", "world.db", "main"),
        ("data/world.db#audit", "data/world.db", "audit"),
        ("sqlite:///world.db", "world.db", "main"),
        ("sqlite:////var/world.db#a.b-c_1", "/var/world.db", "a.b-c_1"),
        ("sqlite:///:memory:", ":memory:", "main"),
        ("sqlite://", ":memory:", "main"),
        ("odd#dir/world.db#x", "odd#dir/world.db", "x"),
    ],
)
def test_a_path_or_a_sqlite_url_names_a_file(text: str, path: str, name: str) -> None:
    address = parse_address(text)
    assert (address.scheme, address.path, address.name) == ("sqlite", path, name)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_postgres_url_is_read_by_psycopg(scheme: str) -> None:
    address = parse_address(f"{scheme}://user:secret@host:5433/base?sslmode=require#audit")
    assert (address.scheme, address.name) == ("postgresql", "audit")
    assert address.url is not None
    assert address.url.drivername == "postgresql+psycopg"
    assert address.url.query["sslmode"] == "require"
    assert "secret" not in str(address)


@pytest.mark.parametrize(
    "text",
    ["", "#main", "world.db#", "world.db#a b", "world.db#-x", "mysql://host/x", "sqlite://host/x", "://"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_address(text)
    assert caught.value.code == "INVALID_ADDRESS"


def test_a_password_is_in_no_message() -> None:
    for text in ("mysql://user:secret@host/x", "postgresql://user:secret@host:port/x"):
        with pytest.raises(RefusedError) as caught:
            parse_address(text)
        assert "secret" not in str(caught.value)


def test_a_tree_head_reads_back_from_its_text() -> None:
    head = TreeHead(17, bytes(range(32)))
    assert TreeHead.parse(str(head)) == TreeHead.from_hex(17, head.root_hex) == head


@pytest.mark.parametrize("text", ["", "17", "17:", "x:" + "0" * 64, "17:" + "0" * 63, "-1:" + "0" * 64, "1:zz"])
def test_what_is_no_tree_head_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        TreeHead.parse(text)
    assert caught.value.code == "INVALID_TREE_HEAD"
