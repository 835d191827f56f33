"""``RealmDirectory``: the Python API of a directory of realms.

with RealmDirectory.found("realms.db", by="ann") as directory:
    directory.create("shop", "shop.db", domain="shop.yaml").close()
    with directory.realm("shop", domain="shop.yaml") as realm:
        directory.move("shop", "postgresql:///realms#shop", by="ann")
        realm.act("ann", "order.place", {"item": "tea"})  # at its new place
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import LogFinding, TreeHead, open_log
from world.log.audit import verify_tree
from world.model.short_repr import short_repr
from world.read_models.archive import Archive
from world.state.writer_epoch import closed_log
from worldprotocol.api.administration import OPERATOR
from worldprotocol.api.consumers import consumer_name
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.realm_names import check_realm_name
from worldprotocol.directory.archiving import archive_realm, restore_realm
from worldprotocol.directory.directory_log import DirectoryLog, recorded_address
from worldprotocol.directory.events import RealmEvent, RealmListed, Work
from worldprotocol.directory.listing import ANSWER_S, ListedRealm, look_at
from worldprotocol.directory.moving import MoveReport, OnStep, abandon, move_realm
from worldprotocol.directory.placed_realm import PlacedRealm
from worldprotocol.directory.state import RealmEntry, archived
from worldprotocol.directory.writers import is_open_somewhere, open_where_placed
from worldprotocol.export.jsonl_lines import Progress

if TYPE_CHECKING:
    from world.clock import Clock
    from world.core import Domain
    from worldprotocol.api.options import EngineOptions, FoundingOptions

__all__ = ["RealmDirectory", "open_placed"]

R = TypeVar("R")


def open_placed(
    address: str | Path, name: str, *, domain: Domain | str | Path, **options: Unpack[EngineOptions]
) -> PlacedRealm:
    """Open a realm for acting where a directory says it is; the realm closes the directory.

    Args:
        address: of the directory.
        name: of the realm.
        domain: as for ``RealmDirectory.realm``.
        **options: as for ``RealmDirectory.realm``.

    Raises:
        RefusedError: as ``RealmDirectory.open`` and ``RealmDirectory.realm``.
    """
    directory = RealmDirectory.open(address)
    try:
        return directory.realm(name, domain=domain, **options).closing(directory.log)
    except BaseException:
        directory.close()
        raise


def _no_progress(done: int, total: int) -> None:
    """Show nothing."""


class RealmDirectory:
    """An open directory of realms; safe to use from many threads.

    Args:
        log: the log of the directory, which the object owns and closes.
    """

    def __init__(self, log: DirectoryLog) -> None:
        """Take over an open directory; ``open`` and ``found`` are the ways in."""
        self._directory = log

    @classmethod
    def open(cls, address: str | Path, *, read_only: bool = False, clock: Clock | None = None) -> Self:
        """Open a directory.

        Args:
            address: of its log: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            read_only: change no byte.
            clock: source of recorded times; None is the system's clock.

        Raises:
            RefusedError: ``NOT_A_DIRECTORY``, ``LOG_NOT_FOUND``, ``NOT_A_LOG`` and others.
        """
        return cls(DirectoryLog.open(str(address), read_only=read_only, clock=clock))

    @classmethod
    def found(cls, address: str | Path, *, by: str = OPERATOR, clock: Clock | None = None) -> Self:
        """Open a directory, and create it first where it does not exist.

        Args:
            address: of its log, without a password.
            by: actor id that the directory records.
            clock: source of recorded times; None is the system's clock.

        Raises:
            RefusedError: as ``open``; ``INVALID_ADDRESS`` for an address with a password.
        """
        return cls(DirectoryLog.found(str(address), by=by, clock=clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return short_repr(self, str(self._directory.log.address))

    def close(self) -> None:
        """Close the directory; realms that were opened by it stay where they are."""
        self._directory.close()

    @property
    def log(self) -> DirectoryLog:
        """The log of the directory."""
        return self._directory

    def entry(self, name: str) -> RealmEntry:
        """Return where a realm is; raises ``RefusedError`` ``UNKNOWN_REALM``."""
        return self._directory.state().entry(name)

    def entries(self) -> list[RealmEntry]:
        """Return where the realms are, in order of name."""
        return [entry for _, entry in sorted(self._directory.state().realms.items())]

    def listed(self, *, answer_s: float = ANSWER_S) -> list[ListedRealm]:
        """Return the realms with what their places hold; one that does not answer is listed with its error.

        Args:
            answer_s: time in which the places have to answer, in seconds.
        """
        return look_at(self.entries(), answer_s)

    def history(self, name: str) -> list[tuple[int, RealmEvent]]:
        """Return the directory's events of a realm with their positions, oldest first.

        Raises:
            RefusedError: ``UNKNOWN_REALM``.
        """
        return self._directory.history(name)

    def verify(self, against: Sequence[TreeHead] = ()) -> list[LogFinding]:
        """Check every event, hash and tree head of the directory's log; an empty list means that it is sound.

        Args:
            against: tree heads of the directory that were saved elsewhere.
        """
        findings = verify_tree(self._directory.log, against)
        if not findings:
            try:
                self._directory.state()
            except DamagedLogError as damage:
                findings.append(LogFinding(ErrorCode(damage.code), damage.details.get("position", 0), damage.message))
        return findings

    def add(self, name: str, place: str | Path, *, by: str = OPERATOR) -> RealmEntry:
        """List a realm that exists.

        Args:
            name: 1 to 63 lower-case letters, digits and ``. _ -``.
            place: address of its log, without a password.
            by: actor id that the directory records.

        Raises:
            RefusedError: ``INVALID_NAME``, ``INVALID_ADDRESS``; ``REALM_LISTED`` where the name is taken, or the realm
                has another name; ``LOG_FENCED`` where its log was closed to writers; ``NOT_FOUNDED`` and others of
                opening the log.
        """
        check_realm_name(name)
        address = recorded_address(str(place))
        self._directory.check_place(address)
        with open_log(address, read_only=True) as log:
            log_id = consumer_name(log).rpartition("/")[2]
            closed = Archive(log).realm().writer.closed
        if closed is not None:
            raise closed_log(closed)
        with self._directory.change() as change:
            for known in change.state.realms.values():
                if known.name == name or known.log_id == log_id:
                    if (known.name, known.log_id, known.place) == (name, log_id, address):
                        return known
                    raise RefusedError(
                        ErrorCode.REALM_LISTED,
                        f"The directory lists {known.name!r} at {known.place}"
                        + (
                            f"; {address} holds the same realm." if known.log_id == log_id else "; choose another name."
                        ),
                        realm=known.name,
                        place=known.place,
                    )
            change.append(RealmListed(at=change.at, by=by, name=name, place=address, log_id=log_id))
            return change.state.entry(name)

    def create(
        self, name: str, at: str | Path, *, domain: Domain | str | Path, **options: Unpack[FoundingOptions]
    ) -> PlacedRealm:
        """Found a realm, list it, and open it.

        Args:
            name: as for ``add``.
            at: address of its log, without a password.
            domain: as for ``Realm.create``.
            **options: as for ``Realm.create``.

        Raises:
            RefusedError: as ``add`` and ``Realm.create``.
        """
        by = options.get("by", OPERATOR)
        self.check_unlisted(name, at)
        Realm.create(recorded_address(str(at)), domain=domain, **options).close()
        self.add(name, at, by=by)
        opening: Any = {key: value for key, value in options.items() if key not in ("data", "by", "development")}
        return self.realm(name, domain=domain, **opening)

    def check_unlisted(self, name: str, place: str | Path) -> None:
        """Refuse a name that is taken, and an address that the directory would not record.

        Raises:
            RefusedError: ``INVALID_NAME``, ``INVALID_ADDRESS``, ``REALM_LISTED``.
        """
        self._directory.check_place(recorded_address(str(place)))
        known = self._directory.state().realms.get(check_realm_name(name))
        if known is not None:
            raise RefusedError(
                ErrorCode.REALM_LISTED,
                f"The directory lists a realm {name!r} at {known.place}; choose another name.",
                realm=name,
                place=known.place,
            )

    def realm(self, name: str, *, domain: Domain | str | Path, **options: Unpack[EngineOptions]) -> PlacedRealm:
        """Open a realm for acting where it is; after a move its next command runs at the new place.

        Args:
            name: of the realm.
            domain: the domain in force.
            **options: as for ``Realm.open``.

        Raises:
            RefusedError: ``UNKNOWN_REALM``; ``LOG_FENCED`` where it is archived; as ``Realm.open``.
        """
        return PlacedRealm(self._directory, name, domain, options)

    def open_by(self, name: str, open_at: Callable[[str], R]) -> R:
        """Open a realm by a function where it is now.

        Args:
            name: of the realm.
            open_at: opens the realm at an address for acting, as ``Realm.open`` does.

        Raises:
            RefusedError: ``UNKNOWN_REALM``; ``REALM_ARCHIVED``; ``LOG_FENCED`` where a move does not end; as
                ``open_at``.
        """
        self.place(name)
        return open_where_placed(self._directory, name, open_at)[1]

    def open_after_move(self, name: str, open_at: Callable[[str], R]) -> R | None:
        """Open a realm, whose log was closed to writers, where it is now; None while it is open at no place.

        Args:
            name: of the realm.
            open_at: as for ``open_by``.

        Raises:
            RefusedError: ``UNKNOWN_REALM``; ``LOG_FENCED`` where this directory does not know why the log was closed;
                as ``open_at``.
        """
        if not is_open_somewhere(self._directory, name, 0.0):
            return None
        return open_where_placed(self._directory, name, open_at)[1]

    def place(self, name: str) -> str:
        """Return the address at which a realm is.

        Raises:
            RefusedError: ``UNKNOWN_REALM``; ``REALM_ARCHIVED``.
        """
        entry = self.entry(name)
        if entry.archive is not None:
            raise archived(entry)
        return entry.place

    def read_only(self, name: str) -> Realm:
        """Open a realm for reading where it is; no byte of the log changes.

        Raises:
            RefusedError: ``UNKNOWN_REALM``, ``REALM_ARCHIVED``, and as ``Realm.open_read_only``.
        """
        return Realm.open_read_only(self.place(name))

    def move(
        self,
        name: str,
        to: str | Path,
        *,
        by: str = OPERATOR,
        progress: Progress = _no_progress,
        on_step: OnStep = lambda step: None,
    ) -> MoveReport:
        """Move a realm to another database, or continue a move; see ``worldprotocol.directory.moving.move_realm``."""
        return move_realm(self._directory, name, str(to), by=by, progress=progress, on_step=on_step)

    def abandon(self, name: str, work: Work, *, by: str = OPERATOR) -> RealmEntry:
        """Give up what is under way with a realm; see ``worldprotocol.directory.moving.abandon``."""
        return abandon(self._directory, name, work, by=by)

    def archive(
        self, name: str, folder: str | Path, *, by: str = OPERATOR, progress: Progress = _no_progress
    ) -> TreeHead:
        """Close a realm and write it into a folder; see ``worldprotocol.directory.archiving.archive_realm``."""
        return archive_realm(self._directory, name, folder, by=by, progress=progress)

    def restore(self, name: str, at: str | Path, *, by: str = OPERATOR, progress: Progress = _no_progress) -> TreeHead:
        """Import an archived realm at a place; see ``worldprotocol.directory.archiving.restore_realm``."""
        return restore_realm(self._directory, name, str(at), by=by, progress=progress)
