"""``world.toml``: the operator's configuration of a realm, read strictly.

All of its keys::

log = "world.db"                          # a file, or a SQLAlchemy URL with an optional #name
domain = "shop.domain:shop"               # package.module:attribute, file.py:attribute, or a YAML/JSON file
projections = ["shop.projections:orders"]
policies = ["shop.rules:policy"]
effects = ["shop.effects:handlers"]
enforcement = "enforcing"                 # or "trusting"
paranoid = false                          # true: call every projection twice under guard, not once
unsafe_unguarded_projections = false      # true: call projections without any guard
durability = "full"                       # or "normal"

[limits]
max_intent_bytes = 1048576

[klis]                                    # see world.klis.settings
default_ttl_ms = 60000
authentication = "channel"                # or "signed", or "open": how the agent of a manifest is authenticated

[workspace]                               # folder of effects and governed runs; without it nothing is observed
root = "."                                # the folder that agents see as FILE:/
unwatched = ["node_modules", ".venv"]     # below the root: folders that are not compared
read = ["~/.gitconfig"]                   # outside the root: may be read without a declaration
write = []                                # outside the root: everything is allowed, such as a shared cache
hard_links = "refuse"                     # or "allow": files with further names outside of the backed-up files
namespaces = "auto"                       # tool that creates namespaces of commands: "unshare", "bubblewrap" or either
keep_days = 14                            # days for which backups of ended runs are kept
keep_bytes = 10000000000                  # bytes of backups that are kept

[checkpoint]                              # signed tree heads, for external verification of this log
origin = "example.com/shop"               # name of the log in them; default: made of the log's own id
key = "checkpoint.key"                    # signing key, from `worldctl checkpoint keygen`
signed = "checkpoint.key.signed"          # file that records the signed checkpoints; default: beside the key

[redact]                                  # by role: what --redact role=NAME hides
guest = ["inputs", "actors"]

[secrets]                                 # values of ${secret:NAME} in effects; read when an effect is performed
order = ["environment", "folder", "keyring"]  # the first source that has a secret is used
environment = ["API_TOKEN"]               # environment variables that are secrets under their own names
prefix = "WORLD_SECRET_"                  # secret NAME is the environment variable WORLD_SECRET_NAME
folder = "/run/secrets"                   # secret NAME is the file NAME; only its owner may read it
keyring = "shop"                          # service name in the system's keyring (extra keyring)
key = "world.db.secrets-key"              # key of the digests in the log; default: beside the log

[secrets.uses]                            # resources with which a secret may be used; unlisted secrets: all
API_TOKEN = ["URL:https://api.example.com/*"]

[digests]                                 # of resources, in the output of lease list, waits and explain --redact
key = "digests.key"                       # 32 bytes as 64 hex digits; default: a new key for each output
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.markup import load_toml
from world.model.value import refused_value
from world.sizes import MAX_CONFIG_BYTES

CONFIG_NAME = "world.toml"


class WorkspaceConfig(BaseModel):
    """Section ``[workspace]``."""

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
        """Return a copy with absolute paths; relative ones start at the given folder."""

        def absolute(name: str) -> str:
            return str((folder / Path(name).expanduser()).resolve())

        paths = {
            "root": absolute(self.root),
            "read": [*map(absolute, self.read)],
            "write": [*map(absolute, self.write)],
        }
        return self.model_copy(update=paths)


class CheckpointConfig(BaseModel):
    """Section ``[checkpoint]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    origin: str | None = None
    key: str | None = None
    signed: str | None = None


class DigestsConfig(BaseModel):
    """Section ``[digests]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: str


class SecretsConfig(BaseModel):
    """Section ``[secrets]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    order: list[Literal["environment", "folder", "keyring"]] = ["environment", "folder", "keyring"]
    environment: list[str] = Field(default_factory=list)
    prefix: str = ""
    folder: str | None = None
    keyring: str | None = None
    key: str | None = None
    uses: dict[str, list[str]] = Field(default_factory=dict)

    def in_folder(self, folder: Path) -> SecretsConfig:
        """Return a copy with absolute paths; relative ones start at the given folder."""

        def absolute(name: str | None) -> str | None:
            return None if name is None else str((folder / Path(name).expanduser()).resolve())

        return self.model_copy(update={"folder": absolute(self.folder), "key": absolute(self.key)})


class Config(BaseModel):
    """Content of ``world.toml``; relative paths start at ``folder``."""

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
    judge_invalid_input: bool = False
    limits: dict[str, int] = Field(default_factory=dict)
    klis: dict[str, int | bool | str] = Field(default_factory=dict)
    workspace: WorkspaceConfig | None = None
    checkpoint: CheckpointConfig | None = None
    redact: dict[str, list[str]] | None = None
    digests: DigestsConfig | None = None
    secrets: SecretsConfig | None = None
    folder: Path = Field(default=Path(), exclude=True)

    def placed_workspace(self) -> WorkspaceConfig | None:
        """Return the section ``[workspace]`` with absolute paths; None if it is absent."""
        return None if self.workspace is None else self.workspace.in_folder(self.folder)

    @property
    def log_address(self) -> str:
        """The log's address; a relative file starts at the folder of the configuration."""
        if "://" in self.log or Path(self.log).is_absolute():
            return self.log
        return str(self.folder / self.log)

    def parts(self) -> dict[str, Any]:
        """Return keyword arguments for ``Realm.create`` and ``Realm.open``.

        Raises:
            RefusedError: ``INVALID_CONFIG`` if ``domain`` is absent or a limit is invalid.
        """
        if self.domain is None:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f'{self.folder / CONFIG_NAME} names no domain: add domain = "..." to it.'
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
        """Return the limits, with the configured values in place of the defaults.

        Raises:
            RefusedError: ``INVALID_CONFIG`` for a limit that does not exist or is below 1.
        """
        known = {field.name for field in fields(Limits)} - {"klis", "judge_invalid_input"}
        for name, value in self.limits.items():
            if name not in known or value < 1:
                raise RefusedError(
                    ErrorCode.INVALID_CONFIG,
                    f"[limits] {name} = {value} is invalid: the limits are {', '.join(sorted(known))}, "
                    "each at least 1.",
                )
        chosen = Limits(judge_invalid_input=self.judge_invalid_input, klis=KlisSettings.read(self.klis))
        return replace(chosen, **self.limits)  # type: ignore[arg-type]  # each is a bound


def read_config(path: Path) -> Config:
    """Read a ``world.toml``.

    Raises:
        RefusedError: ``NO_CONFIG`` if the file does not exist, ``INVALID_CONFIG`` if its content is invalid.
    """
    try:
        size = path.stat().st_size
        if size > MAX_CONFIG_BYTES:
            message = f"{path} has {size} bytes; the limit is {MAX_CONFIG_BYTES} (MAX_CONFIG_BYTES)."
            raise RefusedError(ErrorCode.INVALID_CONFIG, message)
        content = load_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RefusedError(
            ErrorCode.NO_CONFIG,
            f"{path} does not exist; create it with `worldctl init`, or name another file with --config.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"{path} cannot be read: {error}.") from None
    except RefusedError as fault:
        if fault.code == "INVALID_CONFIG":
            raise
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"{path} cannot be read: {fault.message}", **fault.details
        ) from None
    try:
        return Config(**{**content, "folder": path.parent})
    except ValidationError as error:
        refused = refused_value(error, what=str(path))
        raise RefusedError(ErrorCode.INVALID_CONFIG, refused.message, **refused.details) from None
