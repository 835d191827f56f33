"""Texts nested thousands of levels deep, or made huge by aliases: refused with the line, without a traceback."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import founded
from world.core.domain_files import load_domain
from world.errors import DamagedLogError, RefusedError
from world.events.codec import decode_event
from world.klis.manifest import manifest_document
from world.markup import check_yaml, load_toml, load_yaml
from world.sizes import MAX_DOMAIN_BYTES, MAX_YAML_NODES, MAX_YAML_NUMBER_CHARS

DEPTHS = (250, 3_000, 100_000)
DOMAIN = """id: urn:test:any
version: 1.0.0
state:
  fields:
    note: {type: any}
actions:
  put: {flow: {kind: seq, steps: []}}
"""


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def bomb(levels: int) -> str:
    """Return lines of which each stands for ten times as many values as the one before."""
    lines = ["l0: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 10)}]" for at in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    realm = founded(tmp_path_factory.mktemp("nested"), Inside)
    realm("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}')
    realm("export", "whole.jsonl")
    return realm.folder, (realm.folder / "whole.jsonl").read_text().splitlines()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("where", ["line", "state", "input", "head"])
def test_a_nested_line_of_an_export_is_refused_with_its_number(
    exported: tuple[Path, list[str]], tmp_path: Path, depth: int, where: str
) -> None:
    lines = exported[1].copy()
    at = next(at for at, line in enumerate(lines) if '"proposal.submitted"' in line)
    if where == "line":
        lines[at] = nested(depth)
    elif where == "state":
        lines[at] = lines[at].replace('"state":{', f'"state":{{"a":{nested(depth)},', 1)
    elif where == "input":
        lines[at] = lines[at].replace('"item":"tea"', f'"item":{nested(depth)}', 1)
    else:
        at = len(lines) - 1
        lines[at] = f'{{"head":{nested(depth)}}}'
    (tmp_path / "bad.jsonl").write_text("\n".join(lines) + "\n")
    realm = Inside(tmp_path)
    assert f"Line {at + 1}: " in realm("verify", "bad.jsonl", code=3).out
    refused = realm("import", "bad.jsonl", "--log", "new.db", code=1).err
    assert f"Line {at + 1}: " in refused
    assert "[BAD_EXPORT]" in refused
    realm("salvage", "bad.jsonl", "-o", "saved.jsonl", code=3)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_nested_first_line_is_no_export(tmp_path: Path, depth: int) -> None:
    (tmp_path / "bad.jsonl").write_text(nested(depth) + "\n")
    realm = Inside(tmp_path)
    realm("verify", "bad.jsonl", code=1)
    assert "Line 1: " in realm("import", "bad.jsonl", "--log", "new.db", code=1).err


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_nested_value_in_a_changed_row_is_damage(
    exported: tuple[Path, list[str]], tmp_path: Path, depth: int
) -> None:
    for path in exported[0].iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    database = sqlite3.connect(tmp_path / "world.db")
    number, state = database.execute("SELECT id, state FROM wp_event WHERE topic = 'proposal.submitted'").fetchone()
    changed = (state.decode() if isinstance(state, bytes) else state).replace('"item":"tea"', f'"item":{nested(depth)}')
    database.execute(
        "UPDATE wp_event SET state = ? WHERE id = ?",
        (changed.encode() if isinstance(state, bytes) else changed, number),
    )
    database.commit()
    database.close()
    realm = Inside(tmp_path)
    for command in (["verify"], ["log"], ["export", "out.jsonl"], ["recheck"], ["salvage", "-o", "saved.jsonl"]):
        realm(*command, code=3)
    with pytest.raises(DamagedLogError) as damage:
        decode_event("projection.recorded", 1, b'{"result":{"a":' + nested(3_000).encode() + b"}}", 7)
    assert damage.value.code == "BAD_EVENT"
    assert "Event 7 is not a valid 'projection.recorded': it is nested too deeply." in damage.value.message


@pytest.mark.parametrize("depth", DEPTHS)
def test_nested_input_and_sources_are_refused(exported: tuple[Path, list[str]], depth: int) -> None:
    realm = Inside(exported[0])
    before = len(realm("log", "--json").lines)
    given = f'{{"item": {nested(depth)}}}'
    realm("submit", "sell", "--actor", "ann", "--input", given, code=2)
    realm("submit", "sell", "--actor", "ann", "--input", "-", given=given, code=2)
    line = json.dumps({"actor": "ann", "type": "sell"})[:-1] + f', "input": {nested(depth)}}}\n'
    realm("submit", "--intents", "-", given=line, code=1)
    assert len(realm("log", "--json").lines) == before


@pytest.mark.parametrize("depth", DEPTHS)
def test_nested_files_are_refused_with_the_line(tmp_path: Path, depth: int) -> None:
    (tmp_path / "deep.yaml").write_text(DOMAIN + f"meta:\n  a: {nested(depth)}\n")
    (tmp_path / "deep.json").write_text(f'{{"id": {nested(depth)}}}')
    with pytest.raises(RefusedError) as refused:
        load_domain(tmp_path / "deep.yaml")
    assert (refused.value.code, refused.value.details["line"]) == ("MALFORMED_YAML", DOMAIN.count("\n") + 2)
    with pytest.raises(RefusedError) as refused:
        load_domain(tmp_path / "deep.json")
    assert refused.value.code == "NOT_CANONICAL"
    realm = Inside(tmp_path)
    (tmp_path / "p.toml").write_text(f"name = 'p'\nversion = '1'\nrules = {nested(depth)}\n")
    (tmp_path / "p.yaml").write_text(f"name: p\nversion: '1'\nrules: {nested(depth)}\n")
    for name in ("p.toml", "p.yaml"):
        assert f"{name}:3: error" in realm("policy", "lint", name, code=1).out
    for text, yaml in ((f'{{"scope": {nested(depth)}}}', False), (f"ver: '1.0'\nscope: {nested(depth)}\n", True)):
        with pytest.raises(RefusedError) as refused:
            manifest_document(text, yaml=yaml)
        assert refused.value.code == "MALFORMED_SCHEMA"
    (tmp_path / "world.toml").write_text(f"# one\ndomain = {nested(depth)}\n")
    assert "at line 2" in realm("log", code=2).err


def test_aliases_that_stand_for_too_many_values_are_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(bomb(9) + DOMAIN)
    with pytest.raises(RefusedError) as refused:
        load_domain(tmp_path / "bomb.yaml")
    assert refused.value.code == "YAML_TOO_LARGE"
    assert refused.value.details["line"] == 6
    assert refused.value.details["max_values"] == MAX_YAML_NODES
    said = Inside(tmp_path)("init", "--domain", "bomb.yaml", code=2)
    assert "up to line 6" in said.err


def test_an_alias_within_what_it_stands_for_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        load_yaml("a: 1\nb: &b [*b]\n")
    assert (refused.value.code, refused.value.details["line"]) == ("MALFORMED_YAML", 2)


def test_aliases_and_merges_of_reasonable_size_are_read() -> None:
    text = "base: &base {type: number, default: 0}\nfields:\n  a: *base\n  b: {<<: *base, default: 1}\n"
    assert load_yaml(text)["fields"] == {"a": {"type": "number", "default": 0}, "b": {"type": "number", "default": 1}}
    check_yaml(bomb(4))


def test_toml_within_the_limit_is_read_whatever_brackets_its_texts_hold() -> None:
    text = (
        "a = '"
        + "[" * 500
        + '\'\nb = "\\"'
        + "[" * 500
        + '"\nc = """'
        + "[\n" * 500
        + '"""  # '
        + "[" * 500
        + "\nd = [[1]]\n"
    )
    assert load_toml(text)["d"] == [[1]]


def test_a_domain_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(MAX_DOMAIN_BYTES + 1)
    with pytest.raises(RefusedError) as refused:
        load_domain(path)
    assert refused.value.code == "FILE_UNREADABLE"
    assert "MAX_DOMAIN_BYTES" in refused.value.message


@pytest.mark.parametrize(
    ("tag", "number"),
    [
        *((tag, number) for tag in ("", "!!int ", "!!float ") for number in ("1" * 1_000, "0x" + "f" * 1_000)),
        ("", "0o" + "7" * 1_000),
        ("", "-1." + "5" * 1_000 + "e7"),
        ("!!int ", ":".join(["1"] * 1_000)),
        ("!!float ", ":".join(["1"] * 1_000) + ".5"),
    ],
)
def test_a_long_number_in_yaml_is_refused_before_it_is_read(number: str, tag: str) -> None:
    with pytest.raises(RefusedError) as refused:
        load_yaml(f"a: 1\nb: {tag}{number}\n")
    assert refused.value.code == "MALFORMED_YAML"
    assert "The number at line 2 has more than 256 characters (MAX_YAML_NUMBER_CHARS)" in refused.value.message


def test_a_long_number_in_base_60_is_a_text() -> None:
    number = ":".join(["1"] * 1_000)
    assert load_yaml(f"a: {number}") == {"a": number}


def test_a_long_number_is_no_value_of_a_manifest() -> None:
    with pytest.raises(RefusedError) as refused:
        manifest_document("ver: " + "1" * 1_000, yaml=True)
    assert refused.value.code == "MALFORMED_SCHEMA"
    assert "MAX_YAML_NUMBER_CHARS" in refused.value.message


def test_texts_of_digits_and_numbers_within_the_limit_are_read() -> None:
    number = "1" * MAX_YAML_NUMBER_CHARS
    texts = "9" * 1_000, "1:" * 1_000 + "x"
    assert load_yaml(f"a: {number}\nb: '{texts[0]}'\nc: '{texts[1]}'\nd: {'word ' * 100}\n") == {
        "a": int(number),
        "b": texts[0],
        "c": texts[1],
        "d": ("word " * 100).strip(),
    }


@pytest.mark.parametrize("text", ["[{}]\nb = 1", "{} = 1", "a = {{{} = 1}}", "a = 1\n{} . x = 1"])
def test_a_dotted_key_of_many_names_is_nested_too_deep(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        load_toml(text.format(".".join(["a", '"b"', "'c'"] * 100)))
    assert refused.value.code == "MALFORMED_TOML"
    assert "nested more than 200 deep" in refused.value.message


def test_many_dots_of_numbers_and_texts_are_no_depth() -> None:
    numbers = ", ".join(["1.5"] * 1_000)
    assert load_toml(f'a = [{numbers}]\nb = "{"." * 1_000}" # {"." * 1_000}\n')["a"] == [1.5] * 1_000
