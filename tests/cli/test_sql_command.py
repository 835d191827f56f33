"""``worldctl sql`` and the Parquet export: rows as in the log, and ten questions answered as the commands do."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet
import pytest

from examples.repository import demo
from examples.repository.history import read_sessions
from examples.repository.importing import WORLD_NAME
from tests.cli.inside import Inside
from tests.golden.generate import FORGED
from world.log import TreeHead, open_log
from world.log.merkle import Frontier
from worldprotocol import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.tables import parquet
from worldprotocol.export.tables.columns import TABLES
from worldprotocol.export.tables.parquet import export_tables, file_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
LOGS = sorted(path.stem for path in GOLDEN.glob("*.jsonl") if path.stem != FORGED)
PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
QUESTIONS = dict(re.findall(r"^### (.+?)\n.*?```sh\n[^\n]*<<'SQL'\n(.+?)SQL\n```", PAGE, re.DOTALL | re.MULTILINE))
CONFIG = "examples/repository/world.toml"
DEMO = "demo"
"""The name, among those of the golden logs, of the realm that `make demo` makes."""


@dataclass(frozen=True)
class Recorded:
    """An imported golden log, with its tables."""

    cli: Inside

    def ask(self, question: str) -> list[dict[str, Any]]:
        """Answer a question of the page."""
        found = next(sql for title, sql in QUESTIONS.items() if title.startswith(question))
        return self.cli("sql", "--tables", "tables", "-", "--json", given=found).lines

    def log(self, *options: str) -> list[dict[str, Any]]:
        """Return the events that ``worldctl log`` lists."""
        return self.cli("--log", "w.db", "log", *options, "--json").lines


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "garden" else pytest.mark.slow) for name in [*LOGS, DEMO]],
)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    if request.param == DEMO:
        shared: Recorded = request.getfixturevalue("demonstrated")
        return shared
    cli = Inside(tmp_path_factory.mktemp("tables"))
    cli("import", str(GOLDEN / f"{request.param}.jsonl"), "--log", "w.db")
    return with_tables(cli)


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The realm that `make demo` leaves behind."""
    folder = tmp_path_factory.mktemp("demo")
    shown = demo.Demo(folder / "demo", read_sessions())
    shown.import_all()
    shown.announce()
    assert not shown.failures
    (folder / "demo" / WORLD_NAME).rename(folder / "w.db")
    return with_tables(Inside(folder))


def with_tables(cli: Inside) -> Recorded:
    said = cli("--log", "w.db", "export", "--format", "parquet", "tables", "--json").json
    assert [Path(name).name for name in said["files"]] == [f"{table}.parquet" for table in TABLES]
    return Recorded(cli)


@pytest.fixture
def garden(tmp_path: Path) -> Inside:
    cli = Inside(tmp_path)
    cli("import", str(GOLDEN / "garden.jsonl"), "--log", "w.db")
    return cli


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def refused(cli: Inside, *arguments: str, code: int = 2) -> str:
    said = cli(*arguments, "--json", code=code)
    return str(said.json["error"]["code"])


# The tables


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10


def test_each_event_is_a_row_as_it_was_recorded(recorded: Recorded) -> None:
    rows = recorded.cli("sql", "--tables", "tables", "SELECT * FROM events", "--json").lines
    assert [
        {
            "position": row["log_position"],
            "stream": row["stream"],
            "version": row["version"],
            "topic": row["topic"],
            "schemaVersion": row["schema_version"],
            "state": json.loads(row["state"]),
            "leaf": row["leaf"],
        }
        for row in rows
    ] == recorded.log()
    assert [ms(row["recorded_at"]) for row in rows] == [json.loads(row["state"])["at"] for row in rows]


def test_each_proposal_is_a_row_as_the_realm_shows_it(recorded: Recorded) -> None:
    rows = recorded.cli("sql", "--tables", "tables", "SELECT * FROM proposals", "--json").lines
    submitted = [event["state"]["proposalId"] for event in recorded.log("--topic", "proposal.submitted")]
    assert sorted(row["proposal_id"] for row in rows) == sorted(submitted)
    with Realm.open_read_only(str(recorded.cli.folder / "w.db")) as realm:
        for row in rows:
            wire = realm.proposal(row["proposal_id"]).to_wire()
            intent = wire["intent"]
            shown = (row["status"], row["actor_id"], row["branch"], row["attempt"], row["world_id"])
            assert shown == (
                wire["status"],
                wire["actor"]["actorId"],
                wire["branch"],
                wire["attempt"],
                wire.get("worldId"),
            )
            assert (row["intent_id"], row["action"]) == (intent["intentId"], intent["body"]["type"])
            assert json.loads(row["input"] or "null") == intent["body"].get("input")
            assert row["decision_id"] == wire.get("decision", {}).get("decisionId")
            assert row["error_code"] == wire.get("error", {}).get("code")
            assert row["effects"] == wire.get("effects", {}).get("fulfilled", row["effects"])
            assert (row["ended_at"] is not None) == realm.proposal(row["proposal_id"]).is_terminal


def test_the_files_name_the_log_and_its_tree_head(recorded: Recorded) -> None:
    with open_log(str(recorded.cli.folder / "w.db")) as log:
        head = log.head()
        first = json.loads(log.event_at(1).state)
    for table in TABLES:
        told = json.loads(
            pyarrow.parquet.read_metadata(file_of(recorded.cli.folder / "tables", table)).metadata[b"worldProtocol"]
        )
        assert told == {
            "log": first["logId"],
            "name": "main",
            "after": 0,
            "size": head.size,
            "root": head.root_hex,
            "table": table,
        }


# Ten questions


def test_who_did_what(recorded: Recorded) -> None:
    counted: Counter[tuple[str, str, str]] = Counter()
    for status in (
        "completed",
        "failed",
        "rejected",
        "superseded",
        "submitted",
        "evaluating",
        "approved",
        "executing",
    ):
        for event in recorded.log("--topic", "proposal.submitted", "--status", status):
            submitted = event["state"]
            counted[submitted["actor"]["actorId"], submitted["intent"]["body"]["type"], status] += 1
    rows = recorded.ask("Who did what")
    assert {(row["actor_id"], row["action"], row["status"]): row["proposals"] for row in rows} == counted


def test_what_was_rejected(recorded: Recorded) -> None:
    made = [event["state"]["decision"] for event in recorded.log("--topic", "decision.made", "--status", "rejected")]
    rows = recorded.ask("What was rejected")
    assert [(row["proposal_id"], row["authority"], row["reason"], ms(row["decided_at"])) for row in rows] == [
        (one["proposalId"], one["authority"], one["reason"], one["decidedAt"]) for one in made
    ]


def test_why_a_world_was_allowed(recorded: Recorded) -> None:
    decisions = {
        event["state"]["proposalId"]: event["state"]["decision"] for event in recorded.log("--topic", "decision.made")
    }
    answers = recorded.log("--topic", "human.answered")
    sealed = [event["state"] for event in recorded.log("--topic", "world.sealed") if event["state"]["createdBy"]]
    expected = []
    for world in sealed:
        decision, proposal = decisions[world["createdBy"]], world["createdBy"]
        rules = [one["rule"] for one in decision.get("trace", []) if one.get("decisive")]
        people = [
            event["state"]["answer"]["by"]["actorId"]
            for event in answers
            if event["state"]["proposalId"] == proposal
            and event["state"]["answer"]["choice"] in ("approve", "reject", "narrow")
        ]
        expected.append((world["worldId"], decision["authority"], decision["reason"], rules, people))
    rows = recorded.ask("Why was this world allowed")
    names = ("world_id", "authority", "reason", "decisive_rules", "people")
    assert [tuple(row[name] for name in names) for row in rows] == expected
    if rows:
        shown = recorded.cli("--log", "w.db", "show", rows[-1]["world_id"], "--json").out
        assert json.dumps(rows[-1]["reason"], ensure_ascii=False) in shown


def test_which_people_answered(recorded: Recorded) -> None:
    events = recorded.log("--topic", "human.answered")
    rows = recorded.ask("Which people answered")
    assert [(row["proposal_id"], row["person"], row["choice"], row["reason"] or "") for row in rows] == [
        (
            event["state"]["proposalId"],
            event["state"]["answer"]["by"]["actorId"],
            event["state"]["answer"]["choice"],
            event["state"]["answer"].get("reason", ""),
        )
        for event in events
    ]


def test_which_worlds_changed_each_place(recorded: Recorded) -> None:
    expected = [
        (patch["path"], event["state"]["worldId"])
        for event in recorded.log("--topic", "world.sealed")
        if event["state"]["outcome"] == "completed"
        for patch in event["state"].get("patches", [])
    ]
    rows = recorded.ask("Which worlds changed")
    assert sorted((row["place"], row["world_id"]) for row in rows) == sorted(expected)
    assert [row["place"] for row in rows] == sorted(row["place"] for row in rows)


def test_what_failed(recorded: Recorded) -> None:
    failed = [event["state"] for event in recorded.log("--topic", "proposal.failed")]
    counted = Counter(one["error"]["code"] for one in failed)
    rows = recorded.ask("What failed")
    assert {row["error_code"]: row["failures"] for row in rows} == counted
    for row in rows:
        assert ms(row["last"]) == max(one["at"] for one in failed if one["error"]["code"] == row["error_code"])


def test_what_waits_for_people(recorded: Recorded) -> None:
    shown = recorded.cli("--log", "w.db", "inbox", "--json").json
    rows = recorded.ask("What waits for people")
    assert sorted(row["proposal_id"] for row in rows) == sorted(one["proposalId"] for one in shown)


def test_how_worlds_descend(recorded: Recorded) -> None:
    shown = recorded.cli("--log", "w.db", "worlds", "--limit", "10000", "--json").lines
    rows = recorded.ask("How do the worlds descend")
    assert {(row["world_id"], row["parent"], row["depth"]) for row in rows} == {
        (one["worldId"], one["parent"], one["height"]) for one in shown
    }


def test_how_long_decisions_took(recorded: Recorded) -> None:
    submitted = {
        event["state"]["proposalId"]: event["state"] for event in recorded.log("--topic", "proposal.submitted")
    }
    took: dict[str, list[int]] = {}
    for event in recorded.log("--topic", "decision.made"):
        first = submitted[event["state"]["proposalId"]]
        took.setdefault(first["intent"]["body"]["type"], []).append(
            event["state"]["decision"]["decidedAt"] - first["at"]
        )
    rows = recorded.ask("How long did proposals wait")
    assert {row["action"]: (row["decided"], row["median_ms"], row["longest_ms"]) for row in rows} == {
        action: (len(times), median(times), max(times)) for action, times in took.items()
    }


def test_which_effects_were_in_doubt(recorded: Recorded) -> None:
    resolved = {
        (event["stream"], event["state"]["requirementId"]): event["state"]
        for event in recorded.log("--topic", "effect.resolved")
    }
    expected = []
    for event in recorded.log("--topic", "effect.in_doubt"):
        answer = resolved.get((event["stream"], event["state"]["requirementId"]), {})
        expected.append((event["stream"], event["state"]["reason"], answer.get("choice"), answer.get("by")))
    rows = recorded.ask("Which effects were in doubt")
    assert [(row["proposal_id"], row["doubt"], row["choice"], row["by_whom"]) for row in rows] == expected


# What the page shows

SHOWN = re.findall(r"^### (.+?)\n.*?```sh\n(.+?)```\n\n```text\n(.+?)```", PAGE, re.DOTALL | re.MULTILINE)
ROWS = 5
"""Most rows of an answer on the page."""


def test_the_page_shows_an_answer_to_every_question() -> None:
    assert [title for title, *_ in SHOWN] == list(QUESTIONS)


@pytest.mark.parametrize(("title", "command", "answer"), SHOWN, ids=[title for title, *_ in SHOWN])
def test_the_commands_of_the_page_give_its_answers_on_the_demo(
    title: str, command: str, answer: str, demonstrated: Recorded
) -> None:
    line, given = command.split("\n", 1)
    arguments = shlex.split(line.removesuffix(" <<'SQL'"))[1:]
    assert (arguments[:2], arguments[2:], given.splitlines()[-1]) == (["--config", CONFIG], ["sql", "-"], "SQL")
    query = given.removesuffix("SQL\n")
    said = demonstrated.cli("--config", str(ROOT / CONFIG), "--log", "w.db", *arguments[2:], given=query).out
    assert demonstrated.cli("sql", "--tables", "tables", "-", given=query).out == said
    lines = [re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1...", line).rstrip() for line in said.splitlines()]
    more = [] if len(lines) <= 1 + ROWS else [f"({len(lines) - 1 - ROWS} more rows)"]
    assert answer.splitlines() == [*lines[: 1 + ROWS], *more], title
    assert len(lines) > 1


# The past, and the terminal


@pytest.mark.parametrize("at", [12, 40, 90])
def test_a_point_in_the_past_is_asked_like_a_log_that_ended_there(garden: Inside, at: int) -> None:
    question = "SELECT proposal_id, status FROM proposals ORDER BY proposal_id"
    rows = garden("--log", "w.db", "sql", "--at", str(at), question, "--json").lines
    statuses = {
        event["state"]["proposalId"]: status
        for status in (
            "submitted",
            "evaluating",
            "approved",
            "executing",
            "completed",
            "failed",
            "rejected",
            "superseded",
        )
        for event in garden(
            "--log", "w.db", "log", "--at", str(at), "--status", status, "--topic", "proposal.submitted", "--json"
        ).lines
    }
    assert {row["proposal_id"]: row["status"] for row in rows} == statuses
    events = garden(
        "--log", "w.db", "sql", "--at", str(at), "SELECT max(log_position) AS last FROM events", "--json"
    ).lines
    assert events[0]["last"] == garden("--log", "w.db", "log", "--at", str(at), "--json").lines[-1]["position"]


def test_a_terminal_text_holds_one_row_a_line(garden: Inside) -> None:
    said = garden(
        "--log",
        "w.db",
        "sql",
        "SELECT 'a\tb\nc' AS odd, NULL AS none, TIMESTAMPTZ '2026-01-02 03:04:05.678Z' AS at_time",
    )
    assert said.out.splitlines() == ["odd\tnone\tat_time", "a\\tb\\nc\t\t2026-01-02T03:04:05.678Z"]


def test_without_a_query_the_columns_are_listed(garden: Inside) -> None:
    rows = garden("sql", "--json").json
    assert [(row["table"], row["column"]) for row in rows] == [
        (table, one.name) for table, columns in TABLES.items() for one in columns
    ]
    listed = garden("sql").out.splitlines()
    assert len(listed) == len(rows) + 1


# What a query may not do


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('tables/events.parquet')",
        "SELECT * FROM glob('*')",
        "COPY events TO 'stolen.csv'",
        "COPY events TO 'tables/events.parquet'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "EXPORT DATABASE 'stolen'",
        "DELETE FROM events",
        "SELEC 1",
        "SELECT nothing FROM events",
        "",
    ],
)
def test_a_query_reads_the_tables_and_nothing_else(garden: Inside, query: str) -> None:
    garden("--log", "w.db", "export", "--format", "parquet", "tables")
    before = {path: path.read_bytes() for path in sorted(garden.folder.rglob("*")) if path.is_file()}
    assert refused(garden, "sql", "--tables", "tables", query) == "INVALID_SQL"
    assert {path: path.read_bytes() for path in sorted(garden.folder.rglob("*")) if path.is_file()} == before


# Wrong input


def test_files_that_are_there_are_replaced_only_with_force(garden: Inside) -> None:
    export = ("--log", "w.db", "export", "--format", "parquet", "tables")
    garden(*export)
    (garden.folder / "tables" / "worlds.parquet").write_bytes(b"mine")
    assert refused(garden, *export) == "INVALID_TARGET"
    assert (garden.folder / "tables" / "worlds.parquet").read_bytes() == b"mine"
    garden(*export, "--force")
    assert garden("sql", "--tables", "tables", "SELECT count(*) AS n FROM worlds", "--json").lines[0]["n"] > 0
    assert sorted(path.name for path in (garden.folder / "tables").iterdir()) == sorted(
        f"{one}.parquet" for one in TABLES
    )


def test_a_changed_event_is_no_row_and_leaves_no_file(garden: Inside) -> None:
    with sqlite3.connect(garden.folder / "w.db") as store:
        store.execute("UPDATE wp_event SET state = replace(state, '\"at\"', '\"At\"') WHERE topic = 'decision.made'")
    said = garden("--log", "w.db", "export", "--format", "parquet", "tables", "--json", code=3)
    assert said.json["error"]["code"] == "EVENT_CHANGED"
    assert not list((garden.folder / "tables").iterdir())


@pytest.mark.parametrize("damage", ["gone", "garbage", "other columns"])
def test_a_folder_without_the_tables_is_refused(garden: Inside, damage: str) -> None:
    garden("--log", "w.db", "export", "--format", "parquet", "tables")
    target = garden.folder / "tables" / "decisions.parquet"
    if damage == "gone":
        target.unlink()
    elif damage == "garbage":
        target.write_bytes(b"PAR1 no PAR1")
    else:
        target.write_bytes((garden.folder / "tables" / "worlds.parquet").read_bytes())
    assert refused(garden, "sql", "--tables", "tables", "SELECT 1", code=1) == "BAD_EXPORT"


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "--format", "parquet"),
        ("export", "--format", "parquet", "-"),
        ("export", "--format", "parquet", "tables", "--redact", "inputs"),
        ("export", "--format", "xml", "tables"),
        ("sql", "--tables", "tables", "--at", "3", "SELECT 1"),
    ],
)
def test_options_that_contradict_each_other_are_refused(garden: Inside, arguments: tuple[str, ...]) -> None:
    said = garden("--log", "w.db", *arguments, code=2)
    assert said.err.startswith("error: ")
    assert "--help" in said.err
    assert not (garden.folder / "tables").exists()


def test_a_target_that_is_no_folder_is_refused(garden: Inside) -> None:
    (garden.folder / "tables").write_text("a file")
    assert refused(garden, "--log", "w.db", "export", "--format", "parquet", "tables") == "INVALID_TARGET"
    assert (garden.folder / "tables").read_text() == "a file"


# Memory


def test_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 10)
    with (GOLDEN / "garden.jsonl").open("rb") as lines:
        import_log(lines, str(tmp_path / "w.db"))
    with open_log(str(tmp_path / "w.db")) as log:
        head = export_tables(log, tmp_path / "tables")
    read = pyarrow.parquet.ParquetFile(file_of(tmp_path / "tables", "events"))
    groups = [read.metadata.row_group(index).num_rows for index in range(read.metadata.num_row_groups)]
    assert sum(groups) == head.size
    assert set(groups[:-1]) == {10}
    leaves = read.read(columns=["leaf"]).column("leaf").to_pylist()
    frontier = Frontier().extended(bytes.fromhex(leaf) for leaf in leaves)
    assert TreeHead(frontier.size, frontier.root()) == head
