"""What a branch that never was came to, beside the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from world.events import ProposalSubmitted
from world.proposal import Proposal
from world.views.archive import Archive, decoded
from world.views.differences import changes
from worldprotocol.whatif.replaying import Replaying

__all__ = ["Report", "compare"]

MAX_CHANGES: Final = 20
"""Places in the data of a branch's head that are told; all of them are counted up to ``MAX_COUNTED``."""

MAX_COUNTED: Final = 10_000

Line = dict[str, Any]


@dataclass(slots=True)
class Report:
    """What comes of something being otherwise.

    Args:
        start: the event behind which the branch begins.
        proposals: recorded proposals that come to something else, in the order of the log.
        inserted: proposals that nobody submitted.
        needed: effects that would have to be made; their proposals are called off in the branch.
        questions: what people would be asked that they were never asked.
        heads: branches whose heads hold something else.
        worlds: how many recorded worlds are the ``same`` by content, ``changed``, ``gone``, or ``new``.
        counts: of all else.
        stopped: why the end of the record was not reached; None where it was.
    """

    start: int
    proposals: list[Line] = field(default_factory=list)
    inserted: list[Line] = field(default_factory=list)
    needed: list[Line] = field(default_factory=list)
    questions: list[Line] = field(default_factory=list)
    heads: list[Line] = field(default_factory=list)
    worlds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None

    @property
    def changed(self) -> bool:
        """Whether anything comes to something else."""
        return bool(self.proposals or self.inserted or self.needed or self.questions or self.heads)

    def lines(self) -> Iterator[Line]:
        """Yield everything as JSON lines, the summary last."""
        yield from self.proposals
        yield from self.inserted
        yield from self.needed
        yield from self.questions
        yield from self.heads
        names = ("same", "changed", "gone", "new")
        impossible = sum(line["change"] == "impossible" for line in self.proposals)
        yield {
            "kind": "summary",
            "start": self.start,
            "changed": self.changed,
            "worlds": {name: self.worlds[name] for name in names},
            "proposals": len(self.proposals),
            "impossible": impossible,
            "flips": sum(line["flip"] for line in self.proposals),
            "effectsNeeded": len(self.needed),
            "questions": len(self.questions),
            "heads": len(self.heads),
            "notRepeated": dict(sorted(self.counts.items())),
            "stopped": self.stopped,
        }


def compare(source: Archive, replaying: Replaying, start: int) -> Report:
    """Compare the record with the branch, proposal by proposal and head by head."""
    here = replaying.protocol.archive
    report = Report(start, counts=replaying.notes.copy(), stopped=replaying.stopped)
    if replaying.unasked:
        report.counts["answers that nobody asks for"] = len(replaying.unasked)
    needed = {one.proposal_id for one in replaying.needed}
    for position, name in _later(source, replaying.position, start):
        _compare_one(report, source, replaying, position, name, name in needed)
    for name in replaying.inserted:
        report.inserted.append({"kind": "inserted", "proposalId": name, "to": _told(here, here.proposal(name))})
        report.worlds["new"] += here.proposal(name).world_id is not None
    report.needed = [{"kind": "effectNeeded", **one.to_wire()} for one in replaying.needed]
    for name, reason in replaying.questions.items():
        report.questions.append({"kind": "question", "proposalId": name, "message": reason})
    if replaying.stopped is None:
        report.heads = list(_heads(source, here))
    return report


def _later(source: Archive, upto: int, start: int) -> Iterator[tuple[int, str]]:
    """Yield what was open where the branch begins, and what was submitted later."""
    for name in source.fold_realm(start).proposals:
        yield start, name
    for logged in source.log.read(start, upto, topics=[ProposalSubmitted.TOPIC]):
        event = decoded(logged)
        if isinstance(event, ProposalSubmitted):
            yield logged.position, event.proposal_id


def _compare_one(
    report: Report, source: Archive, replaying: Replaying, position: int, name: str, is_needed: bool
) -> None:
    recorded = source.proposal(name)
    then = _told(source, recorded)
    refused, here = replaying.refused.get(name), replaying.protocol.archive
    if name in replaying.dropped:
        now: Line = {"status": "dropped"}
    elif refused is not None:
        now = {"status": "refused", "code": refused.code, "message": refused.message}
    else:
        proposal = here.proposal(name)
        now = _told(here, proposal)
        if replaying.stopped is not None and not proposal.is_terminal:
            return
    if is_needed:
        now = {"status": "effectNeeded", "message": now.get("message")}
    _count_worlds(report, then, now)
    change = _change(then, now)
    if change is None:
        return
    body = recorded.submitted.intent["body"]
    decisions = then.get("decision"), now.get("decision")
    flip = None not in decisions and (
        decisions[0] != decisions[1] or then.get("approvedScope") != now.get("approvedScope")
    )
    about = {"position": position, "proposalId": name, "actor": recorded.submitted.actor["actorId"]}
    what = {"action": body["type"], "branch": recorded.branch, "flip": flip}
    report.proposals.append({"kind": "proposal", "change": change, **about, **what, "from": then, "to": now})


def _count_worlds(report: Report, then: Line, now: Line) -> None:
    if then.get("contentId") is None:
        report.worlds["new"] += now.get("contentId") is not None
    elif now.get("contentId") is None:
        report.worlds["gone"] += 1
    else:
        report.worlds["same" if then["contentId"] == now["contentId"] else "changed"] += 1


def _change(then: Line, now: Line) -> str | None:
    """Return in what way a proposal comes to something else; None where it comes to the same content."""
    compared = ("status", "contentId", "decision", "approvedScope")
    if all(then.get(name) == now.get(name) for name in compared):
        return None
    if now["status"] == "dropped":
        return "dropped"
    if then["status"] == "completed" and now["status"] != "completed":
        return "impossible"
    if now["status"] == "completed" and then["status"] != "completed":
        return "possible"
    if then["status"] != now["status"]:
        return "ends otherwise"
    return "world" if then.get("contentId") != now.get("contentId") else "decision"


def _told(archive: Archive, proposal: Proposal) -> Line:
    """Return what a proposal came to."""
    told: Line = {"status": proposal.status}
    decision = proposal.decision
    if decision is not None:
        told["decision"] = decision["decision"]
        told["message"] = decision.get("reason")
        told["approvedScope"] = decision.get("approvedScope")
    elif proposal.ruling is not None:
        told["message"] = proposal.ruling.get("reason")
    if proposal.world_id is not None:
        sealed = archive.sealed(proposal.world_id)
        told |= {"worldId": sealed.world_id, "contentId": sealed.content_id}
        if sealed.error is not None:
            told |= {"code": sealed.error["code"], "message": sealed.error["message"]}
    return told


def _heads(source: Archive, here: Archive) -> Iterator[Line]:
    then, now = source.realm().branches, here.realm().branches
    for name in dict.fromkeys([*then, *now]):
        if name not in then or name not in now:
            yield {"kind": "head", "branch": name, "change": "new" if name in now else "gone"}
            continue
        before, after = source.sealed(then[name].head), here.sealed(now[name].head)
        if before.content_id == after.content_id:
            continue
        found = changes(source.checked_state(before.world_id), here.checked_state(after.world_id))
        told: list[Mapping[str, Any]] = [one.to_wire() for one in islice(found, MAX_CHANGES)]
        more = sum(1 for _ in islice(found, MAX_COUNTED))
        worlds = {"from": before.world_id, "to": after.world_id}
        yield {"kind": "head", "branch": name, "change": "data", **worlds, "changes": told, "moreChanges": more}
