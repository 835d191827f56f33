"""``worldctl`` on a log in exported Parquet files: the answers of the SQLite log, and errors without a traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import CliRealm, founded, sale
from tests.golden.generate import FORGED

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TABLES = "parquet:///tables"
GARDEN = """\
domain = "tests.golden.garden:garden"
policies = ["tests.golden.garden:rules"]
projections = ["tests.golden.garden:sensor"]
"""
STRICT = """
name = "strict"

[[rules]]
id = "one_at_a_time"
verdict = "approve"
when = "intent.input.count <= 1"
"""


def exported(folder: Path, name: str = "garden") -> Inside:
    """Return a folder with a golden log, its tables, and the configuration of its realm."""
    realm = Inside(folder)
    realm("import", str(GOLDEN / f"{name}.jsonl"), "--log", "w.db")
    (folder / "world.toml").write_text(GARDEN)
    (folder / "strict.toml").write_text(STRICT)
    realm("--log", "w.db", "export", "--format", "parquet", "tables")
    return realm


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """The golden log of the garden, with its tables."""
    return exported(tmp_path_factory.mktemp("garden"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """A realm with proposals in several states, with its tables."""
    realm = Inside(founded(tmp_path_factory.mktemp("shop"), Inside).folder)
    realm("submit", "--intents", "-", given="".join(sale("bot", count=1 + at % 3) for at in range(9)), code=4)
    realm("submit", "sell", "--actor", "kid", "--input", '{"item": "tea", "count": 1}', code=4)
    (realm.folder / "strict.toml").write_text(STRICT)
    realm("export", "--format", "parquet", "tables")
    return realm


def answers(realm: CliRealm, *words: str, code: int = 0) -> tuple[str, str]:
    """Return what a command prints about the SQLite log and about the tables."""
    stored = "w.db" if (realm.folder / "w.db").exists() else "world.db"
    one, other = (realm("--log", log, *words, code=code).out for log in (stored, TABLES))
    return one, other


READING: list[tuple[str, ...]] = [
    ("log",),
    ("log", "--topic", "decision.made", "--limit", "3", "--reverse"),
    ("worlds",),
    ("replay",),
    ("state",),
    ("export", "-"),
    ("sql", "SELECT topic, count(*) FROM events GROUP BY ALL ORDER BY ALL"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_reading_command_answers_as_on_the_log(garden: Inside, words: tuple[str, ...], form: tuple[str, ...]) -> None:
    if words[0] == "export" and form:
        form = ("--redact", "inputs")
    one, other = answers(garden, *words, *form)
    assert other == one != ""


@pytest.mark.requirement("CARD-audit")
def test_verify_answers_as_on_the_log(garden: Inside, shop: Inside) -> None:
    for realm in (garden, shop):
        one, other = answers(realm, "verify")
        assert other == one
        assert one.startswith("sound: ")
        stored, read = (Inside(realm.folder)("--log", log, "verify", "--json").json for log in (log_of(realm), TABLES))
        assert (stored.pop("index"), read.pop("index")) == ("whole", "none")  # Parquet files have no index to compare
        assert read == stored


def log_of(realm: CliRealm) -> str:
    """Return the address of the SQLite log."""
    return "w.db" if (realm.folder / "w.db").exists() else "world.db"


@pytest.mark.requirement("CARD-replay", "CARD-policy")
def test_recheck_and_backtest_answer_as_on_the_log(garden: Inside, shop: Inside) -> None:
    for form in ([], ["--json"]):
        for how in ([], ["--jobs", "1"]):
            one, other = answers(garden, "recheck", "--all", *form, *how, code=1)
            assert other == one != ""
            one, other = answers(shop, "recheck", "--all", *form, *how)
            assert other == one != ""
        for realm in (garden, shop):
            one, other = answers(realm, "policy", "backtest", "--with", "strict.toml", *form, code=1)
            assert other == one != ""


def test_what_is_looked_up_by_the_index_is_as_on_the_log(shop: Inside) -> None:
    proposals = [line["stream"] for line in shop("log", "--topic", "proposal.submitted", "--json").lines]
    assert len(proposals) == 10
    for proposal in proposals:
        for command in ("show", "explain", "trace"):
            one, other = answers(shop, command, proposal)
            assert other == one != ""
    for words in (["blame", "stock"], ["report", "--json"], ["inbox"]):
        one, other = answers(shop, *words)
        assert other == one != ""


def test_a_forged_log_is_found_out_in_its_tables(tmp_path: Path) -> None:
    realm = exported(tmp_path, FORGED)
    one, other = answers(realm, "recheck", "--all", code=3)
    assert other == one


def test_tables_are_only_read(garden: Inside) -> None:
    before = {file: file.read_bytes() for file in (garden.folder / "tables").iterdir()}
    for words in (["import", str(GOLDEN / "garden.jsonl"), "--log", TABLES], ["--log", TABLES, "doctor", "--rebuild"]):
        said = garden(*words, code=1)
        assert "[LOG_READ_ONLY]" in said.err
        assert "Import an export of it as JSON lines with `worldctl import`" in said.err
    found = garden("--log", TABLES, "doctor", "--json", code=1).json
    index, log = ({one["check"]: one for one in found["checks"]}[name] for name in ("index", "log"))
    assert (index["ok"], index["found"]) == (True, "made by each process that needs it")
    assert log["found"] == "parquet, parquet:///tables#main"
    assert {file: file.read_bytes() for file in (garden.folder / "tables").iterdir()} == before


def spoil(folder: Path, how: str) -> None:
    """Make something else of the file of events in a folder."""
    file = folder / "events.parquet"
    data = file.read_bytes()
    file.unlink()
    if how == "fifo":
        os.mkfifo(file)
    elif how == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif how == "byte":
        at = data.index(b"\x28\xb5\x2f\xfd") + 20  # within the first page that is compressed by zstd
        file.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


@pytest.mark.parametrize(
    ("how", "code"), [("missing", "NOT_A_LOG"), ("fifo", "NOT_A_LOG"), ("cut", "NOT_A_LOG"), ("byte", "LOG_DAMAGED")]
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, how: str, code: str) -> None:
    realm = exported(tmp_path)
    spoil(tmp_path / "tables", how)
    for words in (["verify"], ["recheck"], ["log"], ["policy", "backtest", "--with", "strict.toml"]):
        said: Any = realm("--log", TABLES, *words, code=3 if code == "LOG_DAMAGED" else 2)
        assert f"[{code}]" in said.err
        assert len(said.err.strip().splitlines()) == 1


def test_a_folder_without_its_scheme_says_how_to_name_it(garden: Inside) -> None:
    assert "parquet:///FOLDER for exported tables" in garden("--log", "tables", "verify", code=2).err
