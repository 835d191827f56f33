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
execute = true                            # false: this machine performs no effects, it offers them to workers

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
guarded = ["deploy/keys.txt"]             # below the root: may be read, and is never changed, whatever is declared
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

[agents]                                  # calls of tools of coding agents; see docs/agents.md
root = "."                                # the project that they work in, as FILE:/
confine = "auto"                          # true: commands that nothing confines are refused; false: all ask a person
boundary = "container"                    # what confines them, if no command can find it; else the kernel's namespaces
reads = "content"                         # reads wait for no one; "leased": they lease files, and wait for edits
wait_s = 540                              # longest wait of a call for people and leases
unclaimed_s = 900                         # time after which an allowed call that is not begun is cancelled

[feeds.audit]                             # events for another program; see docs/feeds.md
url = "https://siem.example.com/events"
format = "ocsf"
secret = "${secret:AUDIT_HOOK}"

[realms]                                  # further realms that `worldctl serve` serves, by name
garden = "garden/world.toml"              # a configuration, or the address of a log with this configuration

[server]                                  # of `worldctl serve`; see docs/server.md
tls_certificate = "server.pem"            # certificate chain and key; required beyond this machine
tls_key = "server.key"

[server.peers]                            # by user id: the actor of a caller on the Unix socket
1000 = "ann"

[server.public]                           # by realm: what is hidden from visitors, who read it without sign-in
garden = ["inputs", "actors"]

[[server.oidc]]                           # issuers that verify actors: by JWTs, and by sign-in in browsers
issuer = "https://id.example.com"
audience = "world-protocol"               # of JWTs
client_id = "world-protocol-pages"        # of browsers
client_secret = "${secret:OIDC_CLIENT}"
"""

from __future__ import annotations

import ipaddress
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from host.workspace.hidden import HIDDEN
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.markup import load_toml
from world.model.secrets.references import has_reference
from world.model.value import refused_value
from world.sizes import MAX_CONFIG_BYTES
from worldprotocol.api.sections.feeds import FeedConfig, FeedName
from worldprotocol.api.sections.section import Section, placed

CONFIG_NAME = "world.toml"
SETTINGS_OF_AGENTS = (
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".klock",
    ".mcp.json",
)
"""Files and folders below a project, or the home folder, that decide what coding agents may do, with those of git."""


class WorkspaceConfig(Section):
    """Section ``[workspace]``."""

    root: str = "."
    unwatched: list[str] = Field(default_factory=list)
    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    guarded: list[str] = Field(default_factory=list)
    hidden: list[str] = list(HIDDEN)  # noqa: RUF012
    hard_links: Literal["refuse", "allow"] = "refuse"
    namespaces: Literal["auto", "unshare", "bubblewrap"] = "auto"
    keep_days: int = Field(default=14, ge=0)
    keep_bytes: int = Field(default=10_000_000_000, ge=0)

    def in_folder(self, folder: Path) -> WorkspaceConfig:
        """Return a copy with absolute paths; relative ones start at the given folder."""
        root = placed(folder, self.root)
        paths = {
            "root": root,
            "read": [placed(folder, name) for name in self.read],
            "write": [placed(folder, name) for name in self.write],
            "guarded": [str(Path(root) / name) for name in self.guarded],
        }
        return self.model_copy(update=paths)


class RunsWorkspace(WorkspaceConfig):
    """Folder of governed runs and backups where the configuration names no workspace; effects have none then.

    It does not become the workspace of the realm.
    """


class CheckpointConfig(Section):
    """Section ``[checkpoint]``."""

    origin: str | None = None
    key: str | None = None
    signed: str | None = None


class DigestsConfig(Section):
    """Section ``[digests]``."""

    key: str


class SecretsConfig(Section):
    """Section ``[secrets]``."""

    order: list[Literal["environment", "folder", "keyring"]] = ["environment", "folder", "keyring"]  # noqa: RUF012
    environment: list[str] = Field(default_factory=list)
    prefix: str = ""
    folder: str | None = None
    keyring: str | None = None
    key: str | None = None
    uses: dict[str, list[str]] = Field(default_factory=dict)

    def in_folder(self, folder: Path) -> SecretsConfig:
        """Return a copy with absolute paths; relative ones start at the given folder."""
        return self.placing(folder, "folder", "key")


class OidcConfig(Section):
    """Section ``[[server.oidc]]``: an issuer that verifies actors, by JWTs (``audience``), in browsers (``client_id``).

    ``name`` is part of the redirect URI. ``client_secret`` is a reference to a secret; a public client has none.
    ``logout`` offers the end of the session at the issuer, too, after sign-out.
    """

    issuer: str = Field(pattern="^https?://[^?#]+$")
    audience: str | None = Field(default=None, min_length=1)
    actor_claim: str = Field(default="sub", min_length=1)
    jwks_url: str | None = None
    jwks_file: str | None = None
    name: str = Field(default="oidc", pattern="^[a-z0-9][a-z0-9-]{0,40}$")
    client_id: str | None = Field(default=None, min_length=1)
    client_secret: str | None = None
    scopes: list[str] = ["openid"]  # noqa: RUF012
    logout: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        host = urlsplit(self.issuer).hostname
        if self.issuer.startswith("http:") and host not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError(f"the issuer {self.issuer} has no TLS; use https")
        if self.audience is None and self.client_id is None:
            raise ValueError("an issuer needs an audience (of JWTs), a client_id (of browsers), or both")
        if "openid" not in self.scopes:
            raise ValueError("the scopes of OpenID Connect contain openid")
        if self.client_secret is not None and not (self.client_id is not None and has_reference(self.client_secret)):
            raise ValueError("client_secret is a reference, such as ${secret:OIDC_CLIENT}, and belongs to a client_id")
        return self


class ServerConfig(Section):
    """Section ``[server]``: listeners, sign-in and limits of ``worldctl serve``.

    ``request_timeout_s`` and ``drain_timeout_s`` are in seconds, as is ``max_wait_s``, the longest ``?wait=``.
    ``public`` has, by realm, the redaction rules with which visitors read it without sign-in.
    ``max_body_bytes`` is the size of a request's body, ``max_unverified_bytes`` that of a caller who was not verified,
    and ``max_unread_bytes`` the size of all bodies that are arriving.
    ``requests_per_second`` and ``burst`` limit each verified subject, and each address of visitors; ``threads`` limits
    the calls of realms at once. ``public_url`` is the address that browsers use, if it is not the listener's; ``hosts``
    are further names of the server in requests. ``session_minutes`` is the time to live of a browser session.
    ``mcp_wait_s`` is the longest wait for the outcome of a call over MCP, in seconds.
    ``trusted_proxies`` are the addresses, or networks, of reverse proxies whose ``X-Forwarded-For`` and
    ``X-Forwarded-Proto`` are believed.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8437, ge=0, le=65_535)
    socket: str | None = None
    public_url: str | None = Field(default=None, pattern="^https?://[^/?#@]+$")
    hosts: list[str] = Field(default_factory=list)
    session_minutes: int = Field(default=720, ge=1, le=43_200)
    tls_certificate: str | None = None
    tls_key: str | None = None
    max_body_bytes: int = Field(default=2_097_152, ge=1)
    max_unverified_bytes: int = Field(default=65_536, ge=1)
    max_unread_bytes: int = Field(default=67_108_864, ge=1)
    requests_per_second: int = Field(default=100, ge=1)
    burst: int = Field(default=200, ge=1)
    request_timeout_s: int = Field(default=30, ge=1)
    drain_timeout_s: int = Field(default=30, ge=1)
    max_wait_s: int = Field(default=60, ge=0)
    max_waits: int = Field(default=10_000, ge=1)
    mcp_wait_s: int = Field(default=50, ge=0, le=3_600)
    threads: int = Field(default=64, ge=1)
    trusted_proxies: list[str] = Field(default_factory=list)
    peers: dict[str, str] = Field(default_factory=dict)
    public: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(default_factory=dict)
    oidc: list[OidcConfig] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [one.name for one in self.oidc if one.client_id is not None]
        issuers = [one.issuer for one in self.oidc]
        if len(set(names)) < len(names) or len(set(issuers)) < len(issuers):
            raise ValueError("each of [[server.oidc]] has an issuer of its own, and with a client_id a name of its own")
        if self.max_unread_bytes < 2 * self.max_body_bytes:
            raise ValueError(
                f"max_unread_bytes is {self.max_unread_bytes}, less than two bodies of max_body_bytes "
                f"({self.max_body_bytes}); raise it, or lower max_body_bytes"
            )
        return self

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        for one in value:
            ipaddress.ip_network(one)  # its ValueError names the text
        return value

    def in_folder(self, folder: Path) -> ServerConfig:
        """Return a copy with absolute paths; relative ones start at the given folder."""
        oidc = [one.placing(folder, "jwks_file") for one in self.oidc]
        return self.placing(folder, "socket", "tls_certificate", "tls_key").model_copy(update={"oidc": oidc})


class CommandConfig(Section):
    """Section ``[[agents.commands]]``: what a shell command changes, and the hosts that it connects to."""

    words: Annotated[list[str], Field(min_length=1)]
    writes: list[str] = ["/**"]  # noqa: RUF012
    hosts: list[str] = []  # noqa: RUF012


class AgentsConfig(Section):
    """Section ``[agents]``."""

    root: str = "."
    confine: Literal["auto"] | bool = "auto"
    boundary: Literal["container"] | None = None
    commands: list[CommandConfig] = Field(default_factory=list)
    reads: Literal["content", "leased"] = "content"
    wait_s: int = Field(default=540, ge=0, le=3_600)
    unclaimed_s: int = Field(default=900, ge=1)


class Config(Section):
    """Content of ``world.toml``; relative paths start at ``folder``."""

    log: str = "world.db"
    domain: str | None = None
    projections: list[str] = Field(default_factory=list)
    policies: list[str] = Field(default_factory=list)
    effects: list[str] = Field(default_factory=list)
    enforcement: Literal["enforcing", "trusting"] = "enforcing"
    paranoid: bool = False
    unsafe_unguarded_projections: bool = False
    durability: Literal["full", "normal"] = "full"
    execute: bool | None = None
    judge_invalid_input: bool = False
    limits: dict[str, int] = Field(default_factory=dict)
    klis: dict[str, int | bool | str] = Field(default_factory=dict)
    workspace: WorkspaceConfig | None = None
    checkpoint: CheckpointConfig | None = None
    redact: dict[str, list[str]] | None = None
    digests: DigestsConfig | None = None
    secrets: SecretsConfig | None = None
    agents: AgentsConfig | None = None
    feeds: dict[FeedName, FeedConfig] | None = None
    realms: dict[str, str] | None = None
    server: ServerConfig | None = None
    folder: Path = Field(default=Path(), exclude=True)

    def placed_workspace(self) -> WorkspaceConfig | None:
        """Return the section ``[workspace]`` with absolute paths; None if it is absent.

        With a section ``[agents]``, the settings of agents and the files of this configuration are guarded.
        """
        return None if self.workspace is None else self._guarded(self.workspace)

    def placed_workspace_of_agents(self) -> WorkspaceConfig | None:
        """Return the workspace of coding agents with absolute paths; None where ``[workspace]`` is another folder.

        Without a section ``[workspace]`` it has the settings that the section has by default.
        """
        root = "." if self.agents is None else self.agents.root
        placed_one = self._guarded(self.workspace or WorkspaceConfig(root=root))
        return placed_one if placed_one.root == placed(self.folder, root) else None

    def _guarded(self, workspace: WorkspaceConfig) -> WorkspaceConfig:
        if self.agents is None:
            return workspace.in_folder(self.folder)
        own = [*SETTINGS_OF_AGENTS, *map(str, self.own_files())]
        return workspace.model_copy(update={"guarded": [*workspace.guarded, *own]}).in_folder(self.folder)

    def own_files(self) -> list[Path]:
        """Return the files that decide what this realm permits: its configuration, its domain, policies and code."""
        named = [one.partition(":")[0] for one in (CONFIG_NAME, self.domain or "", *self.policies, *self.effects)]
        files = [(self.folder / one).resolve() for one in named if one]
        return [one for one in files if one.exists()]

    def placed_secrets(self) -> SecretsConfig | None:
        """Return the section ``[secrets]`` with absolute paths; None if it is absent."""
        return None if self.secrets is None else self.secrets.in_folder(self.folder)

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
            "execute",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "limits": self.chosen_limits(),
            "workspace": self.placed_workspace(),
            "secrets": self.placed_secrets(),
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
