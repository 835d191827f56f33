"""Rollback of a run's leased changes, without undoing later work of other sessions (KO-3.3).

Later work is known from the log: every verdict granted there since. The caller keeps other sessions out
meanwhile by holding leases there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from host.backups import CHANGES
from host.environment import HostEnvironment
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource
from world.klis.triple import Triple, read_claim
from world.read_models.archive import Archive
from world.read_models.decoding import decoded

__all__ = ["Told", "give_back", "granted_since"]

Told = dict[str, list[str]]


def granted_since(archive: Archive, position: int, *, but: Iterable[str]) -> list[Triple]:
    """Return what was granted for change after an event of the log.

    Args:
        archive: of the log.
        position: the event.
        but: verdicts to ignore.
    """
    own = frozenset(but)
    found: list[Triple] = []
    for logged in archive.log.read(position, topics=[VerdictGiven.TOPIC]):
        event = decoded(logged)
        if isinstance(event, VerdictGiven) and event.verdict_id not in own:
            found += [triple for triple in map(read_claim, event.leases) if triple.predicate in CHANGES]
    return found


def give_back(
    premises: HostEnvironment, archive: Archive, verdict_id: str, *, own: Iterable[str], fresh: bool = False
) -> Told:
    """Restore the backup of one verdict, except later changes of other sessions, which are listed under ``failed``.

    Args:
        premises: the workspace.
        archive: of the log.
        verdict_id: id of the backup.
        own: the verdicts of the same run.
        fresh: also replace unchanged files by new inodes, because a process may still have them open.
    """
    try:
        info = premises.backups.get(verdict_id)
        ((position, *_),) = archive.rows("verdict", {"of_verdict": verdict_id}) or [(0,)]
        later = granted_since(archive, int(position), but=own)
        places = [canonical_resource(text, names=premises.workspace.names) for text in info.resources]
        free = [place for place in places if not any(_meet(place, other) for other in later)]
        taken = [place.text for place in places if place not in free]
        rendered: Mapping[str, Iterable[str]] = {}
        if free:
            rendered = premises.restore(verdict_id, only=free if taken else None, fresh=fresh)
    except (RefusedError, OSError) as error:
        return {"failed": [str(error)]}
    given: Told = {name: list(names) for name, names in rendered.items()}
    given["failed"] = [
        *given.get("failed", ()),
        *(f"{text}: it was granted to another session since, so it was left as it is" for text in taken),
    ]
    return given


def _meet(place: Resource, other: Triple) -> bool:
    resource = other.resource
    return place.overlaps(resource) or (other.covers and resource.key in place.ancestors)
