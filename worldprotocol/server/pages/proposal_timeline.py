"""Timeline of a proposal as its page shows it: one row for each step, and what is pending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from world.read_models.trace import TraceStep
from world.state.proposal import TERMINAL
from worldprotocol.server.pages.shown_times import span_between

__all__ = ["doubts", "pending", "timeline"]

_TONES: Final[Mapping[str, Mapping[str, str]]] = {
    "ruling": {"approve": "good", "reject": "bad", "wait": "warn"},
    "answer": {"approve": "good", "narrow": "good", "reject": "bad", "ask": "info", "reply": "info"},
    "verdict": {"Granted": "good", "Wait": "warn", "Die": "bad"},
    "decision": {"approved": "good", "rejected": "bad"},
    "result": {"fulfilled": "good", "in": "warn", "failed": "warn", "ended": "bad", "resolved": "good", "the": "warn"},
    "world": {"completed": "good", "failed": "bad"},
    "timeout": {"": "warn"},
    "superseded": {"": "bad"},
    "cancelled": {"": "bad"},
    "execution": {"": "info"},
    "effect": {"": "info"},
}
"""Tone of a step by its kind and the first word of its description; the empty word is any."""

_UNDER: Final = frozenset({"effect", "result", "cancelled"})
"""Kinds that belong to an execution."""


def timeline(top: TraceStep) -> list[dict[str, Any]]:
    """Return the rows of a trace in the order of the log.

    Args:
        top: the source event, with all steps below it.
    """
    steps = [one for one in top.walk() if one.kind != "later"]
    begin = next((one.at for one in steps if one.at is not None), None)
    return [_row(one, begin) for one in sorted(steps, key=lambda one: one.position or 0)]


def _row(step: TraceStep, begin: int | None) -> dict[str, Any]:
    tones = _TONES.get(step.kind, {})
    words = step.words
    if step.kind == "world":
        words = "; ".join([words, *(one.words for one in step.steps if one.kind == "later")])
    return {
        "kind": step.kind,
        "id": step.name,
        "position": step.position,
        "at": step.at,
        "after": span_between(begin, step.at),
        "words": words,
        "facts": {name: value for name, value in step.facts.items() if value not in (None, "", [], {})},
        "tone": tones.get(step.words.partition(" ")[0].rstrip(":,"), tones.get("", "")),
        "under": step.kind in _UNDER,
    }


def doubts(top: TraceStep, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the effects of a proposal that are in doubt, each with its id, type, parameters and the reason.

    Args:
        top: the trace of the proposal.
        found: the proposal as the API returns it.
    """
    names = found.get("effects", {}).get("inDoubt", ())
    made = []
    for step in top.walk():
        if step.kind == "effect" and step.name in names:
            asked = step.facts["requirement"]
            reasons = [one.words for one in step.steps if one.words.startswith("in doubt")]
            one = {"id": step.name, "type": asked["type"], "params": asked.get("params")}
            made.append({**one, "reason": (reasons or [""])[-1].removeprefix("in doubt: ")})
    return list({one["id"]: one for one in made}.values())


def pending(found: Mapping[str, Any]) -> list[str]:
    """Return what a proposal waits for, in sentences; empty once it has ended.

    Args:
        found: the proposal as the API returns it.
    """
    return [] if found["status"] in TERMINAL else list(_pending(found))


def _pending(found: Mapping[str, Any]) -> Iterator[str]:
    if "held" in found:
        yield f"held: {found['held']}"
    ruling = found.get("ruling") or {}
    if found["status"] == "evaluating" and ruling.get("verdict") == "wait":
        names = ", ".join("any person" if name == "*" else name for name in ruling.get("ask", ()))
        yield f"waits for an answer of {names}"
    elif found["status"] == "evaluating" and ruling.get("verdict") == "approve" and "held" not in found:
        yield "approved by its authority; waits for leases"
    elif found["status"] == "approved":
        yield "approved; waits for earlier executions on its branch"
    effects = found.get("effects", {})
    claimed = effects.get("claimed", {})
    for number, words in (
        (len(effects.get("offered", ())), "offered to workers"),
        (len(claimed), f"claimed by {', '.join(sorted(set(claimed.values())))}"),
        (len(effects.get("inDoubt", ())), "in doubt: an operator has to say what became of it"),
    ):
        if number:
            yield f"{number} effect{'s' if number > 1 else ''} {words}"
    own = len(effects.get("underWay", ())) - len(effects.get("offered", ())) - len(claimed)
    if own > 0 and not effects.get("inDoubt"):
        yield f"{own} effect{'s' if own > 1 else ''} under way"
