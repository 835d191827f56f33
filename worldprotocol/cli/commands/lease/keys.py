"""``worldctl keys``: the keys that agents sign their manifests with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.result_files import write_key


@click.group("keys", cls=Group)
def keys() -> None:
    """Make, register, revoke and list the keys of agents (Ed25519)."""


@keys.command("new")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@with_desk
def new(desk: CommandContext, file: Path) -> None:
    """Make a key pair: the private key goes into a new FILE that only you can read, the public key is printed."""
    from base64 import b64encode

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from world.klis.identity.signature import key_id

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    write_key(file, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    rendered = {"keyId": key_id(public), "publicKey": b64encode(public).decode(), "file": str(file)}
    words = f"key {rendered['keyId']}; `worldctl keys register AGENT {rendered['publicKey']}` registers it."
    desk.out.tell(rendered, rendered["publicKey"], words)


@keys.command("register")
@click.argument("agent", metavar="AGENT")
@click.argument("key", metavar="KEY|PEM")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def register(desk: CommandContext, agent: str, key: str, by: str) -> None:
    """Register a public key of an agent: base64 of its 32 bytes, or a PEM file."""
    from worldprotocol.cli.commands.lease.klis import public_key

    with desk.open() as world:
        name = world.leases.desk.register_key(agent, public_key(key), by=by)
    desk.out.tell({"keyId": name, "agentId": agent}, f"Key {name} signs for {agent} from now on.")


@keys.command("revoke")
@click.argument("key", metavar="KEY_ID")
@click.option("--reason", required=True, help="Why; the log keeps it.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def revoke(desk: CommandContext, key: str, reason: str, by: str) -> None:
    """Revoke a key for good; what it signed before stays as it is."""
    with desk.open() as world:
        world.leases.desk.revoke_key(key, by=by, reason=reason)
    desk.out.tell({"keyId": key, "revoked": True}, f"Key {key} is revoked.")


@keys.command("list")
@at_option("Those that were known at this point in the past, and which of them were revoked by then.")
@with_desk
def list_keys(desk: CommandContext, at: str | None) -> None:
    """List the public keys of agents, revoked ones too."""
    with desk.look() as world:
        known = list(moment(world, at).ledger().keys.values())
    rendered: list[dict[str, Any]] = [
        {"keyId": one.key_id, "agentId": one.agent_id, "publicKey": one.public, "revoked": one.revoked} for one in known
    ]
    rows = ((one["keyId"], one["agentId"], one["publicKey"], "revoked" if one["revoked"] else "") for one in rendered)
    tell_table(desk, rendered, ("key", "agent", "public key", ""), rows, empty="No key is registered.")
