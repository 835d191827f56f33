"""What a branch that never was came to, beside the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from world.read_models.archive import Archive
from world.read_models.diff import changes
from worldprotocol.analysis.counterfactual.asked import WhatIf
from worldprotocol.analysis.counterfactual.outcomes import ProposalOutcome
from worldprotocol.analysis.counterfactual.replaying import Replaying

__all__ = ["WhatIfReport", "report_of"]

MAX_CHANGES: Final = 20
"""Places in the data of a branch's head that are told; all of them are counted up to ``MAX_COUNTED``."""

MAX_COUNTED: Final = 10_000

Line = dict[str, Any]


@dataclass(slots=True)
class WhatIfReport:
    """What comes of something being otherwise.

    Args:
        start: the event behind which the branch begins.
        proposals: recorded proposals that come to something else, in the order of the log.
        inserted: proposals that nobody submitted.
        needed: effects that would have to be made; their proposals are called off in the branch.
        questions: what people would be asked that they were never asked.
        unasked: answers of people that nobody asks for here.
        elsewhere: branches that do not begin where the record has them.
        domains: recorded domains that did not come into force, and why.
        heads: branches whose heads hold something else.
        worlds: how many recorded worlds are the ``same`` by content, ``changed``, ``gone``, or ``new``.
        counts: of what else was not done again.
        code: names of Python functions at hand that are not those which were adopted.
        asked: what the question was, as JSON.
        stopped: why the end of the record was not reached; None where it was.
    """

    start: int
    proposals: list[Line] = field(default_factory=list)
    inserted: list[Line] = field(default_factory=list)
    needed: list[Line] = field(default_factory=list)
    questions: list[Line] = field(default_factory=list)
    unasked: list[Line] = field(default_factory=list)
    elsewhere: list[Line] = field(default_factory=list)
    domains: list[Line] = field(default_factory=list)
    heads: list[Line] = field(default_factory=list)
    worlds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    code: list[str] = field(default_factory=list)
    asked: Line = field(default_factory=dict)
    stopped: str | None = None

    @property
    def changed(self) -> bool:
        """Whether anything comes to something else."""
        told = self.proposals, self.inserted, self.needed, self.questions, self.elsewhere, self.domains, self.heads
        return any(told)

    def lines(self) -> Iterator[Line]:
        """Yield everything as JSON lines, the summary last."""
        yield from self.proposals
        yield from self.inserted
        yield from self.needed
        yield from self.questions
        yield from self.unasked
        yield from self.elsewhere
        yield from self.domains
        yield from self.heads
        names = ("same", "changed", "gone", "new")
        impossible = sum(line["change"] == "impossible" for line in self.proposals)
        yield {
            "kind": "summary",
            "start": self.start,
            **self.asked,
            "changed": self.changed,
            "worlds": {name: self.worlds[name] for name in names},
            "proposals": len(self.proposals),
            "impossible": impossible,
            "flips": sum(line["flip"] for line in self.proposals),
            "effectsNeeded": len(self.needed),
            "questions": len(self.questions),
            "heads": len(self.heads),
            "elsewhere": len(self.elsewhere),
            "notAdopted": len(self.domains),
            "notRepeated": dict(sorted(self.counts.items())),
            "codeChanged": self.code,
            "stopped": self.stopped,
        }


def report_of(question: WhatIf, replaying: Replaying) -> WhatIfReport:
    """Compare the record with the branch, proposal by proposal and head by head."""
    outcomes, outside = replaying.outcomes, replaying.outside
    report = WhatIfReport(
        question.start, counts=replaying.notes.copy(), stopped=replaying.stopped, asked=_asked(question)
    )
    report.code = sorted(replaying.stage.code)
    if outcomes.same["worlds"]:
        report.worlds["same"] = outcomes.same["worlds"]
    if replaying.unasked:
        report.counts["answers that nobody asks for"] = len(replaying.unasked)
    if replaying.authority.foreseen.taken:
        report.counts["broken off then, and so here"] = len(replaying.authority.foreseen.taken)
    needed = {one.proposal_id for one in outside.needed}
    for then in outcomes.differing():
        _compare_one(report, replaying, then, is_needed=then.proposal_id in needed)
    for name in outside.inserted:
        now = outcomes.now[name].to_wire()
        report.inserted.append({"kind": "inserted", "proposalId": name, "to": now})
        report.worlds["new"] += "contentId" in now
    report.needed = [{"kind": "effectNeeded", **one.to_wire()} for one in outside.needed]
    for name, reason in replaying.questions.items():
        report.questions.append({"kind": "question", "proposalId": name, "message": reason})
    report.unasked = [{"kind": "unasked", "proposalId": name} for name in replaying.unasked]
    for branch in replaying.elsewhere:
        worlds = {"from": branch.then, "to": branch.now}
        report.elsewhere.append({"kind": "elsewhere", "branch": branch.branch, **worlds})
    for position, refused in replaying.not_adopted.items():
        told = {"code": refused.code, "message": refused.message}
        report.domains.append({"kind": "notAdopted", "position": position, **told})
    if replaying.stopped is None:
        report.heads = list(_heads(outcomes.source, outcomes.here))
    return report


def _asked(question: WhatIf) -> Line:
    scratch = None if question.scratch is None else str(question.scratch)
    policies = [{"name": one.name, "hash": one.hash} for one in question.policies]
    return {"drop": list(question.drop), "policies": policies, "insert": len(question.insert), "scratch": scratch}


def _compare_one(report: WhatIfReport, replaying: Replaying, recorded: ProposalOutcome, *, is_needed: bool) -> None:
    name, then = recorded.proposal_id, recorded.to_wire()
    refused, here = replaying.refused.get(name), replaying.outcomes.now.get(name)
    if name in replaying.dropped:
        now: Line = {"status": "dropped"}
    elif refused is not None:
        now = {"status": "refused", "code": refused.code, "message": refused.message}
    elif here is None or (replaying.stopped is not None and not here.is_terminal):
        return
    else:
        now = here.to_wire()
    if is_needed:
        now = {"status": "effectNeeded", "message": now.get("message")}
    _count_worlds(report, then, now)
    change = _change(then, now)
    if change is None:
        return
    decisions = then.get("decision"), now.get("decision")
    flip = None not in decisions and (
        decisions[0] != decisions[1] or then.get("approvedScope") != now.get("approvedScope")
    )
    about = {"position": recorded.position, "proposalId": name, "actor": recorded.actor}
    what = {"action": recorded.action, "branch": recorded.branch, "flip": flip}
    report.proposals.append({"kind": "proposal", "change": change, **about, **what, "from": then, "to": now})


def _count_worlds(report: WhatIfReport, then: Line, now: Line) -> None:
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
