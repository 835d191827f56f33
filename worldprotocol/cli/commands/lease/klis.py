"""``worldctl klis``: manifests by hand, and the settings of leases of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.input_reading import inputs, is_yaml, read_file

if TYPE_CHECKING:
    from world.errors import RefusedError
    from world.klis.manifest import Manifest
    from world.klis.settings import KlisSettings

_YAML = click.option(
    "--yaml", is_flag=True, help="Read YAML, also where the file's name or its first character says JSON."
)


@click.group("klis", cls=Group)
def klis() -> None:
    """Check and sign intent manifests; bring the settings of [klis] into force."""


@klis.command("schema")
@with_desk
def schema(desk: CommandContext) -> None:
    """Print the JSON Schema of an intent manifest, with the limits of [klis] in world.toml where there is one."""
    from world.klis.manifest import manifest_schema

    desk.out.document(manifest_schema(_settings(desk)))


@klis.command("validate")
@click.argument("source", metavar="[FILE|-]", default="-")
@_YAML
@with_desk
def validate(desk: CommandContext, source: str, yaml: bool) -> int:
    """Read a manifest and print ACCEPT with what would be leased, or why it is refused (exit code 1).

    The limits are those of [klis] in world.toml where there is one. The sender is not checked here; see
    `worldctl klis verify`.
    """
    from world.errors import RefusedError

    content = read_file(source)
    try:
        manifest = _manifest(desk, content, source, yaml)
    except RefusedError as refused:
        return _rejected(desk, refused)
    triples = [triple.to_wire() for triple in manifest.triples]
    if desk.json:
        effective = {text: predicate.value for text, predicate in manifest.effective().items()}
        desk.out.document({"accept": {"effective": effective, "triples": triples}})
        return 0
    desk.out.text("ACCEPT")
    desk.out.table(("predicate", "resource", "confidence"), [tuple(triple.values()) for triple in triples])
    return 0


@klis.command("sign")
@click.argument("source", metavar="[FILE|-]", default="-")
@click.option("--key", required=True, metavar="PEM", help="File with the agent's Ed25519 private key.")
@_YAML
@with_desk
def sign(desk: CommandContext, source: str, key: str, yaml: bool) -> None:
    """Print a manifest with its signature; issued_at and nonce are added where they are missing."""
    from world.clock import SystemClock, SystemIds
    from world.klis.identity.signature import sign as signed
    from world.model.immutable_json import thaw

    document = thaw(_manifest(desk, read_file(source), source, yaml).document)
    document.setdefault("issued_at", SystemClock().now_ms())
    document.setdefault("nonce", SystemIds().new_id())
    desk.out.document(signed(document, read_file(key)))


@klis.command("verify")
@click.argument("source", metavar="[FILE|-]", default="-")
@click.option(
    "--public",
    "keys",
    required=True,
    multiple=True,
    metavar="KEY|PEM",
    help="Public key that may have signed it: base64 of its 32 bytes, or a PEM file. Repeatable.",
)
@_YAML
@with_desk
def verify(desk: CommandContext, source: str, keys: tuple[str, ...], yaml: bool) -> int:
    """Check that a manifest was signed with a key and not altered (exit code 0; 1 with the reason otherwise).

    Whether it is fresh and used for the first time depends on a ledger, and is not checked.
    """
    from world.errors import RefusedError
    from world.klis.identity.signature import verify as verified

    known = [public_key(key) for key in keys]
    content = read_file(source)
    try:
        manifest = _manifest(desk, content, source, yaml)
        key_id = verified(manifest, known)
    except RefusedError as refused:
        return _rejected(desk, refused)
    rendered = {"verified": True, "agentId": manifest.agent_id, "sessionId": manifest.session_id, "keyId": key_id}
    desk.out.tell(rendered, f"The manifest of {manifest.agent_id} is signed with the key {key_id}.")
    return 0


@klis.command("configure")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def configure(desk: CommandContext, by: str) -> None:
    """Bring the settings under [klis] of world.toml into force for the log; they are recorded there.

    Differences in names of files that the workspace's file system ignores are ignored too (lower_case, normal_form).
    """
    from worldprotocol.cli.support.opening import open_with_workspace

    with open_with_workspace(desk) as world:
        changed = world.leases.desk.configure(by=by)
        settings = world.realm().klis.settings
    rendered = {"changed": changed, "settings": None if settings is None else settings.to_wire()}
    desk.out.tell(rendered, "They are in force from now on." if changed else "They are in force already.")


def _manifest(desk: CommandContext, content: bytes, source: str, yaml: bool) -> Manifest:
    """Read a manifest under the limits that ``world.toml`` sets."""
    from world.klis.manifest import read_manifest
    from world.klis.resources.resource_types import ResourceTypes

    as_yaml = yaml or is_yaml(content, source)
    return read_manifest(content, settings=_settings(desk), types=ResourceTypes.installed(), yaml=as_yaml)


def _settings(desk: CommandContext) -> KlisSettings:
    """Return the limits that ``world.toml`` sets, or the defaults; raises ``INVALID_CONFIG``."""
    from world.klis.settings import KlisSettings

    return KlisSettings.read(desk.settings().klis)


def _rejected(desk: CommandContext, refused: RefusedError) -> int:
    """Print why a manifest is refused, with the place and the canonical form where there is one."""
    rendered: dict[str, Any] = {"reject": refused.code, "message": refused.message}
    rendered |= {name: refused.details[name] for name in ("path", "canonical") if name in refused.details}
    desk.out.tell(rendered, f"REJECT {refused.code}: {refused.message}")
    return 1


def public_key(rendered: str) -> bytes:
    """Return the 32 bytes of a public key that is given as base64 or as a PEM file; raises ``INVALID_KEY``."""
    from base64 import b64decode

    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    from world.errors import RefusedError

    try:
        if inputs().is_file(rendered):
            found = load_pem_public_key(read_file(rendered))
            raw = found.public_bytes_raw() if isinstance(found, Ed25519PublicKey) else b""
        else:
            raw = b64decode(rendered, validate=True)
    except (ValueError, OSError, UnsupportedAlgorithm):
        raw = b""
    if len(raw) != 32:
        message = f"{rendered!r:.100} is no Ed25519 public key: give base64 of its 32 bytes, or a PEM file."
        raise RefusedError(ErrorCode.INVALID_KEY, message)
    return raw
