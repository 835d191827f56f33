"""Event consumers: programs that process every event of a realm exactly once, on the library's ``ProjectionRunner``.

A consumer is a ``Projection`` of the ``eventsourcing`` library, and its view a tracking recorder of the library, on
SQLite, PostgreSQL or another database. The view stores what the consumer makes of an event and the event's position in
one transaction. So a consumer that is stopped or killed continues with the first event that it has not stored. What a
consumer does outside of that transaction, such as sending a request, may be done again after a crash; the position is
the key by which the receiver recognizes it.

``run_consumer`` opens the log read-only: a consumer can neither change a realm nor hold its lock.

``RecordedEvents`` is also the application whose repository returns proposals: with ``project_proposal`` as its
projector, ``repository.get`` folds the events of a proposal's stream, as the engine does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

from eventsourcing.application import Application
from eventsourcing.persistence import Mapper, StoredEvent, TrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.utils import EnvType

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.log import EventLog, LoggedEvent, LogNotification, open_log
from world.read_models.decoding import decoded, log_id_of
from world.state.proposal import Proposal, fold_proposal

V = TypeVar("V", bound=TrackingRecorder)

_SETTINGS: Final = {
    "PERSISTENCE_MODULE": "world.log.persistence",
    "MAPPER_TOPIC": "worldprotocol.api.consumers:EventMapper",
    "WORLD_LOG_READ_ONLY": "yes",
}


class EventMapper(Mapper[str]):
    """Mapper from the events of a log to the engine's typed events, of the newest version of their schema."""

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """Return the typed event.

        Args:
            stored_event: an event that a log selected.

        Raises:
            DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash disagree.
        """
        found = cast("LogNotification", stored_event)
        return decoded(
            LoggedEvent(
                found.id,
                str(found.originator_id),
                found.originator_version,
                found.topic,
                found.schema_version,
                found.state,
                found.leaf,
            )
        )


@dataclass(slots=True)
class ProposalAggregate(Proposal):
    """A proposal as an aggregate of the library: its domain events are those of its stream in the log.

    Args:
        version: number of events that it is folded from.
    """

    version: int = 0

    @property
    def id(self) -> str:
        """Id of the aggregate, which is that of the proposal and the name of its stream."""
        return self.proposal_id


def project_proposal(proposal: ProposalAggregate | None, events: Iterable[Any]) -> ProposalAggregate | None:
    """Fold typed events of a proposal's stream: the projector for the library's ``Repository.get``.

    Args:
        proposal: what the earlier events of the stream were folded to, which is changed; None is nothing.
        events: the events that follow, as ``EventMapper`` returns them.

    Returns:
        The proposal; None, which the repository raises as ``AggregateNotFoundError``, for a stream of another kind and
        for one without events.

    Raises:
        DamagedLogError: when an event cannot follow those before it.
    """
    for event in events:
        if proposal is not None:
            fold_proposal(proposal, event)
        elif isinstance(event, ProposalSubmitted):
            proposal = ProposalAggregate(event)
        else:
            return None
        proposal.version += 1
    return proposal


class RecordedEvents(Application[str]):
    """The events of one realm, as the application that a ``ProjectionRunner`` subscribes to.

    Attributes:
        name: ``world-protocol/`` and the id of the log, which tracking records name. A copy of the log in another
            database has the same name.
    """

    env: ClassVar[dict[str, str]] = dict(_SETTINGS)

    def __init__(self, env: EnvType | None = None) -> None:
        """Open the log whose address is ``WORLD_LOG``; see ``run_consumer``."""
        super().__init__(env)
        self.name = consumer_name(cast("EventLog", self.recorder))


def run_consumer(
    address: str | Path,
    consumer: type[Projection[V]],
    view: type[V],
    environment: Mapping[str, str],
) -> ProjectionRunner[RecordedEvents, V]:
    """Process the events of a realm that a consumer has not processed yet, and wait for new ones.

    Args:
        address: of the realm's log.
        consumer: its ``process_event`` is called with each typed event and its ``Tracking`` (whose
            ``notification_id`` is the position) in the order of the log; its ``topics`` select events.
        view: what stores results and positions; a subclass of one of the library's tracking recorders.
        environment: settings of the view's database by the library's names, such as ``PERSISTENCE_MODULE``.

    Returns:
        The running runner, to be used as a context manager: ``run_forever`` waits for an error, ``wait`` for a
        position; leaving the block stops it and raises the error of a consumer that failed.

    Raises:
        RefusedError: ``LOG_NOT_FOUND`` and others of ``open_log``, ``NOT_FOUNDED``; ``CONSUMER_AHEAD`` when the view
            has processed more events than the log has.

    Source: docs/developer.md, "Event consumers".
    """
    with open_log(str(address), read_only=True) as log:
        name, size = consumer_name(log), log.head().size
    prefix = RecordedEvents.__name__.upper()
    settings = {f"{prefix}_{key}": value for key, value in {**_SETTINGS, "WORLD_LOG": str(address)}.items()}
    runner = ProjectionRunner(
        application_class=RecordedEvents,
        projection_class=consumer,
        view_class=view,
        env={**environment, **settings},
    )
    processed = runner.view.max_tracking_id(name) or 0
    if processed > max(size, cast("EventLog", runner.app.recorder).head().size):
        with runner:
            runner.stop()
        raise RefusedError(
            ErrorCode.CONSUMER_AHEAD,
            f"The consumer {consumer.name} has processed {processed} events of this log, which has {size}: the log was "
            "restored from an older copy. Restore the consumer's database from a copy of that time, or begin with an "
            "empty one.",
            consumer=consumer.name,
            processed=processed,
            events=size,
        )
    return runner


def consumer_name(log: EventLog) -> str:
    """Return the name under which consumers store their positions: ``world-protocol/`` and the id of the log.

    Raises:
        RefusedError: ``NOT_FOUNDED``.
        DamagedLogError: the first event is no event of a realm.
    """
    log_id = log_id_of(log) if log.head().size else None
    if log_id is None:
        raise RefusedError(ErrorCode.NOT_FOUNDED, "This log has not been founded; `worldctl init` founds it.")
    return f"world-protocol/{log_id}"
