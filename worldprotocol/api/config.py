"""The operator's composition of a realm: ``world.toml``, read strictly.

This is all that can stand in it::

log = "world.db"                          # a file, or a SQLAlchemy URL with an optional #name
domain = "shop.domain:shop"               # package.module:attribute, file.py:attribute, or a YAML/JSON file
projections = ["shop.projections:orders"]
policies = ["shop.rules:policy"]
effects = ["shop.effects:handlers"]
enforcement = "enforcing"                 # or "trusting"
paranoid = false                          # ask every projection twice under guard, not once
unsafe_unguarded_projections = false      # true: ask projections without any guard
durability = "full"                       # or "normal"

[limits]
max_intent_bytes = 1048576

[klis]                                    # see world.klis.settings
default_ttl_ms = 60000
authentication = "channel"                # or "signed", or "open": what shows that a manifest is its agent's

[workspace]                               # effects and governed runs touch it; without it nothing is watched
root = "."                                # the folder that agents see as FILE:/
unwatched = ["node_modules", ".venv"]     # below the root: whose content is not compared
read = ["~/.gitconfig"]                   # outside: what may be read without being declared
write = []                                # outside: where everything is allowed, such as a shared cache
hard_links = "refuse"                     # or "allow": files with further names outside of what is backed up
namespaces = "auto"                       # what makes those of commands: "unshare", "bubblewrap", or whichever works
keep_days = 14                            # how long backups of ended runs are kept
keep_bytes = 10000000000                  # and how much of them

[checkpoint]                              # signed tree heads, for those who check this log from outside
origin = "example.com/shop"               # the name of the log in them; unless given, made of the log's own id
key = "checkpoint.key"                    # what signs them, from `worldctl checkpoint keygen`
signed = "checkpoint.key.signed"          # where it is noted what was signed; unless given, beside the key

[redact]                                  # what --redact role=NAME hides from whom
guest = ["inputs", "actors"]

[secrets]                                 # what ${secret:NAME} stands for in effects; read when an effect is performed
order = ["environment", "folder", "keyring"]  # the first source that has a secret decides
environment = ["API_TOKEN"]               # environment variables that are secrets under their own names
prefix = "WORLD_SECRET_"                  # secret NAME is the environment variable WORLD_SECRET_NAME
folder = "/run/secrets"                   # secret NAME is the file NAME; only its owner may read it
keyring = "shop"                          # service name in the system's keyring (extra keyring)
key = "world.db.secrets-key"              # key of the digests in the log; unless given, beside the log

[secrets.uses]                            # with which resources alone a secret may be used; others may be used with all
API_TOKEN = ["URL:https://api.example.com/*"]

[digests]                                 # of resources, in what lease list, waits and explain --redact show
key = "digests.key"                       # 32 bytes as 64 hex digits; without it each output has a key of its own
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.markup import load_toml
from world.model.value import refused_value
from world.sizes import MAX_CONFIG_BYTES

CONFIG_NAME = "world.toml"


class WorkspaceConfig(BaseModel):
    """What stands under ``[workspace]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    root: str = "."
    unwatched: list[str] = Field(default_factory=list)
    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    hard_links: Literal["refuse", "allow"] = "refuse"
    namespaces: Literal["auto", "unshare", "bubblewrap"] = "auto"
    keep_days: int = Field(default=14, ge=0)
    keep_bytes: int = Field(default=10_000_000_000, ge=0)

    def in_folder(self, folder: Path) -> WorkspaceConfig:
        """Return the same with absolute paths; relative ones start at the configuration's folder."""

        def placed(name: str) -> str:
            return str((folder / Path(name).expanduser()).resolve())

        places = {"root": placed(self.root), "read": [*map(placed, self.read)], "write": [*map(placed, self.write)]}
        return self.model_copy(update=places)


class CheckpointConfig(BaseModel):
    """What stands under ``[checkpoint]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    origin: str | None = None
    key: str | None = None
    signed: str | None = None


class DigestsConfig(BaseModel):
    """What stands under ``[digests]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: str


class SecretsConfig(BaseModel):
    """What stands under ``[secrets]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    order: list[Literal["environment", "folder", "keyring"]] = ["environment", "folder", "keyring"]
    environment: list[str] = Field(default_factory=list)
    prefix: str = ""
    folder: str | None = None
    keyring: str | None = None
    key: str | None = None
    uses: dict[str, list[str]] = Field(default_factory=dict)

    def in_folder(self, folder: Path) -> SecretsConfig:
        """Return the same with absolute paths; relative ones start at the configuration's folder."""

        def placed(name: str | None) -> str | None:
            return None if name is None else str((folder / Path(name).expanduser()).resolve())

        return self.model_copy(update={"folder": placed(self.folder), "key": placed(self.key)})


class Config(BaseModel):
    """What stands in ``world.toml``; relative paths start at ``folder``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    log: str = "world.db"
    domain: str | None = None
    projections: list[str] = Field(default_factory=list)
    policies: list[str] = Field(default_factory=list)
    effects: list[str] = Field(default_factory=list)
    enforcement: Literal["enforcing", "trusting"] = "enforcing"
    paranoid: bool = False
    unsafe_unguarded_projections: bool = False
    durability: Literal["full", "normal"] = "full"
    limits: dict[str, int] = Field(default_factory=dict)
    klis: dict[str, int | bool | str] = Field(default_factory=dict)
    workspace: WorkspaceConfig | None = None
    checkpoint: CheckpointConfig | None = None
    redact: dict[str, list[str]] | None = None
    digests: DigestsConfig | None = None
    secrets: SecretsConfig | None = None
    folder: Path = Field(default=Path(), exclude=True)

    def placed_workspace(self) -> WorkspaceConfig | None:
        """Return what is said of the workspace, with absolute paths; None where nothing is said."""
        return None if self.workspace is None else self.workspace.in_folder(self.folder)

    @property
    def log_address(self) -> str:
        """The log's address; a relative file starts at the folder of the configuration."""
        if "://" in self.log or Path(self.log).is_absolute():
            return self.log
        return str(self.folder / self.log)

    def parts(self) -> dict[str, Any]:
        """Return what ``Realm.create``, ``Realm.open`` and ``Realm.open_to_adopt`` want to know beside the address.

        Raises:
            RefusedError: ``INVALID_CONFIG`` when no domain is named, or a limit is wrong.
        """
        if self.domain is None:
            raise RefusedError(
                "INVALID_CONFIG", f'{self.folder / CONFIG_NAME} names no domain: add domain = "..." to it.'
            )
        names = (
            "domain",
            "folder",
            "projections",
            "policies",
            "effects",
            "enforcement",
            "paranoid",
            "unsafe_unguarded_projections",
            "durability",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "limits": self.chosen_limits(),
            "workspace": self.placed_workspace(),
            "secrets": None if self.secrets is None else self.secrets.in_folder(self.folder),
        }

    def chosen_limits(self) -> Limits:
        """Return the limits with the configured ones in place.

        Raises:
            RefusedError: ``INVALID_CONFIG`` for a limit that does not exist or is below 1.
        """
        known = {field.name for field in fields(Limits)} - {"klis"}
        for name, value in self.limits.items():
            if name not in known or value < 1:
                raise RefusedError(
                    "INVALID_CONFIG",
                    f"[limits] {name} = {value}: the limits are {', '.join(sorted(known))}, each at least 1.",
                )
        return Limits(**self.limits, klis=KlisSettings.read(self.klis))


def read_config(path: Path) -> Config:
    """Read a ``world.toml``.

    Raises:
        RefusedError: ``NO_CONFIG`` when there is no such file, ``INVALID_CONFIG`` when it is not as it should be.
    """
    try:
        size = path.stat().st_size
        if size > MAX_CONFIG_BYTES:
            message = f"{path} has {size} bytes; the limit is {MAX_CONFIG_BYTES} (MAX_CONFIG_BYTES)."
            raise RefusedError("INVALID_CONFIG", message)
        told = load_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RefusedError(
            "NO_CONFIG", f"There is no {path}; `worldctl init` makes one, or name another with --config."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError("INVALID_CONFIG", f"{path} cannot be read: {error}.") from None
    except RefusedError as fault:
        if fault.code == "INVALID_CONFIG":
            raise
        raise RefusedError("INVALID_CONFIG", f"{path} cannot be read: {fault.message}", **fault.details) from None
    try:
        return Config(**{**told, "folder": path.parent})
    except ValidationError as error:
        refused = refused_value(error, what=str(path))
        raise RefusedError("INVALID_CONFIG", refused.message, **refused.details) from None
