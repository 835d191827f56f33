"""Report of a counterfactual: its differences from the record."""

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
"""Changes in the data of a head that are listed; they are counted up to ``MAX_COUNTED``."""

MAX_COUNTED: Final = 10_000

Line = dict[str, Any]


@dataclass(slots=True)
class WhatIfReport:
    """Differences between the record and the counterfactual.

    Args:
        start: position of the last event that is kept unchanged.
        proposals: recorded proposals with other outcomes, in the order of the log.
        inserted: proposals of inserted intents.
        needed: effects without recorded results; their executions are cancelled.
        questions: questions to human actors that are not in the record.
        unasked: recorded human answers to questions that are not asked in the counterfactual.
        elsewhere: branches that begin at other worlds than recorded.
        domains: recorded domains that were not adopted, with the reason.
        heads: branches with different data at their heads.
        worlds: number of worlds that are the ``same`` by content, ``changed``, ``gone``, or ``new``.
        counts: number of other events that were not repeated.
        code: names of loaded Python functions that differ from the adopted ones.
        asked: the input as JSON.
        stopped: reason for stopping before the end of the record, if any.
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
        """Whether there is any difference."""
        parts = self.proposals, self.inserted, self.needed, self.questions, self.elsewhere, self.domains, self.heads
        return any(parts)

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
    """Compare the proposals and the heads of the record and the counterfactual."""
    outcomes, outside = replaying.outcomes, replaying.outside
    report = WhatIfReport(
        question.start, counts=replaying.notes.copy(), stopped=replaying.stopped, asked=_asked(question)
    )
    report.code = sorted(replaying.stage.code)
    if outcomes.same["worlds"]:
        report.worlds["same"] = outcomes.same["worlds"]
    if replaying.unasked:
        report.counts["answers to no question"] = len(replaying.unasked)
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
        error = {"code": refused.code, "message": refused.message}
        report.domains.append({"kind": "notAdopted", "position": position, **error})
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
    """Return the kind of difference between two outcomes; None for equal ones."""
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
        differences = changes(source.checked_state(before.world_id), here.checked_state(after.world_id))
        listed: list[Mapping[str, Any]] = [one.to_wire() for one in islice(differences, MAX_CHANGES)]
        more = sum(1 for _ in islice(differences, MAX_COUNTED))
        worlds = {"from": before.world_id, "to": after.world_id}
        yield {"kind": "head", "branch": name, "change": "data", **worlds, "changes": listed, "moreChanges": more}
