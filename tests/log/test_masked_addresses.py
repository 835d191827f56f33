"""A password in the address of a log is in no message, in no output and in no file that others can read."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.errors import WorldProtocolError
from world.log import open_log, parse_address
from world.masking import MASK, masked
from worldprotocol.cli.program import run

COUNTER = {
    "id": "urn:test:counter",
    "version": "1.0.0",
    "types": {},
    "state": {"fields": {"count": {"type": "number", "required": True, "default": 0}}},
    "computed": {"fields": {}},
    "actions": {"stop": {"flow": {"kind": "halt"}}},
}
SECRET = "s3cretPassw0rd"
FORMS = [
    "postgresql://user:{}@host/db", "postgres://user:{}@host:5432/db#audit", "postgresql+psycopg://:{}@host/db",
    "postgresql://host/db?password={}", "postgresql://user@host/db?sslmode=require&password={}#main",
    "postgresql://host/db?PassWord={}&user=me", "postgresql://host/db?p%61ssword={}", "postgresql://h/d?sslpassword={}",
    "postgresql://user:{}@host/db#bad name", "postgresql://host/db?password={}#bad name", "mysql://user:{}@host/x",
    "sqlite://user:{}@host/x", "sqlite:///x?password={}", "postgresql://user:{}@host:port/db",
    "postgresql:/user:{}@h/d", "postgresql://user%3A{}@host/db", "postgres://%3a{}@host:5432/db#audit",
    "postgresql://us%65r%3A{}@host/db?password={}",
    "postgresql://user:a#{}@host/db", "postgresql://user:a@{}@host/db", "postgresql://user:a/{}@host/db",
    "postgresql://user:{}@[::1/db", "postgresql://host/db?password=a#{}!", "postgresql://user:{}@host/db?password={}",
    "postgresql://host/db;password={}", "postgresql:user:{}@host/db", "postgresql://host/db?pass\nword=1&password={}",
]  # fmt: skip


def said_of(address: str) -> str:
    """Return everything that opening a log says, or that its address says of itself."""
    said = masked(address)
    try:
        parsed = parse_address(address)
        said += f"{parsed} {parsed.store()} {parsed!r}"
    except WorldProtocolError as error:
        return said + f"{error} {error.details} {error!r}"
    if parsed.scheme == "sqlite":
        try:
            open_log(address).close()
        except WorldProtocolError as error:
            said += f"{error} {error.details}"
    return said


@for_each("form", FORMS)
def test_no_form_of_an_address_shows_its_password(form: str) -> None:
    said = said_of(form.replace("{}", SECRET))
    assert SECRET not in said
    assert MASK in said


@given(
    form=st.sampled_from(FORMS),
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=12),
    is_quoted=st.booleans(),
)
@example(form="postgresql://user:a@{}@host/db", secret="/", is_quoted=False)
def test_whatever_the_password_is_it_is_not_shown(form: str, secret: str, *, is_quoted: bool) -> None:
    marked = f"Zq7{secret}7qZ"
    written = quote(marked, safe="") if is_quoted or set(secret) & set("&#") else marked
    said = said_of(form.replace("{}", written))
    assert "Zq7" not in said
    assert "7qZ" not in said


@given(st.text(max_size=60))
def test_masking_is_done_at_once_and_leaves_what_is_no_url(text: str) -> None:
    assert masked(masked(text)) == masked(text)
    if "@" not in text and "=" not in text:
        assert masked(text) == text


@pytest.mark.parametrize(
    "address",
    ["world.db", "/a/b@c:d.db#x", "sqlite:////var/x.db#audit", "postgresql://user@host:5432/db?sslmode=require#main"],
)
def test_an_address_without_a_password_is_shown_as_it_is(address: str) -> None:
    assert masked(address) == address


def test_a_server_that_cannot_be_reached_is_named_without_the_password() -> None:
    for address in (f"postgresql://u:{SECRET}@127.0.0.1:1/d", f"postgresql://127.0.0.1:1/d?password={SECRET}&user=u"):
        with pytest.raises(WorldProtocolError) as caught:
            open_log(address)
        assert caught.value.code == "LOG_UNAVAILABLE"
        assert SECRET not in f"{caught.value} {caught.value.details} {caught.value!r}"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_init_shows_no_password_and_writes_files_that_only_the_owner_reads(
    tmp_path: Path, postgres_database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    options: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.json").write_text(json.dumps(COUNTER))
    mark = "&" if "?" in postgres_database else "?"
    address = f"{postgres_database}{mark}password={SECRET}"
    (tmp_path / "realm").mkdir()
    target = tmp_path / "realm" / "world.toml"
    target.write_text("")
    target.chmod(0o644)
    for code in (0, 1):
        told = run([*options, "--log", address, "init", "realm", "--domain", "shop.json", "--force"])
        output = capsys.readouterr()
        assert told == code, output
        assert SECRET not in output.out + output.err
    assert SECRET in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
