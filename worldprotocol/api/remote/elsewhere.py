"""What a realm on a server does not do for its clients, and what takes its place.

docs/server.md has this table; a test compares both with the methods of ``Realm``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["ELSEWHERE", "refuses_elsewhere"]

T = TypeVar("T")

_FOUNDS: Final = "`Realm.create` or `worldctl init` on the machine of the log, then `worldctl serve`"
_OPENS: Final = "`Realm.connect`"
_ACTORS: Final = "`worldctl actor` on the machine of the log"
_PROGRAM: Final = "`worldctl adopt` and `worldctl policy` on the machine of the log: its program runs there"
_RIGHTS: Final = "`worldctl rights` and `worldctl token` on the machine of the log"
_KEYS: Final = "`worldctl keys` on the machine of the log"
_RUNS: Final = "`worldctl run` on the machine of the workspace"
_BACKUPS: Final = "`worldctl backups` on the machine of the workspace"
_READS: Final = "`data`, `sealed`, `worlds`, `proposal`, `proposals` and `events`"

ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "Realm": {
        "adopt_domain": _PROGRAM,
        "adopt_policy": _PROGRAM,
        "archive": _READS,
        "as_caller": "`Realm.connect` with the token of that caller",
        "bind": _ACTORS,
        "changes": _PROGRAM,
        "claimed_order": "the claim itself; `RemoteEffects` performs it",
        "confirm_clock": "`worldctl clock` on the machine of the log",
        "create": _FOUNDS,
        "from_config": _OPENS,
        "issue_direct": "`project` with a source event; direct intents are issued on the machine of the log",
        "log": "`events` and `subscribe`",
        "open": _OPENS,
        "open_or_create": _FOUNDS,
        "open_read_only": _OPENS,
        "open_to_adopt": _PROGRAM,
        "parts": "the program of the server",
        "realm": "`branches`, `access`, `inbox`, `actors`, `policies`, `keys` and `offered_effects`",
        "register": _ACTORS,
        "retire_policy": _PROGRAM,
        "shadow": _PROGRAM,
    },
    "Realm.access": dict.fromkeys(("create_token", "grant", "revoke", "revoke_token"), _RIGHTS),
    "Realm.actions": dict.fromkeys(
        ("actor", "computed", "place", "request", "view"), "`catalog`, `tools` and `explain`; `Realm.snapshot`"
    ),
    "Realm.host": {
        "backups": _BACKUPS,
        "premises": _RUNS,
        **dict.fromkeys(
            ("begin", "end_orphans", "look_after", "recover", "run_python", "runs", "session", "verification"), _RUNS
        ),
    },
    "Realm.leases.desk": {
        "configure": "`[klis]` in the configuration of the server",
        "confirm_clock": "`worldctl clock` on the machine of the log",
        "register_agent": "a request of the agent, which registers it",
        "register_key": _KEYS,
        "revoke_key": _KEYS,
    },
}
"""By object and name of the method or attribute: what to use."""


def refuses_elsewhere(what: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: the names of a table refuse, and name what takes their place.

    Args:
        what: the object, a key of ``ELSEWHERE``.
    """

    def decorate(kind: type[T]) -> type[T]:
        for name, instead in ELSEWHERE[what].items():
            setattr(kind, name, _refusal(inspect.getattr_static(kind, name), f"{what}.{name}", instead))
        return kind

    return decorate


def _refusal(local: Any, what: str, instead: str) -> Any:
    """Return the attribute in place of a local one: a property for a property, else a method."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RefusedError(
            ErrorCode.NOT_REMOTE, f"{what} is not offered for a realm on a server. In its place: {instead}."
        )

    refuse.__doc__ = f"Not offered for a realm on a server; in its place: {instead}."
    refuse.__name__ = what.rpartition(".")[2]
    if isinstance(local, property):
        return property(refuse)
    return classmethod(refuse) if isinstance(local, classmethod) else refuse
