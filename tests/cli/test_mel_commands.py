"""``worldctl domain compile``, ``check`` and ``format``, and realms whose domain is a MEL file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm, environment
from world.core import load_domain
from world.core.mel.compiling import compile_mel
from worldprotocol import Realm

pytestmark = pytest.mark.slow

SHOP = """@schema({ id: "urn:example:shop", version: "1.0.0" })
domain Shop {
  state {
    stock: number = 3
  }

  action sell(n: number) available when stock > 0 {
    when n > stock {
      fail "SOLD_OUT"
    }
    patch stock = stock - n
  }
}
"""


@pytest.fixture
def cli(tmp_path: Path) -> CliRealm:
    (tmp_path / "shop.mel").write_text(SHOP)
    (tmp_path / "bad.mel").write_text(SHOP.replace("stock > 0", "stok > 0").replace("n > stock", "m > stock"))
    return CliRealm(tmp_path)


@pytest.mark.requirement("IC-mel")
def test_a_source_is_compiled_to_its_schema(cli: CliRealm) -> None:
    assert cli("domain", "compile", "shop.mel").json == compile_mel(SHOP).schema
    assert cli("domain", "compile", "-", given=SHOP).json == compile_mel(SHOP).schema
    assert "bad.mel:7:41: error E_UNDEFINED" in cli("domain", "compile", "bad.mel", code=2).err


def test_every_error_is_shown_with_its_line(cli: CliRealm) -> None:
    said = cli("domain", "check", "shop.mel", "bad.mel", "--quiet", code=1)
    assert said.out == (
        "bad.mel:7:41: error E_UNDEFINED: Undefined identifier 'stok'\n"
        "  7 |   action sell(n: number) available when stok > 0 {\n"
        "    |                                         ^^^^\n"
        "  Did you mean 'stock'?\n"
        "bad.mel:8:10: error E_UNDEFINED: Undefined identifier 'm'\n"
        "  8 |     when m > stock {\n"
        "    |          ^\n"
    )
    (error, *_) = [
        one for one in cli("domain", "check", "bad.mel", "--json", code=1).json if one["severity"] == "error"
    ]
    assert error == {
        "file": "bad.mel", "severity": "error", "code": "E_UNDEFINED", "message": "Undefined identifier 'stok'",
        "line": 7, "column": 41, "hint": "Did you mean 'stock'?",
    }  # fmt: skip


def test_a_source_without_errors_is_named_with_its_hash_and_advice(cli: CliRealm) -> None:
    said = cli("domain", "check", "shop.mel")
    assert "shop.mel:11:5: warning E_UNGUARDED_PATCH" in said.out
    schema = compile_mel(SHOP).schema
    assert schema is not None
    assert f"shop.mel: schemaHash {schema['hash']}" in said.err


def test_sources_are_formatted_and_written_in_place(cli: CliRealm, tmp_path: Path) -> None:
    assert cli("domain", "format", "shop.mel").out == SHOP
    assert cli("domain", "format", "--check", "shop.mel").out == ""
    (tmp_path / "flat.mel").write_text(" ".join(SHOP.split()))
    assert cli("domain", "format", "--check", "shop.mel", "flat.mel", code=1).out == "flat.mel\n"
    cli("domain", "format", "--write", "flat.mel")
    assert (tmp_path / "flat.mel").read_text() == SHOP
    assert "INVALID_MEL" in cli("domain", "format", "bad.mel", code=2).err


def test_a_symbolic_link_stays_one_when_its_file_is_written(cli: CliRealm, tmp_path: Path) -> None:
    (tmp_path / "flat.mel").write_text(" ".join(SHOP.split()))
    (tmp_path / "link.mel").symlink_to("flat.mel")
    cli("domain", "format", "--write", "link.mel")
    assert (tmp_path / "link.mel").is_symlink()
    assert (tmp_path / "flat.mel").read_text() == SHOP


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_kind_of_line_ends_changes_no_hash(cli: CliRealm, tmp_path: Path, end: str) -> None:
    source = SHOP.replace('"SOLD_OUT"', '"SOLD_OUT" with `only\n${stock}\nleft` // so') + "// end\n"
    (tmp_path / "ends.mel").write_bytes(source.replace("\n", end).encode())
    assert cli("domain", "compile", "ends.mel").json == compile_mel(source).schema
    assert cli("domain", "compile", "-", given=source).json == load_domain(tmp_path / "ends.mel").schema.portable


def test_a_file_that_is_no_text_is_refused_with_what_to_do(cli: CliRealm, tmp_path: Path) -> None:
    (tmp_path / "latin.mel").write_bytes(SHOP.encode() + b"// caf\xe9")
    refused = cli("domain", "check", "latin.mel", code=2).err
    assert f"latin.mel cannot be read: byte {len(SHOP) + 7} is no UTF-8. Save it as UTF-8." in refused
    (tmp_path / "folder.mel").mkdir()
    for word in ("check", "compile", "format"):
        assert "folder.mel cannot be read: Is a directory." in cli("domain", word, "folder.mel", code=2).err
        assert "none.mel cannot be read: No such file or directory." in cli("domain", word, "none.mel", code=2).err


def test_a_file_without_end_is_read_up_to_the_limit(cli: CliRealm) -> None:
    assert "E_LIMIT" in cli("domain", "check", "/dev/zero", code=1).out


def test_a_domain_in_json_is_printed_as_mel(cli: CliRealm, tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(compile_mel(SHOP).schema))
    assert cli("domain", "format", "shop.json").out == SHOP


@pytest.mark.requirement("IC-mel")
def test_a_realm_takes_a_mel_file_for_its_domain_adopts_a_changed_one_and_is_rechecked_without_it(
    cli: CliRealm, tmp_path: Path
) -> None:
    cli("init", "--domain", "shop.mel")
    assert 'domain = "shop.mel"' in (tmp_path / "world.toml").read_text()
    cli("actor", "add", "ann", "--kind", "human", "--auto-approve")
    sell = ["submit", "sell", "--actor", "ann", "--input", '{"n": 1}', "--json"]
    cli(*sell)
    config = (tmp_path / "world.toml").read_text()
    cli("recheck")
    (tmp_path / "shop.mel").unlink()
    (tmp_path / "shop.json").write_text(json.dumps(compile_mel(SHOP).schema))
    (tmp_path / "world.toml").write_text(config.replace("shop.mel", "shop.json"))
    cli("recheck")
    cli("verify")
    (tmp_path / "world.toml").write_text(config)
    changed = SHOP.replace("1.0.0", "1.1.0").replace("patch stock = stock - n", "patch stock = stock - n * 2")
    (tmp_path / "shop.mel").write_text(changed)
    assert "SCHEMA_MISMATCH" in cli(*sell, code=1).out
    cli("adopt")
    cli(*sell)
    assert cli("state", "stock").out.strip() == "0"


def test_a_domain_may_be_named_as_a_mel_file_in_python(tmp_path: Path) -> None:
    (tmp_path / "shop.mel").write_text(SHOP)
    with Realm.create("sqlite:///:memory:", domain=str(tmp_path / "shop.mel")) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        assert getattr(realm.act("ann", "sell", {"n": 4}).error, "code", None) == "SOLD_OUT"
        assert realm.act("ann", "sell", {"n": 3}).status == "completed"


LAZY = """
import sys
from worldprotocol import Realm
from world.core import load_domain
Realm.create("sqlite:///:memory:", domain=sys.argv[1]).close()
print("lark" in sys.modules, any(name.startswith("world.core.mel") for name in sys.modules))
"""


@pytest.mark.parametrize(("file", "expected"), [("shop.json", "False False"), ("shop.mel", "True True")])
def test_the_parser_is_imported_by_realms_that_use_mel_alone(cli: CliRealm, file: str, expected: str) -> None:
    (cli.folder / "shop.json").write_text(json.dumps(compile_mel(SHOP).schema))
    words = [sys.executable, "-c", LAZY, file]
    said = subprocess.run(words, cwd=cli.folder, env=environment(), capture_output=True, text=True, check=True)
    assert said.stdout.strip() == expected
