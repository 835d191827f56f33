"""Addresses of servers: what is one, and which are used without TLS."""

from __future__ import annotations

import subprocess
import sys

import pytest

from world.errors import RefusedError
from worldprotocol.api.remote.addresses import read_server_address

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "base_url", "socket", "is_local"),
    [
        ("https://realms.example.com", "https://realms.example.com", None, False),
        ("https://realms.example.com/wp/", "https://realms.example.com/wp", None, False),
        ("http://127.0.0.1:8437", "http://127.0.0.1:8437", None, True),
        ("http://[::1]:8437", "http://[::1]:8437", None, True),
        ("http://localhost:8437/", "http://localhost:8437", None, True),
        ("unix:a folder/world.sock", "http://localhost", "a folder/world.sock", True),
    ],
)
def test_addresses_of_servers_are_read(text: str, base_url: str, socket: str | None, is_local: bool) -> None:
    found = read_server_address(text)
    assert (found.text, found.base_url, found.socket, found.is_local) == (text, base_url, socket, is_local)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unix:",
        "shop.db",
        "http://realms.example.com",
        "http://localhost.example.com",
        "ftp://127.0.0.1",
        "https://",
        "http://127.0.0.1:99999",
        "https://realms.example.com?realm=shop",
        "https://realms.example.com#shop",
    ],
)
def test_a_text_that_is_no_address_or_needs_tls_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="is not the address of a server") as refused:
        read_server_address(text)
    assert refused.value.code == "INVALID_ADDRESS"


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(RefusedError) as refused:
        read_server_address("https://ann:geheim@realms.example.com")
    assert refused.value.code == "INVALID_ADDRESS"
    assert "geheim" not in str(refused.value)


def test_the_rule_needs_neither_an_http_client_nor_the_engine() -> None:
    program = (
        "import sys; import worldprotocol.api.remote.addresses; "
        "print([name for name in ('httpx', 'sqlalchemy', 'msgspec', 'world.engine') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
