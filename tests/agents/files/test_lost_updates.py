"""A write of a whole file loses no change of another: it is refused unless its session knows what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.files.fleet import NOT_PROPOSED, Fleet, code_of, fleet, reason_of, session_of
from world.audit.verify import verify
from world.clock import ManualClock
from worldprotocol.agents import intents
from worldprotocol.agents.call_values import Allowed, Denied
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.files.history import Reader
from worldprotocol.agents.tool_calls import ToolCalls

ONE, TWO = session_of("one"), session_of("two")
NAME = "src/app.py"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def agents(tmp_path: Path, clock: ManualClock) -> Iterator[Fleet]:
    with fleet(tmp_path, clock) as made:
        made.path(NAME).write_text("x = 1\n")
        yield made
        assert verify(made.realm.log).ok


def refused(agents: Fleet, reader: Reader, *, name: str = NAME) -> tuple[str, str]:
    """Write a file that must not be written; return code and sentence."""
    before = agents.path(name).read_text() if agents.path(name).exists() else None
    size = agents.realm.log.head().size
    call = agents.write(reader, name, "lost\n")
    assert isinstance(call.answer, Denied), call.answer
    assert (agents.path(name).read_text() if agents.path(name).exists() else None) == before
    if call.answer.proposal is NOT_PROPOSED:
        assert agents.realm.log.head().size == size
        return call.answer.code, call.answer.reason
    ended = agents.realm.proposal(call.answer.proposal.proposal_id)
    assert (ended.status, ended.error and ended.error.code) == ("failed", call.answer.code)
    assert not agents.realm.realm().klis.leases
    return call.answer.code, call.answer.reason


def test_a_file_that_was_not_read_is_not_written_whole(agents: Fleet) -> None:
    code, reason = refused(agents, ONE)
    assert code == "NOT_READ"
    assert "Read it, then write it" in reason


@pytest.mark.requirement("KM-3.2")
def test_a_write_of_an_unread_file_neither_waits_for_its_holder_nor_holds_it(agents: Fleet) -> None:
    agents.read(TWO, NAME)
    held = agents.ask(TWO, agents.writing(NAME))
    assert code_of(held) == "allowed"
    leases, size = set(agents.realm.realm().klis.leases), agents.realm.log.head().size
    assert code_of(agents.ask(ONE, agents.writing(NAME))) == "NOT_READ"
    assert (set(agents.realm.realm().klis.leases), agents.realm.log.head().size) == (leases, size)
    assert not agents.realm.realm().klis.requests
    agents.end(held)


def test_a_write_of_a_guarded_file_is_recorded_also_where_it_was_not_read(agents: Fleet) -> None:
    agents.path(".claude").mkdir()
    agents.path(".claude/settings.json").write_text("{}")
    call = agents.write(ONE, ".claude/settings.json", "lost")
    assert isinstance(call.answer, Denied)
    assert call.answer.proposal is not NOT_PROPOSED
    assert agents.realm.proposal(call.answer.proposal.proposal_id).intent.body.input["guarded"]
    assert not agents.realm.realm().klis.leases


def test_a_file_that_was_read_is_written(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    call = agents.write(ONE, NAME, "x = 2\n")
    assert isinstance(call.answer, Allowed)
    given = call.answer.proposal.intent.body.input
    assert given["base"] == given["content"]
    assert given["base"].startswith("sha256-")


@pytest.mark.requirement("KM-3.2")
def test_the_second_of_two_writes_from_one_reading_names_the_first(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    agents.read(TWO, NAME)
    first = agents.write(TWO, NAME, "x = 2\n")
    code, reason = refused(agents, ONE)
    assert code == "STALE_READ"
    assert f"two (proposal {first.answer.proposal.proposal_id}, 20" in reason
    assert "changed it" in reason
    agents.read(ONE, NAME)
    assert code_of(agents.write(ONE, NAME, "x = 3\n")) == "allowed"


def test_a_session_writes_again_after_its_own_write(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    for number in range(3):
        assert code_of(agents.write(ONE, NAME, f"x = {number}\n")) == "allowed"
    created = "src/new.py"
    for number in range(3):  # a new file needs no reading, and one that the session wrote neither
        assert code_of(agents.write(ONE, created, f"y = {number}\n")) == "allowed"


def test_a_write_after_a_failed_write(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    failed = agents.ask(ONE, agents.writing(NAME))
    agents.fail(failed)  # the tool wrote nothing
    assert code_of(agents.write(ONE, NAME, "x = 2\n")) == "allowed"
    failed = agents.ask(ONE, agents.writing(NAME))
    agents.path(NAME).write_text("x =")  # half of it
    agents.fail(failed)
    code, reason = refused(agents, ONE)
    assert code == "STALE_READ"
    assert f"this session (proposal {failed.answer.proposal.proposal_id}" in reason
    assert "may have changed it" in reason


def test_a_change_outside_of_the_protocol_is_named_as_such(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    agents.path(NAME).write_text("a person's editor\n")
    code, reason = refused(agents, ONE)
    assert code == "STALE_READ"
    assert "changed outside of the protocol" in reason
    agents.read(TWO, NAME)
    assert code_of(agents.write(TWO, NAME, "x = 2\n")) == "allowed"
    agents.path(NAME).write_text("again\n")
    assert "changed outside of the protocol" in refused(agents, ONE)[1]  # what was written before is not there any more


def test_what_changes_while_it_is_read_was_not_read(agents: Fleet) -> None:
    call = agents.ask(ONE, agents.reading(NAME))
    agents.path(NAME).write_text("between\n")
    assert "seen" not in agents.end(call)
    assert refused(agents, ONE)[0] == "NOT_READ"


def test_an_earlier_reading_stays_where_a_later_one_does_not_count(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    call = agents.ask(ONE, agents.reading(NAME))
    agents.path(NAME).write_text("between\n")
    agents.end(call)
    assert refused(agents, ONE)[0] == "STALE_READ"
    agents.path(NAME).write_text("x = 1\n")
    assert code_of(agents.write(ONE, NAME, "x = 2\n")) == "allowed"


def test_a_part_of_a_file_is_no_reading_of_it(agents: Fleet) -> None:
    agents.end(agents.ask(ONE, agents.reading(NAME, is_whole=False)))
    assert refused(agents, ONE)[0] == "NOT_READ"
    agents.end(agents.ask(ONE, agents.reading(NAME)), is_partial=True)  # its answer said so
    assert refused(agents, ONE)[0] == "NOT_READ"
    agents.read(ONE, NAME)
    agents.end(agents.ask(ONE, agents.reading(NAME, is_whole=False)))
    assert code_of(agents.write(ONE, NAME, "x = 2\n")) == "allowed"


def test_each_session_and_each_subagent_has_its_own_reading(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    for other in (session_of("one", "t"), session_of("one", "s", "helper"), Reader("one", "codex", "s", None)):
        assert refused(agents, other)[0] == "NOT_READ"
    other = session_of("one", "t")
    agents.read(other, NAME)
    written = agents.write(other, NAME, "x = 2\n")
    reason = refused(agents, ONE)[1]
    assert f"another session of one (proposal {written.answer.proposal.proposal_id}" in reason


def test_an_edit_that_carries_its_context_needs_no_reading(agents: Fleet) -> None:
    assert code_of(agents.write(ONE, NAME, "x = 2\n", is_whole=False)) == "allowed"
    assert refused(agents, ONE)[0] == "NOT_READ"  # of the rest the session knows nothing


def test_an_edit_in_a_change_of_another_is_no_reading_of_it(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    agents.read(TWO, NAME)
    agents.write(TWO, NAME, "x = 1\ny = 2\n")
    assert code_of(agents.write(ONE, NAME, "x = 3\ny = 2\n", is_whole=False)) == "allowed"
    code, reason = refused(agents, ONE)
    assert code == "STALE_READ"
    assert re.search(r"two \(proposal \S+, \S+\) changed it and this session \(proposal", reason)
    agents.read(ONE, NAME)
    agents.write(ONE, NAME, "x = 4\ny = 2\n", is_whole=False)
    assert code_of(agents.write(ONE, NAME, "x = 5\ny = 2\n")) == "allowed"  # it knew what it edited


def test_a_deletion_is_not_undone_unnoticed(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    asked = agents.writing(NAME)
    deleting = agents.ask(TWO, intents.delete(agents.project, "Delete", NAME, str(agents.project.root)))
    agents.realm.decide(deleting.answer.proposal.proposal_id, "approve", by="ann")
    deleting = agents.again(TWO, deleting.intent, deleting.key)
    agents.path(NAME).unlink()
    agents.end(deleting)
    call = agents.ask(ONE, asked)
    assert (code_of(call), "deleted it" in reason_of(call)) == ("STALE_READ", True), call.answer
    assert code_of(agents.write(ONE, NAME, "anew\n")) == "allowed"  # then it is a new file


def test_a_file_that_was_created_meanwhile_is_not_overwritten(agents: Fleet) -> None:
    name = "src/new.py"
    asked = agents.writing(name)
    agents.write(TWO, name, "y = 1\n")
    call = agents.ask(ONE, asked)
    assert code_of(call) == "STALE_READ"
    assert "was created after this call was proposed" in reason_of(call)


def test_what_a_session_knows_survives_the_server(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    agents.restart()
    assert code_of(agents.write(ONE, NAME, "x = 2\n")) == "allowed"
    call = agents.ask(TWO, agents.reading(NAME))
    agents.restart()
    agents.end(call)
    assert refused(agents, TWO)[0] == "NOT_READ"  # what was there before it is not known any more


def test_files_that_cannot_be_hashed_are_not_written_whole(agents: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldprotocol.agents.files.hashes.MAX_BYTES", 3)
    agents.read(ONE, NAME)
    code, reason = refused(agents, ONE)
    assert code == "NOT_READ"
    assert "cannot be compared" in reason


@pytest.mark.parametrize("words", ["Add File: src/app.py\n+x", "Update File: src/lib.py\n*** Move to: src/app.py"])
def test_a_patch_overwrites_no_file_that_was_not_read(agents: Fleet, words: str) -> None:
    agents.path("src/lib.py").write_text("y = 2\n")
    root = str(agents.project.root)
    adding = intents.patch(agents.project, "apply_patch", f"*** Begin Patch\n*** {words}\n*** End Patch", root)
    assert code_of(agents.ask(ONE, adding)) == "NOT_READ"
    agents.read(ONE, NAME)
    call = agents.ask(ONE, adding)
    assert code_of(call) == "allowed"
    agents.path(NAME).write_text("x\n")
    assert set(agents.end(call)["wrote"]) >= {"/src/app.py"}
    assert code_of(agents.ask(ONE, adding)) == "allowed"
    text = "*** Begin Patch\n*** Update File: src/app.py\n@@\n-x\n+y\n*** End Patch"
    assert code_of(agents.ask(TWO, intents.patch(agents.project, "apply_patch", text, root))) == "waiting"


def test_a_write_that_waited_is_compared_when_it_has_its_lease(agents: Fleet, clock: ManualClock) -> None:
    agents.read(ONE, NAME)
    agents.read(TWO, NAME)
    held = agents.ask(TWO, agents.writing(NAME))
    waiting = agents.ask(ONE, agents.writing(NAME))
    assert (code_of(held), code_of(waiting)) == ("allowed", "waiting")
    agents.path(NAME).write_text("x = 2\n")
    agents.end(held)
    clock.advance(60_000)
    agents.realm.settle()
    again = agents.again(ONE, waiting.intent, waiting.key)
    assert again.answer.proposal.proposal_id == waiting.answer.proposal.proposal_id
    assert code_of(again) == "STALE_READ"


def test_a_repeated_event_of_a_call_that_is_being_made_is_the_same_call(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    call = agents.ask(ONE, agents.writing(NAME))
    agents.path(NAME).write_text("x = 2\n")  # the tool wrote already
    assert code_of(agents.again(ONE, call.intent, call.key)) == "allowed"
    assert agents.end(call)["seen"] == agents.end(agents.ask(TWO, agents.reading(NAME)))["seen"]
    gone = agents.ask(ONE, agents.writing(NAME))
    ToolCalls(agents.realm, "one", "claude-code").report(gone.key, failure=("TOOL_OUTCOME_UNKNOWN", "It left."))
    agents.path(NAME).write_text("x = 3\n")
    again = agents.again(ONE, gone.intent, gone.key, has_own_id=False)  # another call with the same content
    assert code_of(again) == "STALE_READ"


def test_a_call_that_waits_is_replaced_after_a_later_reading(agents: Fleet) -> None:
    agents.read(ONE, NAME)
    agents.read(TWO, NAME)
    held = agents.ask(TWO, agents.writing(NAME))
    waiting = agents.ask(ONE, agents.writing(NAME))
    agents.path(NAME).write_text("x = 2\n")
    agents.read(ONE, NAME)  # it waits for nothing
    again = agents.ask(ONE, agents.writing(NAME))
    first = agents.realm.proposal(waiting.answer.proposal.proposal_id)
    assert first.is_terminal
    assert again.answer.proposal.proposal_id != first.proposal_id
    agents.end(held)
    calls = ToolCalls(agents.realm, "one", "claude-code")
    calls.give_up(again.key, "no more")


def test_an_equal_call_continues_what_waits_although_the_file_changed(agents: Fleet) -> None:
    env = ".env"
    agents.path(env).write_text("A=1\n")
    asked = agents.ask(ONE, agents.reading(env))
    assert code_of(asked) == "waiting"
    agents.path(env).write_text("A=2\n")
    again = agents.ask(ONE, agents.reading(env))
    assert again.answer.proposal.proposal_id == asked.answer.proposal.proposal_id
    agents.realm.decide(asked.answer.proposal.proposal_id, "approve", by="ann")
    last = agents.ask(ONE, agents.reading(env))
    assert code_of(last) == "allowed"
    agents.end(last)
    assert code_of(agents.ask(ONE, agents.reading(env))) == "waiting"
    agents.path(env).write_text("A=3\n")
    made = agents.again(ONE, last.intent, last.key)  # a repeated event, though the file is another one by now
    assert code_of(made) == "MADE_ALREADY"


def test_what_others_change_during_a_command_is_recorded(agents: Fleet) -> None:
    reading = intents.command(agents.project, "Bash", "ls", str(agents.project.root), terms=CommandTerms("namespaces"))
    assert (reading.input["reads"], reading.input["writes"]) == ([], [])
    agents.write(TWO, "src/before.py", "")
    call = agents.ask(ONE, reading)
    assert code_of(call) == "allowed"
    [lease] = agents.realm.realm().klis.leases.values()
    assert (str(lease.triple.predicate), lease.triple.resource.text.partition("-")[0]) == ("CONSUMES", "CONTENT:scan")
    agents.write(TWO, "src/during.py", "")
    going_on = agents.ask(session_of("three"), agents.writing("src/going_on.py"))
    assert agents.end(call) == {"inputsChanged": ["FILE:/src/during.py", "FILE:/src/going_on.py"]}
    agents.fail(going_on)
    quiet = agents.ask(ONE, reading)
    assert agents.end(quiet) == {}


@pytest.mark.requirement("LIVE-lease")
def test_a_read_does_not_wait_for_a_command_that_may_write_everything(agents: Fleet) -> None:
    terms = CommandTerms("namespaces")
    running = agents.ask(ONE, intents.command(agents.project, "Bash", "make", str(agents.project.root), terms=terms))
    assert code_of(running) == "allowed"
    assert "FILE:/*" in {lease.triple.resource.text for lease in agents.realm.realm().klis.leases.values()}
    reading = agents.ask(TWO, agents.reading(NAME))
    assert code_of(reading) == "allowed"
    assert code_of(agents.ask(session_of("three"), agents.writing("src/new.py"))) != "allowed"
    agents.end(reading)
    agents.end(running)
