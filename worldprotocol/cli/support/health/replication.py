"""The checks of ``worldctl doctor`` of the servers that store a log: their roles, timelines and positions."""

from __future__ import annotations

from collections.abc import Iterator

from world.audit.database_server import DatabaseHost, Replication, replication
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.health.checks import Check

__all__ = ["replication_checks"]


def replication_checks(world: Realm, durability: str) -> Iterator[Check]:
    """Check whether commits wait for standbys, and each host where the address names several.

    Args:
        world: open for reading.
        durability: of the realm's writers, ``full`` or ``normal``.

    Raises:
        WorldProtocolError: ``LOG_UNAVAILABLE``.
    """
    found = replication(world.log, waits=durability == "full")
    if found is None:
        return
    yield _replication(found)
    if len(found.hosts) > 1:
        for one in found.hosts:
            yield _host(one, found)


def _replication(found: Replication) -> Check:
    used, name = found.used, "replication"
    if not used.is_primary:
        advice = "promote the standby with the newest position (docs/production.md, Failover)"
        return Check(name, False, f"no primary answers; {used.name} is a standby", advice)
    if found.kind == "single":
        return Check(name, ok=True, facts="a single server without standbys")
    standbys = _standbys(used)
    if found.kind == "asynchronous":
        if found.is_accepted:
            facts = f"asynchronous, as the address accepts: a failover may lose commits; {standbys}"
            return Check(name, ok=True, facts=facts)
        advice = (
            'set synchronous_standby_names, and durability = "full"; or accept it with standbys=asynchronous in the '
            "address"
        )
        return Check(name, False, f"asynchronous: the log is not opened for writing; {standbys}", advice)
    facts = f"synchronous, {' '.join(used.synchronous_names.split())}; {standbys}"
    if found.connected is not None and found.connected < found.needed:
        missing = f"every commit waits: it needs {found.needed} of these standbys, {found.connected} are connected"
        return Check(name, False, f"{facts}; {missing}", "start the standbys, or correct their application_name")
    return Check(name, ok=True, facts=facts)


def _standbys(host: DatabaseHost) -> str:
    if not host.standbys:
        return "no standby is connected"
    each = [
        f"{one.name} ({one.sync_state or 'state'}, {_behind(one.lag)})"
        if one.lag is not None
        else f"{one.name} ({one.sync_state or 'state hidden; grant pg_monitor'})"
        for one in host.standbys
    ]
    return f"standbys {', '.join(each)}"


def _host(host: DatabaseHost, found: Replication) -> Check:
    name = f"host {host.name}"
    if host.error is not None:
        return Check(name, False, host.error, "start it, or take it out of the address")
    at = f"{host.role}, timeline {host.timeline}, at {_position(host.position)}"
    if host.is_primary:
        if host == found.used:
            return Check(name, ok=True, facts=at)
        advice = "stop it and make it a standby: it was primary before a failover, and writers refuse it"
        return Check(name, False, f"{at}, beside {found.used.name}", advice)
    facts = f"{at}, {_behind(found.used.position - host.position)}"
    if not host.sees_all:
        facts += " (its timeline may be newer: the role lacks pg_monitor)"
    elif host.timeline != found.used.timeline:
        return Check(name, False, facts, f"it does not follow {found.used.name}; correct its primary_conninfo")
    return Check(name, ok=True, facts=facts)


def _behind(count: int) -> str:
    return "0 bytes behind" if count <= 0 else f"{count} bytes behind"


def _position(position: int) -> str:
    """Return a position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:08X}"
