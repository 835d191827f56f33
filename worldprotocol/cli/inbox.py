"""``worldctl inbox``: who waits for whom."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.options import Desk, command


@command("inbox")
@click.option("--for", "person", metavar="ID", help="Only what this person may answer.")
def inbox(desk: Desk, person: str | None) -> None:
    """List the proposals that wait for people, oldest first; `worldctl decide` answers them."""
    from worldprotocol.cli.output import moment

    with desk.look() as world:
        realm = world.realm()
        waiting = [described(one) for one in world.inbox() if person is None or _may_answer(realm, one, person)]
    if desk.json:
        desk.out.document(waiting)
        return
    rows = [
        (
            one["proposalId"],
            one["actor"]["actorId"],
            one["wants"]["type"],
            _short(one["wants"].get("input")),
            ", ".join(one["waitsFor"]),
            moment(one["since"]),
            moment(one["deadline"]) or "none",
            one["reason"] if one["rule"] else f"{one['authority']}: {one['reason']}",
        )
        for one in waiting
    ]
    heads = ("proposal", "actor", "wants", "input", "waits for", "since", "deadline", "why")
    desk.out.table(heads, rows, empty="Nothing waits for anybody.")


def described(proposal: Any) -> dict[str, Any]:
    """Return a waiting proposal as the inbox shows it; times in milliseconds."""
    ruling = proposal.asked
    escalated = [outcome.rule for outcome in ruling.trace if outcome.answer == "escalate"]
    return {
        "proposalId": proposal.proposal_id,
        "actor": dict(proposal.submitted.actor),
        "wants": dict(proposal.submitted.intent["body"]),
        "branch": proposal.branch,
        "attempt": proposal.submitted.attempt,
        "waitsFor": list(ruling.ask),
        "since": proposal.submitted.at,
        "deadline": proposal.deadline,
        "onTimeout": ruling.on_timeout,
        "authority": ruling.authority,
        "rule": ", ".join(escalated) or None,
        "reason": ruling.reason,
        "answers": [dict(answer) for answer in proposal.answers],
    }


def _may_answer(realm: Any, proposal: Any, person: str) -> bool:
    known = realm.actors.get(person)
    asked = proposal.asked.ask
    if person == proposal.submitted.actor["actorId"] or known is None:
        return False
    return person in asked or ("*" in asked and known["kind"] == "human")


def _short(value: Any, most: int = 60) -> str:
    from worldprotocol.cli.output import as_text

    text = "" if value is None else as_text(value)
    return text if len(text) <= most else text[: most - 1] + "…"
