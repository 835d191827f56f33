"""``worldctl inbox``: the proposals that wait for people."""

from __future__ import annotations

from typing import Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.listing import held_remark
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option

ENDINGS: Final = {"reject": "rejected", "approve": "approved", "escalate": "handed up to the next step"}
"""Outcome of a proposal without an answer in time, by its binding's onTimeout."""


@command("inbox")
@click.option("--for", "person", metavar="ID", help="Only what this actor may answer, or reply to.")
@click.option("--caller-left", is_flag=True, help="Instead the calls whose callers left before they were decided.")
@at_option("What waited at this point in the past; deadlines are judged by then.")
def inbox(desk: CommandContext, person: str | None, caller_left: bool, at: str | None) -> None:
    """List the proposals that wait for people, oldest first; `worldctl decide` answers them.

    One whose deadline has passed is overdue: it cannot be answered any more, and the next command that acts decides
    it as its binding says. `worldctl settle` does that at once.

    A call of an agent whose caller left waits no more; `--caller-left` lists these, the newest first.
    """
    from world.error_codes import ErrorCode
    from world.errors import RefusedError
    from worldprotocol.api.proposal_summary import calls_left, moment
    from worldprotocol.api.requests import waiting_in
    from worldprotocol.cli.support.point_in_time import moment as looked_at

    with desk.look() as world:
        if person is not None and person not in world.realm().actors:
            said = f"There is no actor {person!r}; `worldctl actor list` lists them."
            raise RefusedError(ErrorCode.UNKNOWN_ACTOR, said, actor=person)
        then = looked_at(world, at)
        realm = then.realm()
        if caller_left:
            _show_left(desk, calls_left(world.archive, realm.active, realm.position), person)
            return
        waits = filter(desk.may_see, waiting_in(realm))
        asked = sorted(waits, key=lambda one: (one.submitted.at, one.proposal_id))
        rendered = [described(one, then.now) for one in asked if person is None or _may_answer(realm, one, person)]
    if person is None:
        held_remark(desk, realm)
    waiting = [one for one in rendered if person is None or not one["overdue"]]
    overdue = sum(one["overdue"] for one in waiting)
    if desk.json:
        desk.out.document(waiting)
        return
    rows = [
        (
            one["proposalId"],
            one["actor"]["actorId"],
            one["wants"]["type"],
            _short(one["wants"].get("input")),
            f"none: overdue, to be {ENDINGS[one['onTimeout']]}" if one["overdue"] else ", ".join(one["waitsFor"]),
            moment(one["since"]),
            moment(one["deadline"]) or "none",
            one["reason"] if one["rule"] else f"{one['authority']}: {one['reason']}",
            _questions(one["answers"]),
        )
        for one in waiting
    ]
    heads = ("proposal", "actor", "wants", "input", "waits for", "since", "deadline", "why", "asked back")
    desk.out.table(
        heads, rows, empty="Nothing waits for people." if person is None else _nothing_for(person, len(asked))
    )
    if overdue:
        are, them = ("is", "it") if overdue == 1 else ("are", "them")
        desk.out.remark(f"{counted(overdue, 'proposal')} {are} overdue; `worldctl settle` decides {them}.")


def _show_left(desk: CommandContext, calls: list[tuple[Any, int]], person: str | None) -> None:
    """Print the calls whose callers left; of a person those that it made, or was asked about."""
    from worldprotocol.api.proposal_summary import left_entry, moment

    seen = [(one, at) for one, at in calls if desk.may_see(one) and (person is None or _concerns(one, person))]
    listed = [left_entry(one, at) for one, at in seen]
    if desk.json:
        desk.out.document(listed)
        return
    rows = [
        (
            one["proposalId"],
            one["actor"]["actorId"],
            one["wants"]["type"],
            _short(one["wants"].get("input")),
            " ".join(str(one["trace"][name]) for name in ("client", "session") if name in one["trace"]),
            moment(one["since"]),
            moment(one["leftAt"]),
        )
        for one in listed
    ]
    heads = ("proposal", "actor", "wants", "input", "session", "since", "caller left")
    desk.out.table(heads, rows, empty="Of no call the caller left before it was decided.")


def _concerns(proposal: Any, person: str) -> bool:
    asked = () if proposal.ruling is None else proposal.ruling.ask
    return person in (proposal.submitted.actor.actor_id, *asked) or "*" in asked


def _nothing_for(person: str, others: int) -> str:
    """Return what is printed where a person is not asked, while others may be."""
    elsewhere = f" {counted(others, 'proposal')} {'waits' if others == 1 else 'wait'} for others." if others else ""
    return f"Nothing waits for {person}.{elsewhere}"


def _questions(answers: list[dict[str, Any]]) -> str:
    return "; ".join(f"{one['by']['actorId']}: {one['reason']}" for one in answers if one["choice"] in ("ask", "reply"))


def described(proposal: Any, now: int) -> dict[str, Any]:
    """Return a waiting proposal as the inbox shows it; times, ``now`` too, in milliseconds."""
    from authority.people.questions import OF_PEOPLE

    ruling = proposal.asked
    escalated = [outcome.rule for outcome in ruling.trace if outcome.answer == "escalate"]
    escalated = [rule for rule in escalated if rule not in OF_PEOPLE]
    return {
        "proposalId": proposal.proposal_id,
        "actor": proposal.submitted.actor.to_wire(),
        "wants": proposal.submitted.intent.body.to_wire(),
        "branch": proposal.branch,
        "attempt": proposal.submitted.attempt,
        "waitsFor": list(ruling.ask),
        "since": proposal.submitted.at,
        "deadline": proposal.deadline,
        "overdue": proposal.deadline is not None and proposal.deadline < now,
        "onTimeout": ruling.on_timeout,
        "authority": ruling.authority,
        "rule": ", ".join(escalated) or None,
        "reason": ruling.reason,
        "step": ruling.step + 1,
        "steps": len(proposal.binding.get("then", ())) + 1,
        "votes": votes(ruling, proposal.submitted.actor.actor_id),
        "answers": [answer.to_wire() for answer in proposal.answers],
    }


def votes(ruling: Any, proposer: str) -> list[dict[str, Any]]:
    """Return the votes of a waiting ruling, with ``words`` for people; none where one answer decides."""
    from authority.people.questions import questions_of

    open_ = [one for one in questions_of(ruling, proposer) if one.is_open and one.quorum is not None]
    return [{**one.to_wire(), "words": one.words} for one in open_]


def _may_answer(realm: Any, proposal: Any, person: str) -> bool:
    known = realm.actors.get(person)
    asked = proposal.asked.ask
    if person == proposal.submitted.actor.actor_id:
        return bool(proposal.open_questions)
    if known is None:
        return False
    return person in asked or ("*" in asked and known.kind == "human")


def _short(value: Any, most: int = 60) -> str:
    from worldprotocol.json_text import as_text

    text = "" if value is None else as_text(value)
    return text if len(text) <= most else text[: most - 1] + "…"
