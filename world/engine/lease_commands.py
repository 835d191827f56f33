"""Leases for agents that want nothing but leases: the desk's commands, durable (design section 7).

Each command is one unit of work on the log: time passes first, then it is refused as a whole or recorded as a whole.
How a manifest was authenticated is recorded with the verdict: by its signature, or by the caller where the realm's
settings let it (``world.klis.identity.authentication``).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import ClockConfirmed, LeaseRenewed, VerdictGiven
from world.klis.identity.authentication import run_fault, why_signature
from world.klis.identity.signature import key_id, verify
from world.klis.lease_manager import RequestOptions
from world.klis.manifest import Manifest, manifest_document, read_manifest
from world.klis.session import Rank
from world.model.new_names import check_new_id
from world.pipeline.leasing.clock_confirmation import confirm_clock
from world.pipeline.leasing.klis_settings_in_force import configure_klis, know_types
from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["LeaseCommands", "authenticate"]

R = TypeVar("R")
_KEY_BYTES: Final = 32

OPERATOR: Final = "operator"
"""Recorded where settings come into force by a request whose caller did not name itself."""


class LeaseCommands:
    """The commands, each in a commit that it may share with others."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[Callable[[UnitOfWork], Any]], Any]) -> None:
        """Give commands to what runs them: ``WorldProtocol.run``."""
        self._run = run

    def configure(self, *, by: str) -> bool:
        """Bring the configured settings and resource types into force; False where they are in force already.

        Raises:
            RefusedError: ``NOT_FOUNDED``.
        """

        def command(work: UnitOfWork) -> bool:
            _check_founded(work)
            return configure_klis(work, by)

        return self._do(command)

    def request(
        self,
        manifest: Mapping[str, Any] | str | bytes,
        *,
        by: str | None,
        ttl_ms: int | None = None,
        queue: bool = False,
        wait_ms: int | None = None,
        request_id: str | None = None,
        require_signature: bool = False,
        run_id: str | None = None,
        yaml: bool = False,
    ) -> VerdictGiven:
        """Ask for the leases of a manifest, all or none.

        Args:
            manifest: the document, or its text.
            by: the caller's identity, for the record: the agent itself, or a third party; None is a third party without
                a name. Whether its word is enough is the setting ``authentication``.
            ttl_ms: how long the leases live without a heartbeat, in ms; None is the settings' default.
            queue: stay in the queue where the verdict is Wait.
            wait_ms: how long to stay there, in ms; None is for ever.
            request_id: the request's id; None makes one.
            require_signature: refuse a manifest that is not signed, whatever the setting is.
            run_id: for the engine: the open run in whose name it asks.
            yaml: whether text is YAML; JSON otherwise.

        Returns:
            The verdict as it was recorded.

        Raises:
            RefusedError: ``NOT_FOUNDED``, ``UNAUTHENTICATED`` with what to do, ``MANIFEST_REPLAYED``,
                ``PROPOSAL_HOLDS``, ``INVALID_ID`` for an agent or session that is new and named outside the alphabet,
                and what ``read_manifest`` and ``LeaseManager.request`` refuse.
        """
        # Its text is read before the log's lock is taken; what it means depends on the settings in force.
        document = manifest_document(manifest, yaml=yaml) if isinstance(manifest, str | bytes) else manifest

        def command(work: UnitOfWork) -> VerdictGiven:
            _prepare(work, by or OPERATOR)
            asked = read_manifest(
                document,
                settings=work.realm.klis.in_force,
                types=work.types,
                on_the_way=run_id is not None,
            )
            _check_new_ids(work, asked.agent_id, asked.session_id)
            _refuse_proposals(work, asked.session_id)
            _refuse_proposals(work, request_id)
            return work.desk(of_caller=True).request(
                asked,
                work.klis_now,
                channel=authenticate(work, asked, by=by, require_signature=require_signature, run_id=run_id),
                options=RequestOptions(ttl_ms=ttl_ms, queue=queue, wait_ms=wait_ms, request_id=request_id),
            )

        return self._do(command)

    def heartbeat(
        self, lease_ids: Iterable[str], *, agent_id: str, session_id: str, ttl_ms: int | None = None
    ) -> list[LeaseRenewed]:
        """Let leases live on from now, all or none; see ``LeaseManager.heartbeat``.

        Raises:
            RefusedError: ``LEASE_NOT_ACTIVE``, ``UNKNOWN_LEASE``, ``NOT_THE_HOLDER``, ``LEASE_NOT_TIMED``,
                ``INVALID_TTL``.
        """
        ids = list(lease_ids)

        def command(work: UnitOfWork) -> list[LeaseRenewed]:
            desk, holder = work.desk(of_caller=True), {"agent_id": agent_id, "session_id": session_id}
            return [desk.heartbeat(one, work.klis_now, **holder, ttl_ms=ttl_ms) for one in ids]

        return self._do(command)

    def release(self, lease_ids: Iterable[str], *, agent_id: str, session_id: str) -> dict[str, str]:
        """Give leases back, all or none, and return the state of each.

        Raises:
            RefusedError: ``UNKNOWN_LEASE``, ``NOT_THE_HOLDER``, ``PROPOSAL_HOLDS``.
        """
        ids = list(lease_ids)

        def command(work: UnitOfWork) -> dict[str, str]:
            _refuse_proposals(work, session_id)
            return work.desk(of_caller=True).release(ids, work.klis_now, agent_id=agent_id, session_id=session_id)

        return self._do(command)

    def revoke(self, lease_ids: Iterable[str], *, by: str, reason: str) -> dict[str, str]:
        """Revoke leases of any holder; an operator may revoke those of calls of tools without being an administrator.

        Raises:
            RefusedError: ``REASON_MISSING``, ``UNKNOWN_LEASE``, ``NOT_AN_ADMINISTRATOR``.
        """
        ids = list(lease_ids)

        def command(work: UnitOfWork) -> dict[str, str]:
            whole = _with_whole_proposals(work, ids)
            if not (_is_operator(work, by) and all(_is_of_call(work, one) for one in whole)):
                _check_administrator(work, by)
            return work.desk(of_caller=True).revoke(whole, work.klis_now, by=by, reason=reason)

        return self._do(command)

    def confirm_clock(self, *, by: str, reason: str) -> ClockConfirmed | None:
        """Confirm that this process's clock is right, where it or lease time is further ahead than the limit allows.

        Returns:
            What was recorded; None where there is nothing to confirm.

        Raises:
            RefusedError: ``NOT_FOUNDED``, ``REASON_MISSING``, ``NOT_AN_ADMINISTRATOR``.
        """

        def command(work: UnitOfWork) -> ClockConfirmed | None:
            _check_founded(work)
            _check_administrator(work, by)
            return confirm_clock(work, by, reason)

        command.confirms_clock = True  # type: ignore[attr-defined]  # read by world.engine.protocol
        command.any_schema = True  # type: ignore[attr-defined]
        return self._do(command)

    def withdraw(self, request_id: str, *, reason: str = "cancelled") -> bool:
        """Take a request out of the queue; False where it does not wait (any more).

        Raises:
            RefusedError: ``PROPOSAL_WAITS`` for the request of a proposal, which ends with the proposal.
        """

        def command(work: UnitOfWork) -> bool:
            if request_id in work.realm.proposals:
                raise RefusedError(
                    ErrorCode.PROPOSAL_WAITS,
                    f"Request {request_id} is a proposal's; it leaves the queue with the proposal.",
                    request_id=request_id,
                )
            return work.desk(of_caller=True).withdraw(request_id, work.klis_now, reason=reason)

        return self._do(command)

    def register_agent(self, agent_id: str, *, by: str, priority: int | None = None) -> Rank:
        """Register an agent for good; one that is known keeps its priority.

        Args:
            agent_id: the agent.
            by: whom the record names.
            priority: a timestamp in ms; None is now.

        Raises:
            RefusedError: ``INVALID_PRIORITY``, ``INVALID_ID``.
        """

        def command(work: UnitOfWork) -> Rank:
            _prepare(work, by)
            _check_new_ids(work, agent_id)
            return work.desk().register(agent_id, work.klis_now, priority=priority, by=by)

        return self._do(command)

    def register_key(self, agent_id: str, public_key: bytes, *, by: str) -> str:
        """Register an Ed25519 public key of an agent (KM-7.1); returns the key's id.

        Args:
            agent_id: whose manifests it authenticates.
            public_key: 32 bytes.
            by: whom the record names.

        Raises:
            RefusedError: ``INVALID_KEY``, ``KEY_EXISTS``, ``INVALID_ID``.
        """
        if len(public_key) != _KEY_BYTES:
            raise RefusedError(
                ErrorCode.INVALID_KEY, f"An Ed25519 public key has 32 bytes; this one has {len(public_key)}."
            )
        name = key_id(public_key)

        def command(work: UnitOfWork) -> str:
            _prepare(work, by)
            _check_new_ids(work, agent_id)
            work.desk(of_caller=True).register_key(agent_id, name, b64encode(public_key).decode(), work.klis_now, by=by)
            return name

        return self._do(command)

    def revoke_key(self, name: str, *, by: str, reason: str) -> None:
        """Revoke a key for good.

        Raises:
            RefusedError: ``UNKNOWN_KEY``, ``REASON_MISSING``.
        """
        if not reason.strip():
            raise RefusedError(ErrorCode.REASON_MISSING, "To revoke a key takes a reason; the log keeps it.")

        def command(work: UnitOfWork) -> None:
            _check_administrator(work, by)
            work.desk(of_caller=True).revoke_key(name, work.klis_now, by=by, reason=reason)

        self._do(command)

    def _do(self, command: Callable[[UnitOfWork], R]) -> R:
        result: R = self._run(command)
        return result


def authenticate(
    work: UnitOfWork, manifest: Manifest, *, by: str | None, require_signature: bool = False, run_id: str | None = None
) -> dict[str, Any]:
    """Return how a manifest is authenticated, for the record (KM-7.1).

    Args:
        work: the unit of work.
        manifest: what was handed in.
        by: the caller's identity; None where it did not name itself.
        require_signature: refuse what is not signed, whatever the settings say.
        run_id: the open run in whose name the engine asks.

    Raises:
        RefusedError: ``UNAUTHENTICATED``, with the reason and what to do.
    """
    agent = manifest.agent_id
    if run_id is not None:
        fault = run_fault(work.realm.runs, run_id, agent)
        if fault is not None:
            raise _unauthenticated(manifest, f"is not accepted for a run: {fault}")
        return {"kind": "run", "runId": run_id}
    if manifest.signature is None and not require_signature:
        why = why_signature(work.realm.klis, agent, by)
        if why is not None:
            raise _unauthenticated(manifest, f"needs a signature: {why}")
        return {"kind": "vouched", "by": by or agent}
    return {"kind": "signed", "keyId": _signed_with(work, manifest), "by": by or agent}


def _unauthenticated(manifest: Manifest, clause: str) -> RefusedError:
    agent = manifest.agent_id
    message = f"The manifest of {agent!r} {clause}."
    return RefusedError(ErrorCode.UNAUTHENTICATED, message, path="$.signature", agent_id=agent)


def _signed_with(work: UnitOfWork, manifest: Manifest) -> str:
    """Return the id of the key in force that signed a manifest, which must be recent."""
    ledger, now = work.realm.klis, work.klis_now
    in_force = [key for key in ledger.keys.values() if key.agent_id == manifest.agent_id and not key.revoked]
    signed_with = verify(manifest, [b64decode(key.public) for key in in_force])
    limit = work.realm.klis.in_force.max_signature_age_ms
    if manifest.issued_at is None or abs(now - manifest.issued_at) > limit:
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED,
            f"The manifest was signed at {manifest.issued_at}, more than {limit} ms (max_signature_age_ms) from "
            f"{now}; sign it anew.",
            path="$.issued_at",
            now=now,
        )
    if manifest.issued_at < ledger.signed_from:
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED,
            f"The manifest was signed at {manifest.issued_at}, before lease time was set to {ledger.signed_from} "
            "(clock.confirmed); sign it anew.",
            path="$.issued_at",
            now=now,
        )
    return signed_with


def _prepare(work: UnitOfWork, by: str) -> None:
    """Bring settings into force in a log from before there were any."""
    _check_founded(work)
    if work.realm.klis.settings is None:
        configure_klis(work, by)
    know_types(work, by)


def _check_new_ids(work: UnitOfWork, agent_id: str, session_id: str | None = None) -> None:
    """Refuse ids outside the alphabet, of an agent that is not recorded yet, or of a session of it."""
    klis = work.realm.klis
    if agent_id not in klis.agents and agent_id not in work.realm.actors:
        check_new_id("agent", agent_id)
    if session_id is not None and (agent_id, session_id) not in klis.sessions:
        check_new_id("session", session_id)


def _refuse_proposals(work: UnitOfWork, name: str | None) -> None:
    """Keep the sessions and requests of proposals, which are named by their ids, to the engine alone."""
    if name in work.realm.proposals:
        raise RefusedError(
            ErrorCode.PROPOSAL_HOLDS,
            f"{name} is a proposal: what it asks for and holds is the engine's, until the proposal is sealed.",
            proposal_id=name,
        )


def _check_administrator(work: UnitOfWork, by: str) -> None:
    """Let only those take something away whom the operator named (KP-4b)."""
    known = work.realm.klis.in_force.administrators.split()
    if by not in known:
        raise RefusedError(
            ErrorCode.NOT_AN_ADMINISTRATOR,
            f"{by!r} may not do this; the administrators are {', '.join(known)} ([klis] administrators).",
            by=by,
        )


def _is_operator(work: UnitOfWork, by: str) -> bool:
    return "operator" in work.realm.rights.get(by, {})


def _is_of_call(work: UnitOfWork, lease_id: str) -> bool:
    """Return whether a lease is held by the call of a tool, which its actor makes itself."""
    lease = work.realm.klis.leases.get(lease_id)
    proposal = None if lease is None else work.realm.proposals.get(lease.session.session_id)
    if proposal is None:
        return False
    offers = (one.offer for one in proposal.requested.values())
    return proposal.submitted.attended is not None or any(one is not None and one.by_actor for one in offers)


def _with_whole_proposals(work: UnitOfWork, lease_ids: list[str]) -> list[str]:
    """Return the leases with the others that the same proposals hold: a proposal has all it needs, or fails."""
    ledger = work.realm.klis
    whole = dict.fromkeys(lease_ids)
    for lease_id in lease_ids:
        lease = ledger.leases.get(lease_id)
        if lease is not None and lease.expires_at is None:
            whole |= dict.fromkeys(other.lease_id for other in ledger.named(lease.session).leases())
    return list(whole)


def _check_founded(work: UnitOfWork) -> None:
    if work.realm.founded is None:
        raise RefusedError(ErrorCode.NOT_FOUNDED, "This log has not been founded; `worldctl init` founds it.")
