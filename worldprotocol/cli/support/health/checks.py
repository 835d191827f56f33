"""The checks of ``worldctl doctor``."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

from authority import PolicyRegistry
from world.audit.database_server import RoleRights, role_rights
from world.audit.index_checks import table_faults, unreadable
from world.clock import SystemClock
from world.core.domain_rules import OWN_NAMES_RULES, RULES
from world.engine.clock_state import clock_state
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.events.policy_events import PolicyAdopted, ShadowConfigured
from world.model.record import Record
from world.read_models.clock_jumps import clock_jumps
from world.read_models.index import VIEW_NAME, VIEW_VERSION
from world.read_models.leases import Lack, lacks
from world.read_models.live.offered_effects import waits_for_workers
from world.read_models.packaged_views import PackagedViews
from world.state.realm_view import RealmView
from worldprotocol.api.config import Config
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.opening import admit_code

MIN_PYTHON: Final = (3, 11)
MIN_SQLITE: Final = (3, 35)
"""The oldest SQLite with RETURNING, which SQLAlchemy's SQLite dialect relies on."""

MIN_FREE_BYTES: Final = 256 << 20
"""Free disk space below which an operator should act, in bytes."""


MAX_FAULTS: Final = 20
"""Maximum number of faults of the tables that doctor lists one by one."""

MAX_FILE_BYTES: Final = 16 << 20  # up to which doctor has SQLite check every page of the file
MAX_TIMES: Final = 2_000  # the newest events, whose times doctor looks at

MAX_PROBLEMS: Final = 2
"""Complaints of SQLite's own check that are asked for; doctor shows the first."""


class Check(Record, frozen=True, omit_defaults=True):
    """One thing looked at.

    Args:
        name: what.
        ok: whether it is as it should be.
        facts: what was found.
        advice: what to do where it is not as it should be.
        is_damage: whether the log is damaged where it is not as it should be.
        is_lost: whether the thing is not there at all, so that nothing can be read from it.
    """

    name: str
    ok: bool
    facts: str
    advice: str = ""
    is_damage: bool = False
    is_lost: bool = False
    WIRE: ClassVar = "check=name ok found=facts advice"


def check_up(desk: CommandContext) -> tuple[list[Check], bool]:
    """Return what was found, and whether the log is damaged."""
    checks = list(_environment())
    damaged = False
    for look in (_log, _modes, _code, _workspace):
        try:
            for check in look(desk):
                checks.append(check)
                damaged |= check.is_damage
        except WorldProtocolError as error:
            damaged |= isinstance(error, DamagedLogError)
            checks.append(_failed(look.__name__.removeprefix("_"), error))
    return checks, damaged


def _failed(name: str, error: WorldProtocolError) -> Check:
    """Return the check that ended with an error; its sentence says what to do where that is not a verification."""
    advice = "run `worldctl verify`; it lists what is damaged" if isinstance(error, DamagedLogError) else ""
    return Check(name, ok=False, facts=f"{error.message} [{error.code}]", advice=advice)


def rebuild_index(desk: CommandContext) -> int:
    """Build the index anew, from the log alone, and return how many events it covers.

    Raises:
        RefusedError: what opening refuses.
        DamagedLogError: the events themselves are damaged.
    """
    from worldprotocol.api.bootstrap import rebuild_index as build

    config = desk.settings()
    with desk.progress("Building the index") as progress:
        return build(desk.address(), config.chosen_limits(), progress)


def _environment() -> Iterator[Check]:
    yield _at_least("python", sys.version_info[:3], MIN_PYTHON, f"{platform.python_version()} at {sys.executable}")
    yield _at_least("sqlite", sqlite3.sqlite_version_info, MIN_SQLITE, sqlite3.sqlite_version)


def _at_least(name: str, found: tuple[int, ...], needed: tuple[int, ...], facts: str) -> Check:
    ok = found >= needed
    return Check(name, ok, facts, "" if ok else f"{'.'.join(map(str, needed))} or newer is needed")


def _log(desk: CommandContext) -> Iterator[Check]:
    with Realm.open_read_only(desk.address()) as world:
        log = world.log
        head = log.head()
        yield Check("log", ok=True, facts=f"{log.address.scheme}, {log.address}")
        if Path(log.address.path).is_file():
            yield _disk(log.address.path)
            yield _file(world)
            yield _wal(world)
        if (role := role_rights(log)) is not None:
            yield _role(role)
            yield from _replication(desk, world)
        yield from _tables(world)
        yield _head(world)
        index = _index(world)
        yield index
        yield from _views(world)
        if index.is_lost:
            return  # what follows is read from it
        realm = world.realm()
        if realm.founded is None:
            yield Check("realm", False, "not founded", "found it with `worldctl init`")
            return
        yield Check("realm", True, f"{head.size} events, {len(realm.branches)} branches, {realm.active!r} is active")
        yield from _rules(realm)
        if role is not None:
            yield _writer(realm)
        yield _authentication(realm)
        yield from _clock(world, realm)
        yield _writable(desk, world)
        yield _unsettled(realm)


def _role(role: RoleRights) -> Check:
    """Check that the role of the database cannot change what was appended."""
    if not role.surplus:
        return Check("role", ok=True, facts=f"{role.name} appends events and cannot change them")
    advice = "open the log as world_engine of docs/deploy/postgresql-roles.sql, except to found realms and to upgrade"
    return Check("role", False, f"{role.name} has more rights than it needs: {', '.join(role.surplus)}", advice)


def _writer(realm: RealmView) -> Check:
    """Name the writer epoch, and the place of the server that may write."""
    writer = realm.writer
    facts = f"epoch {writer.epoch}"
    if writer.system is not None:
        facts += f", timeline {writer.timeline} of the database system {writer.system}"
    if writer.closed is not None:
        facts += f"; closed for {writer.closed.reason}"
    return Check("writer", ok=True, facts=facts)


def _rules(realm: RealmView) -> Iterator[Check]:
    """Name a domain that was adopted under rules by which a write of two branches can be lost."""
    rules = RULES if realm.domain is None else realm.domain.rules or 1
    if rules < OWN_NAMES_RULES:
        facts = (
            f"the domain was adopted under version {rules} of the rules: what an action writes below a name that "
            "begins with $ is in no hash, so that one of two such writes can be lost"
        )
        yield Check("rules", False, facts, "run `worldctl adopt`, without such a name in the domain's state")


def _clock(world: Realm, realm: RealmView) -> Iterator[Check]:
    """Name jumps of recorded time; something is to be done where this machine's clock and what is recorded differ."""
    limit = realm.klis.in_force.max_clock_ahead_ms
    state = clock_state(world.log, SystemClock(), limit)
    jumps = clock_jumps(world.log, limit_ms=limit, now_ms=state.now_ms, after=max(0, realm.position - MAX_TIMES))
    rendered = [one.sentence() for one in jumps[:MAX_FAULTS]]
    rendered += [f"and {len(jumps) - MAX_FAULTS} jumps more"] if len(jumps) > MAX_FAULTS else []
    if (ahead := realm.klis.clock - state.now_ms) > limit:
        rendered.insert(0, f"lease time is {ahead} ms ahead of this machine's clock")
    if state.kind != "right":
        rendered.insert(0, f"this machine's clock is {state.off_ms} ms {state.kind}")
    ok, advice = ahead <= limit and state.kind == "right", "set this machine's clock right; if it is right, run "
    facts = "; ".join(rendered) or "recorded time does not jump"
    yield Check("clock", ok, facts, "" if ok else f"{advice}`worldctl clock confirm --reason WHY`")


def _authentication(realm: RealmView) -> Check:
    """Return a warning where manifests are accepted on any caller's word (KM-7.1)."""
    settings = realm.klis.settings
    chosen = None if settings is None else settings.authentication
    if chosen not in (None, "open"):
        return Check("authentication", ok=True, facts=f"{chosen}, {len(realm.klis.signers)} agents with keys")
    facts = "open: " if chosen else "not recorded, so open: "
    advice = 'set authentication = "channel" or "signed" under [klis] in world.toml and run `worldctl klis configure`'
    return Check("authentication", False, f"{facts}any caller is granted leases in any agent's name", advice)


def _wal(world: Realm) -> Check:
    """Name a SQLite with the WAL-reset fault, which the writers of this version keep from having an effect."""
    version = sqlite3.sqlite_version
    if not world.log.has_wal_reset_fault:
        return Check("wal", ok=True, facts=f"SQLite {version} has not the WAL-reset fault")
    facts = f"SQLite {version} has the WAL-reset fault; a checkpoint is made while no other connection writes"
    return Check("wal", True, f"{facts} (other programs that write the file need SQLite 3.51.3)")


def _file(world: Realm) -> Check:
    """Check a small file by SQLite; ``verify`` checks every file, and lists the faults."""
    size = Path(world.log.address.path).stat().st_size
    if size > MAX_FILE_BYTES:
        return Check("file", ok=True, facts=f"{size >> 20} MiB; `worldctl verify` checks its pages")
    problems = world.log.audit_storage(MAX_PROBLEMS)
    if not problems:
        return Check("file", ok=True, facts="SQLite finds every page and index whole")
    facts = " ".join(problems[0].split()) + (" (and more)" if len(problems) > 1 else "")
    return Check("file", False, facts, "run `worldctl verify`, and restore the log from a copy", is_damage=True)


def _tables(world: Realm) -> Iterator[Check]:
    """Compare the tables with those that this program makes; each thing that differs has its own advice."""
    faults = table_faults(world.log)
    if not faults:
        yield Check("tables", ok=True, facts="as this program makes them")
    for one in faults[:MAX_FAULTS]:
        yield Check("tables", False, one.message, one.advice, is_damage=not one.is_mendable)
    if len(faults) > MAX_FAULTS:
        yield Check("tables", False, f"{len(faults) - MAX_FAULTS} things more differ", "`worldctl verify` lists them")


def _head(world: Realm) -> Check:
    """Compare the stored head with the tree, and read the newest event; ``verify`` does it for all."""
    log = world.log
    head = log.head()
    if head.size:
        try:
            log.root_at(head.size)
        except DamagedLogError as damage:
            advice = "run `worldctl verify`; where only parts of the tree differ, `worldctl doctor --rebuild` mends it"
            return Check("head", False, f"{damage.message} [{damage.code}]", advice, is_damage=True)
        for _ in world.events(head.size - 1):
            pass
    return Check("head", ok=True, facts=str(head))


def _index(world: Realm) -> Check:
    state = world.log.view_state(VIEW_NAME)
    advice = "run `worldctl doctor --rebuild`"
    if state is None and world.log.derives_views:
        return Check("index", ok=True, facts="made by each process that needs it")
    if state is None:
        return Check("index", False, "there is none", advice)
    ok = state.version == VIEW_VERSION and state.live
    if ok:
        lost = unreadable(world.log)
        if lost is not None:
            return Check("index", False, f"it cannot be read: {lost}", advice, is_lost=True)
        try:
            world.archive.check_complete()
        except DamagedLogError as damage:
            return Check("index", False, damage.message, advice, is_damage=True, is_lost=True)
    return Check("index", ok, f"version {state.version}, {'live' if state.live else 'behind'}", "" if ok else advice)


def _views(world: Realm) -> Iterator[Check]:
    """Check that each view that a package offers covers all events."""
    for name, state, is_whole in PackagedViews.installed().behind(world.log):
        at = "there is none" if state is None else f"version {state.version}, up to event {state.position}"
        advice = "" if is_whole else "run `worldctl doctor --rebuild`; it reports what keeps the view back"
        yield Check(f"view {name}", is_whole, at, advice)


def _unsettled(realm: RealmView) -> Check:
    doubtful = sum(1 for one in realm.proposals.values() if one.in_doubt)
    external = sum(1 for one in realm.proposals.values() if waits_for_workers(one))
    counts = Counter(
        one.status
        for one in realm.proposals.values()
        if (one.requested or not one.in_doubt) and not waits_for_workers(one)
    )
    due = {status: counts[status] for status in ("submitted", "approved", "executing") if counts[status]}
    lacking, now = lacks(realm), SystemClock().now_ms()
    overdue = sum(1 for one in lacking if _is_due(realm, one, now))
    waiting = f"{counts['evaluating'] - len(lacking)} wait for people" + _lacking(lacking, overdue)
    waiting += f", {external} for workers" if external else ""
    if not due and not overdue and not doubtful:
        return Check("unsettled", ok=True, facts=f"nothing; {waiting}")
    words = [f"{count} {status}" for status, count in due.items()]
    words += [f"{doubtful} with effects in doubt"] if doubtful else []
    advice = ["if no process works on them, run `worldctl settle`"] if due or overdue else []
    if doubtful:
        advice.append("`worldctl stuck` lists the effects in doubt; say what became of each with `worldctl resolve`")
    return Check("unsettled", False, f"{', '.join(words) or 'nothing under way'}; {waiting}", "; ".join(advice))


def _lacking(lacking: list[Lack], overdue: int) -> str:
    """Return the proposals that wait for leases as the end of a sentence; empty without any."""
    if not lacking:
        return ""
    queued = sum(1 for one in lacking if one.wait is not None)
    ways = {f"{queued} in the queue": queued, f"{len(lacking) - queued} to be tried again": len(lacking) - queued}
    rendered = ", ".join(words for words, count in ways.items() if count)
    return f", {len(lacking)} for leases ({rendered}{f'; {overdue} overdue' if overdue else ''})"


def _is_due(realm: RealmView, lack: Lack, now: int) -> bool:
    """Return whether a proposal is overdue at ``now`` (ms): its time has come, or a lease has ended."""
    if lack.wait is None:
        return lack.retry_at <= now
    leases = realm.klis.leases
    held = [leases[one.lease_id].expires_at for one in lack.wait.conflicts if one.lease_id is not None]
    return any(at is not None and at < now for at in held)


def _disk(path: str) -> Check:
    free = shutil.disk_usage(Path(path).resolve().parent).free
    ok = free >= MIN_FREE_BYTES
    return Check("disk", ok, f"{free >> 20} MiB free", "" if ok else "make room; a full disk refuses new events")


def _modes(desk: CommandContext) -> Iterator[Check]:
    from worldprotocol.cli.support.health.file_modes import mode_checks

    return mode_checks(desk)


def _replication(desk: CommandContext, world: Realm) -> Iterator[Check]:
    from worldprotocol.cli.support.health.replication import replication_checks

    return replication_checks(world, desk.settings().durability)


def _writable(desk: CommandContext, world: Realm) -> Check:
    from worldprotocol.cli.support.health.writable import writable_check

    return writable_check(world, desk.settings().chosen_limits())


def _workspace(desk: CommandContext) -> Iterator[Check]:
    from worldprotocol.cli.support.health.workspace import workspace_checks

    return workspace_checks(desk)


def _code(desk: CommandContext) -> Iterator[Check]:
    config = desk.settings()
    if config.domain is None:
        yield Check("domain", False, "no configuration names one", "go to the realm's folder, or name --config")
        return
    admit_code(desk, config)
    with Realm.open_read_only(desk.address()) as world:
        realm = world.realm()
    yield _domain(config, realm)
    yield from _policies(config, realm)


def _domain(config: Config, realm: Any) -> Check:
    from worldprotocol.api.bootstrap import load_any_domain
    from worldprotocol.api.code_fingerprints import changed_versions, is_whole

    loaded = load_any_domain(str(config.domain), base=config.folder, oldest_rules=1)
    adopted = realm.domain
    domain = None if adopted is None else loaded.in_form(adopted.schema_hash, adopted.rules)
    if domain is None:
        in_force = "none" if adopted is None else adopted.schema_hash[:12]
        facts = f"schema {loaded.schema.hash[:12]} available, {in_force} in force"
        return Check("domain", False, facts, "use the adopted domain, or adopt this one with `worldctl adopt`")
    changed = domain.changed(adopted.sources)
    if changed:
        facts = f"code has changed since it was adopted: {', '.join(changed)}"
        return Check(
            "domain", False, facts, "if it means the same, `worldctl adopt` records it; else raise its version"
        )
    facts = f"schema {domain.schema.hash[:12]}, as adopted"
    if not is_whole(adopted):
        facts += "; of its code only each function's own source was recorded (`worldctl adopt` records all of it)"
    other = changed_versions(adopted, domain)
    named = [f"{name} {version}" for name, version in sorted(domain.distributions().items())]
    if other or named:
        facts += f"; not compared: {', '.join([*other, *(one for one in named if not _is_among(one, other))])}"
    return Check("domain", ok=True, facts=facts)


def _is_among(named: str, other: tuple[str, ...]) -> bool:
    return any(one.startswith(f"{named} (") for one in other)


def _policies(config: Config, realm: Any) -> Iterator[Check]:
    registry = PolicyRegistry.installed()
    for reference in config.policies:
        registry.load(reference, base=config.folder)
    for adopted in realm.policies.values():
        yield _policy(adopted, registry)
    if realm.shadow is not None:
        yield _shadow(realm.shadow, registry)


def _policy(event: PolicyAdopted, registry: PolicyRegistry) -> Check:
    name, adopted = event.name, event.policy_hash
    try:
        rendered = str(registry.describe(name, event.policy)["hash"])
    except RefusedError as refused:
        return Check("policy", False, f"{name}: {refused.message}", "name it in world.toml; until then it refuses")
    if rendered != adopted:
        facts = f"{name} has changed since it was adopted ({adopted[:12]}, now {rendered[:12]})"
        return Check("policy", False, facts, f"run `worldctl policy adopt {name}`")
    return Check("policy", ok=True, facts=f"{name} {adopted[:12]}, as adopted")


def _shadow(event: ShadowConfigured, registry: PolicyRegistry) -> Check:
    name, configured = str(event.name), str(event.policy_hash)
    try:
        rendered = str(registry.describe(name, event.policy)["hash"])
    except RefusedError as refused:
        advice = "name it in world.toml, or run `worldctl policy shadow off`; until then it is not asked"
        return Check("shadow", False, f"{name}: {refused.message}", advice)
    if rendered == configured:
        return Check("shadow", ok=True, facts=f"{name} {rendered[:12]}, for the record only")
    facts = f"{name} has changed since it was turned on ({configured[:12]}, now {rendered[:12]})"
    return Check("shadow", False, facts, f"run `worldctl policy shadow on {name}`")
