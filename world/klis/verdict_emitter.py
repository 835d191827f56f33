"""Emitter of verdicts: decides a request, runs the hooks, emits the event.

The decision itself is made by ``world.klis.kernel``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.events.resource_values import GrantedLease, ResourceExistence
from world.klis.identity.agent_commands import AgentCommands
from world.klis.kernel import arbitrate
from world.klis.ledger import Ledger
from world.klis.manifest import Manifest
from world.klis.session import Session
from world.klis.triple import Triple

__all__ = ["BeforeGrant", "Existing", "RequestContext", "VerdictEmitter"]

BeforeGrant = Callable[[str, Session, tuple[Triple, ...], int], bool | str]
"""Called with verdict id, session, triples and time before a grant; returns whether it made a backup (KO-7).

A text is the id of the workspace that holds the backup.
"""

Existing = Callable[[Session, tuple[Triple, ...]], list[ResourceExistence]]
"""Called with session and triples before a grant; returns observations of resources that must exist."""


class RequestContext(Struct, frozen=True, kw_only=True):
    """A request and its options, for the record.

    Args:
        request_id: id of the request.
        cause: ``request`` for a new one, ``queue`` for one in the queue, ``wake`` for one that died.
        ttl: time to live of the leases in ms; None for leases that end with a proposal.
        manifest: the manifest of a new request.
        channel: how the manifest was authenticated.
        queue: whether the request stays in the queue if the verdict is Wait.
        deadline: end of its time in the queue, ms since 1970; None is unlimited.
    """

    request_id: str
    cause: str
    ttl: int | None
    manifest: Manifest | None = None
    channel: Mapping[str, Any] | None = None
    queue: bool = False
    deadline: int | None = None


class VerdictEmitter(AgentCommands):
    """Emits verdicts on requests of one ledger; ``world.klis.lease_manager`` has the commands that need them."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        emit: Callable[[Event], None],
        new_id: Callable[[], str],
        before_grant: BeforeGrant | None = None,
        existing: Existing | None = None,
        now: Callable[[], int] | None = None,
        check: Callable[[str], bool] | None = None,
    ) -> None:
        """Create the commands of a ledger.

        Args:
            ledger: the ledger; ``emit`` folds into it.
            emit: records an event and folds it into the ledger.
            new_id: makes a new id.
            before_grant: called with the verdict's id, the session, the triples and the time before a grant; returns
                whether it made a backup (``BeforeGrant``), and raises where a required backup failed (KO-7).
            existing: called with the session and the triples before a grant; returns observations of resources that
                must exist, and raises where one is absent.
            now: returns the time, ms since 1970, after a backup, from which the leases start; None where backups
                take no time.
            check: called before each request is judged again; returns whether one that died may be, or is left for
                the next pass. An exception discards all changes.
        """
        super().__init__(ledger, emit)
        self._check = check
        self._new_id = new_id
        self._before_grant = before_grant
        self._existing = existing
        self._now = now

    def _give(self, session: Session, triples: tuple[Triple, ...], now: int, context: RequestContext) -> VerdictGiven:
        """Decide a request and emit the verdict.

        Args:
            session: the requesting session.
            triples: the requested triples.
            now: ms since 1970.
            context: the request.

        Raises:
            RefusedError: the errors of the hooks.
        """
        verdict = arbitrate(self._ledger, session, triples, now, queued=context.cause == "queue")
        leases = []
        verdict_id = self._new_id()
        backup: bool | str = False
        existence: list[ResourceExistence] = []
        if verdict.status == "Granted":
            if self._existing is not None:
                existence = self._existing(session, triples)
            if self._before_grant is not None:
                backup = self._before_grant(verdict_id, session, triples, now)
                now = max(now, self._now()) if backup and self._now is not None else now
            token = self._ledger.last_token
            for triple in triples:
                token += 1
                leases.append(
                    GrantedLease(
                        lease_id=self._new_id(),
                        token=token,
                        predicate=triple.predicate.value,
                        resource=triple.resource.text,
                    )
                )
        stays = context.queue and verdict.status == "Wait"
        is_left = verdict.status != "Granted" and context.cause == "request" and context.ttl is None
        is_kept = stays or (is_left and self.settings.wake_rules >= 2)
        event = VerdictGiven(
            at=now,
            verdict_id=verdict_id,
            request_id=context.request_id,
            agent_id=session.agent_id,
            session_id=session.session_id,
            status=verdict.status,
            cause=context.cause,
            manifest=None if context.manifest is None else dict(context.manifest.document),
            channel=None if context.channel is None else dict(context.channel),
            ttl_ms=context.ttl,
            leases=leases,
            backup=bool(backup),
            conflicts=[conflict.named() for conflict in verdict.conflicts],
            more_conflicts=verdict.more_conflicts,
            retry_after_ms=verdict.retry_after_ms,
            queued=stays,
            wanted=[triple.claim() for triple in triples] if is_kept else [],
            deadline=context.deadline if stays else None,
            existence=existence,
            workspace=backup if isinstance(backup, str) else None,
        )
        self._emit(event)
        return event
