"""What actors, rules and data say never begins a line on the operator's terminal, nor steers it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.realm import CliRealm
from worldprotocol.cli.support.output import Printer
from worldprotocol.terminal_text import visible

FORGED = "x\n  ruling    approved by policy_rules:house\r\u001b[8m\u009b2J\u007f\u2028ruling\u202e\u2066\t\u0085end"
SAID = "x\\n  ruling    approved by policy_rules:house\\r\\u001b[8m\\u009b2J\\u007f\\u2028ruling\\u202e\\u2066"
DOMAIN = """
from pydantic import BaseModel
from worldprotocol import Approve, Domain, Escalate, Policy, Reject, rule, set_


class State(BaseModel):
    notes: dict[str, str] = {}


class Note(BaseModel):
    key: str = "k"
    words: str = ""


notes = Domain("urn:test:notes", version="1.0.0", state=State)


@notes.action("note", version="1")
def note(ctx, input: Note):
    if input.key == "fail":
        ctx.fail("NO", input.words)
    return [set_(f"notes.{input.key}", input.words)]


@rule
def says_it_again(case):
    asked = case.intent.body.input
    if asked["key"] == "no":
        return Reject("about " + asked["words"])
    if asked["key"] == "ask":
        return Escalate("ann", "about " + asked["words"])
    return Approve("about " + asked["words"])


house = Policy("house", [says_it_again])
"""


def is_plain(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


@given(st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L", "N", "P"]), max_size=20))
def test_visible_words_hold_nothing_that_steers_and_are_visible_as_they_are(words: str) -> None:
    shown = visible(words)
    assert visible(shown) == shown
    assert len(shown.splitlines()) <= 1
    assert not set(shown) & {chr(code) for code in [*range(32), *range(127, 160), *range(0x202A, 0x202F)]}
    shown.encode()
    if words.isprintable():
        assert shown == words


def test_letters_and_signs_of_all_scripts_stay_as_they_are() -> None:
    for words in ("Grüße, \u3000日本語 \U0001f469\u200d\U0001f52c नमस्ते \u00a0", "a\\nb"):
        assert visible(words) == words


def printed(call: Any, *, terminal: bool = False, as_json: bool = False) -> str:
    out, before = io.StringIO(), (sys.stdout, sys.stderr)
    sys.stdout = sys.stderr = out
    try:
        printer = Printer(as_json=as_json, quiet=False)
        printer.terminal = terminal
        call(printer)
    finally:
        sys.stdout, sys.stderr = before
    return out.getvalue()


def test_no_way_of_printing_lets_words_begin_a_line_or_a_column() -> None:
    for call in (
        lambda out: out.text(FORGED),
        lambda out: out.remark(FORGED),
        lambda out: out.warn(FORGED),
        lambda out: out.document(FORGED),
        lambda out: out.line(FORGED),
        lambda out: out.tell({}, FORGED),
        lambda out: out.row([FORGED]),
        lambda out: out.table([FORGED], []),
    ):
        text = printed(call)
        assert text.count("\n") <= 1
        assert is_plain(text)
    assert printed(lambda out: out.table(["a", "b"], [[FORGED, 1]])).count("\n") == 2
    assert printed(lambda out: out.table(["a", "b"], [[FORGED, 1]])).splitlines()[1].count("\t") == 1
    drawn = printed(lambda out: out.table(["a", "b"], [[FORGED, 1]]), terminal=True)
    assert "\\u001b[8m" in drawn
    assert is_plain(drawn)
    assert printed(lambda out: out.text("a\nb" + FORGED, laid_out=True)).startswith("a\nb")


def test_json_is_left_as_it_is() -> None:
    piped = printed(lambda out: out.tell({"words": FORGED}, FORGED), as_json=True)
    assert json.loads(piped) == {"words": FORGED}
    assert "\u009b" in piped
    lines = printed(lambda out: out.line({"words": FORGED}), as_json=True)
    assert (json.loads(lines), "\u009b" in lines) == ({"words": FORGED}, True)
    for print_it in (Printer.document, Printer.line):
        for where in ({"terminal": True, "as_json": True}, {"terminal": True}, {}):
            drawn = printed(lambda out: print_it(out, {"words": FORGED}), **where)  # noqa: B023
            assert is_plain(drawn)
            assert json.loads(drawn) == {"words": FORGED}  # the same, in escapes of JSON


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    folder: Path = tmp_path_factory.mktemp("forged")
    (folder / "notes.py").write_text(DOMAIN)
    made = CliRealm(folder)
    made("init", "--domain", "notes.py:notes", "--policy", "notes.py:house")
    made("actor", "add", "ann", "--kind", "human", "--auto-approve", "--name", FORGED)
    made("actor", "add", "bot", "--kind", "agent", "--policy", "house")
    return made


def said(realm: CliRealm, *arguments: str, code: int = 0) -> str:
    """Run a command and return what it said, with no character in it that steers, and no line that was forged."""
    told = realm(*arguments, code=code)
    for text in (told.out, told.err):
        assert is_plain(text)
        assert "\n  ruling    approved by policy_rules:house\\r" not in text
        assert "\nruling" not in text
    return told.out


@pytest.mark.slow
def test_no_command_prints_words_of_actors_rules_or_data_as_they_are(realm: CliRealm) -> None:
    def submit(key: str, code: int) -> str:
        line = json.dumps({"actor": "bot", "type": "note", "input": {"key": key, "words": FORGED}, "note": FORGED})
        return str(realm("submit", "--intents", "-", given=line, code=code).json["proposalId"])

    ids = {key: submit(key, code) for key, code in (("k", 0), ("no", 1), ("fail", 1), ("ask", 4))}
    one = json.dumps({"key": "no", "words": FORGED})
    assert SAID in said(realm, "submit", "note", "--actor", "bot", "--input", one, code=1)
    for name in ids.values():
        assert SAID in said(realm, "explain", name)
        said(realm, "show", name)
        said(realm, "trace", name)
    assert SAID in said(realm, "show", ids["no"])
    assert SAID in said(realm, "inbox")
    assert SAID in said(realm, "actor", "list")
    said(realm, "decide", ids["ask"], "reject", "--by", "ann", "--reason", FORGED)
    logged = map(json.loads, realm("log", "--json").out.rstrip("\n").split("\n"))
    for position in {line["topic"]: line["position"] for line in logged}.values():
        said(realm, "show", str(position))  # the last event of each topic
    for command in (
        ["log"],
        ["blame", "notes.k"],
        ["blame"],
        ["worlds"],
        ["verify"],
        ["recheck"],
        ["actions", "--tools"],
    ):
        said(realm, *command)
    for command, code in (
        (["diff", "5", "HEAD"], 1),
        (["whatif", "--drop", ids["k"]], 1),
        (["state", "notes.nowhere"], 1),
    ):
        said(realm, *command, code=code)
    found = ["bisect", "--path", "notes.k", "--becomes", json.dumps(FORGED)]
    said(realm, *found)


@pytest.mark.slow
def test_data_that_are_printed_as_json_for_people_are_the_data_and_steer_nothing(realm: CliRealm) -> None:
    line = json.dumps({"actor": "ann", "type": "note", "input": {"key": "data", "words": FORGED}})
    realm("submit", "--intents", "-", given=line)
    assert json.loads(said(realm, "state", "notes.data")) == FORGED
    assert json.loads(said(realm, "state"))["data"]["notes"]["data"] == FORGED
    shown = said(realm, "replay", "--data")
    assert json.loads(shown.splitlines()[-1])["main"]["notes"]["data"] == FORGED
    assert "\u009b" in realm("state", "notes.data", "--json").out  # a program is given them as they are
