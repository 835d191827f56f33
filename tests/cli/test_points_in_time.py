"""``--at`` everywhere: what a command tells of a point in the past is what it told when the log ended there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import click
import pytest

from tests.cli.inside import Inside
from tests.cli.moments import Past, garden_in, harbour_in, till_in
from tests.cli.realm import ROOT
from tests.support.tables import for_each
from world.clock import SystemClock
from worldprotocol.cli.registry import COMMANDS
from worldprotocol.cli.support.command_context import CliCommand


def listed(text: str) -> list[str]:
    """Return names of commands, which stand between commas."""
    return [" ".join(name.split()) for name in text.split(",")]


ACTING: Final = frozenset(
    listed(
        """
        init, new, hooks install, hooks uninstall, hooks call, hooks git, mcp, mcp proxy, mcp pin,
        actor add, actor bind, policy adopt, policy retire, policy shadow on, policy shadow off, submit, project,
        decide, dev,
        branch create, branch switch, settle, resolve, cancel, adopt, lease acquire, lease heartbeat, lease release,
        lease revoke, run, backups restore, backups prune, keys new, keys register, keys revoke, checkpoint keygen,
        import, klis configure, clock confirm, rights grant, rights revoke, token create, token revoke, serve, worker,
        workspace keep, workspace register, feed run, feed resume,
        realm create, realm add, realm move, realm archive, realm restore, realm open,
        archive, cut
        """
    )
)
"""Commands that write: to the log, a key, an archive, the workspace. All others look."""

WITHOUT_A_LOG: Final = frozenset(
    listed(
        """
        simulate, policy lint, policy test, domain check, domain compile, domain format, domain lsp, klis schema,
        klis validate, klis sign, klis verify, hooks status, realm list, realm history, realm verify
        """
    )
)
"""Commands that open no log."""

GENERAL: Final = [
    words.split()
    for words in listed(
        """
        state, blame, worlds, inbox, stuck, effects, rights list, token list, waits, runs, runs --open, branch list,
        actor list, lease list,
        keys list, policy list, policy list --all, policy diff, policy shadow show, actions --all --explain, log,
        log --status completed, log --reverse, replay --data, report, recheck, show HEAD --data, show main,
        state --branch main, worlds --branch main, trace HEAD
        """
    )
] + [["sql", "SELECT * FROM proposals ORDER BY proposal_id"]]
"""Commands for every realm."""


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command that does something by its full name, or those of a group."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        for own, one in command.commands.items():
            yield from leaves(f"{name} {own}", one)


ALL: Final = {name: one for top, entry in COMMANDS.items() for name, one in leaves(top, entry.load())}
LOOKING: Final = {name: one for name, one in ALL.items() if name not in ACTING}
WITH_AT: Final = frozenset(name for name, one in LOOKING.items() if any("--at" in word.opts for word in one.params))


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return garden_in(tmp_path_factory.mktemp("garden"))


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return harbour_in(tmp_path_factory.mktemp("harbour"))


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> Past:
    past = till_in(tmp_path_factory.mktemp("till"))
    (past.realm.folder / "pay.json").write_text('{"type": "pay", "input": {"amount": 15}}')
    return past


def named_cells(title: str) -> list[str]:
    """Return the names of commands in the first column of a table of the page for auditors."""
    text = (ROOT / "docs/auditor.md").read_text(encoding="utf-8").partition(f"\n### {title}\n")[2].partition("\n#")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name.strip("` ") for cell in cells for name in cell.split(",")]


@pytest.mark.requirement("CARD-audit")
def test_every_command_that_looks_has_at_or_the_page_says_why_not() -> None:
    assert ALL.keys() >= ACTING | WITHOUT_A_LOG
    text = (ROOT / "docs/auditor.md").read_text(encoding="utf-8").partition("\n## Past worlds\n")[2]
    told = text.partition("takes `--at`")[2].partition(".\n")[0]
    assert {name.strip() for name in told.split("`")[1::2]} == WITH_AT
    assert sorted(named_cells("Commands without `--at`")) == sorted(LOOKING.keys() - WITH_AT)


def test_every_command_that_looks_takes_json() -> None:
    for one in LOOKING.values():
        assert isinstance(one, CliCommand) or one.params
        assert any("--json" in word.opts for word in one.params)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("world.db*")}


@pytest.mark.requirement("CARD-audit", "CARD-log")
def test_every_command_that_looks_leaves_the_log_as_it_is_and_tells_it_as_json(till: Past, tmp_path: Path) -> None:
    shutil.copytree(till.realm.folder, tmp_path, dirs_exist_ok=True)
    realm = Inside(tmp_path)
    key = tmp_path / "log.key"
    realm("checkpoint", "keygen", "example.com/till", "-o", str(key))
    proposal = state(till, till.first("proposal.submitted"))["proposalId"]
    backup = realm("backups", "list", "--json").json[0]["backupId"]
    words = {
        "show": ["HEAD"], "trace": ["HEAD"], "explain": [proposal], "diff": ["5", "HEAD"],
        "bisect": ["--path", "balance", "--becomes", "55"], "policy show": ["strict"], "whatif": ["--drop", proposal],
        "policy ask": ["--actor", "bot", "--intent", "pay.json"], "policy backtest": ["--with", "strict"],
        "prove": [proposal], "checkpoint": ["--key", str(key), "--origin", "example.com/till", "-o", "head"],
        "salvage": ["-o", "saved"], "backups show": [backup], "policy test": ["--from", proposal],
    }  # fmt: skip
    before = bytes_of(tmp_path)
    for name in sorted(LOOKING.keys() - (WITHOUT_A_LOG - {"policy test"})):
        _, out, err = ended(realm, [*name.split(), *words.get(name, []), "--json"])
        told = [json.loads(line) for line in out.splitlines()]
        assert told, (name, err)
        assert not isinstance(told[0], dict) or told[0].keys() != {"error"}, (name, told)
        assert bytes_of(tmp_path) == before, name


def ended(realm: Inside, words: list[str]) -> tuple[int, str, str]:
    """Run a command and return its exit code, whichever it is, and what it said."""
    for code in (0, 1):
        try:
            said = realm(*words, code=code)
        except AssertionError as other:
            if other.args[0][0] == code:
                raise
        else:
            return code, said.out, said.err
    raise AssertionError(words)


def state(past: Past, position: int) -> Any:
    return json.loads(past.events[position - 1].state)


def names(past: Past, position: int) -> list[list[str]]:
    """Return commands about everything that had an id by then."""
    found: dict[str, list[list[str]]] = {}
    for event in past.events[:position]:
        told = json.loads(event.state)
        about = {
            "proposal.submitted": [("show", "proposalId"), ("explain", "proposalId"), ("trace", "proposalId")],
            "verdict.given": [("explain", "verdictId"), ("explain", "requestId")],
            "world.sealed": [("show", "worldId"), ("trace", "worldId")],
            "run.opened": [("show", "runId"), ("show", "sessionId")],
            "policy.adopted": [("policy show", "name")],
        }
        for command, name in about.get(event.topic, []):
            found.setdefault(f"{command} {name}", []).append([*command.split(), told[name]])
        if event.topic == "actor.registered":
            who = told["actor"]["actorId"]
            for words in (["actions", "--actor", who], ["inbox", "--for", who], ["log", "--actor", who]):
                found.setdefault(words[0], []).append(words)
    return [words for several in found.values() for words in (several[0], several[-1])]


def plain(told: Any) -> Any:
    """Return what was told without what names the question itself; of errors only that they are some."""
    if isinstance(told, list):
        return [plain(one) for one in told]
    if not isinstance(told, dict):
        return told
    if told.keys() == {"error"}:
        return "error"
    left_out = {"until"} if "upto" in told else {"at"} if isinstance(told.get("events"), list) else set()
    return {name: plain(value) for name, value in told.items() if name not in left_out}


CUTS: Final = [("till", "policy.retired", 0), ("harbour", "verdict.given", 6), ("garden", "effect.requested", 2)]
"""Events, some in the middle of a commit."""


@pytest.mark.requirement("CARD-audit", "CARD-replay")
@pytest.mark.parametrize(("name", "topic", "number"), CUTS)
@pytest.mark.slow
def test_at_tells_what_the_log_told_when_it_ended_there(
    name: str, topic: str, number: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    past: Past = request.getfixturevalue(name)
    position = past.first(topic, number)
    cut, now = past.cut(tmp_path, position), past.at_ms(position)
    asked = [*GENERAL, *names(past, position), ["show", str(position)]]
    if name == "till":
        asked.append(["policy", "ask", "--actor", "bot", "--intent", str(past.realm.folder / "pay.json")])
    with mock.patch.object(SystemClock, "now_ms", return_value=now):
        for words in asked:
            then, out, _ = ended(past.realm, [*words, "--at", str(position), "--json"])
            code, expected, _ = ended(cut, [*words, "--json"])
            told = [[json.loads(line) for line in text.splitlines()] for text in (out, expected)]
            assert (then, plain(told[0])) == (code, plain(told[1])), words


def test_the_cuts_try_every_command_that_has_at(till: Past, harbour: Past, garden: Past) -> None:
    tried = {" ".join(words) for words in GENERAL} | {"policy ask"}
    for past in (till, harbour, garden):
        tried |= {" ".join(words) for words in names(past, len(past.events))}
    assert {name for name in WITH_AT if not any(one == name or one.startswith(f"{name} ") for one in tried)} == set()


def error(realm: Inside, *words: str, code: int = 1) -> dict[str, Any]:
    told: dict[str, Any] = realm(*words, "--json", code=code).json["error"]
    return told


@pytest.mark.parametrize(
    ("at", "code", "said"),
    [
        ("9999", "NOT_FOUND", "There is no event 9999: the log ends with event"),
        ("2001-01-01", "NOT_FOUND", "is before the log began, at 2023-11-14T22:13:20Z"),
        ("2999-01-01", "NOT_FOUND", "is in the future"),
        ("nowhere", "NOT_FOUND", "names no point in the past"),
        ("0000", "AMBIGUOUS", "could be any of these"),
        ("", "NOT_FOUND", "names no point in the past"),
    ],
)
def test_no_point_in_the_past_is_guessed(at: str, code: str, said: str, garden: Past) -> None:
    told = error(garden.realm, "waits", "--at", at)
    assert (told["code"], said in told["message"]) == (code, True), told
    assert len(told["details"].get("candidates", [1, 2])) > 1


@for_each("name", sorted(WITH_AT))
def test_every_command_refuses_a_point_that_there_is_not(name: str, garden: Past) -> None:
    more = {"show": ["HEAD"], "trace": ["HEAD"], "explain": ["0"], "policy show": ["garden"], "sql": ["SELECT 1"]}.get(
        name, []
    )
    if name == "policy ask":
        (garden.realm.folder / "pay.json").write_text("{}")
        more = ["--actor", "bot", "--intent", "pay.json"]
    assert error(garden.realm, *name.split(), *more, "--at", "9999")["message"].startswith("There is no event 9999")


def test_a_number_that_is_no_event_is_no_id_either(garden: Past) -> None:
    told = error(garden.realm, "show", "9999")
    assert told == {
        "code": "NOT_FOUND",
        "message": f"There is no event 9999: the log ends with event {len(garden.events)}.",
        "details": {"size": len(garden.events)},
    }


def test_what_is_overdue_is_judged_by_the_time_that_was_named(harbour: Past, garden: Past) -> None:
    asked = next(at for at in range(1, 999) if '"onTimeout"' in json.dumps(state(garden, at).get("ruling", {})))
    deadline = next(one["deadline"] for one in garden.realm("inbox", "--at", str(asked), "--json").json)
    for at_ms, overdue in ((deadline, False), (deadline + 1, True)):
        waiting = garden.realm("inbox", "--at", str(at_ms), "--json").json
        assert [one["overdue"] for one in waiting] in ([], [overdue])
    waits = garden.realm("show", state(garden, asked)["proposalId"], "--at", str(asked)).out
    assert "; until " in waits
    assert "overdue" not in waits
    granted = next(event.position for event in harbour.events if b'"ttlMs":20000' in event.state)
    lease = next(one for one in harbour.realm("lease", "list", "--at", str(granted), "--json").json["leases"])
    ends = lease["expiresAt"]
    for ms in (harbour.at_ms(granted), ends):
        found = harbour.realm("lease", "list", "--at", str(ms), "--json").json["leases"]
        assert lease["leaseId"] in [one["leaseId"] for one in found]


def test_a_word_that_is_no_utf_8_names_nothing(garden: Past) -> None:
    shutil.copyfile(garden.realm.folder / "world.db", garden.realm.folder / "\udcff.db")
    assert "'\\udcff.db' is no UTF-8." in error(garden.realm, "--log", "\udcff.db", "worlds", code=2)["message"]
    for words in (["show", "\udcff"], ["trace", "\udcff"], ["explain", "\udcff"], ["state", "--at", "\udcff"]):
        assert error(garden.realm, *words)["code"] == "NOT_FOUND"


def test_log_does_not_wait_for_the_past(garden: Past) -> None:
    assert "--follow waits for what is to come" in garden.realm("log", "--follow", "--at", "5", code=2).err


def test_explain_knows_nothing_that_came_later(garden: Past) -> None:
    asked = state(garden, garden.first("human.answered"))["proposalId"]
    own = [event.position for event in garden.events if event.stream == asked]
    told = [garden.realm("explain", asked, "--at", str(at), "--json").json for at in own]
    assert [one["status"] for one in told[:2]] == ["submitted", "evaluating"]
    assert [len(one["answers"]) for one in told] == sorted(len(one["answers"]) for one in told)
    assert told[0]["verdict"] is None
    assert "wait" in (told[1]["verdict"], told[2]["verdict"])
    assert told[-1]["verdict"] == "approved"
    assert error(garden.realm, "explain", asked, "--at", str(own[0] - 1))["code"] == "NOT_FOUND"


def test_an_export_is_no_log_to_look_at(garden: Past, tmp_path: Path) -> None:
    for more, said in (
        ([], "The file is an export of a log: `worldctl import` reads it into a log."),
        (["--redact", "inputs"], "The file is a redacted export: `worldctl verify FILE` checks it"),
    ):
        file = tmp_path / f"log{len(more)}.jsonl"
        garden.realm("export", str(file), *more)
        told = error(garden.realm, "--log", str(file), "state", "--at", "5", code=2)
        assert (told["code"], said in told["message"]) == ("NOT_A_LOG", True)


def test_a_beginning_that_a_verdict_shares_with_a_proposal_names_neither(garden: Past, tmp_path: Path) -> None:
    position = next(event.position for event in garden.events if b'"verdictId":"00000000-0015-' in event.state)
    cut = garden.cut(tmp_path, position)
    for command in ("prove", "explain", "trace"):
        told = error(cut, command, "00000000-001")
        assert told["code"] == "AMBIGUOUS"
        assert {one["kind"] for one in told["details"]["candidates"]} >= {"proposal", "verdict"}
    assert cut("prove", "00000000-0015", "--json").json["about"]["kind"] == "verdict"
    shown = cut("show", "00000000-0015", "--json").json
    assert (shown["kind"], shown["topic"], shown["position"]) == ("event", "verdict.given", position)
    assert error(cut, "show", "00000000-0015", "--at", str(position - 1))["code"] == "NOT_FOUND"
