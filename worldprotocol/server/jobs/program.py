"""The program of a served realm, as a process of a job loads it: its log, its configuration, and what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.config import Config

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm

__all__ = ["RealmProgram", "program_of"]


@dataclass(frozen=True, slots=True)
class RealmProgram:
    """Log and code of a realm.

    Args:
        address: the log, with a password where it needs one.
        config: the configuration; None for a realm whose program the server does not know, which can be verified only.
    """

    address: str
    config: Config | None = None

    @property
    def composed(self) -> Config:
        """The configuration.

        Raises:
            RefusedError: ``NO_CONFIG`` where it is not known.
        """
        if self.config is None:
            raise RefusedError(
                ErrorCode.NO_CONFIG,
                "The server does not know the program of this realm, so the realm can be verified only; serve it with "
                "`worldctl serve`, or give RealmToServe a program.",
            )
        return self.config

    def to_wire(self) -> dict[str, Any]:
        """Return the program as JSON, for the process of a job; it may contain a password."""
        config = self.config
        if config is None:
            return {"address": self.address, "config": None, "folder": None}
        return {
            "address": self.address,
            "config": config.model_dump(mode="json", exclude_none=True),
            "folder": str(config.folder.resolve()),
        }

    @classmethod
    def read(cls, wire: Mapping[str, Any]) -> RealmProgram:
        """Read what ``to_wire`` returned."""
        config = None
        if wire["config"] is not None:
            config = Config(**{**wire["config"], "folder": Path(wire["folder"])})
        return cls(wire["address"], config)


def program_of(realm: Realm) -> RealmProgram:
    """Return the program of a realm of which only the log is known."""
    address = realm.log.address
    store = address.path if address.url is None else address.url.render_as_string(hide_password=False)
    return RealmProgram(f"{store}#{address.name}")
