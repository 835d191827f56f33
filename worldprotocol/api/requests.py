"""Normalisation of the arguments of ``Realm``, and the outcome of a projection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from world.code.keyword_options import check_names
from world.errors import RefusedError
from world.limits import Limits
from world.model.canonical_json import read_json
from world.model.intent import IntentBody, IntentInstance, IntentScope
from world.model.member_types import is_ascii_id
from world.model.new_names import check_branch_name
from world.model.record import to_wire
from world.model.short_repr import fields_repr
from world.state.proposal import Proposal
from world.state.realm_view import RealmView

if TYPE_CHECKING:
    from world.core import Domain
    from world.pipeline.submit import Submission
    from worldprotocol.api.options import SubmitOptions

MAX_HEADER_BYTES: Final = 65_536
"""Most bytes that are read of a file's first line to recognise an export."""


@dataclass(frozen=True, slots=True)
class ProjectionOutcome:
    """Outcome of projecting a source event.

    Args:
        projection_id: the projection that returned a result; None if all declined.
        reason: the projection's reason for selecting no intent, if it gave one.
        proposal: the proposal; None if no intent was selected.
    """

    projection_id: str | None
    reason: str | None
    proposal: Proposal | None

    __repr__ = fields_repr


def check_submission(options: SubmitOptions) -> None:
    """Refuse unknown options of a submission, an invalid name of a fork, and an invalid time to wait.

    Raises:
        TypeError: an option that does not exist.
        RefusedError: ``INVALID_NAME``, ``INVALID_VALUE``.
    """
    from worldprotocol.api.options import SubmitOptions as Options
    from worldprotocol.api.waiting.proposals import wait_seconds

    check_names(options, Options)
    wait_seconds(options.get("wait"))
    if options.get("fork_name") is not None:
        check_branch_name(options["fork_name"])


def submission(intent: IntentInstance, **options: Unpack[SubmitOptions]) -> Submission:
    """Return the request to submit an intent.

    Args:
        intent: the intent.
        **options: see ``worldprotocol.api.options.SubmitOptions``.
    """
    from world.events.verification import IntentSignature
    from world.pipeline.submit import Submission

    given: dict[str, Any] = {name: value for name, value in options.items() if name != "wait"}
    if given.get("signature") is not None:
        given["signature"] = IntentSignature.read(given["signature"])
    return Submission(intent, **given)


def fitting(
    domain: Domain | str | Path, data: Mapping[str, Any] | None, folder: Path | None, limits: Limits | None = None
) -> Domain:
    """Load a domain and check that its initial data is valid.

    Args:
        domain: a domain, a reference to one, or a file.
        data: initial data that differs from the domain's defaults.
        folder: start of relative references; None is the current folder.
        limits: limits of the pipeline; None is the default.

    Raises:
        RefusedError: ``INVALID_DATA``, ``COMPUTED_TIMED_OUT``, and the codes of the domain.
    """
    from world.core import ComputeContext, genesis
    from world.core.schema import check_newest
    from worldprotocol.api.bootstrap import load_any_domain

    loaded = load_any_domain(domain, base=folder)
    check_newest(loaded.schema)
    (limits or Limits()).in_time(lambda: genesis(loaded, ComputeContext(now=0, random_seed=""), data))
    return loaded


def with_a_way_out(refused: RefusedError) -> RefusedError:
    """Return the error with a hint to found a realm or to import an export."""
    if refused.code == "NOT_A_LOG" and not refused.details.get("is_empty"):
        hint = _about_export(Path(str(refused.details.get("path"))))
        return RefusedError(refused.code, refused.message + hint, **refused.details)
    if not is_foundable(refused) or "make it first" in refused.message:  # its folder is missing
        return refused
    message = f"{refused.message} `worldctl init` (Realm.create) founds a realm there."
    return RefusedError(refused.code, message, **refused.details)


def is_foundable(refused: RefusedError) -> bool:
    """Return whether the file, the tables or the log do not exist yet."""
    if refused.details.get("is_only_read") or refused.details.get("is_copied"):
        return False
    return refused.code == "LOG_NOT_FOUND" or (refused.code == "NOT_A_LOG" and bool(refused.details.get("is_empty")))


def _about_export(path: Path) -> str:
    """Return a hint for an export of a log; an empty string for other files."""
    if not path.is_file():  # a FIFO would be waited for
        return ""
    try:
        with path.open("rb") as lines:
            head = read_json(lines.readline(MAX_HEADER_BYTES))
    except (OSError, RefusedError):
        return ""
    if not isinstance(head, dict) or head.get("worldProtocol") != "log":
        return ""
    if "redacted" in head:
        return " The file is a redacted export: `worldctl verify FILE` checks it; its states cannot be read."
    return " The file is an export of a log: `worldctl import` reads it into a log."


def waiting_in(realm: RealmView) -> list[Proposal]:
    """Return copies of the proposals that wait for human decisions."""
    return [proposal.copy() for proposal in realm.proposals.values() if proposal.asked is not None]


def waiting_entry(proposal: Proposal, now: int) -> dict[str, Any]:
    """Return a proposal that waits for human decisions as JSON, as an entry of the inbox.

    Args:
        proposal: one of ``waiting_in``.
        now: ms since 1970.
    """
    ruling = proposal.asked
    assert ruling is not None
    return {
        "proposalId": proposal.proposal_id,
        "actor": proposal.submitted.actor.to_wire(),
        "wants": proposal.intent.body.to_wire(),
        "branch": proposal.branch,
        "since": proposal.submitted.at,
        "deadline": proposal.deadline,
        "overdue": proposal.deadline is not None and proposal.deadline < now,
        "onTimeout": ruling.on_timeout,
        "waitsFor": list(ruling.ask),
        "authority": ruling.authority,
        "reason": ruling.reason,
        "rules": to_wire(ruling.trace),
        "answers": to_wire(proposal.answers),
    }


def schema_in_force(realm: RealmView) -> str:
    """Return the hash of the schema in force."""
    return realm.schema_hash


def scope_of(given: IntentScope | Mapping[str, Any] | str | Iterable[str] | None) -> IntentScope | None:
    """Return a scope from an ``IntentScope``, its wire form, or patterns.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if given is None or isinstance(given, IntentScope):
        return given
    if isinstance(given, Mapping):
        return IntentScope.read(given)
    is_several = isinstance(given, Iterable) and not isinstance(given, str)
    return IntentScope.read({"allowedPaths": list(given) if is_several else [given]})


def body_of(action: str, given: Any, scope: Any) -> IntentBody:
    """Return an intent's body.

    Raises:
        RefusedError: ``INVALID_VALUE``, ``NOT_CANONICAL``.
    """
    read = scope_of(scope)
    if is_ascii_id(action):
        with suppress(RefusedError):  # what is refused is read again below, for an error that names each member
            return IntentBody(type=action, input=given, scope_proposal=read)
    return IntentBody.read({"type": action, "input": given, "scopeProposal": read})
