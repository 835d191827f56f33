"""The maintainer's part of the script: how she answers what the policy puts before her.

She decides by the content of the proposal, so that every run of the import gets the same answers; some mail she never
gets to, and its time runs out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from examples.repository.branches import scope_of
from examples.repository.rules import is_core, is_documentation
from world.model.intent import IntentScope
from world.state.proposal import Proposal

UNREAD_OF_256: Final = 40
"""How many of 256 proposals she never gets to."""

TOO_WIDE: Final = 60
"""Paths that are too many for one branch of a newcomer."""

CORE_WITHOUT_TESTS: Final = 2
"""Core modules that a newcomer may change in one branch without a test."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What she says: ``scope`` is given where she narrows."""

    choice: Literal["approve", "reject", "narrow"]
    reason: str
    scope: IntentScope | None = None


def answer_to(proposal: Proposal) -> Answer | None:
    """Return the maintainer's answer to a waiting ``change.apply``, None where she leaves it unread."""
    rendered = proposal.intent.body.input
    if int(rendered["session"][2:4], 16) < UNREAD_OF_256:
        return None
    is_member = (proposal.submitted.actor.meta or {}).get("role") == "member"
    changes = rendered["changes"]
    paths = [change["path"] for change in changes]
    core = [path for path in paths if is_core(path)]
    gone = [change["path"] for change in changes if change["op"] in ("delete", "rename") and is_core(change["path"])]
    if not is_member and gone:
        return Answer("reject", f"a newcomer does not remove {gone[0]}")
    if not is_member and len(paths) > TOO_WIDE:
        return Answer("reject", f"{len(paths)} paths in one branch: please split it")
    documents = [path for path in paths if is_documentation(path)]
    is_tested = any(path.startswith("/tests/") for path in paths)
    if not is_member and not is_tested and documents and len(core) > CORE_WITHOUT_TESTS:
        return Answer("narrow", "the documentation may go in; the core needs a test first", scope_of(documents))
    return Answer("approve", "looked at, and good")
