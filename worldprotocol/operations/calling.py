"""One call of an operation: the realm, the verified caller, and what it may read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from msgspec import ValidationError, convert, to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations.declaring import AnswerForm, Declared, RequestForm

if TYPE_CHECKING:
    from world.clock import Clock
    from world.events.verification import Verification
    from world.read_models.leases import Shown
    from world.state.realm_view import RealmView
    from worldprotocol.api.lookup.past_views import PastViews
    from worldprotocol.api.lookup.point_in_time import PointInTime
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.cloud_events import CloudEvents
    from worldprotocol.export.proofs.checkpoint import Checkpoint
    from worldprotocol.export.proofs.note import SigningKey
    from worldprotocol.operations.acting.agents import CallsOfAgents
    from worldprotocol.operations.jobs import KeptJobs
    from worldprotocol.operations.visibility import Redactions, Visibility

__all__ = ["OpenRealm", "OperationCall", "invalid", "new_digests", "perform", "read_request"]

Q = TypeVar("Q", bound=RequestForm)
A = TypeVar("A", bound=AnswerForm)

_AT: Final = " - at `$"


class OpenRealm(Protocol):
    """An open realm, with what its calls share: redactions, and states in the past.

    ``name`` is that under which it is served.
    """

    name: str
    realm: Realm
    redactions: Redactions
    past: PastViews

    def resource_digests(self) -> Shown:
        """Return what shows a resource by its digest."""


class ServedRealm(OpenRealm, Protocol):
    """An open realm of a server, which signs its checkpoints, runs its jobs, and takes calls of coding agents."""

    @property
    def signed(self) -> Callable[[int | None], tuple[Checkpoint, Sequence[SigningKey]]]:
        """Returns a checkpoint over so many first events, None of all, and the keys that signed it."""

    @property
    def cloud_events(self) -> CloudEvents:
        """The events of the log as CloudEvents."""

    @property
    def jobs(self) -> KeptJobs:
        """The jobs of the realm."""

    @property
    def agents(self) -> CallsOfAgents | None:
        """How it takes calls of coding agents; None where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """A request whose caller was verified and has a right to the operation.

    Args:
        hosted: the realm.
        verified: the caller.
        view: state of the realm when the right was checked.
        visibility: what the caller may read.
        clock: the clock.
        recording: the realm as it records what this request writes; None where it records the caller without a key.
        key: key of the request, for an operation that finds by itself what an equal one recorded (``is_keyed``).
        made_id: id of what the request makes, by which that is found meanwhile (``interim``); None is any.
    """

    hosted: OpenRealm
    verified: Verification
    view: RealmView
    visibility: Visibility
    clock: Clock
    recording: Realm | None = None
    key: str | None = None
    made_id: str | None = None

    @property
    def actor_id(self) -> str:
        """The verified actor."""
        return self.verified.actor_id or ""

    @property
    def realm(self) -> Realm:
        """The realm, which records the verification of this caller with what it writes."""
        return self.hosted.realm.as_caller(self.verified) if self.recording is None else self.recording

    @property
    def served(self) -> ServedRealm:
        """The realm as a server has it, for the operations that only servers perform."""
        return cast("ServedRealm", self.hosted)

    def left_out(self) -> dict[str, int]:
        """Return the member of lists of a cut log that says up to which event they leave out what is archived."""
        from world.read_models.live.sealed_snapshot import archived_upto

        upto = 0 if self.view.archived is None else archived_upto(self.hosted.realm.log)
        return {"archivedUpto": upto} if upto else {}

    def moment(self, at: str | None) -> PointInTime:
        """Return the point in time that a request looks at; None is now.

        Raises:
            RefusedError: ``NOT_FOUND``, ``AMBIGUOUS``; ``RIGHT_MISSING`` for a caller that may not read all events,
                because a point is found among all of them.
        """
        from worldprotocol.api.lookup.point_in_time import moment

        if at is not None:
            self.visibility.check_whole()
            if not self.visibility.reads_all and "operator" not in self.visibility.rights:
                raise RefusedError(
                    ErrorCode.RIGHT_MISSING, "The past of a realm (`at`) needs the right reader, auditor or operator."
                )
        return moment(self.hosted.realm, at)

    def view_at(self, at: str | None) -> RealmView:
        """Return the state of the realm at a point in time.

        Raises:
            RefusedError: as ``moment``.
        """
        return self.view if at is None else self.hosted.past.view(self.moment(at).position)


def perform(operation: Declared[Q, A], call: OperationCall, request: Q, key: str | None = None) -> A:
    """Perform a request, unless an equal one of the caller was recorded with the same key.

    Args:
        operation: the operation, to which the caller has a right.
        call: the call.
        request: the request.
        key: key of the request (``Idempotency-Key``); None has none.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a text that is no key; ``IDEMPOTENCY_CONFLICT`` where the caller used the
            key for another request; what the operation refuses.
    """
    from worldprotocol.api.callers.request_keys import keyed, once

    if key is None:
        return operation.run(call, request)
    if operation.is_keyed:
        return operation.run(replace(call, key=key), request)
    caller, again = keyed(call.verified, key, operation.name, to_builtins(request), operation.unhashed), operation.again
    if again is None:
        return operation.run(replace(call, verified=caller), request)
    return once(
        call.hosted.realm,
        caller,
        lambda recording: operation.run(replace(call, recording=recording), request),
        again=lambda events: again(replace(call, verified=caller), request, events),
    )


def read_request(operation: Declared[Q, A], given: Any, where: str, *, strict: bool) -> Q:
    """Return the request that JSON or parameters describe.

    Args:
        operation: the operation.
        given: members of the request.
        where: where they come from, such as ``body``, for the message.
        strict: whether a text is no number; parameters of a query are texts.

    Raises:
        RefusedError: ``INVALID_VALUE``, with the member at fault.
    """
    try:
        return convert(given, operation.request, strict=strict)
    except ValidationError as error:
        words, _, place = str(error).partition(_AT)
        raise invalid(f"{where}{place.rstrip('`')}", words) from None


def invalid(path: str, words: str) -> RefusedError:
    """Return the refusal of a request of which a member is at fault.

    Args:
        path: the member.
        words: what is wrong with it.
    """
    return RefusedError(
        ErrorCode.INVALID_VALUE,
        f"The request is not valid: {path}: {words}.",
        faults=[{"path": path, "message": words}],
    )


def new_digests() -> Shown:
    """Return what shows a resource by a digest that no other answer has."""
    import secrets

    from world.read_models.leases import KEY_BYTES, digests

    return digests(secrets.token_bytes(KEY_BYTES))
